"""The page at the port: who gets it, what signs in, and what each sees."""

import asyncio
import gzip
import json
import threading
import time
import zlib
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from controller.jobs.framework import names
from controller.objects.workload import Workload
from controller.people.history.figures import Figures
from controller.people.page import events_shell, live, readers_shell
from controller.people.page.assets import POLICY, asset
from controller.people.page.events_shell import LOOK_AGAIN_S
from controller.people.page.fleetrows import node_row
from controller.people.page.frames import Frame
from controller.people.page.server_shell import FILES_BURST, PROXIED_S
from controller.people.page.session import COOKIE, HERE
from controller.people.page.visiblenamespaces import VisibleNamespaces
from controller.people.visibility.reviews_shell import LISTED_S
from controller.people.visibility.server_shell import RefusedError
from kube.resources import PODS
from tests.controller.people.visibility.test_redaction import SPACES, preempting
from tests.support.controller.gpunodes import observed
from tests.support.controller.pageworld import PageScene, events, page_served
from tests.support.controller.viewworld import PERSON, SERVED_AS
from tests.support.engine.world import cluster_queue

BEARER = {"Authorization": "Bearer secret-token"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "ROUND_S", 0.01)


def scene() -> Any:
    return page_served(preempting(), list(SPACES))


async def signed_in(page: PageScene) -> dict[str, str]:
    """Headers of a browser after it signed in."""
    headers = {"Origin": page.url}
    code, _, answer = await page.ask("/page/session", "POST", json={"token": "secret-token"}, headers=headers)
    assert code == 204
    cookie, here = answer.getall("Set-Cookie")
    assert cookie.startswith(f"{COOKIE}=")
    assert here.startswith(f"{HERE}=")
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert {"Secure", "SameSite=Strict", "Path=/"} <= {part.strip() for part in here.split(";")}
    assert "HttpOnly" not in here
    assert "secret-token" not in cookie
    return {"Cookie": "; ".join(each.partition(";")[0] for each in (cookie, here)), "Origin": page.url}


async def test_without_a_session_there_is_a_page_to_sign_in_and_nothing_else() -> None:
    async with scene() as page:
        code, body, headers = await page.ask("/")
        assert (code, body) == (401, b"<h1>sign in</h1>")
        assert headers["Content-Security-Policy"] == POLICY
        for path in ("/page/events", "/page/waste", "/page/nodes/n", "/page/workloads/a/b", "/page/session", "/page/x"):
            code, body, headers = await page.ask(path)
            assert code == 401, path
            assert not any(space.encode() in body for space in SPACES)
            assert headers["Content-Security-Policy"] == POLICY
        assert (await page.ask("/page/whatif", "POST", json={}))[0] == 401


async def test_files_of_the_page_are_served_with_their_types_and_not_twice() -> None:
    async with scene() as page:
        code, body, headers = await page.ask("/page/views/a.js")
        assert (code, body, headers["Content-Type"]) == (200, b"export {}", "text/javascript; charset=utf-8")
        assert headers["X-Content-Type-Options"] == "nosniff"
        again = await page.ask("/page/views/a.js", headers={"If-None-Match": headers["ETag"]})
        assert (again[0], again[1]) == (304, b"")
        assert (await page.ask("/page/../server_shell.py"))[0] in (401, 404)


async def test_a_pasted_token_signs_in_until_it_is_withdrawn() -> None:
    async with scene() as page:
        headers = await signed_in(page)
        assert (await page.ask("/", headers=headers))[1] == b"<h1>page</h1>"
        session = json.loads((await page.ask("/page/session", headers=headers))[1])
        assert (session["user"], session["how"]) == ("person", "token")
        page.api.users.clear()
        page.clock.advance(60)
        assert (await page.ask("/page/session", headers=headers))[0] == 401
        assert (await page.ask("/", headers=headers))[0] == 401


async def test_a_browser_that_dropped_what_its_scripts_may_drop_is_signed_out() -> None:
    """As it does where it cannot reach the server to sign out."""
    async with scene() as page:
        headers = await signed_in(page)
        kept = {each.partition("=")[0]: each for each in headers["Cookie"].split("; ")}
        assert (await page.ask("/page/session", headers=headers))[0] == 200
        for cookie in (kept[COOKIE], f"{kept[COOKIE]}; {HERE}=another", kept[HERE]):
            assert (await page.ask("/page/session", headers={**headers, "Cookie": cookie}))[0] == 401


async def test_what_is_no_token_signs_nobody_in() -> None:
    async with scene() as page:
        headers = {"Origin": page.url}
        for token in ("forged", "", "a b", "x" * 20_000):
            assert (await page.ask("/page/session", "POST", json={"token": token}, headers=headers))[0] in (401, 413)
        for raw in (b"{", b'{"token": "\xff"}', b'{"a": ' + b"[" * 17_000):
            assert (await page.ask("/page/session", "POST", data=raw, headers=headers))[0] == 400
        forged = {"Cookie": f"{COOKIE}=AAAA"}
        assert (await page.ask("/", headers=forged))[0] == 401


async def test_a_packed_body_is_not_unpacked_for_anybody() -> None:
    async with scene() as page:
        headers = {"Origin": page.url, "Content-Encoding": "gzip", "Content-Type": "application/json"}
        packed = gzip.compress(b'{"token": "secret-token"}')
        assert (await page.ask("/page/session", "POST", data=packed, headers=headers))[0] == 400


async def test_another_sites_page_cannot_sign_in_or_out_or_ask() -> None:
    async with scene() as page:
        headers = await signed_in(page)
        for origin in ("https://evil.example", "null", f"http://127.0.0.1:{page.service.server.port}"):
            other = {**headers, "Origin": origin}
            assert (await page.ask("/page/session", "DELETE", headers=other))[0] == 403
            assert (await page.ask("/page/session", "POST", json={"token": "secret-token"}, headers=other))[0] == 403
            assert (await page.ask("/page/whatif", "POST", json={}, headers=other))[0] == 401
        fetched = {**headers, "Sec-Fetch-Site": "cross-site"}
        assert (await page.ask("/page/waste", headers=fetched))[0] == 401
        code, _, answer = await page.ask("/page/session", "DELETE", headers=headers)
        assert (code, "Max-Age=0" in answer["Set-Cookie"]) == (204, True)


async def test_a_cookie_counts_at_the_page_alone() -> None:
    async with scene() as page:
        headers = await signed_in(page)
        assert (await page.ask("/apis/view.tessera.dev/v1alpha1/queueviews", headers=headers))[0] == 401


async def test_events_begin_with_snapshots_go_on_with_deltas_and_resume() -> None:
    async with scene() as page, page.browser() as browser:
        url = f"{page.url}/page/events?topics=queues,pending,workloads"
        async with browser.get(url, headers=BEARER, server_hostname=SERVED_AS) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            first = await events(answer)
        names = [(name, data.get("topic")) for name, data, _ in first]
        assert names == [
            ("hello", None), ("snapshot", "queues"), ("snapshot", "pending"), ("snapshot", "workloads"), ("mark", None),
        ]  # fmt: skip
        rows = [row for _, data, _ in first if data.get("topic") == "pending" for row in data["set"].values()]
        assert {row["workload"].partition("/")[0] for row in rows} == {SPACES[1], SPACES[2]}
        resumed = {**BEARER, "Last-Event-ID": first[-1][2]}
        holder = next(iter(page.world.engine.state.cluster.holders.values())).info.workload
        page.world.engine.drop(Workload, holder.metadata.namespace, holder.metadata.name, page.world.now_s)
        async with browser.get(url, headers=resumed, server_hostname=SERVED_AS) as answer:
            again = await events(answer)
        assert {name for name, _, _ in again} == {"hello", "delta", "mark"}
        gone = [key for _, data, _ in again if data.get("topic") == "workloads" for key in data["gone"]]
        assert len(gone) == 1
        strange = {**BEARER, "Last-Event-ID": "0.all.pending=1,queues=1,workloads=1"}
        async with browser.get(url, headers=strange, server_hostname=SERVED_AS) as answer:
            assert "delta" not in {name for name, _, _ in await events(answer)}


async def test_a_compressed_stream_is_the_same_stream() -> None:
    async with scene() as page, page.browser(auto_decompress=False) as browser:
        url, headers = f"{page.url}/page/events?topics=pending", {**BEARER, "Accept-Encoding": "gzip"}
        async with browser.get(url, headers=headers, server_hostname=SERVED_AS) as answer:
            opened, text = zlib.decompressobj(31), b""
            while b"event: mark" not in text:
                text += opened.decompress(await answer.content.readany())
        assert text.startswith(b"event: hello\ndata: {")
        assert b"event: snapshot\ndata: {" in text


async def test_two_users_get_different_bytes() -> None:
    async with scene() as page, page.browser() as browser:
        for allowed in (SPACES[1:2], SPACES[2:3]):
            page.may(*allowed)
            page.clock.advance(LISTED_S[1])
            url = f"{page.url}/page/events"
            async with browser.get(url, headers=BEARER, server_hostname=SERVED_AS) as answer:
                found = json.dumps(await events(answer))
            assert {space for space in SPACES if space in found} == set(allowed)
            assert "a workload of queue one" in found


async def test_topics_that_may_not_be_seen_are_named_and_left_out() -> None:
    async with scene() as page, page.browser() as browser:
        page.may(queues=False)
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            found = await events(answer)
        assert set(found[0][1]["denied"]) == {"queues", "pending", "workloads"}
        assert {data.get("topic") for _, data, _ in found[1:-1]} == {"fleet"}
        page.may(fleet=False)
        page.clock.advance(60)
        assert (await page.ask("/page/waste", headers=BEARER))[0] == 403


async def test_a_stream_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "BEAT_S", 0.01)
    async with scene() as page, page.browser() as browser:
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            await events(answer)
            page.api.users.clear()
            page.clock.advance(60)
            rest = await answer.content.read()
        assert rest.endswith(b"\n\n") or not rest
        assert page.page.hub.streams == 0


async def test_one_user_opens_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "MOST_OF_ONE", 1)
    async with (
        scene() as page,
        page.browser() as browser,
        browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer,
    ):
        await events(answer)
        assert (await page.ask("/page/events", headers=BEARER))[0] == 429


async def test_the_api_server_hands_the_page_on_under_its_group() -> None:
    async with scene() as page:
        tls = page.proxy.shows(page.service.server.trust.own)
        headers = {"X-Remote-User": PERSON.name, "X-Remote-Group": "people"}
        at = "/apis/view.tessera.dev/v1alpha1"
        assert (await page.ask(f"{at}/page/index.html", tls=tls, headers=headers))[1] == b"<h1>page</h1>"
        session = json.loads((await page.ask(f"{at}/page/session", tls=tls, headers=headers))[1])
        assert (session["user"], session["how"]) == ("person", "kubeconfig")
        async with page.browser(tls) as browser:
            url = f"{page.url}{at}/pageevents?watch=true&topics=queues"
            async with browser.get(url, headers=headers, server_hostname=SERVED_AS) as answer:
                assert [name for name, _, _ in await events(answer)] == ["hello", "snapshot", "mark"]


async def test_a_stream_of_a_user_whom_a_proxy_told_ends_so_that_credentials_are_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_shell, "BEAT_S", 0.01)
    async with scene() as page:
        tls, headers = page.proxy.shows(page.service.server.trust.own), {"X-Remote-User": PERSON.name}
        url = f"{page.url}/apis/view.tessera.dev/v1alpha1/pageevents?watch=true&topics=queues"
        async with page.browser(tls) as browser:
            async with browser.get(url, headers=headers, server_hostname=SERVED_AS) as answer:
                await events(answer)
                page.clock.advance(PROXIED_S - 1)
                await events(answer, until="beat")
                page.clock.advance(LOOK_AGAIN_S)
                await answer.content.read()
            # Of a token's owner the API server was asked meanwhile.
            async with browser.get(url, headers=BEARER, server_hostname=SERVED_AS) as answer:
                await events(answer)
                page.clock.advance(PROXIED_S + LOOK_AGAIN_S)
                for _ in range(3):
                    assert (await events(answer, until="beat"))[-1][0] == "beat"


async def test_a_follower_hands_questions_on_and_serves_the_page_itself() -> None:
    async with scene() as page:
        page.leads = False
        assert json.loads((await page.ask("/page/waste", headers=BEARER))[1]) == {
            "relayed": "/page/waste",
            "user": "person",
        }
        assert (await page.ask("/", headers=BEARER))[1] == b"<h1>page</h1>"
        for path in ("workloads/%252e%252e/x", "nodes/a%3Fb", "nodes/a%23b", "nodes/%2e%2e", "workloads/a%2Fb/c"):
            code, body, _ = await page.ask(URL(f"/page/{path}", encoded=True), headers=BEARER)
            assert (code, b"relayed" in body) in ((404, False), (200, True)), path
            assert b"%" not in body
            assert b"?" not in body


async def test_one_workload_is_explained_and_one_that_is_not_there_is_not() -> None:
    async with scene() as page:
        found = json.loads((await page.ask(f"/page/workloads/{SPACES[2]}/late-of-{SPACES[2]}-2", headers=BEARER))[1])
        assert (found["state"], found["gpus"], found["forecast"]) == ("Pending", [], None)
        assert (await page.ask(f"/page/workloads/{SPACES[2]}/nothing", headers=BEARER))[0] == 404
        assert (await page.ask("/page/workloads/UPPER/x", headers=BEARER))[0] == 404
        assert (await page.ask("/page/nodes/nothing", headers=BEARER))[0] == 404
        assert json.loads((await page.ask("/page/history?what=fleet", headers=BEARER))[1])["configured"] is False


async def test_of_an_admitted_workload_it_says_which_pods_do_not_run_and_why() -> None:
    """In the words of ``tessera explain``, and to those who may list its pods."""
    space, name = SPACES[0], f"job-of-{SPACES[0]}-0"
    said = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    own = {"annotations": {names.WORKLOAD: name}}
    async with scene() as page:

        async def pods() -> Any:
            page.clock.advance(6)
            answer = (await page.ask(f"/page/workloads/{space}/{name}", headers=BEARER))[1]
            return json.loads(answer)["pods"]

        sentences = [each["sentence"] for each in (await pods())["troubles"]]
        assert sentences == ["1 of 1 pod does not exist: its job has not made all of them"]
        waits = {"metadata": own, "spec": {}, "status": {"phase": "Pending", "conditions": [condition]}}
        page.api.create(PODS, "p-0", waits, namespace=space)
        page.api.create(PODS, "other", {"status": {"phase": "Running"}}, namespace=space)
        found = await pods()
        assert (found["running"], found["of"]) == (0, 1)
        assert [each["sentence"] for each in found["troubles"]] == [f"1 of 1 pod finds no node: {said}"]
        assert found["troubles"][0]["next"] == "It starts once a node has room; its quota is kept meanwhile"
        page.api.merge(PODS, "p-0", {"status": {"phase": "Running", "conditions": []}}, namespace=space)
        assert await pods() == {"running": 1, "succeeded": 0, "of": 1, "troubles": []}
        page.api.allows = lambda spec: spec.get("resourceAttributes", {}).get("resource") != "pods"
        page.clock.advance(60)
        assert await pods() is None


async def test_a_reader_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_shell, "READ_S", 0.02)

    async def full(_response: Any, _data: bytes) -> None:
        await asyncio.Event().wait()

    async with scene() as page, page.browser() as browser:
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            await events(answer)
            monkeypatch.setattr(web.StreamResponse, "write", full)
            page.world.put(cluster_queue("three", 4))
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()
        assert page.page.hub.streams == 0


async def test_a_round_that_fails_is_followed_by_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as page, page.browser() as browser:
        state, failures = page.page.hub._state, [RuntimeError("a row"), None]

        def sometimes() -> Any:
            if failures and (failure := failures.pop(0)) is not None:
                raise failure
            return state()

        monkeypatch.setattr(page.page.hub, "_state", sometimes)
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            assert "snapshot" in {name for name, _, _ in await events(answer)}
    assert "could not be brought up to date" in caplog.text


async def test_rounds_that_fail_follow_each_other_no_faster_for_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "ROUND_S", 30.0)
    monkeypatch.setattr(events_shell, "READ_S", 0.05)
    async with scene() as page, page.browser() as browser:
        state, failed = page.page.hub._state, list[int]()

        def never() -> Any:
            failed.append(1)
            raise RuntimeError("a row")

        monkeypatch.setattr(page.page.hub, "_state", never)
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()
        assert len(failed) == 1
        assert page.page.hub.streams == 0
        monkeypatch.setattr(page.page.hub, "_state", state)


async def test_too_many_questions_from_an_address_end_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "BEAT_S", 0.01)

    async def refused(*_: Any) -> Any:
        raise RefusedError(429, "too many requests from this address")

    async with scene() as page, page.browser() as browser:
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            await events(answer)
            monkeypatch.setattr(page.service.server, "reviewed", refused)
            page.clock.advance(60)
            await events(answer, until="beat")
            page.world.put(cluster_queue("three", 4))
            page.clock.advance(60)
            assert "delta" in {name for name, _, _ in await events(answer)}
            page.clock.advance(events_shell.KNOWN_S)
            rest = await answer.content.read()
        assert b"event: beat" in rest
        assert page.page.hub.streams == 0


async def test_streams_that_are_opened_at_once_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "MOST_OF_ONE", 2)
    async with scene() as page, page.browser() as browser:
        url = f"{page.url}/page/events"
        opened = [browser.get(url, headers=BEARER, server_hostname=SERVED_AS) for _ in range(5)]
        answers = await asyncio.gather(*opened)
        assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
        for answer in answers:
            answer.close()


async def test_who_may_see_nothing_is_told_so_and_keeps_no_place() -> None:
    async with scene() as page, page.browser() as browser:
        page.may(*SPACES, fleet=False, queues=False)
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            found = (await answer.content.read()).decode()
        assert found.startswith("event: hello")
        assert '"pending":"person may not list queueviews' in found
        assert found.endswith("retry: 60000\n\n")
        assert page.page.hub.streams == 0
        spaces = {review.get("resourceAttributes", {}).get("namespace") for review in page.api.reviewed}
        assert spaces <= {None}, "nobody asks which workloads they may see"


async def test_what_runs_beside_the_loop_was_bound_on_it() -> None:
    async with scene() as page, page.browser() as browser:
        bound, asked = page.page.hub._queue_of, list[threading.Thread]()

        def queue_of() -> Any:
            asked.append(threading.current_thread())
            return bound()

        page.page.hub._queue_of = queue_of
        page.may(SPACES[1])
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            await events(answer)
        assert set(asked) == {threading.main_thread()}


async def test_a_stream_that_is_handed_on_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "LOOK_AGAIN_S", 0.01)

    async def relay(request: web.Request, _path: str, _user: Any) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            try:
                await response.write(b"event: beat\n\n")
            except ConnectionError:
                return response
            await asyncio.sleep(0.01)

    async with scene() as page, page.browser() as browser:
        page.leads = False
        page.page._source = replace(page.page._source, relay=relay)
        async with browser.get(f"{page.url}/page/events", headers=BEARER, server_hostname=SERVED_AS) as answer:
            assert await answer.content.readline() == b"event: beat\n"
            page.clock.advance(60)
            await answer.content.readexactly(100)
            page.api.users.clear()
            page.clock.advance(60)
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()


async def test_waste_is_read_from_rows_that_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def counted(name: str, *of: Any) -> Any:
        made.append(name)
        return node_row(name, *of)

    monkeypatch.setattr(live, "node_row", counted)
    async with scene() as page:
        device = {"index": 0, "product": "H100", "mode": "whole", "offers": [{"resource": "nvidia.com/gpu"}]}
        for name in ("n1", "n2"):
            held = [{"namespace": SPACES[1], "pod": "p", "container": "c", "resource": "r", "device": "A-n1"}]
            page.gpu_nodes[name] = observed(name, devices=[{**device, "uuid": f"A-{name}"}], holders=held)
        page.figures["A-n1"] = Figures(busy=0.0)
        page.may(*SPACES)
        found = json.loads((await page.ask("/page/waste", headers=BEARER))[1])
        assert [(each["node"], each["pod"]) for each in found["idle"]] == [("n1", f"{SPACES[1]}/p")]
        assert [each["node"] for each in found["unused"]] == ["n2"]
        page.clock.advance(LISTED_S[1])
        page.may()
        hidden = json.loads((await page.ask("/page/waste", headers=BEARER))[1])
        assert [each["hidden"] for each in hidden["idle"]] == [True]
        assert SPACES[1] not in json.dumps(hidden)
        assert made == ["n1", "n2"]


async def test_files_are_compressed_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"export const a = 1;\n" * 99
    found = asset("a.js", body)
    assert found.packed is not None
    assert (gzip.decompress(found.packed), asset("b.js", b"").packed) == (body, None)
    async with scene() as page:
        monkeypatch.setitem(page.page._assets._files, "views/a.js", found)
        code, got, headers = await page.ask("/page/views/a.js", headers={"Accept-Encoding": "gzip"})
        assert (code, got, headers["Content-Encoding"]) == (200, body, "gzip")
        code, got, headers = await page.ask("/page/views/a.js", headers={"Accept-Encoding": "identity"})
        assert (code, got, headers.get("Content-Encoding")) == (200, body, None)


async def test_one_address_gets_so_many_files_a_second() -> None:
    async with scene() as page:
        for _ in range(FILES_BURST):
            page.page._files.take("127.0.0.1", page.clock.monotonic())
        assert (await page.ask("/page/views/a.js"))[0] == 429
        assert (await page.ask("/"))[0] == 429
        assert (await page.ask("/page/session", headers=BEARER))[0] == 200


async def test_after_a_snapshot_its_thread_rests_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "_timed", taking(0.1))
    async with scene() as page:
        hub = page.page.hub
        await hub.round(["queues"])
        begun_s = time.monotonic()
        await asyncio.gather(*(hub.frame(VisibleNamespaces(frozenset({name})), "queues", None) for name in SPACES[:3]))
        assert time.monotonic() - begun_s >= 0.2


async def test_many_different_deltas_make_rounds_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_shell, "_timed", taking(0.02))
    async with scene() as page, page.browser() as browser:
        url = f"{page.url}/page/events?topics=fleet"
        async with browser.get(url, headers=BEARER, server_hostname=SERVED_AS) as answer:
            await events(answer)
            begun_s = time.monotonic()
            for count in range(5):
                page.gpu_nodes[f"node-{count}"] = observed(name=f"node-{count}")
                await events(answer)
        assert time.monotonic() - begun_s >= 3 * 0.02 * 8


def taking(seconds: float) -> Any:
    """Frames that are said to take so long."""
    return lambda *of: (Frame.of(*of), seconds)
