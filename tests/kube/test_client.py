"""The client against the fake API server."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import kube.client
from kube.client import Client, Selection, decoder, describe
from kube.clock import Backoff, pause_s
from kube.config import ClusterConfig
from kube.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    StartingError,
    UnavailableError,
    from_response,
)
from kube.objects import Metadata, label_managers
from kube.resources import EVENTS, NODES, PODS
from kube.testing import FakeApiServer, eventually
from tests.support.hang import HANG_S


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, "node-1", {"metadata": {"labels": {"a": "1"}}})
        yield server


class Requests:
    """Headers of what was asked of a server that answers all."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        return web.Response(text="ok")


@pytest.fixture
async def heard() -> AsyncIterator[Requests]:
    requests, app = Requests(), web.Application()
    app.router.add_get("/{rest:.*}", requests.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    requests.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield requests
    await runner.cleanup()


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(server.config, timeout_s=HANG_S) as client:
        yield client


def labelled(labels: dict[str, str], *, uid: str | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "node-1", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta | ({"uid": uid} if uid else {})}


async def test_get_decodes_into_the_callers_struct(client: Client) -> None:
    node = await client.get(NODES, "node-1", Metadata)
    assert node.metadata.labels == {"a": "1"}
    assert node.metadata.uid == "uid-0001"


async def test_apply_adds_and_a_later_apply_takes_back_what_it_no_longer_says(client: Client) -> None:
    await client.apply(NODES, "node-1", labelled({"x": "1", "y": "2"}), Metadata, field_manager="me")
    node = await client.apply(NODES, "node-1", labelled({"y": "3"}), Metadata, field_manager="me")
    assert node.metadata.labels == {"a": "1", "y": "3"}
    assert label_managers(node.metadata, "y") == ("me",)


async def test_apply_conflicts_with_another_owner_unless_forced(client: Client) -> None:
    with pytest.raises(ConflictError, match=r"metadata\.labels\.a"):
        await client.apply(NODES, "node-1", labelled({"a": "2"}), Metadata, field_manager="me")
    node = await client.apply(NODES, "node-1", labelled({"a": "2"}), Metadata, field_manager="me", force=True)
    assert label_managers(node.metadata, "a") == ("me",)


async def test_a_label_that_two_own_stays_when_one_drops_it(server: FakeApiServer, client: Client) -> None:
    server.apply(NODES, "node-1", labelled({"x": "1"}), manager="other")
    await client.apply(NODES, "node-1", labelled({"x": "1"}), Metadata, field_manager="me")
    node = await client.apply(NODES, "node-1", labelled({}), Metadata, field_manager="me")
    assert node.metadata.labels["x"] == "1"
    assert label_managers(node.metadata, "x") == ("other",)


async def test_apply_with_a_uid_never_creates(client: Client) -> None:
    with pytest.raises(ConflictError):
        await client.apply(NODES, "gone", labelled({}, uid="uid-9"), Metadata, field_manager="me")
    with pytest.raises(ConflictError):
        await client.apply(NODES, "node-1", labelled({}, uid="uid-9"), Metadata, field_manager="me")


async def test_json_patch_with_a_test_fails_when_the_value_moved_on(client: Client) -> None:
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/labels/a", "value": "0"},
        {"op": "remove", "path": "/metadata/labels/a"},
    ]
    with pytest.raises(InvalidError):
        await client.json_patch(NODES, "node-1", steps, Metadata, field_manager="me")
    steps[0]["value"] = "1"
    assert (await client.json_patch(NODES, "node-1", steps, Metadata, field_manager="me")).metadata.labels == {}


async def test_create_update_merge_and_delete(client: Client) -> None:
    made = await client.create(EVENTS, {"metadata": {"name": "e"}}, Metadata, namespace="default")
    with pytest.raises(ConflictError) as caught:
        await client.create(EVENTS, {"metadata": {"name": "e"}}, Metadata, namespace="default")
    assert caught.value.reason == "AlreadyExists"
    body = {"metadata": {"name": "e", "resourceVersion": made.metadata.resource_version, "labels": {"k": "v"}}}
    changed = await client.update(EVENTS, "e", body, Metadata, namespace="default")
    assert changed.metadata.labels == {"k": "v"}
    with pytest.raises(ConflictError):
        await client.update(EVENTS, "e", body, Metadata, namespace="default")
    merged = await client.merge_patch(EVENTS, "e", {"metadata": {"labels": {"k": None}}}, Metadata, namespace="default")
    assert merged.metadata.labels == {}
    with pytest.raises(ConflictError):
        await client.delete(EVENTS, "e", namespace="default", uid="uid-other")
    await client.delete(EVENTS, "e", namespace="default", uid=made.metadata.uid)
    with pytest.raises(NotFoundError):
        await client.get(EVENTS, "e", Metadata, namespace="default")


async def test_a_dead_connection_and_a_busy_server_are_both_unavailable(server: FakeApiServer, client: Client) -> None:
    server.refuse = lambda _method, _path: 503
    with pytest.raises(UnavailableError):
        await client.get(NODES, "node-1", Metadata)
    server.down = True
    with pytest.raises(UnavailableError):
        await client.get(NODES, "node-1", Metadata)


async def test_a_server_that_never_answers_is_given_up(server: FakeApiServer) -> None:
    server.mute = True
    async with Client(server.config, timeout_s=0.05) as client:
        with pytest.raises(UnavailableError):
            await client.get(NODES, "node-1", Metadata)


async def test_a_token_that_rotated_is_tried_once_more(server: FakeApiServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    config = ClusterConfig(server=server.config.server, token_file=file)
    server.token = "old"
    async with Client(config) as client:
        await client.get(NODES, "node-1", Metadata)
        file.write_text("new")
        server.token = "new"
        await client.get(NODES, "node-1", Metadata)
        server.token = "newer"
        with pytest.raises(ForbiddenError):
            await client.get(NODES, "node-1", Metadata)


async def test_a_watch_sees_changes_of_any_size_from_where_the_list_ended(
    server: FakeApiServer, client: Client
) -> None:
    listing = await client.list_all(NODES, Metadata)
    server.merge(NODES, "node-1", {"metadata": {"annotations": {"big": "x" * 300_000}}})
    server.delete(NODES, "node-1")
    seen = []
    async for event in client.watch(NODES, Metadata, resource_version=listing.resource_version):
        seen.append(event.type)
        if event.type == "DELETED":
            break
    assert seen == ["MODIFIED", "DELETED"]


async def test_a_watch_too_far_back_is_expired(server: FakeApiServer, client: Client) -> None:
    listing = await client.list_all(NODES, Metadata)
    server.store.compact()
    server.merge(NODES, "node-1", {"metadata": {"labels": {"b": "1"}}})
    with pytest.raises(ExpiredError):
        async for _ in client.watch(NODES, Metadata, resource_version=listing.resource_version):
            pass


async def test_lists_take_selectors(server: FakeApiServer, client: Client) -> None:
    for name, node in (("p", "node-1"), ("q", "node-2")):
        server.create(PODS, name, {"metadata": {}, "spec": {"nodeName": node}}, namespace="default")
    listing = await client.list_all(PODS, Metadata, Selection(field_selector="spec.nodeName=node-2"))
    assert [pod.metadata.name for pod in listing.items] == ["q"]


async def test_no_number_of_watches_keeps_a_call_waiting(server: FakeApiServer) -> None:
    async with Client(server.config, timeout_s=HANG_S, connections=1) as client, asyncio.TaskGroup() as group:

        async def watch() -> None:
            async for _ in client.watch(NODES, Metadata, resource_version=str(server.store.version)):
                pass

        watches = [group.create_task(watch()) for _ in range(12)]
        await eventually(lambda: server.watchers == 12)
        await client.get(NODES, "node-1", Metadata)
        for task in watches:
            task.cancel()


async def test_a_status_is_written_under_its_own_path(server: FakeApiServer, client: Client) -> None:
    body = labelled({})
    await client.apply(NODES, "node-1", body, Metadata, field_manager="me", subresource="status")
    await client.merge_patch(NODES, "node-1", {}, Metadata, field_manager="me", subresource="status")
    await client.json_patch(NODES, "node-1", [], Metadata, field_manager="me", subresource="status")
    await client.update(NODES, "node-1", body, Metadata, subresource="status")
    assert {request.path for request in server.requests} == {"/api/v1/nodes/node-1/status"}


def test_an_error_body_that_is_no_status_is_cut() -> None:
    error = from_response("GET /x", 502, b"<html>" + b"x" * 10_000)
    assert isinstance(error, UnavailableError)
    assert len(str(error)) < 400


def test_retry_after_is_kept() -> None:
    error = from_response("GET /x", 429, b"{}", "7")
    assert isinstance(error, UnavailableError)
    assert error.retry_after_s == 7.0


def test_a_server_that_sets_up_storage_is_told_from_one_that_refuses() -> None:
    def told(message: str, status: int = 429) -> type[KubeError]:
        return type(from_response("GET /x", status, b'{"message": "%s"}' % message.encode(), "1"))

    assert told("storage is (re)initializing") is StartingError
    assert told("storage is (re)initializing: conversion webhook failed") is UnavailableError
    assert told("Too many requests, please try again later.") is UnavailableError
    assert told("storage is (re)initializing", 404) is NotFoundError
    assert told("storage is (re)initializing", 503) is UnavailableError


def test_the_youth_of_a_server_is_no_reason_for_longer_pauses() -> None:
    backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=10.0)
    young = StartingError("429", status=429, retry_after_s=1.0)
    assert [pause_s(young, backoff) for _ in range(8)] == [1.5] * 8
    assert pause_s(StartingError("429", status=429), backoff) == 1.5
    assert pause_s(StartingError("429", status=429, retry_after_s=600.0), backoff) == 7.5, "no server asks for so long"
    busy = UnavailableError("429", status=429, retry_after_s=1.0)
    assert [pause_s(busy, backoff) for _ in range(8)] == pytest.approx([1.2, 1.4, 1.8, 2.6, 4.2, 7.4, 11.0, 11.0])
    assert pause_s(young, Backoff(random=lambda: 0.0)) == 1.0
    assert pause_s(young, Backoff(random=lambda: 1.0)) == 2.0


def test_paths_are_quoted_and_namespaces_checked() -> None:
    assert NODES.path("a/b") == "/api/v1/nodes/a%2Fb"
    assert EVENTS.path("e", namespace="n") == "/apis/events.k8s.io/v1/namespaces/n/events/e"
    with pytest.raises(ValueError, match="not namespaced"):
        NODES.path(namespace="n")
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path("p")
    assert NODES.path("a", subresource="status") == "/api/v1/nodes/a/status"
    with pytest.raises(ValueError, match="needs the name"):
        NODES.path(subresource="status")


async def test_the_next_page_is_on_its_way_while_one_is_looked_at(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube.client, "_PAGE", 2)
    monkeypatch.setattr(kube.client, "_PAGE_BYTES", 0)
    for number in range(2, 6):
        server.create(NODES, f"node-{number}", {})
    async with Client(server.config) as client, aclosing(client.list_pages(NODES, decoder(Metadata))) as pages:
        first = await anext(pages)
        await eventually(lambda: len(server.seen("GET", "nodes")) == 2)
        rest = [page async for page in pages]
        assert [len(page.items) for page in (first, *rest)] == [2, 2, 1]
        assert len(await kept(client)) == 5


@pytest.mark.parametrize(("page_bytes", "sizes"), [(100, [2, 2, 2]), (1200, [2, 4]), (1 << 20, [2, 3, 1])])
async def test_pages_after_the_first_are_as_large_as_their_json_may_be(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, page_bytes: int, sizes: list[int]
) -> None:
    """Small objects come in few pages, and large ones are not held undecoded by the thousand."""
    monkeypatch.setattr(kube.client, "_PAGE", 2)
    monkeypatch.setattr(kube.client, "_MOST_PAGE", 3 if page_bytes == 1 << 20 else 1000)
    monkeypatch.setattr(kube.client, "_PAGE_BYTES", page_bytes)
    for number in range(2, 7):
        server.create(NODES, f"node-{number}", {})
    async with Client(server.config) as client, aclosing(client.list_pages(NODES, decoder(Metadata))) as pages:
        assert [len(page.items) async for page in pages] == sizes


async def test_who_stops_reading_pages_leaves_nothing_behind(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube.client, "_PAGE", 1)
    monkeypatch.setattr(kube.client, "_PAGE_BYTES", 0)
    server.create(NODES, "node-2", {})
    async with Client(server.config) as client:
        async with aclosing(client.list_pages(NODES, decoder(Metadata))) as pages:
            await anext(pages)
        assert not any("Client._page" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def kept(client: Client) -> set[str]:
    return {node.metadata.name for node in (await client.list_all(NODES, Metadata)).items}


@pytest.mark.parametrize(("compressed", "expected"), [(True, "gzip"), (False, "identity")])
async def test_a_client_of_the_same_network_asks_for_no_compression(
    compressed: bool, expected: str, heard: Requests
) -> None:
    async with Client(ClusterConfig(server=heard.url), compressed=compressed) as client:
        await client.text("/healthz")
    assert expected in heard.headers[0]["Accept-Encoding"]


async def test_a_page_of_a_list_may_take_longer_than_other_answers(server: FakeApiServer) -> None:
    """A leader's calls are short because writes must end before its lease; a busy server needs longer for a list."""
    server.hold = asyncio.Event()
    async with Client(server.config, timeout_s=0.1) as client:
        listing = asyncio.create_task(client.list_all(NODES, Metadata))
        with pytest.raises(UnavailableError):
            await client.get(NODES, "node-1", Metadata)
        assert not listing.done()
        server.hold.set()
        assert [node.metadata.labels for node in (await listing).items] == [{"a": "1"}]


async def test_requests_go_by_the_proxy_that_the_kubeconfig_names_and_take_the_part_it_names(heard: Requests) -> None:
    """The proxy is the server here: an HTTP client asks it for the whole address."""
    headers = (("Impersonate-User", "jane"), ("Impersonate-Group", "devs"), ("Impersonate-Group", "ops"))
    config = ClusterConfig(server="http://api.lab.invalid", proxy_url=heard.url, headers=headers)
    async with Client(config) as client:
        assert await client.text("/version") == b"ok"
    (sent,) = heard.headers
    assert sent["Host"] == "api.lab.invalid"
    assert [value for key, value in sent.items() if key == "Impersonate-Group"] == ["devs", "ops"]
    assert (sent["Impersonate-User"], sent["Accept"]) == ("jane", "application/json")


def test_a_client_reads_the_systems_authorities_where_no_other_is_named() -> None:
    code = (
        "import asyncio, ssl\n"
        "from kube.client import Client\n"
        "from kube.config import ClusterConfig\n"
        "async def look():\n"
        "    async with Client(ClusterConfig(server='https://a')) as client:\n"
        "        return len(client._session.connector._ssl.get_ca_certs())\n"
        "held = asyncio.run(look())\n"
        "from aiohttp import connector\n"
        "print(held, len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    held, unused = map(int, done.stdout.split())
    assert held == len(ssl.create_default_context().get_ca_certs())
    assert unused == 0


@pytest.mark.parametrize("body", [b"two\nlines\n", b"\xff\xfe"])
async def test_a_token_file_that_no_header_can_carry_is_an_error_to_try_again_after(
    tmp_path: Path, server: FakeApiServer, body: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(body)
    async with Client(ClusterConfig(server=server.config.server, token_file=file)) as client:
        with pytest.raises(UnavailableError, match=r"expected (a token|UTF-8 text)"):
            await client.list_all(NODES, Metadata)


@pytest.mark.parametrize("address", ["http://me:hush@127.0.0.1:1", "http://me:hush@h:abc", "http://a..b"])
async def test_an_address_that_cannot_be_asked_is_an_error_without_its_password(address: str) -> None:
    async with Client(ClusterConfig(server=address, token="t")) as client:
        with pytest.raises(UnavailableError) as failed:
            await client.text("/version")
    assert "hush" not in str(failed.value)


def test_an_error_that_shows_an_address_shows_no_user_of_it() -> None:
    """aiohttp's error of a proxy that answers 407 has the proxy's address in it."""
    assert describe(ValueError("407, url='http://me:hush@proxy:1'")) == "407, url='http://proxy:1'"
