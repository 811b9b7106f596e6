"""Nodes whose repair wants a reboot, live: tainted, told, and a RebootNode where that kind is served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from controller.cluster.watching.kinds import GPU_NODES, NODES, PODS
from controller.reconcile.repairs import maintenance_shell
from controller.reconcile.repairs.maintenance_shell import REBOOTS
from kube.errors import NotFoundError
from kube.testing import eventually
from tests.controller.reconcile.failures.test_gpufailures_shell import holder
from tests.controller.reconcile.repairs.test_repairs_shell import asks, furnish, grants, notes, repair, rules
from tests.support.controller.stage import Stage, stage

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
OURS = {"key": "tessera.dev/repair", "effect": "NoSchedule"}
REBOOT = repair("GPU-n1-0", "reboot", state="RebootWanted", cause="XID 79")


@asynccontextmanager
async def running(*, served: bool = True) -> AsyncIterator[Stage]:
    async with stage() as scene:
        if served:
            scene.server.install(REBOOTS)
        else:
            scene.server.unknown.add(REBOOTS.plural)
        furnish(scene, "n1", "n2")
        scene.server.merge(NODES, "n1", {"spec": {"unschedulable": True, "taints": [CORDON]}})
        async with scene.controller(rules("budget: 2"), core_only=False):
            yield scene


def taints(scene: Stage, name: str = "n1") -> list[dict[str, Any]]:
    return list(scene.server.get(NODES, name).get("spec", {}).get("taints", []))


def condition(scene: Stage, type_: str, name: str = "n1") -> tuple[str, str]:
    found = scene.server.get(NODES, name)["status"]["conditions"]
    return next(((one["status"], one["reason"]) for one in found if one["type"] == type_), ("", ""))


def is_unknown(scene: Stage, type_: str) -> bool:
    return condition(scene, type_) == ("Unknown", "AgentAway")


def reboots(scene: Stage) -> list[tuple[str, Any]]:
    return [(one["metadata"]["name"], one["spec"]) for one in scene.server.list_all(REBOOTS)]


async def test_a_node_that_is_to_be_rebooted_is_tainted_and_says_so_until_the_repair_is_over() -> None:
    async with running() as scene:
        asks(scene, "n1", REBOOT)
        await eventually(lambda: condition(scene, "MaintenancePlanned") == ("True", "GpuRepair"))
        assert taints(scene) == [CORDON, OURS], "a person's cordon stays as it is"
        await eventually(lambda: reboots(scene) == [("tessera-n1", {"nodeName": "n1", "force": False})])
        note = "GPU GPU-n1-0 is repaired by a reboot of its node alone: XID 79"
        await eventually(lambda: notes(scene, "MaintenancePlanned") == [note])
        asks(scene, "n1")
        await eventually(lambda: condition(scene, "MaintenancePlanned") == ("False", "GpuRepairOver"))
        await eventually(lambda: reboots(scene) == [])
        assert taints(scene) == [CORDON]
        assert scene.server.get(NODES, "n1")["spec"]["unschedulable"] is True


async def test_the_reboot_waits_until_nobody_holds_a_gpu_of_the_node() -> None:
    async with running() as scene:
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": [holder("p", 1)]}})
        asks(scene, "n1", REBOOT)
        await eventually(lambda: condition(scene, "MaintenancePlanned") == ("True", "GpuRepair"))
        assert reboots(scene) == []
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": []}})
        await eventually(lambda: len(reboots(scene)) == 1)


async def test_where_nobody_serves_reboots_the_node_is_prepared_all_the_same() -> None:
    async with running(served=False) as scene:
        asks(scene, "n1", REBOOT)
        await eventually(lambda: condition(scene, "MaintenancePlanned") == ("True", "GpuRepair"))
        await eventually(lambda: len(scene.server.seen("POST", "/rebootnodes")) == 1)
        asks(scene, "n1")
        await eventually(lambda: condition(scene, "MaintenancePlanned") == ("False", "GpuRepairOver"))
        assert taints(scene) == [CORDON]


async def test_nothing_is_prepared_before_it_is_granted() -> None:
    async with stage() as scene:
        furnish(scene, "n1")
        asks(scene, "n1", REBOOT)
        async with scene.controller(rules("budget: 0"), core_only=False):
            await eventually(lambda: notes(scene, "GpuRepairWaits") != [])
            assert grants(scene, "n1") == []
            assert taints(scene) == []


@pytest.mark.parametrize("how", ["unreachable", "without a GpuNode"])
async def test_the_agents_conditions_are_unknown_once_it_is_away_and_are_left_to_it_afterwards(how: str) -> None:
    agents = agent_conditions()
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    async with running() as scene:
        scene.server.merge(NODES, "n1", {"status": {"conditions": [ready, *agents]}})
        if how == "unreachable":
            lost = {**ready, "status": "Unknown", "lastTransitionTime": "2026-01-02T00:00:00Z"}
            scene.server.merge(NODES, "n1", {"status": {"conditions": [lost, *agents]}})
        else:
            lost = ready
            scene.server.delete(GPU_NODES, "n1")
        for each in agents:
            await eventually(partial(is_unknown, scene, each["type"]))
        scene.server.merge(NODES, "n1", {"status": {"conditions": [lost, *agents]}})
        asks(scene, "n2", repair("GPU-n2-0", "reboot", state="RebootWanted"))
        await eventually(lambda: condition(scene, "MaintenancePlanned", "n2")[0] == "True")
        assert condition(scene, "nvidia.com/GPUReady") == ("True", "Ready"), "the agent has the last word"


def agent_conditions() -> list[dict[str, str]]:
    return [
        {"type": type_, "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_ in ("nvidia.com/GPUReady", "tessera.dev/GPUsHealthy")
    ]


def agent_pod(scene: Stage, node: str, state: str = "running") -> None:
    meta = {"labels": {"app.kubernetes.io/component": "agent"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {state: {}}}]}
    body = {"metadata": meta, "spec": {"nodeName": node}, "status": status}
    scene.server.create(PODS, f"agent-{node}", body, namespace="tessera-system")


@pytest.mark.parametrize("end", ["its pod is gone", "its container is restarted again and again"])
async def test_the_conditions_of_an_agent_that_alone_has_ended_are_unknown_until_it_says_them_again(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_shell, "AWAY_S", 0.3)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    async with running() as scene:
        agent_pod(scene, "n1")
        agent_pod(scene, "n2")
        for name in ("n1", "n2"):
            scene.server.merge(NODES, name, {"status": {"conditions": [ready, *agent_conditions()]}})
        if end == "its pod is gone":
            scene.server.delete(PODS, "agent-n1", namespace="tessera-system")
        else:
            waiting = [{"name": "agent", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
            status = {"status": {"containerStatuses": waiting}}
            scene.server.merge(PODS, "agent-n1", status, namespace="tessera-system")
        for type_ in ("nvidia.com/GPUReady", "tessera.dev/GPUsHealthy"):
            await eventually(partial(is_unknown, scene, type_))
            assert condition(scene, type_, "n2") == ("True", "Ready")
        found = scene.server.get(NODES, "n1")["status"]["conditions"]
        assert "No agent has run on the node" in next(each["message"] for each in found if each["type"] != "Ready")
        scene.server.merge(NODES, "n1", {"status": {"conditions": [ready, *agent_conditions()]}})
        asks(scene, "n2", repair("GPU-n2-0", "reboot", state="RebootWanted"))
        await eventually(lambda: condition(scene, "MaintenancePlanned", "n2")[0] == "True")
        assert condition(scene, "nvidia.com/GPUReady") == ("True", "Ready"), "the agent has the last word"


async def test_the_same_conditions_of_a_node_without_an_agent_are_left_to_their_writer() -> None:
    theirs = {"type": "nvidia.com/GPUReady", "status": "True", "reason": "ByOthers"}
    lost = {"type": "Ready", "status": "Unknown", "reason": "Lost"}
    async with stage() as scene:
        furnish(scene, "n1")
        scene.server.create(NODES, "n9", {"metadata": {}, "status": {"conditions": [lost, theirs]}})
        async with scene.controller(rules(), core_only=False):
            asks(scene, "n1", REBOOT)
            await eventually(lambda: condition(scene, "MaintenancePlanned")[0] == "True")
            assert condition(scene, "nvidia.com/GPUReady", "n9") == ("True", "ByOthers")


async def test_a_new_leader_says_unknown_of_a_node_whose_gpunode_went_before_its_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance_shell, "AWAY_S", 0.3)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    async with stage() as scene:
        furnish(scene, "n1")
        scene.server.merge(NODES, "n1", {"status": {"conditions": [ready, *agent_conditions()]}})
        scene.server.delete(GPU_NODES, "n1")
        async with scene.controller(rules(), core_only=False):
            for type_ in ("nvidia.com/GPUReady", "tessera.dev/GPUsHealthy"):
                await eventually(partial(is_unknown, scene, type_))


async def test_a_new_leader_ends_what_the_one_before_prepared() -> None:
    async with stage() as scene:
        scene.server.install(REBOOTS)
        furnish(scene, "n1")
        asks(scene, "n1", REBOOT)
        async with scene.controller(rules(), core_only=False):
            await eventually(lambda: len(reboots(scene)) == 1)
        asks(scene, "n1")
        async with scene.controller(rules(), core_only=False, name="two"):
            await eventually(lambda: reboots(scene) == [])
            assert taints(scene) == []
            with pytest.raises(NotFoundError):
                scene.server.get(REBOOTS, "tessera-n1")
