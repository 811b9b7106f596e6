"""A key that cannot be done yet is tried again, by one timer however often it was put meanwhile."""

import asyncio

from controller.watching.workqueue import ActionFailedError, WorkQueue
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
