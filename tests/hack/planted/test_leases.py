"""What the net of leadership takes for two leaders at once, and what the relay does with what is late."""

import asyncio

import pytest

from hack.planted.nets.leases import Held, taken_early
from hack.planted.nets.relay import Relay


def test_a_lease_that_is_taken_before_it_ran_out_has_two_leaders() -> None:
    history = [Held(0.0, "a", 3.0), Held(1.0, "a", 3.0), Held(2.0, "b", 3.0)]
    assert taken_early(history) == ["two-leaders: Lease system/leader: b took it 1.0 s after a had renewed it for 3 s"]


@pytest.mark.parametrize(
    "history",
    [
        [Held(0.0, "a", 3.0), Held(3.1, "b", 3.0)],
        [Held(0.0, "a", 3.0), Held(0.1, "", 1.0), Held(0.2, "b", 3.0)],
        [Held(0.0, "a", 3.0), Held(1.0, "a", 3.0), Held(2.0, "a", 3.0)],
        [],
    ],
    ids=["ran out", "let go", "renewed", "nobody"],
)
def test_a_lease_that_ran_out_was_let_go_or_is_renewed_has_one_leader(history: list[Held]) -> None:
    assert taken_early(history) == []


async def test_what_is_sent_into_a_stalled_relay_arrives_later_though_the_client_has_gone() -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(100):
            await arrived.put(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with Relay(server.sockets[0].getsockname()[1]) as relay:
        _, first = await asyncio.open_connection("127.0.0.1", relay.port)
        first.write(b"early")
        assert await arrived.get() == b"early"
        relay.stalled = True
        first.write(b"late")
        await first.drain()
        first.close()
        _, other = await asyncio.open_connection("127.0.0.1", relay.port)
        for _ in range(100):  # as often as a relay that does not stall needs at most
            await asyncio.sleep(0)
        assert arrived.empty()
        relay.stalled = False
        assert await arrived.get() == b"late"
        other.close()
    server.close()
