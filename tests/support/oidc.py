"""An OpenID Connect provider on a port of its own: it signs one person in at once, and misbehaves as it is told."""

import asyncio
import hashlib
import json
import secrets
import ssl
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote_plus, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from controller.cluster.webhooks.certificates import new_authority, new_serving
from tests.support.hang import HANG_S

Json = dict[str, Any]


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


KEY = new_key()
"""Making one takes a while: the first is shared."""


@dataclass
class OidcServer:
    """``claims`` lie over those of a proper ID token, ``documents`` over the answers by path; ``sign`` makes the token.
    ``asked``: paths, in order.
    """

    folder: Path
    client_id: str = "tessera"
    secret: str | None = "a secret: of &%"
    claims: Json = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    algorithm: str = "RS256"
    kid: str = "first"
    key: Any = KEY
    signs_by: Any = None
    """Another key than the one that is published."""
    refuses: str | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list)
    port: int = 0
    _codes: dict[str, Json] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def secret_file(self) -> Path:
        return self.folder / "secret"

    def settings(self, redirect_url: str) -> Json:
        """Of ``tessera.page.oidc``."""
        secret = {"clientSecretFile": str(self.secret_file)} if self.secret is not None else {}
        return {
            "issuerURL": self.issuer,
            "clientID": self.client_id,
            "redirectURL": redirect_url,
            "caFile": str(self.ca_file),
            "usernamePrefix": "oidc:",
            "groupsClaim": "groups",
            "groupsPrefix": "oidc:",
            "displayName": "Company login",
            **secret,
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if self.hangs:
            await asyncio.Event().wait()
        if request.path in self.documents:
            return web.Response(body=self.documents[request.path], content_type="application/json")
        match request.path:
            case "/.well-known/openid-configuration":
                ways = ("authorization_endpoint", "token_endpoint", "jwks_uri")
                paths = dict(zip(ways, ("authorize", "token", "keys"), strict=True))
                return web.json_response(
                    {"issuer": self.issuer, **{way: f"{self.issuer}/{path}" for way, path in paths.items()}}
                )
            case "/keys":
                public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
                odd = [{"kty": "odd"}, {"kty": "RSA", "kid": "broken"}, 7]
                return web.json_response({"keys": [*odd, {**public, "kid": self.kid, "use": "sig"}]})
            case "/authorize":
                return self._authorized(request)
            case "/token":
                return await self._token(request)
        return web.Response(status=404)

    def _authorized(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == self.client_id
        assert "openid" in asked["scope"].split()
        answer = {"state": asked["state"]}
        if self.refuses is not None:
            answer["error"] = self.refuses
        else:
            answer["code"] = secrets.token_urlsafe(8)
            self._codes[answer["code"]] = asked
        return web.Response(status=302, headers={"Location": f"{asked['redirect_uri']}?{urlencode(answer)}"})

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        begun = self._codes.pop(str(form.get("code")), None)
        digest = urlsafe_b64encode(hashlib.sha256(str(form.get("code_verifier")).encode()).digest())
        if (
            begun is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != begun["redirect_uri"]
            or begun.get("code_challenge_method") != "S256"
            or digest.rstrip(b"=").decode() != begun["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        if not self._is_client(request, dict(form)):
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response({"id_token": self.token(begun["nonce"]), "token_type": "Bearer", "access_token": "x"})

    def _is_client(self, request: web.Request, form: Json) -> bool:
        if self.secret is None:
            return bool(form.get("client_id") == self.client_id)
        sent = b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        name, _, secret = sent.partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (self.client_id, self.secret)

    def token(self, nonce: str) -> str:
        now_s = int(time.time())
        proper = {"iss": self.issuer, "aud": self.client_id, "sub": "1", "iat": now_s, "exp": now_s + 300}
        claims = {**proper, "nonce": nonce, "sub": "alice", "groups": ["people"], **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.signs_by or self.key, algorithm=self.algorithm, headers={"kid": self.kid})


@asynccontextmanager
async def provided(folder: Path) -> AsyncIterator[OidcServer]:
    """``folder`` gets the file of its authority, and the client's secret."""
    server = OidcServer(folder)
    authority = new_authority(time.time())
    serving = new_serving(authority, ["127.0.0.1"], time.time())
    server.ca_file.write_bytes(authority.certificate)
    server.secret_file.write_text(f"{server.secret}\n")
    (folder / "tls.pem").write_bytes(serving.certificate + serving.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "tls.pem")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    server.port = int(runner.addresses[0][1])
    try:
        yield server
    finally:
        await runner.cleanup()


@contextmanager
def provided_apart() -> Iterator[OidcServer]:
    """The same on a thread of its own, for tests without a loop."""
    loop = asyncio.new_event_loop()
    ready, done, found = threading.Event(), asyncio.Event(), list[OidcServer]()

    async def serve(folder: Path) -> None:
        async with provided(folder) as server:
            found.append(server)
            ready.set()
            await done.wait()

    with TemporaryDirectory() as folder:
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(Path(folder)),), daemon=True)
        thread.start()
        assert ready.wait(HANG_S)
        try:
            yield found[0]
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join(HANG_S)
            loop.close()
