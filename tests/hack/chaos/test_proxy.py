"""The proxy between a client and its server: plain, it is not noticed; told so, it does each kind of harm."""

import asyncio
import http.client
import http.server
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hack.chaos.faults.others import expire
from hack.chaos.proxy import PLAIN, Mode, Proxy
from hack.cluster.controlplane import pki as keys
from hack.cluster.controlplane.pki import Pki
from hack.cluster.nodes.network import Addresses, Network
from kube.testing import eventually
from tests.support.hang import HANG_S


class Server(http.server.ThreadingHTTPServer):
    """Answers each request with its method and body, and notes them."""

    def __init__(self, pki: Pki) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki.file("apiserver.crt"), pki.file("apiserver.key"))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.heard: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections are aborted here on purpose."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        assert isinstance(self.server, Server)
        self.server.heard.append(f"{self.command} {body}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.command} {body}".encode())

    do_GET = do_POST  # noqa: N815 - the base's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base has it
        pass


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return keys.create(tmp_path_factory.mktemp("pki"), Addresses(Network("10.250.0.0/16")))


@pytest.fixture
def server(pki: Pki) -> Iterator[Server]:
    with Server(pki) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(pki: Pki, server: Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", int(server.server_address[1])), pki) as proxy:
        yield proxy


def ask(proxy: Proxy, pki: Pki, body: str | None = None) -> tuple[int, str]:
    """Status and body of an answer. Raises OSError where there is none."""
    context = ssl.create_default_context(cafile=pki.ca)
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    data = None if body is None else body.encode()
    try:
        request = urllib.request.Request(f"https://127.0.0.1:{proxy.port}/x", data=data)
        with urllib.request.build_opener(*handlers).open(request, timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_a_plain_proxy_is_not_noticed(proxy: Proxy, pki: Pki) -> None:
    assert ask(proxy, pki) == (200, "GET ")
    assert ask(proxy, pki, "body") == (200, "POST body")


def test_a_cut_connection_has_no_answer_and_the_next_after_it_has(proxy: Proxy, pki: Pki, server: Server) -> None:
    proxy.set(Mode(cut=True))
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on when the cut is noticed
        ask(proxy, pki)
    assert not server.heard
    proxy.set(PLAIN)
    assert ask(proxy, pki)[0] == 200


@pytest.mark.parametrize("code", [401, 410, 429, 500, 504])
def test_an_answer_of_its_own_does_not_reach_the_server(proxy: Proxy, pki: Pki, server: Server, code: int) -> None:
    proxy.set(Mode(answer=code))
    status, body = ask(proxy, pki, "body")
    assert (status, server.heard) == (code, [])
    assert '"kind":"Status"' in body


def test_reads_alone_are_refused_where_that_is_said(proxy: Proxy, pki: Pki) -> None:
    proxy.set(Mode(answer=410, reads=True))
    assert ask(proxy, pki)[0] == 410
    assert ask(proxy, pki, "body") == (200, "POST body")


async def test_a_request_is_sent_twice_and_answered_once(proxy: Proxy, pki: Pki, server: Server) -> None:
    proxy.set(Mode(twice=True))
    assert ask(proxy, pki, "body") == (200, "POST body")
    await eventually(lambda: server.heard == ["POST body"] * 2)


async def test_bursts_of_answers_come_and_go(proxy: Proxy, pki: Pki) -> None:
    proxy.set(Mode(answer=504, bursts_s=0.05))
    seen: set[int] = set()

    def asked(*codes: int) -> bool:
        with suppress(OSError, http.client.HTTPException):  # a turn ends connections
            seen.add(ask(proxy, pki)[0])
        return seen >= set(codes)

    await eventually(lambda: asked(200, 504))
    seen.clear()
    await eventually(lambda: asked(200, 504))
    proxy.set(PLAIN)
    assert {ask(proxy, pki)[0] for _ in range(3)} == {200}


def test_a_list_is_answered_as_it_was_and_a_write_goes_through(proxy: Proxy, pki: Pki, server: Server) -> None:
    proxy.set(Mode(stale=True))
    assert [ask(proxy, pki), ask(proxy, pki)] == [(200, "GET ")] * 2
    assert ask(proxy, pki, "body") == (200, "POST body")
    assert server.heard == ["GET ", "POST body"]
    assert proxy.counted.stale == 1
    proxy.set(Mode(stale=True))
    ask(proxy, pki)
    assert server.heard.count("GET ") == 2, "what was true in another mode is forgotten"


async def test_a_write_that_is_held_arrives_when_it_is_released(proxy: Proxy, pki: Pki, server: Server) -> None:
    proxy.set(Mode(holds=True))
    assert ask(proxy, pki) == (200, "GET ")
    writing = asyncio.create_task(asyncio.to_thread(_failed, proxy, pki))
    await eventually(lambda: proxy.counted.held == 1)
    assert server.heard == ["GET "]
    assert await asyncio.to_thread(proxy.release) == 1
    assert server.heard == ["GET ", "POST late"]
    assert await asyncio.to_thread(proxy.release) == 0
    proxy.set(PLAIN)
    assert await writing, "whoever wrote it has no answer"


def _failed(proxy: Proxy, pki: Pki) -> bool:
    try:
        ask(proxy, pki, "late")
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_an_expired_certificate_is_refused_by_the_client(proxy: Proxy, pki: Pki) -> None:
    expire(pki, "apiserver", "expired")
    proxy.present("expired")
    with pytest.raises(urllib.error.URLError, match="certificate has expired"):
        ask(proxy, pki)
    proxy.present("apiserver")
    with suppress(FileNotFoundError):
        Path(pki.file("expired.crt")).unlink()
    assert ask(proxy, pki)[0] == 200


def test_what_passes_is_told_connection_by_connection(pki: Pki, server: Server) -> None:
    told: dict[int, list[tuple[bool, bytes]]] = {}

    def passed(number: int, up: bool, data: bytes) -> None:
        told.setdefault(number, []).append((up, data))

    with Proxy(("127.0.0.1", int(server.server_address[1])), pki, passed) as proxy:
        for body in ("one", "two"):
            ask(proxy, pki, body)
    assert sorted(told) == [1, 2]
    for number, sent_body in ((1, b"one"), (2, b"two")):
        sent = b"".join(data for up, data in told[number] if up)
        received = b"".join(data for up, data in told[number] if not up)
        assert sent.startswith(b"POST /x")
        assert sent.endswith(sent_body)
        assert sent_body in received
