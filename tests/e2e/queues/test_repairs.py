"""Agent and controller repair GPUs of a real kubelet together: a reset takes a grant, grants have a budget."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.show import script
from inventory.api.names import REMEDIATION_GRANTS
from tests.support.e2e.devicescene import LONG, ON_FAILURE, DeviceScene, device_scene
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, least
from tests.support.e2e.queuelab import CONFIG, install, until

pytestmark = pytest.mark.e2e

GPUS, FAULT = 8, 119
AGENT = f"version: v1\nhealth: {FAST}\nremediation: {{reset: when-free}}\n"
DRAINING = f"version: v1\nhealth: {FAST}\nremediation: {{reset: drain, reboot: ask}}\n"
BUDGET = 2
REPAIR = "tessera.dev/repair"
OTHER = "node-2"
MIG, CUT = "nvidia.com/mig-3g.40gb", 3
"""The number of GPUs of each node that are cut, with two of these instances each, in the scene of two nodes."""
SLICED = f"""
version: v1
flags: {{migStrategy: mixed}}
health: {FAST}
remediation: {{reset: when-free}}
layout:
- {{gpus: [0, 1, 2], mode: mig, profiles: [3g.40gb, 3g.40gb], whenBusy: wait}}
"""

REBOOT_NODES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rebootnodes.janitor.dgxc.nvidia.com"},
    "spec": {
        "group": "janitor.dgxc.nvidia.com",
        "scope": "Cluster",
        "names": {"kind": "RebootNode", "plural": "rebootnodes", "singular": "rebootnode"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["nodeName"],
                                "properties": {"nodeName": {"type": "string"}, "force": {"type": "boolean"}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
"""The kind by which NVSentinel's janitor is asked for a reboot, with its spec; nobody acts on it here."""

Stage = Callable[[], AbstractAsyncContextManager[DeviceScene]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "helm"):
        binaries.build(program)
    with Cluster.up(f"repairs-{os.getpid()}", Spec(nodes=("node-1", OTHER))) as cluster:
        install(cluster)
        cluster.kubectl("apply", "-f", "-", input=json.dumps(REBOOT_NODES))
        yield cluster


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Iterator[Agent]:
    """One for each test; neither a GpuNode nor the flavor has the grants of the last one."""
    cluster.kubectl("delete", "gpunodes", "--all")
    for name in cluster.kubectl("get", "resourceflavors", "-o", "name").split():
        cluster.kubectl("annotate", name, f"{REMEDIATION_GRANTS}-")
    bench = Lab(cluster, cluster.node("node-1"))
    node = fleet(tmp_path / "fleet.yaml", gpus=GPUS, product="NVIDIA H100 80GB HBM3")
    with bench.agent(node, AGENT) as agent:
        bench.await_amounts({GPU: GPUS})
        yield agent


@pytest.fixture
def stage(cluster: Cluster, agent: Agent, tmp_path: Path) -> Stage:
    (tmp_path / "controller.yaml").write_text(
        CONFIG.replace("policy: tessera,", f"policy: tessera, remediation: {{budget: {BUDGET}, wait: 3s}},")
    )
    return lambda: device_scene(cluster, agent, tmp_path, {GPU: GPUS, MIG: 4 * CUT})


def repairs(scene: DeviceScene) -> dict[str, Any]:
    return {one["gpu"]: one for one in scene.bench.gpunode().get("repairs", [])}


def granted(scene: DeviceScene) -> list[str]:
    return sorted(one["gpu"] for one in scene.bench.gpunode().get("remediationGrants", []))


def is_well(scene: DeviceScene) -> bool:
    return scene.bench.amounts().get(GPU) == GPUS and not scene.agent.report().repairs and not repairs(scene)


async def test_a_gang_moves_its_gpu_alone_is_reset_by_grant_and_is_given_again(agent: Agent, stage: Stage) -> None:
    async with stage() as scene:
        await scene.job("train", 2, 2, script=LONG, **{ON_FAILURE: "requeue-gang"})
        await until(lambda: len(scene.running("train")) == 2, "both pods run")
        await until(lambda: all(len(scene.held(pod)) == 2 for pod in scene.running("train")), "they hold GPUs")
        before = {pod["metadata"]["uid"] for pod in scene.running("train")}
        device = min(scene.held(scene.running("train")[0]))
        agent.sim(gpu=scene.index(device), xid=FAULT)
        await until(
            lambda: (
                len(found := scene.running("train")) == 2 and before.isdisjoint(pod["metadata"]["uid"] for pod in found)
            ),
            "the gang runs again",
        )
        await until(lambda: is_well(scene), "the GPU is back")
        assert granted(scene) == [device], "reset without a grant"
        assert [index for index, count in enumerate(agent.resets()) if count] == [scene.index(device)]
        await scene.delete("train")
        await scene.job("all", 1, GPUS)
        await until(lambda: scene.queues.complete("all"), "a pod had all GPUs")
        await scene.delete("all")


@pytest.fixture
def other(cluster: Cluster, tmp_path: Path) -> Iterator[Agent]:
    """The agent of a second node, all of whose GPUs are cut."""
    bench = Lab(cluster, cluster.node(OTHER))
    node = fleet(tmp_path / "other.yaml", name=OTHER, gpus=CUT, product="NVIDIA H100 80GB HBM3")
    with bench.agent(node, SLICED) as agent:
        bench.await_amounts({MIG: 2 * CUT})
        yield agent


async def test_a_gang_of_two_nodes_moves_whole_when_a_cut_gpu_of_one_fails_and_gets_its_instances_again(
    cluster: Cluster, agent: Agent, other: Agent, stage: Stage
) -> None:
    """Four of the six instances of a node for each pod: neither has room beside the other."""
    agent.take_up(SLICED)
    whole, share = GPUS - CUT, 4
    async with stage() as scene:
        await asyncio.to_thread(scene.bench.await_amounts, {GPU: whole, MIG: 2 * CUT})
        notes = {ON_FAILURE: "requeue-gang"}
        await scene.job("train", 2, share, script=LONG, resource=MIG, **notes)
        await until(lambda: len(scene.running("train")) == 2, "both pods run")
        nodes = {pod["spec"]["nodeName"]: pod for pod in scene.running("train")}
        assert nodes.keys() == {"node-1", OTHER}
        await until(lambda: len(scene.held(nodes["node-1"])) == share, "the pod here has its instances")
        before = {pod["metadata"]["uid"] for pod in scene.running("train")}
        held = scene.held(nodes["node-1"])
        failed = next(gpu for gpu in agent.report().node.gpus if {mig.uuid for mig in gpu.mig_instances} & held)
        with least(scene.bench) as seen, least(Lab(cluster, cluster.node(OTHER))) as seen_there:
            agent.sim(gpu=failed.index, xid=FAULT)
            await until(
                lambda: (
                    len(found := scene.running("train")) == 2
                    and before.isdisjoint(pod["metadata"]["uid"] for pod in found)
                ),
                "the gang runs again, whole",
            )
            again = {pod["spec"]["nodeName"]: pod for pod in scene.running("train")}
            await until(lambda: len(scene.held(again["node-1"])) == share, "the new pod has its instances")
            assert scene.held(again["node-1"]).isdisjoint(mig.uuid for mig in failed.mig_instances)
            await until(lambda: granted(scene) == [failed.uuid] and not repairs(scene), "it was reset by a grant")
            await asyncio.to_thread(scene.bench.await_amounts, {GPU: whole, MIG: 2 * CUT})
        assert (seen[GPU], seen[MIG], seen_there[MIG]) == (whole, 2 * CUT - 2, 2 * CUT), "that GPU alone has left"
        assert [index for index, count in enumerate(agent.resets()) if count] == [failed.index]
        assert sum(other.resets()) == 0
        cut = agent.report().node.gpus[failed.index].mig_instances
        assert {(mig.profile, mig.start) for mig in cut} == {(mig.profile, mig.start) for mig in failed.mig_instances}
        workload = scene.queues.watcher.of_job("train")
        assert sum(one["count"] for one in workload["status"]["schedulingStats"]["evictions"]) == 1
        await scene.delete("train")
        await scene.job("all", 2, 2 * CUT, resource=MIG)
        await until(lambda: scene.queues.complete("all"), "two pods had all instances of both nodes")
        await scene.delete("all")


async def test_nothing_is_reset_while_no_controller_grants_it_and_the_next_one_does(agent: Agent, stage: Stage) -> None:
    async with stage() as scene:
        (controller,) = scene.controllers
        await until(lambda: bool(controller.runs and scene.bench.gpunode()), "both are up")
        controller.kill()
        agent.sim(gpu=3, xid=FAULT)
        await until(lambda: [one.get("asks") for one in repairs(scene).values()] == ["reset"], "it is asked for")
        agent.sim(gpu=0, xid=31)
        await until(lambda: bool(agent.report().application_faults), "the agent goes on")
        assert (sum(agent.resets()), granted(scene)) == (0, [])
        controller.start()
        await until(lambda: is_well(scene), "the GPU is back")
        assert agent.resets() == [int(index == 3) for index in range(GPUS)]


async def test_a_controller_that_dies_after_its_grant_changes_nothing(agent: Agent, stage: Stage) -> None:
    async with stage() as scene:
        (controller,) = scene.controllers
        agent.sim(gpu=1, slow={"call": "reset", "seconds": 15})
        agent.sim(gpu=1, xid=FAULT)
        await until(lambda: [one["state"] for one in repairs(scene).values()] == ["Resetting"], "the reset runs")
        controller.kill()
        controller.start()
        agent.sim(gpu=1, slow={"call": "reset", "seconds": 0})
        await until(lambda: is_well(scene), "the GPU is back")
        assert len(granted(scene)) == 1
        assert agent.resets()[1] == 1


async def test_a_storm_trips_the_breaker_and_a_person_lifts_it(cluster: Cluster, agent: Agent, stage: Stage) -> None:
    async with stage() as scene:
        for index in range(4):
            agent.sim(gpu=index, xid=FAULT)
        await until(lambda: sum(agent.resets()) == BUDGET, "the budget is used")
        await until(lambda: scene.bench.amounts()[GPU] == GPUS - 4 + BUDGET, "those are back")
        await until(lambda: [one.get("asks") for one in repairs(scene).values()] == ["reset"] * 2, "two wait")
        assert (sum(agent.resets()), len(granted(scene))) == (BUDGET, BUDGET)
        env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        resume = [script("tessera"), "remediation", "resume", "gpus"]
        await asyncio.to_thread(subprocess.run, resume, env=env, check=True, timeout=60)
        await until(lambda: is_well(scene), "all are back")
        assert agent.resets() == [1] * 4 + [0] * (GPUS - 4)


@pytest.fixture
def no_flavor(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Makes the flavor select no node until the test is over."""

    def select(labels: Any) -> None:
        patch = json.dumps({"spec": {"nodeLabels": labels}})
        cluster.kubectl("patch", "resourceflavor", "gpus", "--type=merge", "-p", patch)

    before: list[Any] = []

    def none() -> None:
        found = json.loads(cluster.kubectl("get", "resourceflavor", "gpus", "-o", "json"))
        before.append(found["spec"].get("nodeLabels"))
        select({"pool": "elsewhere"})

    yield none
    if before:
        select({"pool": None, **(before[0] or {})})


async def test_the_breaker_of_nodes_of_no_flavor_is_shown_on_a_gpunode_and_lifted_by_its_name(
    cluster: Cluster, agent: Agent, stage: Stage, no_flavor: Callable[[], None]
) -> None:
    async with stage() as scene:
        no_flavor()
        for index in range(BUDGET + 1):
            agent.sim(gpu=index, xid=FAULT)
        await until(lambda: sum(agent.resets()) == BUDGET, "the budget is used")

        def notes() -> str:
            return cluster.kubectl("get", "gpunode", "node-1", "-o", "jsonpath={.metadata.annotations}")

        await until(lambda: "tessera.dev/repair-breaker-tripped" in notes(), "the GpuNode shows it")
        env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        resume = [script("tessera"), "remediation", "resume", "no-flavor.tessera.dev"]
        await asyncio.to_thread(subprocess.run, resume, env=env, check=True, timeout=60)
        await until(lambda: is_well(scene), "all are back")
        await until(lambda: "tripped" not in notes(), "it has healed")
        assert agent.resets() == [1] * (BUDGET + 1) + [0] * (GPUS - BUDGET - 1)


async def test_a_drain_lets_a_pod_finish_for_its_time_and_then_moves_its_gang_whole(agent: Agent, stage: Stage) -> None:
    async with stage() as scene:
        agent.take_up(DRAINING)
        await scene.job("train", 2, 1, script=LONG, **{ON_FAILURE: "notify"})
        await until(lambda: len(scene.running("train")) == 2, "both pods run")
        await until(lambda: all(len(scene.held(pod)) == 1 for pod in scene.running("train")), "they hold GPUs")
        before = {pod["metadata"]["uid"] for pod in scene.running("train")}
        (device,) = scene.held(scene.running("train")[0])
        agent.sim(gpu=scene.index(device), xid=FAULT)
        await until(lambda: [one.get("asks") for one in repairs(scene).values()] == ["drain"], "its drain is asked for")
        await until(
            lambda: (
                len(found := scene.running("train")) == 2 and before.isdisjoint(pod["metadata"]["uid"] for pod in found)
            ),
            "the gang runs again",
        )
        await until(lambda: is_well(scene), "the GPU is back")
        assert [index for index, count in enumerate(agent.resets()) if count] == [scene.index(device)]
        workload = scene.queues.watcher.of_job("train")
        assert sum(one["count"] for one in workload["status"]["schedulingStats"]["evictions"]) == 1
        await scene.delete("train")


def counts(cluster: Cluster, budget: str) -> bool:
    found = json.loads(cluster.kubectl("get", "poddisruptionbudget", budget, "-o", "json"))
    return bool(found.get("status", {}).get("currentHealthy"))


def refusals(cluster: Cluster) -> list[tuple[str, int, list[str]]]:
    """The budgets that the plan names for the one GPU in repair: what each allows, and of which pods."""
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [script("tessera"), "remediation", "plan", "-o", "json"]
    plan = subprocess.run(command, env=env, check=True, timeout=60, capture_output=True)
    (row,) = json.loads(plan.stdout)["gpus"]
    return [(one["budget"], one["disruptionsAllowed"], one["pods"]) for one in row["refusedBy"]]


def evict(cluster: Cluster, pod: str) -> str:
    """What the API server answers to the eviction."""
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    command, env = cluster.kubectl_command("create", "--raw", path, "-f", "-")
    return subprocess.run(command, env=env, input=body, capture_output=True, text=True, check=False, timeout=60).stderr


async def test_a_due_reset_waits_for_its_window_and_moves_the_gang_whole(
    cluster: Cluster, agent: Agent, stage: Stage, tmp_path: Path
) -> None:
    configured = tmp_path / "controller.yaml"
    without = configured.read_text()
    async with stage() as scene:
        agent.take_up(DRAINING)
        await scene.job("train", 2, 2, script=LONG)
        await until(lambda: [len(scene.held(pod)) for pod in scene.running("train")] == [2, 2], "they hold GPUs")
        before = {pod["metadata"]["uid"] for pod in scene.running("train")}
        device = min(scene.held(scene.running("train")[0]))
        agent.sim(gpu=scene.index(device), xid=63)
        await until(lambda: health_of(scene, device).get("resetDue") is True, "its reset is due")
        assert (health_of(scene, device)["state"], repairs(scene)) == ("Suspect", {})
        (controller,) = scene.controllers
        controller.kill()
        window = 'repairWindows: [{from: "* * * * *", for: 5m}], budget:'
        configured.write_text(without.replace("budget:", window))
        controller.start()
        await until(lambda: sum(agent.resets()) == 1, "it was reset in the window")
        await until(lambda: is_well(scene), "the GPU is back")
        assert [index for index, count in enumerate(agent.resets()) if count] == [scene.index(device)]
        assert "resetDue" not in health_of(scene, device)
        await until(
            lambda: (
                len(found := scene.running("train")) == 2 and before.isdisjoint(pod["metadata"]["uid"] for pod in found)
            ),
            "the gang runs again",
        )
        events = json.loads(cluster.kubectl("get", "events", "-A", "-o", "json"))["items"]
        assert [device in one["message"] for one in events if one["reason"] == "GpuResetPlanned"] == [True]
        await scene.delete("train")
    configured.write_text(without)


def health_of(scene: DeviceScene, device: str) -> dict[str, Any]:
    found = scene.bench.gpunode().get("devices", [])
    return next((dict(one.get("health", {})) for one in found if one["uuid"] == device), {})


async def test_a_plan_names_the_budget_that_keeps_a_pod_until_it_allows_its_eviction(
    cluster: Cluster, agent: Agent, stage: Stage
) -> None:
    async with stage() as scene:
        agent.take_up(DRAINING)
        pod = await asyncio.to_thread(scene.bench.run, "guarded", {GPU: 1})
        cluster.kubectl("label", "pod", "guarded", "app=guarded")
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
        guard = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
        cluster.kubectl("create", "-f", "-", input=json.dumps({**guard, "spec": budget}))
        (device,) = pod.visible
        agent.sim(gpu=scene.index(device), xid=FAULT)
        await until(lambda: [one.get("asks") for one in repairs(scene).values()] == ["drain"], "its drain is asked for")
        await until(lambda: counts(cluster, "guard"), "Kubernetes has counted the pods of the budget")
        assert await asyncio.to_thread(refusals, cluster) == [("default/guard", 0, ["default/guarded"])]
        assert "violate the pod's disruption budget" in await asyncio.to_thread(evict, cluster, "guarded")
        cluster.kubectl("delete", "poddisruptionbudget", "guard")
        assert await asyncio.to_thread(refusals, cluster) == []
        await until(lambda: is_well(scene), "the pod has left, and the GPU is back")


async def test_a_reset_that_fails_twice_plans_a_reboot_and_a_persons_cordon_stays(
    cluster: Cluster, agent: Agent, stage: Stage
) -> None:
    async with stage() as scene:
        agent.take_up(DRAINING)
        await scene.job("train", 1, 2, script=LONG)
        await until(lambda: len(scene.running("train")) == 1, "its pod runs")
        (pod,) = scene.running("train")
        await until(lambda: len(scene.held(pod)) == 2, "it holds GPUs")
        failed = next(index for index in range(GPUS) if index not in {scene.index(each) for each in scene.held(pod)})
        agent.sim(gpu=failed, fail={"call": "reset", "code": 19})
        agent.sim(gpu=failed, xid=FAULT)
        await until(lambda: [one["state"] for one in repairs(scene).values()] == ["RebootWanted"], "a reboot is wanted")
        await until(lambda: condition(scene, "MaintenancePlanned") == "True", "it is planned")
        assert REPAIR in taints(scene)
        await until(lambda: reboots(cluster) == ["node-1"], "a RebootNode asks the janitor for it")
        assert scene.running("train") == [], "the node was to be rebooted under a pod that holds GPUs"
        assert scene.bench.gpunode().get("holders", []) == []
        cluster.kubectl("cordon", "node-1")
        agent.sim(gpu=failed, fail={"call": "reset", "code": 0})
        agent.sim(gpu=failed, reset=True)
        await until(lambda: condition(scene, "MaintenancePlanned") == "False", "it is over")
        await until(lambda: REPAIR not in taints(scene), "the taint is gone")
        await until(lambda: reboots(cluster) == [], "the RebootNode is gone")
        assert scene.bench.node["spec"].get("unschedulable") is True, "a person's cordon was undone"
        cluster.kubectl("uncordon", "node-1")
        await until(lambda: condition(scene, "tessera.dev/GPUsHealthy") == "True", "all GPUs are well")
        await until(lambda: len(scene.running("train")) == 1, "the job has its GPUs again")


def reboots(cluster: Cluster) -> list[str]:
    """The nodes whose reboot is asked for."""
    found = json.loads(cluster.kubectl("get", "rebootnodes", "-o", "json"))["items"]
    return [one["spec"]["nodeName"] for one in found]


def condition(scene: DeviceScene, type_: str) -> str:
    found = scene.bench.node["status"]["conditions"]
    return next((str(one["status"]) for one in found if one["type"] == type_), "")


def taints(scene: DeviceScene) -> list[str]:
    return [one["key"] for one in scene.bench.node["spec"].get("taints", [])]
