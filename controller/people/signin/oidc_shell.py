"""``/page/oidc/``: the way to the provider, and back to the page with a session."""

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from html import escape
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from controller.cluster.config.pagesettings import CALLBACK
from controller.people.page.assets import SAFE
from controller.people.page.server_shell import PageServer
from controller.people.page.session import SIGNING_IN, Seal, Session, SigningIn
from controller.people.signin.provider import ProviderError
from controller.people.signin.provider_shell import Provider
from controller.people.signin.tokenclaims import TokenClaimsError
from controller.people.visibility.limits import Buckets
from controller.people.visibility.server_shell import RefusedError
from kube.clock import Clock

log = logging.getLogger(__name__)

LIFE_S: Final = 600.0
"""The time that a person may take at the provider."""
PER_S: Final = 5.0
BURST: Final = 200
"""Sign-ins of one address in a burst. The address may be an Ingress' for all users; each costs the provider a request
at most."""
_ADDRESSES: Final = 4_096
_AT_ONCE: Final = 8
_MOST_CODE: Final = 4_096
_TO: Final = re.compile(r"/(?![/\\])[!#-;=?-\[\]_a-z~]{0,500}")
"""A path of this origin and nothing else, however a browser reads it."""


class OidcSignIn:
    """The two requests of signing in at a provider. ``seal``: encrypts what a browser keeps between them."""

    def __init__(self, page: PageServer, provider: Provider, seal: Callable[[str], Seal | None], clock: Clock) -> None:
        self._page = page
        self._provider = provider
        self._seal = seal
        self._clock = clock
        self._addresses: Buckets[str] = Buckets(per_s=PER_S, burst=BURST, most=_ADDRESSES)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def handle(self, request: web.Request, path: str) -> web.StreamResponse:
        """Answers a request of the sign-in. Raises RefusedError."""
        ways = {"oidc/login": self._login, CALLBACK.removeprefix("/page/"): self._callback}
        way = ways.get(path)
        if way is None:
            raise RefusedError(404, "the server could not find the requested resource")
        wait_s = self._addresses.take(request.remote or "", self._clock.monotonic())
        if wait_s or self._turns.locked():
            raise RefusedError(429, "too many people sign in at this moment: try again", after_s=wait_s or 1.0)
        async with self._turns:
            try:
                return await way(request)
            except ProviderError as failed:
                log.warning("nobody can sign in: %s", failed)
                return _told(503, "The provider does not sign anybody in now. The controller's log says why.")
            except TokenClaimsError as refused:
                return _told(403, f"The provider's answer signs nobody in: {refused}.")

    async def _login(self, request: web.Request) -> web.StreamResponse:
        home = urlsplit(self._provider.settings.redirect_url).netloc
        if request.host != home:
            # The provider would lead to another address, where this browser's cookie is not sent.
            return _told(400, f"Sign in at https://{home}/, the address that the provider knows.", f"https://{home}/")
        asked = request.query.get("to", "/")
        begun = SigningIn(
            expires_s=self._clock.wall() + LIFE_S,
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            to=asked if _TO.fullmatch(asked) else "/",
        )
        location = await self._provider.leads_to(begun)
        headers = {**SAFE, "Cache-Control": "no-store", "Location": location}
        text = self._sealing().sealed(begun)
        # SameSite is Lax: the way back comes from the provider's site.
        return self._page.with_cookie(
            web.Response(status=302, headers=headers), SIGNING_IN, text, LIFE_S, same_site="Lax"
        )

    async def _callback(self, request: web.Request) -> web.StreamResponse:
        begun = self._sealing().signing_in(request.cookies.get(SIGNING_IN, ""), self._clock.wall())
        if begun is None:
            return _told(400, "This sign-in was begun in another browser, or too long ago. Begin again.")
        if not hmac.compare_digest(request.query.get("state", "").encode(), begun.state.encode()):
            return _told(400, "This is the answer to another sign-in. Begin again.")
        settings = self._provider.settings
        if request.query.get("iss", settings.issuer_url) != settings.issuer_url:
            # RFC 9207: the provider names itself in its answer.
            return self._ended(_told(400, "This is another provider's answer. Begin again."))
        code = request.query.get("code", "")
        if not 0 < len(code) <= _MOST_CODE:
            said = request.query.get("error", "no code")[:100]
            return self._ended(_told(403, f"The provider signed nobody in: {said}."))
        found = await self._provider.user(code, begun)
        session = Session(expires_s=self._clock.wall() + settings.session_life_s, user=found)
        response = self._page.signed_in(_going_on(begun.to), session)
        log.info("signed in by the provider: %s", found.name)
        return self._ended(response)

    def _ended(self, response: web.Response) -> web.Response:
        return self._page.with_cookie(response, SIGNING_IN, "", 0.0, same_site="Lax")

    def _sealing(self) -> Seal:
        seal = self._seal("signing-in")
        if seal is None:
            raise RefusedError(503, "this replica has no key yet: try again", after_s=2.0)
        return seal


def _going_on(to: str) -> web.Response:
    """A page that goes on by itself. Browsers send a Strict cookie only where their own page leads; a redirect would
    still be part of the way from the provider.
    """
    return _page(200, f'<meta http-equiv="refresh" content="0; url={escape(to)}">', "Signed in.", to, "Go on")


def _told(code: int, sentence: str, to: str = "/") -> web.Response:
    return _page(code, "", sentence, to, "To the sign-in page")


def _page(code: int, head: str, sentence: str, to: str, words: str) -> web.Response:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sign in - Tessera</title>{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/page/style.css"><link rel="stylesheet" href="/page/views.css"></head>'
        f'<body class="sign-in"><main><h1>Tessera</h1><p id="problem" role="status">{escape(sentence)}</p>'
        f'<p><a class="button" href="{escape(to)}">{words}</a></p></main></body></html>'
    )
    headers = {**SAFE, "Cache-Control": "no-store"}
    return web.Response(text=text, status=code, headers=headers, content_type="text/html")
