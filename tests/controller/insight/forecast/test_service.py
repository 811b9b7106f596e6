"""Forecasts of an engine that decides: for those who ask, off the path of its decisions."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.insight.forecast import service_shell
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.service_shell import EVERY_S, STALE_S, BusyError, ForecastService
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import RUNTIME
from kube.testing import VirtualClock, eventually
from tests.controller.scheduler.state.test_podsizes import node
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

NEXT = WorkloadKey("ns/next")


def world() -> World:
    made = World()
    made.put(flavor(), cluster_queue("q", 10), local_queue("q"))
    made.put(workload("runs", "q", 10, annotations={RUNTIME: "3600s"}))
    made.settle()
    made.put(workload("next", "q", 6))
    made.settle()
    return made


class Counted(ForecastService):
    """How often all forecasts were made."""

    runs = 0

    async def _worked(self, parts: Parts[Any]) -> Any:
        found = await super()._worked(parts)
        self.runs += isinstance(found, dict)
        return found


@asynccontextmanager
async def serving(made: World, clock: VirtualClock) -> AsyncIterator[Counted]:
    service = Counted(made.engine, clock)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()


async def test_the_first_to_ask_gets_an_answer_and_not_nothing() -> None:
    async with serving(world(), VirtualClock(wall_s=NOW_S)) as service:
        found = (await service.all())[NEXT]
        assert found.to_s is not None
        assert found.to_s > 600.0


async def test_forecasts_are_renewed_while_somebody_asks_and_not_without() -> None:
    clock = VirtualClock(wall_s=NOW_S)
    async with serving(world(), clock) as service:
        await asyncio.sleep(0)
        assert service.runs == 0
        for _ in range(3):
            await service.all()
        assert service.runs == 1
        clock.advance(EVERY_S)
        await eventually(lambda: service.runs == 2)
        clock.advance(EVERY_S)
        await asyncio.sleep(0.01)
        assert service.runs == 2, "nobody has asked since"
        clock.advance(STALE_S)
        assert NEXT in await service.all(), "what is old is not told"
        assert service.runs == 3


async def test_one_that_came_a_moment_ago_waits_for_its_forecast_and_not_for_the_pause() -> None:
    made, clock = world(), VirtualClock(wall_s=NOW_S)
    async with serving(made, clock) as service:
        await service.all()
        late = workload("late", "q", 6, created_s=7)
        made.put(late)
        found = await service.of(WorkloadKey("ns/late"), late)
        assert found.forecasts[WorkloadKey("ns/late")].ahead == 1
        assert (await service.of(WorkloadKey("ns/runs"), None)).forecasts == {}, "it does not wait"


async def test_what_would_let_it_start_now_comes_along() -> None:
    made = world()
    async with serving(made, VirtualClock(wall_s=NOW_S)) as service:
        (change,) = (await service.of(NEXT, made.workloads[NEXT])).changes
        assert (change.kind, change.workloads) == ("ends", ("ns/runs",))
        assert change.at_s is not None


async def test_a_workload_that_is_not_there_is_told_what_would_become_of_it() -> None:
    made = world()
    async with serving(made, VirtualClock(wall_s=NOW_S)) as service:
        found = await service.of_new(workload("new", "q", 2, created_s=9))
        assert (found.starts, [change.kind for change in found.changes]) == (False, ["ends"])
        assert found.sentence is not None
        assert "2 more needed" in found.sentence
        assert found.forecast is not None
        assert found.forecast.ahead == 1
        assert WorkloadKey("ns/new") not in made.engine.state.workloads.objects
        assert (await service.of_new(workload("new", "nowhere"))).forecast is None


async def test_too_many_that_ask_for_what_is_not_there_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_shell, "_MOST_ASKED", 1)
    service = ForecastService(world().engine, VirtualClock(wall_s=NOW_S))
    async with service._one:
        first = asyncio.create_task(service.of_new(workload("new", "q", 2)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await service.of_new(workload("other", "q", 2))
    assert (await first).starts is False


async def test_after_long_work_for_one_who_asks_the_next_one_waits() -> None:
    clock = VirtualClock(wall_s=NOW_S)

    class Slow(ForecastService):
        async def _worked(self, parts: Parts[Any]) -> Any:
            clock.advance(0.25)
            return await super()._worked(parts)

    service = Slow(world().engine, clock)
    await service.of_new(workload("new", "q", 2))
    second = asyncio.create_task(service.of_new(workload("other", "q", 2)))
    await asyncio.sleep(0.01)
    assert not second.done()
    assert not service._one.locked(), "renewals go on"
    clock.advance(1.0)
    assert (await second).starts is False


async def test_the_loop_is_never_held_for_long() -> None:
    made = world()
    made.put(*(workload(f"w{number}", "q", 1 + number % 9, created_s=number) for number in range(300)))
    made.settle()
    gc.freeze()  # a collection of all that other tests left would be counted as ours
    longest_s, last_s = 0.0, time.thread_time()
    async with serving(made, VirtualClock(wall_s=NOW_S)) as service:
        asking = asyncio.create_task(service.all())
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, last_s, turns = max(longest_s, now_s - last_s), now_s, turns + 1
        assert len(asking.result()) == 301
        assert turns > 3
        assert longest_s < 0.05, "a few milliseconds, on a machine of its own"


async def test_an_engine_that_fails_ends_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = world(), VirtualClock(wall_s=NOW_S)
    async with serving(made, clock) as service:
        with monkeypatch.context() as broken:
            broken.setattr(made.engine, "inactive", None)
            assert await service.all() == {}
        clock.advance(EVERY_S)
        await service.all()
        clock.advance(STALE_S)
        assert NEXT in await service.all()


async def test_a_job_that_quota_would_admit_in_vain_does_not_start_at_once() -> None:
    made = World()
    made.put(flavor(), cluster_queue("q", 100), local_queue("q"), node("n1", 8, gpu="8"))
    async with serving(made, VirtualClock(wall_s=NOW_S)) as service:
        small = await service.of_new(workload("small", "q", 8))
        large = await service.of_new(workload("large", "q", 9))
        assert (small.starts, small.sentence) == (True, None)
        assert not large.starts
        assert large.sentence is not None
        assert large.sentence.startswith("Quota admits it at once, and its pods never start: No node of flavor")
        assert large.sentence.endswith("it asks for 9 gpu, and the largest node has 8")
