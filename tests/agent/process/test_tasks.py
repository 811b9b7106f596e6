"""Background tasks that change, and whoever waits for them."""

import asyncio
from functools import partial

import pytest

from agent.process.tasks import TaskSet
from tests.support.hang import HANG_S


class Running:
    """Names of the tasks that run now."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def task(self, name: str) -> None:
        self.names.add(name)
        try:
            await asyncio.Event().wait()
        finally:
            self.names.discard(name)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def fail() -> None:
    raise ZeroDivisionError


async def test_the_new_tasks_run_in_place_of_the_old_ones_and_none_after_the_block() -> None:
    running = Running()
    async with TaskSet() as tasks:
        for names in ({"a", "b"}, {"b", "c"}, set[str]()):
            await tasks.replace({name: partial(running.task, name) for name in names})
            await turns(2)
            assert running.names == names
        await tasks.replace({"d": partial(running.task, "d")})
        await turns(2)
    assert running.names == set()


async def test_waiting_ends_with_the_event_or_the_time() -> None:
    running = Running()
    wake = asyncio.Event()
    async with TaskSet() as tasks:
        await tasks.replace({"a": partial(running.task, "a")})
        await tasks.wait(wake, 0.01)
        asyncio.get_running_loop().call_soon(wake.set)
        await asyncio.wait_for(tasks.wait(wake, 10 * HANG_S), HANG_S)
        await asyncio.wait_for(tasks.wait(wake, 10 * HANG_S), HANG_S)


async def test_a_task_that_fails_fails_whoever_waits_and_ends_the_others() -> None:
    running = Running()

    async def follow() -> None:
        async with TaskSet() as tasks:
            await tasks.replace({"a": partial(running.task, "a"), "b": fail})
            await tasks.wait(asyncio.Event(), 60)

    with pytest.raises(ZeroDivisionError):
        await follow()
    assert running.names == set()


@pytest.mark.parametrize("timeout_s", [0, 60])
@pytest.mark.parametrize("after", range(16))
async def test_a_cancellation_is_heeded_whenever_it_comes(after: int, timeout_s: float) -> None:
    running = Running()
    wake = asyncio.Event()

    async def follow() -> None:
        async with TaskSet() as tasks:
            while True:
                await tasks.replace({"a": partial(running.task, "a")})
                wake.set()
                while timeout_s or wake.is_set():
                    await tasks.wait(wake, 60)
                    wake.clear()
                    await tasks.wait(wake, timeout_s)

    task = asyncio.create_task(follow())
    await turns(after)
    task.cancel()
    await turns(12)
    assert task.cancelled()
    assert running.names == set()
