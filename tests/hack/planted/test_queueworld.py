"""The clock of a story follows what the process gets done: a busy machine makes it longer and accuses nobody."""

import asyncio
import time

from hack.planted.nets.queueworld import ROUNDS, STEP_S, play, world_of
from kube.testing import FakeApiServer

BLOCKED_S = 0.02


async def rounds_of(lasts_s: float, *, blocked: bool) -> tuple[int, float]:
    """How often the event loop goes around while a story of ``lasts_s`` is played, and what its clock says then.
    ``blocked``: each time somebody holds it up.
    """
    rounds = 0

    async def turn() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            if blocked:
                time.sleep(BLOCKED_S)  # noqa: ASYNC251 - this is the fault
            await asyncio.sleep(0 if blocked else STEP_S / 50)

    async with FakeApiServer() as server:
        world = world_of(server, {})
        turning = asyncio.create_task(turn())
        try:
            await play(world, (), lasts_s)
        finally:
            turning.cancel()
        return rounds, world.now_s


def test_a_blocked_loop_makes_a_story_longer_by_as_much_as_it_gets_less_done() -> None:
    rounds, now_s = asyncio.run(rounds_of(0.5, blocked=True))
    assert now_s >= 0.5
    assert rounds >= ROUNDS * now_s / STEP_S


def test_the_clock_of_a_loop_that_is_held_up_for_long_goes_on_by_a_step() -> None:
    async def held_up() -> float:
        async with FakeApiServer() as server:
            world = world_of(server, {})
            world.begin()
            time.sleep(4 * STEP_S)  # noqa: ASYNC251 - this is the fault
            world.step()
            return world.now_s

    assert asyncio.run(held_up()) == STEP_S
