"""One replica's webhook over real TLS: it comes up, answers, exchanges its certificate, and survives outages."""

import asyncio
import contextlib
import gzip
import io
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from controller.cluster.webhooks.apart.server_shell import WebhookServer
from controller.cluster.webhooks.certificates import advanced
from controller.cluster.webhooks.injection import CRDS, ServiceTarget
from controller.cluster.webhooks.keeper import SECRETS, OwnCertificates, SecretName
from controller.cluster.webhooks.service import AGAIN_S, PERIOD_S, WebhookService, service_names
from controller.cluster.webhooks.tls import CertificateError, Served
from kube.client import Client
from kube.clock import Backoff
from kube.listening.connection import Times
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.controller.objects.conversion.test_review import queue, review

NAME = SecretName("ns", "certificates")
TARGET = ServiceTarget("ns", "hook")
NAMES = (*service_names("ns", "hook"), "127.0.0.1")
CRD = "workloads.kueue.x-k8s.io"


class Replica:
    def __init__(self, client: Client, clock: VirtualClock, times: Times | None = None, **options: Any) -> None:
        self.certificates = OwnCertificates(client, NAME, names=NAMES, clock=clock)
        self.server = WebhookServer(host="127.0.0.1", port=0, ready=lambda: self.service.ready, times=times)
        self.service = WebhookService(
            client, self.server, self.certificates, TARGET,
            clock=clock, backoff=Backoff(random=lambda: 0.5, initial_s=1.0), **options,
        )  # fmt: skip

    def call(
        self, path: str, body: bytes | None, trusted: bytes, **headers: str
    ) -> contextlib.AbstractAsyncContextManager[Any]:
        return call(self.server.port, path, body, trusted, **headers)


@contextlib.asynccontextmanager
async def call(
    port: int, path: str, body: bytes | None, trusted: bytes, host: str = "127.0.0.1", **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """As the API server calls: trusting the bundle alone, checking the name."""
    context = ssl.create_default_context(cadata=trusted.decode())
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        method = "GET" if body is None else "POST"
        data = None if body is None else io.BytesIO(body)
        async with session.request(method, f"https://{host}:{port}{path}", data=data, headers=headers) as answer:
            yield answer


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(CRDS, CRD, {"metadata": {"name": CRD}, "spec": {}})
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    # TLS looks at the machine's clock.
    return VirtualClock(wall_s=time.time())


@pytest.fixture
async def replica(api: FakeApiServer, clock: VirtualClock) -> AsyncIterator[Replica]:
    async with Client(api.config) as client:
        yield Replica(client, clock)


@contextlib.asynccontextmanager
async def running(replica: Replica) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(replica.service.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def at_ready(replica: Replica) -> Callable[[], bool]:
    return lambda: replica.service.ready


def bundle(api: FakeApiServer) -> Any:
    return api.get(CRDS, CRD)["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig", {}).get("caBundle")


async def test_it_comes_up_answers_and_is_trusted_by_the_bundle_it_wrote(api: FakeApiServer, replica: Replica) -> None:
    async with running(replica):
        await eventually(at_ready(replica))
        trusted = (await replica.certificates.current()).trusted
        async with replica.call("/convert", review(queue("a", cohort="c")), trusted) as answer:
            assert answer.content_type == "application/json"
            assert (await answer.json())["response"]["convertedObjects"][0]["spec"] == {"cohortName": "c"}
        async with replica.call("/mutate-job", b"{}", trusted) as answer:
            assert (await answer.json())["response"]["allowed"] is False
        for path in ("/healthz", "/readyz"):
            async with replica.call(path, None, trusted) as answer:
                assert answer.status == 200
        async with replica.call("/convert", b"hostile", trusted) as answer:
            assert (await answer.json())["response"]["result"]["status"] == "Failed"
        packed = gzip.compress(review(queue("a", cohort="c")))
        async with replica.call("/convert", packed, trusted, **{"Content-Encoding": "gzip"}) as answer:
            assert (await answer.json())["response"]["result"]["status"] == "Failed", "nothing is unpacked for anybody"
        async with replica.call("/elsewhere", None, trusted) as answer:
            assert answer.status == 404
        assert bundle(api)
    assert not replica.server.serving


async def test_a_new_certificate_is_presented_without_a_restart(
    api: FakeApiServer, replica: Replica, clock: VirtualClock
) -> None:
    async with running(replica):
        await eventually(at_ready(replica))
        first = await replica.certificates.current()
        port = replica.server.port
        # As after a rotation, by another authority: what trusts only the first one must no longer be answered.
        async with FakeApiServer() as elsewhere, Client(elsewhere.config) as client:
            other = await OwnCertificates(client, NAME, names=NAMES, clock=clock).current()
            found = elsewhere.get(SECRETS, NAME.name, namespace=NAME.namespace)["data"]
        api.delete(SECRETS, NAME.name, namespace=NAME.namespace)
        api.create(SECRETS, NAME.name, {"metadata": {}, "data": found}, namespace=NAME.namespace)
        await replica.service.round()
        assert replica.server.port == port
        async with replica.call("/healthz", None, other.trusted) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            async with replica.call("/healthz", None, first.trusted):
                pass


async def test_a_certificate_that_cannot_be_used_leaves_the_old_one_in_use(replica: Replica) -> None:
    await replica.service.round()
    served = await replica.certificates.current()
    stranger = advanced(None, NAMES, time.time()).serving
    for broken in (
        Served(certificate=stranger.certificate, key=served.key, trusted=b""),
        Served(certificate=b"x", key=b"y", trusted=b""),
        Served(certificate=served.certificate, key=b"-----BEGIN PRIVATE KEY-----\nxx\n", trusted=b""),
    ):
        with pytest.raises(CertificateError) as refused:
            await replica.server.use(broken)
        assert "BEGIN" not in str(refused.value)
    async with replica.call("/healthz", None, served.trusted) as answer:
        assert answer.status == 200
    await replica.server.stop()


async def test_webhooks_wait_for_an_api_server_that_is_away(
    api: FakeApiServer, replica: Replica, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    api.down = True
    async with running(replica):
        await eventually(lambda: clock.next_wake_s is not None)
        assert not replica.service.ready
        for _ in range(3):
            before = len(api.requests)
            clock.advance(60)
            await eventually(lambda before=before: len(api.requests) > before and clock.next_wake_s is not None)  # type: ignore[misc]
        assert len([record for record in caplog.records if "trying again" in record.message]) == 1
        api.down = False
        clock.advance(60)
        await eventually(at_ready(replica))


async def test_a_bundle_that_somebody_overwrote_is_back_within_a_minute(
    api: FakeApiServer, replica: Replica, clock: VirtualClock
) -> None:
    async with running(replica):
        await eventually(at_ready(replica))
        good = bundle(api)
        api.merge(CRDS, CRD, {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "b2xk"}}}}})
        await eventually(lambda: clock.next_wake_s is not None)
        clock.advance(PERIOD_S)
        await eventually(lambda: bundle(api) == good)


async def test_two_replicas_serve_one_certificate(api: FakeApiServer, clock: VirtualClock) -> None:
    async with Client(api.config) as client:
        both = [Replica(client, clock), Replica(client, clock)]
        async with running(both[0]), running(both[1]):

            def both_ready() -> bool:
                clock.advance(1.0)  # who lost the race for the CRD tries again
                return all(one.service.ready for one in both)

            await eventually(both_ready, what="both ready")
            trusted = (await both[0].certificates.current()).trusted
            for one in both:
                async with one.call("/readyz", None, trusted) as answer:
                    assert answer.status == 200
        assert len(api.list_all(SECRETS)) == 1


async def test_what_may_not_be_taken_over_is_said_once(
    api: FakeApiServer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert", "port": 443}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}}
    api.merge(CRDS, CRD, {"spec": {"conversion": conversion}})
    allowed: list[bool] = []
    async with Client(api.config) as client:
        replica = Replica(client, clock, leading=lambda: bool(allowed))
        for _ in range(3):
            await replica.service.round()
        assert bundle(api) is None
        assert len([record for record in caplog.records if "kueue-webhook-service" in record.message]) == 1
        allowed.append(True)
        await replica.service.round()
        assert bundle(api)
        await replica.server.stop()


async def test_a_replica_that_begins_to_lead_soon_turns_off_what_it_is_to_turn_off(
    api: FakeApiServer, clock: VirtualClock
) -> None:
    versions = [{"name": "v1beta1", "served": True, "storage": False}]
    api.merge(CRDS, CRD, {"spec": {"versions": versions}})
    leading: list[bool] = []
    async with Client(api.config) as client:
        replica = Replica(client, clock, leading=lambda: bool(leading), serve_old_workloads=False)
        assert await replica.service.round() == AGAIN_S
        assert api.get(CRDS, CRD)["spec"]["versions"] == versions
        leading.append(True)
        assert await replica.service.round() == PERIOD_S
        assert not api.get(CRDS, CRD)["spec"]["versions"][0]["served"]
        await replica.server.stop()


async def test_a_port_that_is_taken_ends_it_with_the_systems_word(api: FakeApiServer, clock: VirtualClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with Client(api.config) as client:
            replica = Replica(client, clock)
            replica.server._port = taken.getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                await replica.service.run()


async def test_who_sends_too_slowly_is_cut_off(api: FakeApiServer, clock: VirtualClock) -> None:
    async with Client(api.config) as client:
        replica = Replica(client, clock, times=Times(body_s=0.05))
        await replica.service.round()
        context = ssl.create_default_context(cadata=(await replica.certificates.current()).trusted.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", replica.server.port, ssl=context)
        writer.write(b"POST /convert HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await replica.server.stop()


async def test_a_body_over_the_limit_is_refused(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.webhooks.apart.server_shell.MANY_BYTES", 1000)
    await replica.service.round()
    trusted = (await replica.certificates.current()).trusted
    async with replica.call("/convert", b"x" * 2000, trusted) as answer:
        assert answer.status == 413
    await replica.server.stop()


async def test_a_large_list_is_answered_whole(replica: Replica) -> None:
    await replica.service.round()
    trusted = (await replica.certificates.current()).trusted
    body = json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {
                "uid": "u",
                "desiredAPIVersion": "kueue.x-k8s.io/v1beta2",
                "objects": [queue(f"q{index}", cohort="c" * 2_500) for index in range(2_000)],
            },
        }
    ).encode()
    assert len(body) > 4 * 1024 * 1024
    async with replica.call("/convert", body, trusted) as answer:
        assert len((await answer.json())["response"]["convertedObjects"]) == 2_000
    await replica.server.stop()
