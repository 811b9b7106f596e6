"""Workloads come, are admitted, wait, go: end to end, by what the API server holds in the end."""

import asyncio
from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from kube.clock import SystemClock
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage
from tests.support.controller.told import page


async def test_what_fits_is_admitted_with_one_write() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 1)
            await scene.until_admitted("a")
            await eventually(lambda: len(scene.core.engine.state.unwritten.admissions) == 0)
        assert scene.status("a")["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": "default"}
        assert [request.method for request in scene.server.written("workloads/a")] == ["PUT"]


async def test_what_does_not_fit_says_why_and_follows_when_there_is_room() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
            scene.workload("b", 1)
            await eventually(lambda: scene.condition("b", "QuotaReserved") == "False/WaitingForQuota")
            assert "cpu" in next(one["message"] for one in scene.conditions("b") if one["type"] == "QuotaReserved")
            scene.finish("a")
            await scene.until_admitted("b")
        assert scene.used() == 1


async def test_those_of_a_shape_that_is_never_tried_say_why_as_well() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
            for number in range(5):
                scene.workload(f"b-{number}", 1)
            await eventually(
                lambda: all(scene.condition(f"b-{n}", "QuotaReserved") == "False/WaitingForQuota" for n in range(5))
            )


async def test_one_that_may_not_queue_says_so_and_follows_when_it_may() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 1, annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/budget"})
            scene.workload("b", 1, active=False)
            await eventually(lambda: scene.condition("a", "QuotaReserved") == "False/AdmissionGated")
            await eventually(lambda: scene.condition("b", "QuotaReserved") == "False/Deactivated")
            said = next(one["message"] for one in scene.conditions("a") if one["type"] == "QuotaReserved")
            assert "example.com/budget" in said
            cleared = {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": None}}}
            scene.server.merge(WORKLOADS, "a", cleared, namespace="team")
            scene.server.merge(WORKLOADS, "b", {"spec": {"active": True}}, namespace="team")
            await scene.until_admitted("a", "b")
            wanted = {("a", "AdmissionGated"), ("a", "AdmissionGateCleared"), ("b", "Deactivated")}

            def told() -> set[tuple[str, str]]:
                return {(one["regarding"]["name"], one["reason"]) for one in scene.server.list_all(EVENTS)}

            await eventually(lambda: wanted <= told())


async def test_what_leads_nowhere_says_so() -> None:
    async with stage() as scene:
        scene.queue(cpus=2, stopPolicy="Hold")
        async with scene.controller():
            scene.workload("a", 1, queue="lq-none")
            scene.workload("b", 1)
            await eventually(lambda: scene.condition("a", "QuotaReserved") == "False/Misconfigured")
            await eventually(lambda: scene.condition("b", "QuotaReserved") == "False/Suspended")
            scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
            await scene.until_admitted("b")


async def test_a_workload_that_waits_a_moment_is_not_written_for_that() -> None:
    patient = config(CONFIG.replace("after: 0s", "after: 1h"))
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(patient):
            scene.workload("a", 2)
            await scene.until_admitted("a")
            scene.workload("b", 2)
            await eventually(lambda: scene.core.engine.state.queues.counts(ClusterQueueName("cq")) == (0, 1))
            scene.finish("a")
            await scene.until_admitted("b")
        assert [request.method for request in scene.server.written("workloads/b")] == ["PUT"]


async def test_a_write_that_is_refused_gives_the_quota_to_another_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.cluster.writing.decisionwriter.REFUSED_PAUSE_S", 0.05)
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.server.refuse = lambda method, path: 422 if method != "GET" and "/workloads/a" in path else None
        async with scene.controller():
            scene.workload("a", 1, priority=10)
            await eventually(lambda: bool(scene.server.written("workloads/a")))
            assert scene.used() == 0
            scene.server.refuse = lambda _method, _path: None
            await scene.until_admitted("a")
            scene.core.engine.validate()


async def test_an_answer_that_was_lost_is_looked_up_before_anybody_gets_the_quota_again() -> None:
    """The admission went in, its answer did not: the retry meets its own echo."""
    async with stage() as scene:
        scene.queue(cpus=1)
        lost: list[str] = []

        def lose(method: str, path: str) -> bool:
            if method == "PUT" and "workloads/a/status" in path and not lost:
                lost.append(path)
                return True
            return False

        scene.server.lose_answer = lose
        async with scene.controller():
            scene.workload("a", 1)
            scene.workload("b", 1)
            await eventually(lambda: scene.admitted("a") or scene.admitted("b"))
            await eventually(lambda: len(scene.server.written("workloads/a")) > 1 or scene.admitted("b"))
            await eventually(lambda: not any(entry.writing for entry in scene.core.ledger.values()))
            assert scene.used() == 1
            scene.core.engine.validate()


async def test_who_changes_a_workload_under_the_controllers_hands_wins_and_it_is_admitted_after() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            gate = asyncio.Event()
            scene.server.hold = gate
            scene.workload("a", 1)
            await eventually(lambda: bool(scene.server.written("workloads/a")))
            scene.server.merge(WORKLOADS, "a", {"metadata": {"labels": {"by": "hand"}}}, namespace="team")
            gate.set()
            scene.server.hold = None
            await scene.until_admitted("a")
            scene.core.engine.validate()
        assert scene.server.get(WORKLOADS, "a", namespace="team")["metadata"]["labels"] == {"by": "hand"}


async def test_more_priority_evicts_and_gets_the_place_once_the_other_has_let_go() -> None:
    async with stage() as scene:
        scene.queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
        async with scene.controller():
            scene.workload("low", 1, priority=1)
            await scene.until_admitted("low")
            scene.workload("high", 1, priority=2)
            await eventually(lambda: scene.condition("low", "Evicted") == "True/Preempted")
            assert scene.condition("low", "Preempted") == "True/InClusterQueue"
            assert not scene.admitted("high")
            scene.release("low")
            await scene.until_admitted("high")
            assert scene.used() == 1
            wanted = {"QuotaReserved", "Admitted", "EvictedDueToPreempted", "Preempted"}
            await eventually(lambda: wanted <= {one["reason"] for one in scene.server.list_all(EVENTS)})


class Skipping(SystemClock):
    """Time that is put forward: the test need not be quicker than what it looks at. ``put_s``: the wall clock alone."""

    skipped_s = put_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s

    def wall(self) -> float:
        return super().wall() + self.skipped_s + self.put_s


async def test_while_decisions_come_quickly_an_eviction_is_held_for_a_moment_and_then_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.cluster.writing.pace.Pace.quick", lambda _self, _now_s: True)
    clock = Skipping()
    async with stage() as scene:
        scene.queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
        async with scene.controller(config(CONFIG + "  holdEvictions: 10m\n"), clock=clock):
            scene.workload("low", 1, priority=1)
            await scene.until_admitted("low")
            scene.workload("high", 1, priority=2)
            await eventually(lambda: len(scene.core.decisions.held) == 1)
            assert scene.condition("low", "Evicted") == ""
            clock.skipped_s = 20 * 60.0
            scene.workload("none", 1)  # something happens: else it is looked at when the hold ends
            await eventually(lambda: scene.condition("low", "Evicted") == "True/Preempted")
            assert len(scene.core.decisions.held) == 0
            scene.core.engine.validate()


async def test_a_preemptor_of_a_stopped_queue_lets_its_victims_stay_and_a_clock_put_back_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.cluster.writing.pace.Pace.quick", lambda _self, _now_s: True)
    clock = Skipping()
    async with stage() as scene:
        scene.queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
        async with scene.controller(config(CONFIG + "  holdEvictions: 10m\n"), clock=clock):
            held = scene.core.decisions.held
            scene.workload("low", 1, priority=1)
            await scene.until_admitted("low")
            scene.workload("high", 1, priority=2)
            await eventually(lambda: len(held) == 1)
            scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
            await eventually(lambda: len(held) == 0)
            scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
            await eventually(lambda: len(held) == 1)
            clock.put_s = -3600.0
            waits = held.waits(WorkloadKey("team/high"))
            assert waits is not None
            assert waits.until_s <= clock.wall() + 600.0
            clock.skipped_s = 11 * 60.0
            scene.workload("none", 1)  # something happens: else it is looked at when the hold ends
            await eventually(lambda: scene.condition("low", "Evicted") == "True/Preempted")
            scene.core.engine.validate()


async def test_what_was_done_for_the_time_alone_is_followed_by_a_decision() -> None:
    async with stage() as scene, scene.controller():
        core, rang, woken = scene.core, asyncio.Event(), list[bool]()
        wake = core.inbox.wake

        def note() -> None:
            woken.append(rang.is_set())
            wake()

        core.inbox.wake = note  # type: ignore[method-assign]
        core._later(0.02, rang.set)
        await eventually(lambda: True in woken)


async def test_a_stopped_queue_drains_and_takes_in_again_when_it_is_opened() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            scene.workload("a", 1)
            await scene.until_admitted("a")
            scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
            await eventually(lambda: scene.condition("a", "Evicted") == "True/ClusterQueueStopped")
            scene.release("a")
            scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
            await eventually(lambda: scene.condition("a", "Requeued") == "True/ClusterQueueRestarted")
            await scene.until_admitted("a")


async def test_a_deactivated_workload_gives_way_and_waits_for_its_owner() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            scene.workload("a", 1)
            await scene.until_admitted("a")
            scene.server.merge(WORKLOADS, "a", {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: scene.condition("a", "Evicted") == "True/Deactivated")
            scene.release("a")
            scene.workload("b", 1)
            await scene.until_admitted("b")
            assert not scene.admitted("a") or scene.used() == 1


async def test_queues_tell_what_they_hold_and_who_waits() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            scene.workload("b", 2)
            await eventually(lambda: scene.used() == 2)

            def told(resource: Any, name: str, namespace: str = "") -> tuple[Any, ...]:
                status = scene.server.get(resource, name, namespace=namespace).get("status", {})
                usage = status.get("flavorsUsage") or [{"resources": [{"total": None}]}]
                active = [one["reason"] for one in status.get("conditions", [])]
                return (
                    status.get("pendingWorkloads"),
                    status.get("admittedWorkloads"),
                    usage[0]["resources"][0]["total"],
                    active,
                )

            await eventually(lambda: told(CLUSTER_QUEUES, "cq") == (1, 1, "2", ["Ready"]))
            await eventually(lambda: told(LOCAL_QUEUES, "lq-cq", "team") == (1, 1, "2", ["Ready"]))
            scene.finish("a")
            scene.finish("b")
            await eventually(lambda: told(CLUSTER_QUEUES, "cq")[2] == "0")


async def test_an_object_that_cannot_be_read_hides_no_other() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        bad = {"metadata": {}, "spec": {"queueName": "lq-cq", "podSets": "many"}}
        scene.server.create(WORKLOADS, "bad", bad, namespace="team")
        async with scene.controller() as process:
            scene.workload("good", 1)
            await scene.until_admitted("good")
            assert 'tessera_undecodable_objects{replica_role="standalone",resource="workloads"} 1' in page(process)
