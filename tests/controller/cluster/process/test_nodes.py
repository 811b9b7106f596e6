"""Nodes and pods in the live controller: quota that follows capacity, and the watch that starts when it is needed."""

from typing import Any

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, NODES, PODS, TOPOLOGIES
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage


def node(cpus: int) -> dict[str, Any]:
    status = {"allocatable": {"cpu": str(cpus), "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "pool": "gpu"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


async def test_quota_follows_the_nodes_that_are_there() -> None:
    async with stage() as scene:
        scene.queue(cpus=0)
        shares = {"annotations": {"tessera.dev/quota-shares": '{"default": {"cpu": "50%"}}'}}
        scene.server.merge(CLUSTER_QUEUES, "cq", {"metadata": shares})
        scene.workload("a", 2)
        following = config(CONFIG + "  quotaFromCapacity: true\n")
        async with scene.controller(following):
            await eventually(lambda: scene.condition("a", "QuotaReserved").startswith("False"))
            scene.server.create(NODES, "n1", node(4))
            await scene.until_admitted("a")


async def test_pods_are_followed_once_there_is_a_topology_and_take_room_on_its_nodes() -> None:
    async with stage() as scene:
        scene.queue(cpus=10)
        scene.server.create(NODES, "n1", node(4))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"phase": "Running"},
        }
        scene.server.create(PODS, "stranger", pod, namespace="team")
        async with scene.controller() as process:
            scene.workload("before", 1)
            await scene.until_admitted("before")
            assert not scene.server.seen("GET", "/pods")
            assert not process._unready()
            levels = [{"nodeLabel": "kubernetes.io/hostname"}]
            scene.make(TOPOLOGIES, "hosts", {}, spec={"levels": levels})
            await eventually(lambda: bool(scene.server.seen("GET", "/pods")))
            placed = {"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"}
            scene.server.merge(FLAVORS, "default", {"spec": placed})
            scene.workload("large", 2)
            await eventually(lambda: scene.condition("large", "QuotaReserved") == "False/TopologyPlacementFailed")
            scene.server.delete(PODS, "stranger", namespace="team")
            await scene.until_admitted("large")
        assert scene.status("large")["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"]
