"""GPUs that are drained for their repair, live: pods leave by their policy or after a time, and people are told."""

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from controller.cluster.watching.kinds import GPU_NODES, NODES, PODS
from controller.objects.decode import GpuNode, read_gpu_node
from controller.reconcile.repairs import draining as draining_module
from controller.reconcile.repairs import draining_shell
from controller.reconcile.repairs.draining import REFUSED_S, Drain
from controller.reconcile.repairs.draining_shell import NOTICE_S, drains, reboot_drains
from inventory.api.gpunode import GRANT_LASTS_S
from kube.errors import KubeError, UnavailableError
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_gpunodes import gpu_node, gpu_workload, node, on_hosts
from tests.controller.reconcile.failures.test_gpufailures_shell import exists, fail, holder, pod
from tests.controller.reconcile.repairs.test_repairs_shell import SINCE, ago, asks, grants, repair
from tests.support.controller.stage import CONFIG, Stage, config, stage
from tests.support.controller.told import page


def draining(since_s: float, generation: int = 1) -> dict[str, Any]:
    return repair("GPU-n1-0", "drain", generation, since=ago(since_s), cause="XID 119")


def rules(wait: str = "60m", failures: str = "{}") -> Any:
    block = f"tessera:\n  gpuFailures: {failures}\n  remediation: {{budget: 1, wait: {wait}}}\n"
    return config(CONFIG.replace("tessera:\n", block))


def notes(scene: Stage, reason: str = "GpuDrained") -> list[str]:
    return [one["note"] for one in scene.server.list_all(EVENTS) if one["reason"] == reason]


@asynccontextmanager
async def running(policy: str = "", given: Any = None, *, bare: bool = False) -> AsyncIterator[Stage]:
    """A pod, of a workload or bare, which holds GPU 0 of node n1; the GPU fails, its pod's policy is carried out."""
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy", holders=[holder("p", 0)]))
        async with scene.controller(given or rules(), core_only=False):
            if not bare:
                gpu_workload(scene, "gang", 1)
                await scene.until_admitted("gang")
            pod(scene, "p", policy)
            yield scene


async def test_a_pod_may_finish_and_is_told_until_when() -> None:
    async with running() as scene:
        fail(scene)
        asks(scene, "n1", draining(60))
        await eventually(lambda: len(notes(scene)) == 1)
        (note,) = notes(scene)
        assert note.startswith(
            "GPU GPU-n1-0 of node n1 is drained for its repair: XID 119; the pod may finish until 20"
        )
        assert exists(scene, "p")
        assert scene.admitted("gang")


async def test_after_its_time_the_gang_goes_back_to_its_queue() -> None:
    async with running(given=rules("0s")) as scene:
        fail(scene)
        asks(scene, "n1", draining(3601))
        await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")
        await eventually(lambda: any("workload team/gang is requeued" in note for note in notes(scene)))
        assert figures(scene, "requeue-gang") == 1.0


async def test_a_bare_pod_is_evicted_by_the_eviction_api_after_its_time() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        asks(scene, "n1", draining(3601))
        await eventually(lambda: not exists(scene, "p"))
        assert scene.server.seen("POST", "/api/v1/namespaces/team/pods/p/eviction")
        await eventually(lambda: any(note.endswith("the pod is evicted") for note in notes(scene)))


async def test_a_disruption_budget_that_refuses_is_asked_again_and_stops_no_other_write() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        busy = UnavailableError("Cannot evict pod as it would violate the pod's disruption budget.", status=429)
        refusing(scene, busy)
        asks(scene, "n1", draining(3601))
        await eventually(lambda: len(scene.server.seen("POST", "/eviction")) == 1)
        gpu_workload(scene, "other", 1)
        await scene.until_admitted("other")
        assert exists(scene, "p")
        scene.server.refuse = lambda _method, _path: None
        await eventually(lambda: not exists(scene, "p"), what="evicted in the end")


async def test_a_refusal_that_lasts_is_told_of_the_pod_and_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REFUSED_S <= 60, "a person who looks at the repair sees it"
    monkeypatch.setattr(draining_module, "REFUSED_S", 0.0)
    async with running(given=rules("0s"), bare=True) as scene:
        refusing(scene, UnavailableError("Cannot evict pod as it would violate a budget.", status=429))
        asks(scene, "n1", draining(3601))
        await eventually(lambda: any("; its eviction is refused for 30s (" in note for note in notes(scene)))
        told = "; the eviction of pod team/p is refused for 30s ("
        await eventually(lambda: any(told in note for note in notes(scene)))
        assert any("/namespaces/team/pods/p/eviction: 429 " in note for note in notes(scene)), (
            "a path that one can read"
        )


async def test_a_refusal_is_logged_once_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(draining_shell, "_REFUSED_AGAIN_S", 0.01)

    def logged() -> list[str]:
        return [each.getMessage() for each in caplog.records if "its eviction is refused" in each.getMessage()]

    async with running(given=rules("0s"), bare=True) as scene:
        refusing(scene, UnavailableError("The budget one.", status=429))
        asks(scene, "n1", draining(3601))
        await eventually(lambda: len(scene.server.seen("POST", "/eviction")) > 3)
        assert len(logged()) == 1
        refusing(scene, UnavailableError("The budget two.", status=429))
        await eventually(lambda: len(logged()) == 2)
        assert "budget two" in logged()[1]


async def test_nothing_is_drained_before_it_is_granted() -> None:
    async with running(bare=True, given=config(CONFIG.replace("tessera:\n", NO_BUDGET))) as scene:
        asks(scene, "n1", draining(3601))
        await eventually(lambda: notes(scene, "GpuRepairWaits") != [])
        assert grants(scene, "n1") == []
        assert exists(scene, "p")


async def test_the_holders_of_boards_that_a_reset_takes_along_leave_too() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        status = scene.server.get(GPU_NODES, "n1")["status"]
        holds = [{**each, "device": "GPU-n1-1"} for each in status["holders"]]
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": holds}})
        asks(scene, "n1", {**draining(3601), "takesAlong": ["GPU-n1-1", "GPU-n2-0"]})
        await eventually(lambda: not exists(scene, "p"))
        await eventually(lambda: notes(scene) != [])
        (note, *_) = notes(scene)
        assert note.startswith("GPU GPU-n1-0 of node n1 is drained for its repair")


def granted_late() -> GpuNode:
    """A GPU whose drain was granted two hours after it was asked for."""
    late = {"gpu": "GPU-n1-0", "generation": 3, "action": "drain", "granted": "2026-01-01T02:00:00Z"}
    body = gpu_node("n1", "Unhealthy", "Healthy")
    body["status"] |= {"repairs": [repair("GPU-n1-0", "drain", 3)], "remediationGrants": [late]}
    return read_gpu_node(body)


def test_a_drain_that_is_asked_for_anew_is_the_same_drain_until_its_grant_ends() -> None:
    def found(generation: int, action: str = "drain") -> list[Drain]:
        granted = {"gpu": "GPU-n1-0", "generation": 3, "action": action, "granted": SINCE}
        body = gpu_node("n1", "Unhealthy", "Healthy")
        body["status"] |= {"repairs": [repair("GPU-n1-0", "drain", generation)], "remediationGrants": [granted]}
        return list(drains(read_gpu_node(body), 60.0))

    (drain,) = found(3)
    assert found(4) == [drain]
    assert drain.ends_s - drain.until_s == GRANT_LASTS_S - 60.0
    # A grant that comes late leaves a pod its time, or five minutes.
    (late,) = drains(granted_late(), 3600.0)
    assert (late.until_s - late.ends_s) == NOTICE_S - GRANT_LASTS_S
    assert found(2) == []
    assert found(3, "reset") == []


@pytest.mark.parametrize(("gpu", "asked"), [(0, "reset"), (1, "drain")])
async def test_only_a_drain_of_its_own_gpu_makes_a_pod_leave(gpu: int, asked: str) -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        asks(scene, "n1", repair(f"GPU-n1-{gpu}", asked, since=ago(3601)))
        await eventually(lambda: grants(scene, "n1") == [(f"GPU-n1-{gpu}", asked, 1)])
        assert exists(scene, "p")
        assert notes(scene) == []


async def test_what_the_policy_of_a_failed_gpu_does_is_not_done_twice() -> None:
    async with running("evict") as scene:
        fail(scene)
        asks(scene, "n1", draining(1))
        await eventually(lambda: not exists(scene, "p"))
        await eventually(lambda: any("the pod is evicted" in note for note in notes(scene, "GpuFailed")))
        assert len(scene.server.seen("POST", "/eviction")) == 1
        assert notes(scene) == []


async def test_no_pod_of_another_node_leaves_by_an_agents_word() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        spec = {"nodeName": "n2", "containers": [{"name": "main"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec, "status": {"phase": "Running"}}
        scene.server.create(PODS, "other", body, namespace="team")
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": [holder("other", 0), holder("p", 0)]}})
        asks(scene, "n1", draining(3601))
        await eventually(lambda: not exists(scene, "p"))
        assert exists(scene, "other")


async def test_a_new_leader_goes_on_with_a_drain() -> None:
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Unhealthy", "Healthy", holders=[holder("p", 0)]))
        granted = {"gpu": "GPU-n1-0", "generation": 1, "action": "drain", "granted": ago(30)}
        pod(scene, "p")
        scene.server.merge(GPU_NODES, "n1", {"status": {"repairs": [draining(3601)], "remediationGrants": [granted]}})
        async with scene.controller(rules("0s"), core_only=False):
            await eventually(lambda: not exists(scene, "p"))


async def reboot_wanted(scene: Stage, reset_mode: str = "drain", since_s: float = 3601) -> None:
    """GPU 1 of the node is lost; the pod holds GPU 0, which is well."""
    status = scene.server.get(GPU_NODES, "n1")["status"]
    devices = [status["devices"][0], {**status["devices"][1], "health": {"state": "Unhealthy"}}]
    lost = repair("GPU-n1-1", "reboot", state="RebootWanted", since=ago(since_s), cause="XID 79")
    scene.server.merge(GPU_NODES, "n1", {"status": {"devices": devices, "resetMode": reset_mode, "repairs": [lost]}})

    def planned() -> bool:
        found = scene.server.get(NODES, "n1")["status"].get("conditions", [])
        return any((one["type"], one["status"]) == ("MaintenancePlanned", "True") for one in found)

    await eventually(planned)


async def test_before_a_reboot_the_pods_of_well_gpus_are_told_until_when_they_may_stay() -> None:
    async with running("requeue-gang") as scene:
        await reboot_wanted(scene, since_s=60)
        await eventually(lambda: notes(scene) != [])
        begins = "Node n1 is drained for the reboot that repairs GPU GPU-n1-1: XID 79; the pod may finish until 20"
        assert [note[: len(begins)] for note in notes(scene)] == [begins]
        assert scene.admitted("gang")


async def test_a_node_whose_reboot_is_planned_is_free_of_gpu_pods_after_their_time() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        await reboot_wanted(scene)
        await eventually(lambda: not exists(scene, "p"))
        assert scene.server.seen("POST", "/api/v1/namespaces/team/pods/p/eviction")
        await eventually(lambda: figures(scene, "evict") == 1.0)


async def test_pods_whose_agent_resets_only_free_gpus_are_asked_to_leave_for_no_reboot() -> None:
    async with running(given=rules("0s"), bare=True) as scene:
        await reboot_wanted(scene, "when-free")
        scene.server.merge(GPU_NODES, "n1", {"status": {"resetMode": "drain", "repairs": []}})
        await eventually(lambda: "False" in str(scene.server.get(NODES, "n1")["status"]["conditions"]))
        assert exists(scene, "p")
        assert notes(scene) == []


def test_a_planned_reboot_leaves_pods_their_time_from_the_plan_on_and_has_no_end() -> None:
    body = gpu_node("n1", "Healthy", "Unhealthy")
    lost = repair("GPU-n1-1", "reboot", state="RebootWanted")
    body["status"] |= {"repairs": [lost], "resetMode": "drain"}
    began_s = datetime.fromisoformat(SINCE).timestamp()

    def found(planned_s: float | None) -> list[tuple[float, float, bool]]:
        return [
            (each.until_s, each.ends_s, each.failed) for each in reboot_drains(read_gpu_node(body), planned_s, 3600)
        ]

    assert found(None) == []
    assert found(began_s) == [(began_s + 3600, math.inf, False), (began_s + 3600, math.inf, True)]
    late_s = began_s + 7200
    assert found(late_s) == [(late_s + NOTICE_S, math.inf, False), (late_s + NOTICE_S, math.inf, True)]


NO_BUDGET = "tessera:\n  remediation: {budget: 0}\n"


def refusing(scene: Stage, error: KubeError) -> None:
    def refuse(method: str, path: str) -> KubeError | None:
        return error if method == "POST" and path.endswith("/eviction") else None

    scene.server.refuse = refuse


def figures(scene: Stage, action: str) -> float:
    assert scene.process is not None
    lines = [line for line in page(scene.process).splitlines() if line.startswith("tessera_gpu_drains_total{")]
    return sum(float(line.split()[-1]) for line in lines if f'action="{action}"' in line)


@pytest.mark.parametrize("policy", ["evict", "requeue-gang"])
async def test_a_gang_that_goes_at_once_with_its_failed_gpu_is_told_when_it_starts_again(policy: str) -> None:
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy", holders=[holder("p", 0)]))
        async with scene.controller(rules(), core_only=False):
            gpu_workload(scene, "gang", 2)
            await scene.until_admitted("gang")
            pod(scene, "p", policy)
            fail(scene)
            allocatable = {"cpu": "64", "nvidia.com/gpu": "1", "pods": "10"}
            status = {"allocatable": allocatable, "capacity": {**allocatable, "nvidia.com/gpu": "2"}}
            scene.server.merge(NODES, "n1", {"status": status})
            asks(scene, "n1", {**draining(1), "faultSince": ago(0)})
            if policy == "evict":
                await eventually(lambda: not exists(scene, "p"))
                scene._condition("gang", "team", {"type": "Admitted", "status": "False", "reason": "NoReservation"})
            else:
                await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")
                scene.server.delete(PODS, "p", namespace="team")
            scene.release("gang")
            said = "workload team/gang is requeued, likely start: in 5m or later"
            await eventually(lambda: any(note.endswith(said) for note in notes(scene, "GpuFailed")))


async def test_a_gang_that_was_requeued_is_told_when_it_is_likely_to_start_again() -> None:
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy", holders=[holder("p", 0)]))
        async with scene.controller(rules("0s"), core_only=False):
            gpu_workload(scene, "gang", 2)
            await scene.until_admitted("gang")
            pod(scene, "p", "")
            fail(scene)
            allocatable = {"cpu": "64", "nvidia.com/gpu": "1", "pods": "10"}
            status = {"allocatable": allocatable, "capacity": {**allocatable, "nvidia.com/gpu": "2"}}
            scene.server.merge(NODES, "n1", {"status": status})
            asks(scene, "n1", {**draining(3601), "faultSince": ago(0)})
            await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")
            scene.server.delete(PODS, "p", namespace="team")
            scene.release("gang")
            said = "workload team/gang is requeued, likely start: in 5m or later"
            await eventually(lambda: any(note.endswith(said) for note in notes(scene)))
