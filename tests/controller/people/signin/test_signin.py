"""Signing in at a provider: the whole way of a browser, and every way in which a provider or a stranger may lie."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest

from controller.cluster.config.load import parse
from controller.people.page.assets import POLICY
from controller.people.page.server_shell import Others
from controller.people.page.session import COOKIE, HERE, SIGNING_IN, Seals
from controller.people.signin import provider_shell
from controller.people.signin.oidc_shell import BURST, LIFE_S, OidcSignIn
from controller.people.signin.provider_shell import ANEW_S, KEPT_S, Provider
from kube.prometheus import authorities_in
from tests.controller.people.visibility.test_redaction import SPACES, preempting
from tests.support.controller.pageworld import PageScene, page_served
from tests.support.oidc import OidcServer, new_key, provided

HOST = "tessera.example.com"
OTHER_KEY = new_key()
Json = dict[str, Any]


@dataclass
class Way:
    """A browser between the page and the provider. ``cookies``: what the page left in it."""

    page: PageScene
    server: OidcServer
    cookies: dict[str, str]

    async def ask(self, path: str, **headers: str) -> tuple[int, str, Any]:
        sent = {"Host": HOST, **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        code, body, answered = await self.page.ask(path, headers=sent)
        for line in answered.getall("Set-Cookie", []):
            name, _, rest = line.partition("=")
            marks = {part.strip() for part in rest.split(";")}
            assert {"Secure", "Path=/"} <= marks
            assert ("HttpOnly" in marks) is (name != HERE)
            assert f"SameSite={'Lax' if name == SIGNING_IN else 'Strict'}" in rest
            value = rest.partition(";")[0].strip('"')
            self.cookies = {key: each for key, each in self.cookies.items() if key != name}
            self.cookies |= {name: value} if value else {}
        return code, body.decode(), answered

    async def to_provider(self, to: str = "/") -> str:
        code, body, headers = await self.ask(f"/page/oidc/login?to={to}")
        assert code == 302, body
        return str(headers["Location"])

    async def back(self, location: str) -> str:
        """The path that the provider sends the browser to."""
        tls = authorities_in(self.server.ca_file)
        async with aiohttp.ClientSession() as browser, browser.get(location, ssl=tls, allow_redirects=False) as answer:
            assert answer.status == 302
            parts = urlsplit(answer.headers["Location"])
            assert parts.netloc == HOST
            return f"{parts.path}?{parts.query}"

    async def signed_in(self) -> tuple[int, str]:
        code, body, _ = await self.ask(await self.back(await self.to_provider()), **{"Sec-Fetch-Site": "cross-site"})
        return code, body


@asynccontextmanager
async def way(folder: Path, **given: Any) -> AsyncIterator[Way]:
    async with provided(folder) as server, page_served(preempting(), list(SPACES)) as page:
        keys = {**server.settings(f"https://{HOST}/page/oidc/callback"), **given}
        file = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        settings = parse(str({**file, "tessera": {"page": {"oidc": keys}}}).replace("'", '"')).oidc
        assert settings is not None
        seals = Seals(lambda: page.service.secrets)
        sign_in = OidcSignIn(page.page, Provider(settings, page.clock), seals.of, page.clock)
        page.page.others = replace(Others(), sign_in=sign_in.handle, button=settings.display_name)
        yield Way(page, server, {})


async def test_the_provider_signs_a_person_in_and_access_reviews_see_that_user(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        code, body, _ = await browser.ask("/page/session")
        assert (code, '"oidc":"Company login"' in body) == (401, True)
        code, body = await browser.signed_in()
        assert code == 200
        assert '<meta http-equiv="refresh" content="0; url=/">' in body
        assert list(browser.cookies) == [COOKIE, HERE]
        assert (await browser.ask("/"))[1] == "<h1>page</h1>"
        code, body, _ = await browser.ask("/page/session")
        assert code == 200
        assert '"user":"oidc:alice"' in body
        assert '"groups":["oidc:people","system:authenticated"]' in body
        assert '"how":"oidc"' in body
        asked: list[Json] = []

        def allows(spec: Json) -> bool:
            asked.append(spec)
            return True

        browser.page.api.allows = allows
        assert (await browser.ask("/page/waste"))[0] == 200
        assert {(spec["user"], tuple(spec["groups"])) for spec in asked} == {
            ("oidc:alice", ("oidc:people", "system:authenticated"))
        }


async def test_the_session_ends_when_the_configuration_says_so_and_by_signing_out(tmp_path: Path) -> None:
    async with way(tmp_path, sessionLife="2m") as browser:
        await browser.signed_in()
        kept = dict(browser.cookies)
        browser.page.clock.advance(119)
        assert (await browser.ask("/page/session"))[0] == 200
        browser.page.clock.advance(2)
        assert (await browser.ask("/page/session"))[0] == 401
        browser.cookies = kept
        answer = await browser.page.ask("/page/session", "DELETE", headers={"Origin": browser.page.url})
        assert (answer[0], COOKIE + '=""' in answer[2]["Set-Cookie"]) == (204, True)


async def test_the_way_to_the_provider_has_a_fresh_state_nonce_and_challenge(tmp_path: Path) -> None:
    async with way(tmp_path, scopes=["email", "groups"]) as browser:
        first, second = [parse_qs(urlsplit(await browser.to_provider()).query) for _ in range(2)]
        assert all(first[name] != second[name] for name in ("state", "nonce", "code_challenge"))
        assert first["scope"] == ["openid email groups"]
        assert first["code_challenge_method"] == ["S256"]
        assert browser.server.asked == ["/.well-known/openid-configuration"], "kept for all"
        headers = (await browser.ask("/page/oidc/login"))[2]
        assert headers["Content-Security-Policy"] == POLICY
        assert not {"nonce", "verifier"} & set(re.findall("[a-z]+", browser.cookies[SIGNING_IN])), "sealed"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", '/"><script>', "x"])
async def test_nobody_is_led_elsewhere_after_it(tmp_path: Path, to: str) -> None:
    async with way(tmp_path) as browser:
        location = await browser.to_provider(to.replace('"', "%22").replace("<", "%3C").replace(">", "%3E"))
        code, body, _ = await browser.ask(await browser.back(location))
        assert code == 200
        assert 'content="0; url=/"' in body


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"claims": {"nonce": "another"}}, "answers another sign-in"),
        ({"claims": {"nonce": None}}, "answers another sign-in"),
        ({"claims": {"aud": "another"}}, "is for another client"),
        ({"claims": {"aud": ["tessera", "another"]}}, "was given to another client"),
        ({"claims": {"azp": "another"}}, "was given to another client"),
        ({"claims": {"iss": "https://another.example.com"}}, "is another issuer&#x27;s"),
        ({"claims": {"exp": 1_000}}, "has expired"),
        ({"claims": {"exp": None}}, "has no exp"),
        ({"claims": {"iat": 99_999_999_999}}, "is not valid yet"),
        ({"claims": {"sub": None}}, "has no user name in the claim sub"),
        ({"claims": {"groups": {"a": "b"}}}, "is no list of at most"),
        ({"algorithm": "none"}, "is signed by &#x27;none&#x27;"),
        (
            {"algorithm": "HS256", "signs_by": "a secret that is shared by more than one"},
            "is signed by &#x27;HS256&#x27;",
        ),
        ({"algorithm": "RS512"}, "is signed by &#x27;RS512&#x27;"),
        ({"signs_by": OTHER_KEY}, "signature is wrong"),
    ],
    ids=lambda value: (
        value[:20] if isinstance(value, str) else ", ".join(f"{name} {str(value[name])[:30]}" for name in value)
    ),
)
async def test_an_id_token_that_is_not_for_this_sign_in_signs_nobody_in(tmp_path: Path, lie: Json, said: str) -> None:
    async with way(tmp_path) as browser:
        location = await browser.to_provider()
        for name, value in lie.items():
            setattr(browser.server, name, value)
        if lie.get("algorithm") == "none":
            browser.server.token = lambda nonce: jwt.encode({"nonce": nonce}, "", algorithm="none")  # type: ignore[method-assign]
        code, body, _ = await browser.ask(await browser.back(location))
        assert (code, said in body) == (403, True), body
        assert COOKIE not in browser.cookies


async def test_a_key_that_is_new_is_fetched_and_not_for_every_forged_token(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        browser.server.claims = {"exp": 99_999_999_999}
        assert (await browser.signed_in())[0] == 200
        browser.server.key, browser.server.kid = OTHER_KEY, "second"
        code, _ = await browser.signed_in()
        assert code == 503, "keys were fetched a moment ago"
        browser.page.clock.advance(ANEW_S)
        assert (await browser.signed_in())[0] == 200
        fetched = browser.server.asked.count("/keys")
        browser.server.kid = "forged"
        assert [(await browser.signed_in())[0] for _ in range(3)] == [503] * 3
        assert browser.server.asked.count("/keys") == fetched
        browser.page.clock.advance(KEPT_S)
        assert (await browser.signed_in())[0] == 200


async def test_an_answer_that_this_browser_did_not_ask_for_is_refused(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        back = await browser.back(await browser.to_provider())
        mine, browser.cookies = browser.cookies, {}
        assert "begun in another browser" in (await browser.ask(back))[1]
        await browser.to_provider()
        assert "answer to another sign-in" in (await browser.ask(back))[1]
        browser.cookies = mine
        assert "another provider" in (await browser.ask(f"{back}&iss=https://evil.example"))[1]
        assert browser.server.asked.count("/token") == 0
        browser.cookies = mine
        browser.page.clock.advance(LIFE_S)
        assert "too long ago" in (await browser.ask(back))[1]


async def test_a_session_cookie_is_no_begun_sign_in_and_the_other_way(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        location = await browser.to_provider()
        begun = browser.cookies[SIGNING_IN]
        await browser.ask(await browser.back(location))
        session, browser.cookies = browser.cookies[COOKIE], {COOKIE: begun}
        assert (await browser.ask("/page/session"))[0] == 401
        browser.cookies = {SIGNING_IN: session}
        assert (await browser.ask("/page/oidc/callback?code=a&state=b"))[0] == 400


async def test_a_refusal_of_the_provider_is_told_as_text(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        browser.server.refuses = "<script>access_denied"
        code, body = await browser.signed_in()
        assert (code, "&lt;script&gt;access_denied" in body, "<script>" in body) == (403, True, False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/.well-known/openid-configuration", b"[]"),
        ("/.well-known/openid-configuration", b"{" * 100_000),
        ("/.well-known/openid-configuration", b" " * 600_000),
        (
            "/.well-known/openid-configuration",
            b'{"issuer": "https://evil", "authorization_endpoint": "", "token_endpoint": "", "jwks_uri": ""}',
        ),
        ("/keys", b'{"keys": 3}'),
        ("/keys", b"\xff"),
        ("/token", b"[]"),
        ("/token", b'{"id_token": ""}'),
        ("/token", b'{"error": "invalid_grant"}'),
    ],
)
async def test_a_provider_that_talks_nonsense_signs_nobody_in_and_that_is_all(
    tmp_path: Path, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with way(tmp_path) as browser:
        browser.server.documents[path] = body
        code, text, headers = await browser.ask("/page/oidc/login")
        if code == 302:
            code, text, headers = await browser.ask(await browser.back(headers["Location"]))
        assert (code, "The provider does not sign anybody in now" in text) == (503, True)
        assert "\n" not in caplog.messages[-1]
        assert browser.server.secret is not None
        assert browser.server.secret not in caplog.text


async def test_a_provider_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_shell, "_TIMEOUT_S", 0.05)
    async with way(tmp_path) as browser:
        browser.server.hangs = True
        assert (await browser.ask("/page/oidc/login"))[0] == 503


async def test_a_public_client_has_no_secret_and_a_wrong_one_signs_nobody_in(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        browser.server.secret_file.write_text("another")
        assert (await browser.signed_in())[0] == 503
        browser.server.secret_file.unlink()
        assert (await browser.signed_in())[0] == 503


async def test_strangers_are_counted_and_another_address_is_told_the_right_one(tmp_path: Path) -> None:
    async with way(tmp_path) as browser:
        code, body, _ = await browser.ask("/page/oidc/login", Host="127.0.0.1:1")
        assert (code, f"https://{HOST}/" in body) == (400, True)
        codes = [(await browser.ask("/page/oidc/callback?code=a"))[0] for _ in range(BURST)]
        assert (codes[0], codes[-1]) == (400, 429)
        assert (await browser.ask("/page/oidc/other"))[0] == 404
