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
from tests.support.e2e.devicescene import LONG, ON_FAILURE, DeviceScene, device_scene
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet
from tests.support.e2e.queuelab import CONFIG, install, until

pytestmark = pytest.mark.e2e

GPUS, FAULT = 8, 119
AGENT = f"version: v1\nhealth: {FAST}\nremediation: {{reset: when-free}}\n"
DRAINING = f"version: v1\nhealth: {FAST}\nremediation: {{reset: drain, reboot: ask}}\n"
BUDGET = 2
REPAIR = "tessera.dev/repair"

Stage = Callable[[], AbstractAsyncContextManager[DeviceScene]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "helm"):
        binaries.build(program)
    with Cluster.up(f"repairs-{os.getpid()}", Spec()) as cluster:
        install(cluster)
        yield cluster


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Iterator[Agent]:
    """One for each test, and a GpuNode without the grants of the last one."""
    cluster.kubectl("delete", "gpunodes", "--all")
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
    return lambda: device_scene(cluster, agent, tmp_path, {GPU: GPUS})


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


async def test_a_reset_that_fails_twice_plans_a_reboot_and_a_persons_cordon_stays(
    cluster: Cluster, agent: Agent, stage: Stage
) -> None:
    async with stage() as scene:
        agent.take_up(DRAINING)
        agent.sim(gpu=2, fail={"call": "reset", "code": 19})
        agent.sim(gpu=2, xid=FAULT)
        await until(lambda: [one["state"] for one in repairs(scene).values()] == ["RebootWanted"], "a reboot is wanted")
        await until(lambda: condition(scene, "MaintenancePlanned") == "True", "it is planned")
        assert REPAIR in taints(scene)
        cluster.kubectl("cordon", "node-1")
        agent.sim(gpu=2, fail={"call": "reset", "code": 0})
        agent.sim(gpu=2, reset=True)
        await until(lambda: condition(scene, "MaintenancePlanned") == "False", "it is over")
        await until(lambda: REPAIR not in taints(scene), "the taint is gone")
        assert scene.bench.node["spec"].get("unschedulable") is True, "a person's cordon was undone"
        cluster.kubectl("uncordon", "node-1")
        await until(lambda: condition(scene, "tessera.dev/GPUsHealthy") == "True", "all GPUs are well")


def condition(scene: DeviceScene, type_: str) -> str:
    found = scene.bench.node["status"]["conditions"]
    return next((str(one["status"]) for one in found if one["type"] == type_), "")


def taints(scene: DeviceScene) -> list[str]:
    return [one["key"] for one in scene.bench.node["spec"].get("taints", [])]
