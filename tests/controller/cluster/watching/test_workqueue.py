"""A key that cannot be done yet is tried again, by one timer however often it was put meanwhile."""

import asyncio

from controller.cluster.watching.workqueue import LOOK_S, ActionFailedError, NotYetError, WorkQueue
from kube.testing import eventually


async def test_a_key_that_fails_has_one_timer_and_none_once_it_is_done() -> None:
    tried: list[str] = []
    fails = True

    async def reconcile(key: tuple[str]) -> None:
        tried.append(key[0])
        if fails:
            raise ActionFailedError("not yet")

    queue = WorkQueue[tuple[str]]("job", reconcile)
    running = asyncio.create_task(queue.run())
    queue.put(("a",))
    await eventually(lambda: len(tried) > 0)
    queue.put(("a",))
    await eventually(lambda: len(tried) > 1)
    assert len(queue._later) == 1
    fails = False
    queue.put(("a",))
    await eventually(lambda: not queue._later)
    assert not queue._backoffs
    done = len(tried)
    queue.put(("b",))
    await eventually(lambda: tried[-1] == "b")
    assert len(tried) == done + 1
    running.cancel()


async def test_what_is_not_there_yet_is_looked_for_at_a_steady_pace() -> None:
    async def reconcile(_: tuple[str]) -> None:
        raise NotYetError("2 of its pods have not ended")

    queue = WorkQueue[tuple[str]]("job", reconcile)
    loop = asyncio.get_running_loop()
    for _ in range(40):
        queue._retry_later(("a",), "", LOOK_S)
        (timer,) = queue._later.values()
        assert timer.when() - loop.time() <= LOOK_S
    queue._retry_later(("a",), "")
    queue._cancel(("a",))
    running = asyncio.create_task(queue.run())
    queue.put(("a",))
    await eventually(lambda: bool(queue._later))
    assert next(iter(queue._later.values())).when() - loop.time() <= LOOK_S
    running.cancel()
