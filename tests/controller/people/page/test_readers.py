"""What readers of events may hold, and for how long."""

import asyncio
from typing import Any, cast

import pytest

from controller.people.page import readers_shell
from controller.people.page.readers_shell import Held, Reader


class Connection:
    """Takes a piece after each ``turn``."""

    def __init__(self) -> None:
        self.taken = 0
        self.cut = False
        self.turns: asyncio.Queue[None] = asyncio.Queue()
        self.transport = self

    def is_closing(self) -> bool:
        return self.cut

    def abort(self) -> None:
        self.cut = True
        self.turns.put_nowait(None)

    async def write(self, _raw: bytes) -> None:
        await self.turns.get()
        if self.cut:
            raise ConnectionResetError
        self.taken += 1

    def reader(self, held: Held) -> Reader:
        return Reader(cast("Any", self), cast("Any", self), held, packed=False)


async def test_beyond_what_readers_may_hold_the_slowest_is_cut() -> None:
    held, first, second = Held(most=100), Connection(), Connection()
    slow = asyncio.create_task(first.reader(held).send(b"a" * 60))
    await asyncio.sleep(0)
    quick = asyncio.create_task(second.reader(held).send(b"b" * 60))
    await asyncio.sleep(0)
    assert (first.cut, second.cut, held.size) == (True, False, 60)
    second.turns.put_nowait(None)
    await quick
    with pytest.raises(ConnectionResetError):
        await slow
    assert held.size == 0


async def test_a_frame_that_many_take_counts_once() -> None:
    held, raw, readers = Held(most=100), b"a" * 60, [Connection() for _ in range(5)]
    sending = [asyncio.create_task(each.reader(held).send(raw)) for each in readers]
    await asyncio.sleep(0)
    assert (held.size, [each.cut for each in readers]) == (60, [False] * 5)
    for each in readers:
        each.turns.put_nowait(None)
    await asyncio.gather(*sending)
    assert held.size == 0


async def test_a_frame_has_to_be_taken_whole_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_shell, "FRAME_S", 0.05)
    held, connection = Held(), Connection()

    async def one_by_one() -> None:
        while True:
            connection.turns.put_nowait(None)
            await asyncio.sleep(0.005)

    feeding = asyncio.create_task(one_by_one())
    with pytest.raises(TimeoutError):
        await connection.reader(held).send(b"a" * 1_000 * 64 * 1024)
    feeding.cancel()
    assert 0 < connection.taken < 1_000
    assert held.size == 0
