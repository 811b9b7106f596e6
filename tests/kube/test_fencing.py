"""What a leader had begun to write when its lease ran out does not leave the process, whatever it waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from kube.client import Client
from kube.clock import SystemClock
from kube.errors import UnavailableError
from kube.fencing import fenced
from kube.resources import LEASES
from kube.testing import FakeApiServer
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Abandoned, Verb, Write
from tests.support.hang import HANG_S

BODY = {"metadata": {"name": "a"}, "spec": {}}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(server.config) as client:
        yield client


def answers(*given: bool) -> Callable[[], bool]:
    """These, one after the other, and from then on No."""
    left: Iterator[bool] = iter(given)
    return lambda: next(left, False)


async def test_a_request_leaves_while_it_may(server: FakeApiServer, client: Client) -> None:
    with fenced(lambda: True):
        await client.create(LEASES, BODY, dict, namespace="ns")
    assert server.get(LEASES, "a", namespace="ns")


@pytest.mark.parametrize("lost_at", [0, 1], ids=["when it has a connection", "when its bytes are written"])
async def test_a_request_whose_lease_is_lost_on_the_way_does_not_leave(
    server: FakeApiServer, client: Client, lost_at: int
) -> None:
    for again in range(2):  # on a new connection, and on one that was used
        before = len(server.requests)
        with fenced(answers(*[True] * lost_at)), pytest.raises(UnavailableError):
            await client.create(LEASES, BODY, dict, namespace="ns")
        assert len(server.requests) == before, f"the {again + 1}. try was sent"
        await client.group_versions()
    await client.create(LEASES, BODY, dict, namespace="ns")


async def test_a_write_that_was_allowed_and_then_stood_still_is_abandoned(
    server: FakeApiServer, client: Client
) -> None:
    """The writer asks before its attempt; what it asked for is no longer true when there is a connection."""
    swift = Tuning(parallel=1, first_pause_s=0.002, longest_pause_s=0.02)
    async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=swift, may_write=answers(True)) as writer:
        write = Write(verb=Verb.CREATE, resource=LEASES, name="a", body=BODY, kind=dict, namespace="ns")
        async with asyncio.timeout(HANG_S):
            outcome = await writer.put(write)
    assert isinstance(outcome, Abandoned)
    assert server.requests == []
