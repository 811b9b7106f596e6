"""A browser on this machine gets the page with the caller's credentials, and nobody else does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from cli.page.proxy import PageProxy, aggregated
from kube.client import Client
from kube.config import ClusterConfig

AT = "/apis/view.tessera.dev/v1alpha1/page"


@asynccontextmanager
async def proxied(*, guarded: bool = True) -> AsyncIterator[tuple[str, PageProxy, list[Any]]]:
    """The address, the proxy, and what the API server was asked."""
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path_qs, dict(request.headers), await request.text()))
        headers = {"Content-Security-Policy": "default-src 'none'", "Set-Cookie": "a=b", "Content-Type": "text/html"}
        return web.Response(text="the page", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with Client(ClusterConfig(server=server, token="caller")) as client:
        proxy = PageProxy(client, guarded=guarded)
        try:
            yield await proxy.start(0), proxy, seen
        finally:
            await proxy.stop()
            await runner.cleanup()


async def ask(url: str | URL, method: str = "GET", **options: Any) -> tuple[int, str, Any]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as browser,
        browser.request(method, url, allow_redirects=False, **options) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


async def cookie(address: str) -> dict[str, str]:
    code, body, headers = await ask(address)
    assert (code, 'url=/"' in body) == (200, True)
    assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in headers["Set-Cookie"].split(";")}
    return {"Cookie": headers["Set-Cookie"].partition(";")[0]}


async def test_the_browser_that_opened_the_address_gets_the_page_with_the_callers_token() -> None:
    async with proxied() as (address, proxy, seen):
        mine = await cookie(address)
        code, body, headers = await ask(f"http://127.0.0.1:{proxy.port}/", headers=mine)
        assert (code, body, headers["Content-Security-Policy"]) == (200, "the page", "default-src 'none'")
        assert "Set-Cookie" not in headers
        ((method, path, sent, _),) = seen
        assert (method, path, sent["Authorization"]) == ("GET", f"{AT}/index.html", "Bearer caller")
        assert "Cookie" not in sent


async def test_the_address_works_once() -> None:
    async with proxied() as (address, _, seen):
        await cookie(address)
        assert (await ask(address))[0] == 403
        assert (await ask(address[:-1] + ("A" if address[-1] != "A" else "B")))[0] == 403
        assert not seen


async def test_nobody_else_is_answered() -> None:
    async with proxied() as (address, proxy, seen):
        base, mine = f"http://127.0.0.1:{proxy.port}", await cookie(address)
        assert (await ask(f"{base}/page/waste"))[0] == 403
        assert (await ask(f"{base}/page/waste", headers={"Cookie": f"tessera-page-{proxy.port}=forged"}))[0] == 403
        assert (await ask(f"{base}/page/waste", headers={**mine, "Host": "evil.example"}))[0] == 403
        for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert (await ask(f"{base}/page/whatif", "POST", data="{}", headers={**mine, **origin}))[0] == 403
        assert not seen


async def test_what_is_asked_from_the_page_itself_is_handed_on() -> None:
    async with proxied() as (address, proxy, seen):
        base, mine = f"http://127.0.0.1:{proxy.port}", await cookie(address)
        assert (await ask(f"{base}/page/whatif", "POST", data="{}", headers={**mine, "Origin": base}))[0] == 200
        resumed = {**mine, "Last-Event-ID": "5f.all.fleet=1"}
        assert (await ask(f"{base}/page/events?topics=fleet", headers=resumed))[0] == 200
        assert (await ask(f"{base}/api/v1/secrets", headers=mine))[0] == 404
        assert [(method, path, body) for method, path, _, body in seen] == [
            ("POST", f"{AT}/whatif", "{}"),
            ("GET", f"{AT}events?topics=fleet&watch=true", ""),
        ]
        assert seen[1][2]["Last-Event-ID"] == "5f.all.fleet=1"


UP = "%252e%252e/" * 4


async def test_no_way_of_writing_a_path_leads_out_of_the_page() -> None:
    async with proxied() as (address, proxy, seen):
        base, mine = f"http://127.0.0.1:{proxy.port}", await cookie(address)
        for path in (
            f"/page/{UP}api/v1/secrets",
            "/page/%2e%2e/%2e%2e/x",
            "/page/x%3Fwatch=1",
            "/page/a%2Fb",
            "/page/x%23",
        ):
            asked = URL(base + path, encoded=True)
            assert (await ask(asked, headers=mine))[0] == 404, path
            assert (await ask(asked, "POST", data="{}", headers={**mine, "Origin": base}))[0] == 404, path
        assert (await ask(f"{base}/page/session", "PUT", headers={**mine, "Origin": base}))[0] == 405
        assert not seen


@given(st.text(st.sampled_from("/.%2eEfF?#;ab\\@: "), max_size=24))
def test_whatever_is_asked_stays_below_the_page_however_often_it_is_decoded(path: str) -> None:
    found = aggregated(f"/page/{path}")
    if found is None:
        return
    twice = URL(f"https://host{unquote(unquote(found))}")
    assert twice.path.startswith("/apis/view.tessera.dev/v1alpha1/page")
    assert (twice.path, str(twice.query_string), twice.fragment) == (found, "", "")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/secrets",
        "/page",
        "/page/",
        "/page/../../api/v1/secrets",
        "/apis/x",
        "//page/x",
        f"/page/{UP}api",
        "/page/./x",
    ],
)
def test_nothing_but_the_page_is_asked_for(path: str) -> None:
    assert aggregated(path) is None


async def test_where_nothing_is_real_whoever_asks_on_this_machine_gets_the_page_and_changes_nothing() -> None:
    async with proxied(guarded=False) as (address, proxy, seen):
        assert address == f"http://127.0.0.1:{proxy.port}/"
        for host in (f"127.0.0.1:{proxy.port}", "localhost:9000"):
            assert (await ask(address, headers={"Host": host}))[:2] == (200, "the page")
        assert (await ask(address, "HEAD"))[:2] == (200, "")
        assert "nothing can be changed" in (await ask(address, "PUT"))[1]
        own = {"Origin": address.rstrip("/")}
        assert (await ask(f"{address}page/whatif", "POST", headers=own))[0] == 200
        asked = len(seen)
        for path, method, headers in (
            ("", "GET", {"Host": "elsewhere.example"}),
            ("page/whatif", "POST", {"Origin": "http://elsewhere.example"}),
            ("page/whatif", "POST", {}),
            ("page/session", "POST", own),
            ("page/session", "DELETE", own),
            ("page/nodes/n", "PUT", own),
        ):
            assert (await ask(f"{address}{path}", method, headers=headers))[0] == 403, path
        assert len(seen) == asked
