"""GpuNodes in the live controller: followed where their CRD is, and what fails there takes no job any more."""

from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, GPU_NODES, NODES, PODS, TOPOLOGIES
from controller.scheduler.model.resources import WorkloadKey
from kube.testing import eventually
from tests.support.controller.gpunodes import full_status
from tests.support.controller.stage import Stage, stage

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int) -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": "64", GPU: str(gpus), "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": "gpu"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def gpu_node(name: str, *states: str, holders: Any = ()) -> dict[str, Any]:
    """GPUs 0, 1, ... of the node, in these states."""
    devices = [
        {
            "uuid": f"GPU-{name}-{i}",
            "index": i,
            "memoryMiB": 81920,
            "product": "NVIDIA H100",
            "offers": [{"resource": GPU}],
            "health": {"state": state, "reasons": ["Xid79"] if state == "Unhealthy" else []},
        }
        for i, state in enumerate(states)
    ]
    status = full_status({"devices": devices, "holders": [*holders], "observedAt": "2026-01-01T00:00:00Z"})
    return {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "status": status}


def on_hosts(scene: Stage) -> None:
    """The flavor ``default`` of the queue ``cq`` places pods on single nodes, and has GPUs."""
    scene.make(TOPOLOGIES, "hosts", {}, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    scene.server.merge(FLAVORS, "default", {"spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"}})
    flavor = {"name": "default", "resources": [{"name": r, "nominalQuota": "100"} for r in ("cpu", GPU)]}
    groups = [{"coveredResources": ["cpu", GPU], "flavors": [flavor]}]
    scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": groups}})


def gpu_workload(scene: Stage, name: str, gpus: int, count: int = 1) -> None:
    resources = {"requests": {"cpu": "1", GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    scene.workload(name, podSets=[{"name": "main", "count": count, "template": template}])


async def test_a_cluster_without_agents_is_decided_about_all_the_same() -> None:
    async with stage() as scene:
        scene.server.unknown.add("gpunodes")
        scene.queue()
        scene.workload("a")
        async with scene.controller() as process:
            await scene.until_admitted("a")
            assert process._unready() is None


async def test_a_gpu_that_fails_takes_no_job_until_it_is_well_again() -> None:
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Unhealthy"))
        async with scene.controller():
            gpu_workload(scene, "pair", 2)
            await eventually(lambda: scene.condition("pair", "QuotaReserved") == "False/TopologyPlacementFailed")
            gpu_workload(scene, "one", 1)
            await scene.until_admitted("one")
            scene.finish("one")
            scene.server.merge(GPU_NODES, "n1", {"status": gpu_node("n1", "Healthy", "Healthy")["status"]})
            await scene.until_admitted("pair")


async def test_a_pod_that_names_limits_alone_takes_as_much_of_its_node() -> None:
    """The API server makes them its requests when it makes the pod; the workload holds what its owner wrote."""
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy"))
        container = {"name": "main", "resources": {"limits": {GPU: "2"}}}
        sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
        async with scene.controller():
            scene.workload("first", podSets=sets)
            await scene.until_admitted("first")
            plan = scene.core.engine.device_plan(WorkloadKey("team/first"), "main", "n1")
            assert plan == (("GPU-n1-0", "GPU-n1-1"),)
            scene.workload("second", podSets=sets)
            await eventually(lambda: scene.condition("second", "QuotaReserved") != "")
            assert scene.condition("second", "QuotaReserved").startswith("False/"), "the node is full"


@pytest.mark.parametrize("late", [False, True], ids=["reported-before-its-end", "reported-after-its-end"])
async def test_what_a_pod_held_that_has_ended_is_free_whatever_its_agent_still_says(late: bool) -> None:
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        held = [{"device": f"GPU-n1-{i}", "namespace": "team", "pod": "p", "container": "main"} for i in range(2)]
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy"))
        async with scene.controller():
            gpu_workload(scene, "first", 2)
            await scene.until_admitted("first")
            metadata = {
                "annotations": {"kueue.x-k8s.io/workload": "first", "tessera.dev/devices": "GPU-n1-0,GPU-n1-1"},
                "labels": {"kueue.x-k8s.io/podset": "main"},
            }
            resources = {"limits": {GPU: "2"}, "requests": {GPU: "2"}}
            sent = {"kubernetes.io/hostname": "n1"}
            containers = [{"name": "main", "resources": resources}]
            spec = {"nodeName": "n1", "nodeSelector": sent, "containers": containers}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": spec,
                "status": {"phase": "Running"},
            }
            scene.server.create(PODS, "p", body, namespace="team")
            cache = scene.core.engine.state.cluster.placement.devices  # type: ignore[attr-defined] # the live engine's
            if not late:
                scene.server.merge(GPU_NODES, "n1", {"status": {"holders": held}})
                await eventually(lambda: bool(cache.nodes["n1"].reports))
            await eventually(lambda: "team/p" in cache.pods)
            scene.server.merge(PODS, "p", {"status": {"phase": "Succeeded"}}, namespace="team")
            await eventually(lambda: "team/p" not in cache.pods)
            if late:
                scene.server.merge(GPU_NODES, "n1", {"status": {"holders": held}})
                await eventually(lambda: bool(cache.nodes["n1"].reports))
            scene.finish("first")
            gpu_workload(scene, "second", 2)
            await scene.until_admitted("second")
            plan = scene.core.engine.device_plan(WorkloadKey("team/second"), "main", "n1")
            assert plan == (("GPU-n1-0", "GPU-n1-1"),)
            scene.core.engine.validate()
