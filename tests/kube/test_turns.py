"""The turns of a loop: after news, and at times."""

import asyncio

from kube.clock import Turns
from kube.testing import VirtualClock


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_news_are_gathered_for_a_moment_and_are_one_turn() -> None:
    clock = VirtualClock()
    turns = Turns(clock, together_s=0.2)
    turn = asyncio.create_task(turns.next())
    await settle()
    assert not turn.done()
    turns.wake()
    await settle()
    clock.advance(0.1)
    turns.wake()
    await settle()
    assert not turn.done()
    clock.advance(0.1)
    await turn
    following = asyncio.create_task(turns.next())
    await settle()
    clock.advance(3600.0)
    await settle()
    assert not following.done(), "news of before are another turn"
    following.cancel()


async def test_the_earliest_time_counts_and_is_forgotten_with_its_turn() -> None:
    clock = VirtualClock()
    turns = Turns(clock, together_s=0.0)
    turns.again(60.0)
    turns.again(5.0)
    turns.again(30.0)
    turn = asyncio.create_task(turns.next(due_s=clock.wall() + 20.0))
    await settle()
    clock.advance(4.9)
    await settle()
    assert not turn.done()
    clock.advance(0.1)
    await turn
    following = asyncio.create_task(turns.next(due_s=clock.wall() + 20.0))
    await settle()
    clock.advance(19.9)
    await settle()
    assert not following.done()
    clock.advance(0.1)
    await following


async def test_work_that_is_overdue_is_done_at_once() -> None:
    clock = VirtualClock()
    await Turns(clock, together_s=0.0).next(due_s=clock.wall() - 60.0)
