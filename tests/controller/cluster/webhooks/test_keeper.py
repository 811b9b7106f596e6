"""The shared Secret, against an API server that behaves: replicas agree, and nothing of a key is ever shown."""

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator

import pytest

from controller.cluster.webhooks.certificates import (
    ANNOUNCED_S,
    AUTHORITY_S,
    DAY_S,
    SERVING_S,
    SUCCEED_S,
    split,
)
from controller.cluster.webhooks.keeper import SECRETS, GivenCertificates, OwnCertificates, Secret, SecretName, read
from controller.cluster.webhooks.tls import CertificateError
from kube.client import Client
from kube.errors import NotFoundError, UnavailableError
from kube.testing import FakeApiServer, VirtualClock

NAME = SecretName("tessera-system", "certificates")
NAMES = ("hook.tessera-system.svc",)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(server.config) as client:
        yield client


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def replica(client: Client, clock: VirtualClock, *names: str) -> OwnCertificates:
    return OwnCertificates(client, NAME, names=names or NAMES, clock=clock)


def stored(server: FakeApiServer) -> dict[str, str]:
    found: dict[str, str] = server.get(SECRETS, NAME.name, namespace=NAME.namespace)["data"]
    return found


async def test_replicas_that_start_together_serve_the_same_certificate(
    server: FakeApiServer, client: Client, clock: VirtualClock
) -> None:
    served = await asyncio.gather(*(replica(client, clock).current() for _ in range(5)))
    assert len(set(served)) == 1
    assert len(server.list_all(SECRETS)) == 1
    assert served[0].certificate == read(stored(server)).serving.certificate


async def test_a_second_look_writes_nothing(server: FakeApiServer, client: Client, clock: VirtualClock) -> None:
    one = replica(client, clock)
    first = await one.current()
    writes = len(server.seen("POST", "")) + len(server.seen("PUT", ""))
    assert await one.current() == first
    assert await replica(client, clock).current() == first
    assert len(server.seen("POST", "")) + len(server.seen("PUT", "")) == writes


@pytest.mark.parametrize("after_s", [SERVING_S, AUTHORITY_S - SUCCEED_S + DAY_S], ids=["serving", "authority"])
async def test_replicas_that_renew_together_agree(client: Client, clock: VirtualClock, after_s: float) -> None:
    replicas = [replica(client, clock) for _ in range(4)]
    before = (await asyncio.gather(*(one.current() for one in replicas)))[0]
    clock.advance(after_s)
    after = await asyncio.gather(*(one.current() for one in replicas))
    assert len(set(after)) == 1
    assert after[0] != before


async def test_a_rotation_walks_through_announcement_and_succession(
    server: FakeApiServer, client: Client, clock: VirtualClock
) -> None:
    one = replica(client, clock)
    first = await one.current()
    clock.advance(AUTHORITY_S - SUCCEED_S + DAY_S)
    announced = await one.current()
    assert announced.trusted.count(b"BEGIN CERTIFICATE") == 2
    assert announced.trusted.startswith(first.trusted)
    clock.advance(ANNOUNCED_S + 60)
    succeeded = await one.current()
    assert set(split(succeeded.trusted)) == set(split(announced.trusted))
    assert succeeded.certificate != announced.certificate
    assert "next.key" not in stored(server)


async def test_the_keys_of_authorities_before_and_after_a_succession_are_known(
    client: Client, clock: VirtualClock
) -> None:
    """Else a cookie of one replica would not open at another that looked at the Secret a minute before or after."""
    one, late = replica(client, clock), replica(client, clock)
    await one.current()
    clock.advance(AUTHORITY_S - SUCCEED_S + DAY_S)
    await one.current()
    await late.current()
    former, announced = one.authorities
    assert late.authorities == (former, announced)
    clock.advance(ANNOUNCED_S + 60)
    await one.current()
    assert one.authorities == (announced, former)
    assert late.authorities == (former, announced), "it has not looked since"
    clock.advance(SUCCEED_S)
    await one.current()
    assert former not in one.authorities, "it is trusted no more"


async def test_a_deleted_secret_comes_back_with_the_same_authority(
    server: FakeApiServer, client: Client, clock: VirtualClock
) -> None:
    one = replica(client, clock)
    first = await one.current()
    server.delete(SECRETS, NAME.name, namespace=NAME.namespace)
    assert await one.current() == first


async def test_a_damaged_secret_is_mended_from_memory_or_made_anew(
    server: FakeApiServer, client: Client, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = replica(client, clock)
    first = await one.current()

    def damage() -> None:
        body = {"metadata": {"name": NAME.name}, "data": {"tls.crt": "!", "issuer.key": "c2VjcmV0"}}
        server.delete(SECRETS, NAME.name, namespace=NAME.namespace)
        server.create(SECRETS, NAME.name, body, namespace=NAME.namespace)

    damage()
    assert await one.current() == first
    damage()
    anew = await replica(client, clock).current()
    assert anew.trusted != first.trusted
    assert "issuer.crt: missing" in caplog.text


async def test_other_names_are_taken_up(client: Client, clock: VirtualClock) -> None:
    first = await replica(client, clock).current()
    other = await replica(client, clock, "moved.tessera-system.svc").current()
    assert other.certificate != first.certificate
    assert other.trusted == first.trusted


async def test_an_outage_is_an_error_to_wait_out(server: FakeApiServer, client: Client, clock: VirtualClock) -> None:
    server.down = True
    with pytest.raises(UnavailableError):
        await replica(client, clock).current()


async def test_a_secret_of_somebody_else_is_read_and_never_written(
    server: FakeApiServer, client: Client, clock: VirtualClock
) -> None:
    given = GivenCertificates(client, NAME)
    with pytest.raises(NotFoundError):
        await given.current()
    own = await replica(client, clock).current()
    data = {name: stored(server)[name] for name in ("tls.crt", "tls.key", "ca.crt")}
    server.delete(SECRETS, NAME.name, namespace=NAME.namespace)
    server.create(SECRETS, NAME.name, {"metadata": {}, "data": data}, namespace=NAME.namespace)
    server.requests.clear()
    assert await given.current() == own
    assert {request.method for request in server.requests} == {"GET"}
    server.delete(SECRETS, NAME.name, namespace=NAME.namespace)
    damaged = data | {"ca.crt": b64encode(b"x").decode()}
    server.create(SECRETS, NAME.name, {"metadata": {}, "data": damaged}, namespace=NAME.namespace)
    with pytest.raises(CertificateError, match="Secret tessera-system/certificates"):
        await given.current()


async def test_nothing_of_a_key_is_logged_or_shown(
    server: FakeApiServer, client: Client, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    one = replica(client, clock)
    shown = [repr(await one.current()), repr(Secret(data=stored(server)))]
    for _ in range(3):
        clock.advance(SERVING_S)
        shown.append(repr(await one.current()))
    secrets = [value for key, value in stored(server).items() if key.endswith(".key")]
    text = caplog.text + "".join(shown)
    assert text
    assert "PRIVATE" not in text
    assert not any(secret in text for secret in secrets)
