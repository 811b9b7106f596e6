"""The two processes together: what is served by what was told, what is asked, and what happens when one dies."""

import asyncio
import contextlib
import gc
import io
import json
import os
import signal
import socket
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from controller.cluster.config.load import default
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.webhooks import claims, dryrun
from controller.cluster.webhooks.apart.messages import (
    MOST_ASKED_BYTES,
    Asked,
    Certificate,
    FrameError,
    Known,
    Setup,
    framed,
    length,
    to_decide,
    to_serve,
)
from controller.cluster.webhooks.apart.parent_shell import Answered, Child, ServingProcess, spawned
from controller.cluster.webhooks.certificates import Pair, new_authority, new_client, new_serving
from controller.cluster.webhooks.claims import OwnerPod
from controller.cluster.webhooks.tls import CertificateError, Served, load
from kube.clock import Backoff, SystemClock
from kube.testing import eventually
from tests.controller.objects.conversion.test_review import queue, review
from tests.support.controller.webhookprocess import InThisLoop, in_this_loop
from tests.support.hang import HANG_S

TEAM = Known(frozenset({"team"}))
PLAN = '{"gpu":{"main":{"gpu.nvidia.com/uuid":["GPU-1"]}}}'


def config(**webhook: Any) -> ControllerConfig:
    found = default()
    here = msgspec.structs.replace(found.webhook, host="127.0.0.1", port=0, **webhook)
    return msgspec.structs.replace(found, webhook=here)


def job(operation: str = "CREATE", **request: Any) -> bytes:
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {}}}
    whole = {"uid": "u", "operation": operation, "namespace": "team", "object": made, **request}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}).encode()


def claim() -> bytes:
    metadata = {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "1", "controller": True}],
    }
    requests = [{"name": "main", "exactly": {"deviceClassName": "gpu"}}]
    made = {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {"requests": requests}}}
    whole = {"uid": "u", "operation": "CREATE", "namespace": "team", "object": made}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}).encode()


@dataclass
class Both:
    """The deciding process's side of both, and clients that trust the other."""

    authority: Pair = field(default_factory=lambda: new_authority(time.time()))
    known: Known | None = TEAM
    answers: dict[str, Answered] = field(default_factory=dict)
    started: list[Child] = field(default_factory=list)
    process: ServingProcess = field(init=False)

    def served(self) -> Served:
        pair = new_serving(self.authority, ("127.0.0.1",), time.time())
        return Served(certificate=pair.certificate, key=pair.key, trusted=self.authority.certificate)

    async def start(self, end: socket.socket) -> Child:
        self.started.append(await in_this_loop(end))
        return self.started[-1]

    async def ask(
        self, path: str, body: bytes | None, client: Pair | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if client is not None:
            load(context, client.certificate, client.key)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            method, url = "GET" if body is None else "POST", f"https://127.0.0.1:{self.process.port}{path}"
            data = None if body is None else io.BytesIO(body)
            async with session.request(method, url, data=data, headers=headers) as answer:
                text = await answer.read()
                is_json = answer.content_type == "application/json"
                return answer.status, json.loads(text) if is_json else text.decode(), answer.headers

    async def response(self, path: str, body: bytes) -> dict[str, Any]:
        status, found, _ = await self.ask(path, body)
        assert status == 200, found
        response: dict[str, Any] = found["response"]
        return response


@contextlib.asynccontextmanager
async def serving(given: ControllerConfig | None = None, **options: Any) -> AsyncIterator[Both]:
    pair = Both(**options)
    backoff = Backoff(random=lambda: 0.5, initial_s=0.01)
    pair.process = ServingProcess(
        given or config(), lambda: pair.known, pair.answers, clock=SystemClock(), backoff=backoff, start=pair.start
    )
    await pair.process.use(pair.served())
    await pair.process.start()
    try:
        yield pair
    finally:
        await pair.process.stop()


async def test_what_is_told_is_answered_by() -> None:
    async with serving() as pair:
        await eventually_ready(pair)
        patched = await pair.response("/mutate-job", job())
        assert patched["allowed"]
        assert "patch" in patched, "its namespace has a default queue"
        assert "patch" not in await pair.response("/mutate-job", job(namespace="other"))
        pair.known = Known(frozenset({"other"}), (("batch", "Job", ("spec", "held")),))

        async def other() -> bool:
            return "patch" in await pair.response("/mutate-job", job(namespace="other"))

        await until(other)
        assert "patch" not in await pair.response("/mutate-job", job())


async def test_conversion_needs_nothing_and_admission_waits_for_what_it_depends_on() -> None:
    async with serving(known=None) as pair:
        converted = await pair.response("/convert", review(queue("a", cohort="c")))
        assert converted["convertedObjects"][0]["spec"] == {"cohortName": "c"}
        status, _, headers = await pair.ask("/mutate-job", job())
        assert (status, headers["Retry-After"]) == (503, "1")
        assert (await pair.ask("/readyz", None))[0] == 503
        assert (await pair.ask("/healthz", None))[0] == 200
        pair.known = TEAM
        await eventually_ready(pair)
        assert (await pair.response("/mutate-job", job()))["allowed"]


async def test_what_only_the_deciding_process_knows_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.webhooks.apart.child_shell.ASKS_S", HANG_S)
    monkeypatch.setattr("controller.cluster.webhooks.apart.parent_shell.ANSWER_S", HANG_S)
    asked: list[Any] = []

    async def of_claim(question: bytes) -> bytes:
        asked.append(msgspec.msgpack.decode(question, type=OwnerPod))
        return PLAN.encode()

    async def of_dry_run(question: bytes) -> bytes:
        asked.append(msgspec.msgpack.decode(question, type=dryrun.DryRun))
        return msgspec.msgpack.encode(["would wait"])

    async with serving(answers={claims.PATH: of_claim, dryrun.PATH: of_dry_run}) as pair:
        await eventually_ready(pair)
        assert "patch" in await pair.response("/mutate-claim", claim())
        assert (await pair.response("/forecast", job(dryRun=True)))["warnings"] == ["would wait"]
        assert "warnings" not in await pair.response("/forecast", job(dryRun=False))
        assert [type(each) for each in asked] == [OwnerPod, dryrun.DryRun], "what needs no answer is not asked"


async def test_a_deciding_process_that_stands_still_stops_no_conversion_and_is_waited_for_half_a_second() -> None:
    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with serving(answers={claims.PATH: never, dryrun.PATH: never}) as pair:
        await eventually_ready(pair)
        claimed, told, converted = await asyncio.gather(
            pair.response("/mutate-claim", claim()),
            pair.response("/forecast", job(dryRun=True)),
            pair.response("/convert", review(queue("a", cohort="c"))),
        )
        assert claimed == {"uid": "u", "allowed": True}, "made as it was asked for"
        assert told["allowed"]
        assert "not known" in told["warnings"][0]
        assert converted["result"]["status"] == "Success"


async def test_questions_that_fail_or_are_too_many_are_answered_without(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: bytes) -> bytes:
        raise LookupError

    async with serving(answers={claims.PATH: broken}) as pair:
        await eventually_ready(pair)
        assert await pair.response("/mutate-claim", claim()) == {"uid": "u", "allowed": True}
        assert (await pair.response("/forecast", job(dryRun=True)))["allowed"], "nobody answers that here"
    assert "not answered" in caplog.text


async def test_a_process_that_dies_is_started_again_with_what_is_known_now() -> None:
    async with serving() as pair:
        await eventually_ready(pair)
        pair.known = Known(frozenset({"other"}))
        pair.started[0].kill()
        await eventually(lambda: pair.process.down)
        await eventually(lambda: pair.process.serving)
        await eventually_ready(pair)
        assert "patch" in await pair.response("/mutate-job", job(namespace="other"))
        assert len(pair.started) == 2


async def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    async with serving() as pair:
        start, refused = pair.start, [OSError(12, "no memory")]

        async def once_refused(end: socket.socket) -> Child:
            if refused:
                raise refused.pop()
            return await start(end)

        pair.process._start_child = once_refused
        pair.started[0].kill()
        await eventually(lambda: not refused)
        await eventually(lambda: pair.process.serving)


async def test_it_ends_when_the_deciding_process_does() -> None:
    async with serving() as pair:
        child = pair.started[0]
        assert isinstance(child, InThisLoop)
    assert child.task.done()
    assert not pair.process.serving
    assert not pair.process.down


async def test_a_port_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.webhooks.apart.child_shell._BIND_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = config()
        here = msgspec.structs.replace(given.webhook, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            async with serving(msgspec.structs.replace(given, webhook=here)):
                pass


async def test_a_port_that_the_process_before_still_holds_is_waited_for() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    given = config()
    here = msgspec.structs.replace(given.webhook, port=taken.getsockname()[1])
    asyncio.get_running_loop().call_later(0.2, taken.close)
    async with serving(msgspec.structs.replace(given, webhook=here)) as pair:
        assert pair.process.port == here.port


async def test_a_certificate_that_the_process_apart_cannot_use_leaves_the_old_one_in_use() -> None:
    async with serving() as pair:
        with pytest.raises(CertificateError):
            await pair.process.use(Served(certificate=b"x", key=b"y", trusted=b""))
        pair.started[0].kill()
        await eventually(lambda: pair.process.down)
        await eventually(lambda: pair.process.serving)
        assert (await pair.ask("/healthz", None))[0] == 200


async def test_a_client_certificate_is_asked_for_where_the_cluster_has_one() -> None:
    known, stranger = new_authority(time.time()), new_authority(time.time())
    given = config(client_ca=known.certificate.decode())
    async with serving(given) as pair:
        await eventually_ready(pair)
        shown = new_client(known, "api-server", time.time())
        for path, body in (("/mutate-job", job()), ("/mutate-claim", claim()), ("/forecast", job(dryRun=True))):
            assert (await pair.ask(path, body))[0] == 401
            assert (await pair.ask(path, body, shown))[0] == 200
        for client in (None, shown):
            assert (await pair.ask("/convert", review(queue("a")), client))[0] == 200, "it has none for conversions"
            assert (await pair.ask("/readyz", None, client))[0] == 200, "nor has the kubelet"
        with pytest.raises(aiohttp.ClientError):
            await pair.ask("/mutate-job", job(), new_client(stranger, "api-server", time.time()))


async def test_one_object_is_at_most_four_mib() -> None:
    async with serving() as pair:
        await eventually_ready(pair)
        for path in ("/mutate-job", "/mutate-claim", "/forecast"):
            assert (await pair.ask(path, b" " * (4 * 1024 * 1024 + 1)))[0] == 413
        assert (await pair.ask("/mutate-job", b" " * (4 * 1024 * 1024)))[0] == 200
        assert (await pair.ask("/convert", b" " * (4 * 1024 * 1024 + 1)))[0] == 200


async def test_bodies_above_the_room_for_all_are_asked_to_come_again() -> None:
    async with serving() as pair:
        await eventually_ready(pair)
        holding = [await opened(pair, 4 * 1024 * 1024, 4 * 1024 * 1024 - 1) for _ in range(8)]
        more = job() + b" " * 1000

        async def full() -> bool:
            status, _, headers = await pair.ask("/mutate-job", more)
            return (status, headers.get("Retry-After")) == (429, "1")

        await until(full)
        for writer in holding:
            writer.transport.abort()

        async def again() -> bool:
            return (await pair.ask("/mutate-job", more))[0] == 200

        await until(again)


async def test_of_large_reviews_one_is_taken_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.webhooks.apart.server_shell._TURN_S", 0.1)
    async with serving() as pair:
        first = await opened(pair, 5 * 1024 * 1024, 1, "/convert")
        large = b" " * (5 * 1024 * 1024)

        async def refused() -> bool:
            return (await pair.ask("/convert", large))[0] == 429

        await until(refused)
        assert (await pair.ask("/convert", review(queue("a"))))[0] == 200, "others go on"
        first.transport.abort()

        async def taken() -> bool:
            return (await pair.ask("/convert", large))[0] == 200

        await until(taken)


async def test_a_body_that_breaks_off_is_let_go_of_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a collection of cycles: aiohttp keeps the error of the connection, and the error its frames."""
    monkeypatch.setattr("controller.cluster.webhooks.apart.child_shell._TIDY_S", 3600.0)
    async with serving() as pair:
        await eventually_ready(pair)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            half = [await opened(pair, 4 * 1024 * 1024, 2 * 1024 * 1024) for _ in range(4)]
            await eventually(lambda: read_mib() >= 8)
            for writer in half:
                writer.transport.abort()
            await eventually(lambda: read_mib() < 1)
        finally:
            tracemalloc.stop()
            gc.enable()


async def test_a_real_process_serves_is_watched_and_ends_with_its_parent() -> None:
    pair = Both()
    processes: list[asyncio.subprocess.Process] = []

    async def start(end: socket.socket) -> Child:
        child = await spawned(end)
        assert isinstance(child, asyncio.subprocess.Process)
        processes.append(child)
        return child

    backoff = Backoff(random=lambda: 0.5, initial_s=0.01)
    pair.process = ServingProcess(config(), lambda: TEAM, {}, clock=SystemClock(), backoff=backoff, start=start)
    await pair.process.use(pair.served())
    await pair.process.start()
    await eventually_ready(pair)
    assert "patch" in await pair.response("/mutate-job", job())
    first = processes[0].pid
    arguments = [Path(f"/proc/{first}/{name}").read_bytes() for name in ("cmdline", "environ")]
    assert not any(b"PRIVATE KEY" in each for each in arguments)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: len(processes) == 2 and pair.process.serving, within_s=HANG_S)
    await eventually_ready(pair)
    await pair.process.stop()
    assert processes[1].returncode == 0, "it ended by itself"


def test_frames_that_nobody_can_mean_are_refused() -> None:
    with pytest.raises(FrameError):
        length((MOST_ASKED_BYTES + 1).to_bytes(4), MOST_ASKED_BYTES)
    for read in (to_serve, to_decide):
        for body in (b"", b"\xff", msgspec.msgpack.encode({"type": "Asked"}), msgspec.msgpack.encode([])):
            with pytest.raises(FrameError):
                read(body)
    assert to_decide(framed(Asked(1, "/p", b"q"))[4:]) == Asked(1, "/p", b"q")
    assert to_serve(framed(Setup(b"", 20))[4:]) == Setup(b"", 20)
    assert "k" not in repr(Certificate(b"c", b"key"))


def read_mib() -> float:
    """What the server has allocated for bodies."""
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/apart/server_shell.py")])
    return sum(each.size for each in found.statistics("filename")) / 1024 / 1024


async def eventually_ready(pair: Both) -> None:
    async def ready() -> bool:
        return (await pair.ask("/readyz", None))[0] == 200

    await until(ready)


async def until(condition: Callable[[], Any]) -> None:
    """``eventually`` for a question that takes a request."""
    async with asyncio.timeout(HANG_S):
        while not await condition():  # noqa: ASYNC110 - it takes a request to know
            await asyncio.sleep(0.02)


async def opened(pair: Both, announced: int, sent: int, path: str = "/mutate-job") -> asyncio.StreamWriter:
    """A connection whose request has come so far."""
    context = ssl.create_default_context(cadata=pair.authority.certificate.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", pair.process.port, ssl=context)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {announced}\r\n\r\n".encode() + b" " * sent)
    await writer.drain()
    return writer
