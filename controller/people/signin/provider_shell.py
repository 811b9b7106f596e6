"""The provider's documents are fetched when a user signs in, and kept for minutes; codes are exchanged for tokens."""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt

from controller.cluster.config.pagesettings import OidcProvider
from controller.people.page.session import SigningIn
from controller.people.signin.provider import (
    WELL_KNOWN,
    Endpoints,
    ProviderError,
    UnknownKeyError,
    answer,
    authorization,
    endpoints,
    exchange,
    keys,
    verified,
)
from controller.people.signin.tokenclaims import check, user
from controller.people.visibility.identity import User
from controller.people.visibility.limits import Recent
from kube.client import describe
from kube.clock import Clock
from kube.prometheus import FileError, authorities_in, read_most

log = logging.getLogger(__name__)

KEPT_S: Final = 600.0
"""The time for which the discovery document and the keys are kept."""
ANEW_S: Final = 10.0
"""The least time between two fetches of the keys because of an ID token with an unknown key."""
_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 512 * 1024
_MOST_SECRET: Final = 4_096
_OK: Final = 200


class Provider:
    """The client of a provider. Each document is fetched once at a time, for all who wait for it. Methods raise
    ProviderError.
    """

    def __init__(self, settings: OidcProvider, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._turn = asyncio.Lock()
        self._endpoints: Recent[str, Endpoints] = Recent(most=1, life_s=KEPT_S)
        self._keys: Recent[str, tuple[jwt.PyJWK, ...]] = Recent(most=1, life_s=KEPT_S)
        self._fetched_s = float("-inf")

    async def leads_to(self, begun: SigningIn) -> str:
        """The URL at the provider to which the browser is sent."""
        return authorization(await self._found(), self.settings, begun)

    async def user(self, code: str, begun: SigningIn) -> User:
        """The user that the provider signed in. Raises ProviderError and TokenClaimsError."""
        discovered = await self._found()
        secret = await asyncio.to_thread(self._secret)
        form, headers = exchange(discovered, self.settings, secret, code, begun.verifier)
        status, raw = await self._fetch("POST", discovered.token_endpoint, headers=headers, data=form)
        token = answer(raw, status)
        try:
            claims = await self._verified(token, await self._known(discovered))
        except UnknownKeyError:
            if self._clock.monotonic() - self._fetched_s < ANEW_S:
                raise
            claims = await self._verified(token, await self._known(discovered, anew=True))
        check(claims, self.settings, begun.nonce, self._clock.wall())
        return user(claims, self.settings)

    async def _verified(self, token: str, known: tuple[jwt.PyJWK, ...]) -> Mapping[str, Any]:
        # A thread verifies the token, beside the event loop: a token of 64 KiB takes a while, and so does the curve
        # P-521.
        return await asyncio.to_thread(verified, token, known, self.settings.algorithms)

    async def _found(self) -> Endpoints:
        issuer = self.settings.issuer_url
        async with self._turn:
            kept = self._endpoints.get(issuer, self._clock.monotonic())
            if kept is not None:
                return kept[0]
            # A slash at the end of the issuer is not doubled, as in the API server.
            status, raw = await self._fetch("GET", issuer.rstrip("/") + WELL_KNOWN)
            if status != _OK:
                raise ProviderError(f"{issuer}{WELL_KNOWN}: answered {status}")
            found = endpoints(raw, issuer)
            self._endpoints.put(issuer, found, self._clock.monotonic())
            return found

    async def _known(self, found: Endpoints, *, anew: bool = False) -> tuple[jwt.PyJWK, ...]:
        async with self._turn:
            kept = self._keys.get(found.jwks_uri, self._clock.monotonic())
            if kept is not None and not (anew and self._clock.monotonic() - self._fetched_s >= ANEW_S):
                return kept[0]
            self._fetched_s = self._clock.monotonic()
            status, raw = await self._fetch("GET", found.jwks_uri)
            if status != _OK:
                raise ProviderError(f"the provider's keys: answered {status}")
            known = await asyncio.to_thread(keys, raw)
            self._keys.put(found.jwks_uri, known, self._clock.monotonic())
            return known

    async def _fetch(self, method: str, url: str, **options: Any) -> tuple[int, bytes]:
        try:
            tls = await asyncio.to_thread(self._tls)
            async with asyncio.timeout(_TIMEOUT_S):
                connector = aiohttp.TCPConnector(ssl=tls)
                async with (
                    aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
                    session.request(method, url, allow_redirects=False, **options) as response,
                ):
                    raw = await read_most(response.content, _MOST_BYTES)
        except TimeoutError:
            raise ProviderError(f"{url[:200]}: no answer within {_TIMEOUT_S:.0f} s") from None
        except (aiohttp.ClientError, ValueError) as failed:
            raise ProviderError(f"{url[:200]}: cannot be reached: {describe(failed)}") from None
        if raw is None:
            raise ProviderError(f"{url[:200]}: found more than {_MOST_BYTES} bytes")
        return response.status, raw

    def _tls(self) -> ssl.SSLContext:
        """The TLS context with the configured authorities, else the system's. Raises ProviderError."""
        if self.settings.ca_file is None:
            return ssl.create_default_context()
        try:
            return authorities_in(self.settings.ca_file)
        except FileError as wrong:
            raise ProviderError(str(wrong)) from None

    def _secret(self) -> str | None:
        """The client's secret; None if no file is configured. Raises ProviderError."""
        path = self.settings.client_secret_file
        return _secret_in(path) if path is not None else None


def _secret_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            secret = file.read(_MOST_SECRET + 1).strip().decode()
    except (OSError, UnicodeError):
        secret = ""
    if not secret or len(secret) > _MOST_SECRET or not secret.isprintable():
        raise ProviderError(f"{path}: found no client secret, expected one line")
    return secret
