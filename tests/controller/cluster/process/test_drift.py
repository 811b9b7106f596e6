"""Sums that have drifted are made anew from the objects while the controller runs: counted, told, and on it goes."""

import asyncio
from collections.abc import Callable

import pytest

from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import Stage, stage
from tests.support.controller.told import page

A, B = WorkloadKey("team/a"), WorkloadKey("team/b")


def counted(scene: Stage, series: str) -> bool:
    assert scene.process is not None
    lines = [line for line in page(scene.process).splitlines() if line.startswith(series)]
    return len(lines) == 1 and lines[0].endswith(" 1.0")


def check_now(scene: Stage) -> None:
    scene.core._check_s = 0.0
    scene.core.inbox.wake()


async def test_after_a_drift_nothing_is_decided_on_wrong_sums() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
            await eventually(lambda: not scene.core.engine.state.unwritten.admissions)
            scene.core.engine.state.cluster.remove_holder(A)  # its room looks free now
            scene.workload("b", 2)
            check_now(scene)
            await eventually(lambda: counted(scene, "tessera_engine_rebuilds_total{"))
            await eventually(lambda: scene.core.engine.state.queues.get(B) is not None)
            assert counted(scene, "tessera_drift_total")
            assert A in scene.core.engine.state.cluster.holders
            assert not scene.admitted("b")
            scene.finish("a")
            await scene.until_admitted("b")


async def test_a_drift_that_nothing_points_at_is_found_by_the_part_whose_turn_comes() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
            core = scene.core
            await eventually(lambda: not core.engine.state.unwritten.admissions)
            core.engine.state.cluster.remove_holder(A)
            turns = 0
            while A not in core.engine.state.cluster.holders and turns < 100:
                core._part_s = 0.0
                core.step()
                turns += 1
            assert 1 < turns <= len(core.engine.audits())
            assert counted(scene, "tessera_drift_total")


async def test_people_are_told_what_had_drifted_on_the_controllers_lease() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
            # Or the echo of the admission would bring it back.
            await eventually(lambda: not scene.core.engine.state.unwritten.admissions)
            scene.core.engine.state.cluster.remove_holder(A)
            check_now(scene)
            await eventually(lambda: any(one["reason"] == "EngineRebuilt" for one in scene.server.list_all(EVENTS)))
            (told,) = [one for one in scene.server.list_all(EVENTS) if one["reason"] == "EngineRebuilt"]
            assert (told["type"], told["regarding"]["kind"]) == ("Warning", "Lease")
            assert told["regarding"]["name"] == "tessera-controller"
            assert "they agree again" in told["note"]
            assert "team/a" in told["note"]


async def test_a_write_under_way_is_not_decided_a_second_time() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            core = scene.core
            await eventually(lambda: "cq" in core.engine.state.cluster.queues)
            scene.server.hold = asyncio.Event()  # the write stays under way
            scene.workload("b", 2)
            scene.workload("a", 2)
            await eventually(lambda: bool(core.engine.state.unwritten.admissions))
            (first,) = core.engine.state.unwritten.admissions
            core.engine.state.cluster.remove_holder(first)
            core._check_s = 0.0
            core.step()
            assert first in core.engine.state.cluster.holders
            scene.server.hold.set()
            await eventually(lambda: scene.used() == 2)
            assert [scene.admitted("a"), scene.admitted("b")].count(True) == 1
            core.engine.validate()


def stumble_once(
    monkeypatch: pytest.MonkeyPatch, over: Callable[[Workload], bool], lose: Callable[[Engine, WorkloadKey], object]
) -> None:
    """The engine loses the first Workload that it is to stumble ``over``, and raises."""
    put, stumbled = Engine.put, list[WorkloadKey]()

    def stumble(engine: Engine, given: KubernetesObject, now_s: float) -> None:
        put(engine, given, now_s)
        if isinstance(given, Workload) and over(given) and not stumbled:
            stumbled.append(WorkloadKey(given.key))
            lose(engine, stumbled[0])
            raise RuntimeError("by half")

    monkeypatch.setattr(Engine, "put", stumble)


async def test_an_object_that_was_taken_in_by_half_has_the_sums_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            stumble_once(
                monkeypatch, lambda one: one.metadata.name == "a", lambda engine, key: engine.state.queues.remove(key)
            )
            scene.workload("a", 2)
            await scene.until_admitted("a")
            assert counted(scene, "tessera_drift_total")


async def test_a_state_that_our_own_write_brought_and_the_engine_took_by_half_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            stumble_once(
                monkeypatch,
                lambda one: one.status.admission is not None,
                lambda engine, key: engine.state.cluster.remove_holder(key),
            )
            scene.workload("a", 2)
            await eventually(lambda: counted(scene, "tessera_drift_total"))
            await scene.until_admitted("a")
            assert A in scene.core.engine.state.cluster.holders
            assert not scene.core.engine.state.unwritten.admissions


async def test_what_is_unsound_even_then_is_counted_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():

            def never() -> None:
                raise AssertionError("never sound")

            monkeypatch.setattr(Engine, "audits", lambda _: (never,))
            check_now(scene)
            await eventually(lambda: counted(scene, "tessera_engine_rebuilds_total{"))
            assert scene.process is not None
            (line,) = [one for one in page(scene.process).splitlines() if one.startswith("tessera_engine_re")]
            assert 'result="unsound"' in line
            scene.workload("a", 2)
            await scene.until_admitted("a")
