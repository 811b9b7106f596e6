"""CompositePodGroups of Kubernetes' own behind a queue, on a real API server and scheduler that have them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, TOPOLOGIES
from controller.jobs.framework.podview import GroupName
from hack.cluster.cluster import Cluster
from inventory.api.names import COMPOSITE_GROUP
from tests.support.e2e.nativelab import GROUPS, configure, native_cluster
from tests.support.e2e.podlab import GPU, HOST, TEAM, PodLab, pod_body, pod_lab
from tests.support.e2e.queuelab import ALONE

pytestmark = pytest.mark.e2e

TREES = "compositepodgroups.scheduling.k8s.io"
BLOCK, RACK = "example.com/block", "example.com/rack"
ALPHA = "scheduling.k8s.io/v1alpha3"
GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with native_cluster("nativetrees", GATES, alpha=True) as cluster:
        for index in range(2):
            cluster.kubectl("label", "node", f"kwok-{index}", f"{BLOCK}=b", f"{RACK}=r{index}")
        yield cluster


async def queue(scene: PodLab, name: str, gpus: int) -> None:
    """A ClusterQueue and a LocalQueue of its name, whose flavor has blocks of racks."""
    levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
    await scene.queues.share(TOPOLOGIES, "blocks", spec={"levels": levels})
    await scene.queues.share(FLAVORS, "racked", spec={"nodeLabels": {"type": "kwok"}, "topologyName": "blocks"})
    quota = {"name": "racked", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    await scene.queues.make(CLUSTER_QUEUES, name, spec={"namespaceSelector": {}, "resourceGroups": groups})
    await scene.queues.make(LOCAL_QUEUES, name, namespace=TEAM, spec={"clusterQueue": name})


def level(key: str) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}


def tree(cluster: Cluster, name: str, leaves: dict[str, int], *, outer: str = "", inner: str = "") -> None:
    """A CompositePodGroup of all ``leaves``, each a PodGroup with its minimum. ``outer``, ``inner``: levels."""
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": len(leaves)}}, **level(outer)}
    below = {
        leaf: {"schedulingPolicy": {"gang": {"minCount": least}}, **level(inner)} for leaf, least in leaves.items()
    }
    templates = [{"name": leaf, **spec} for leaf, spec in below.items()]
    whole = {"name": "all", **policy, "podGroupTemplates": templates}
    made: list[dict[str, Any]] = [
        {"kind": "Workload", "metadata": {"name": name}, "spec": {"compositePodGroupTemplates": [whole]}},
        {
            "kind": "CompositePodGroup",
            "metadata": {"name": name},
            "spec": {"workloadRef": {"workloadName": name, "templateName": "all"}, **policy},
        },
    ]
    for leaf, spec in below.items():
        of = {"parentCompositePodGroupName": name, "workloadRef": {"workloadName": name, "templateName": leaf}}
        made.append({"kind": "PodGroup", "metadata": {"name": f"{name}-{leaf}"}, "spec": {**of, **spec}})
    for each in made:
        each["metadata"]["namespace"] = TEAM
        cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": ALPHA, **each}))


async def members(scene: PodLab, of: str, name: str, leaves: dict[str, int], gpus: int) -> list[str]:
    """Makes the pods of a tree's minimum; returns their names."""
    names = []
    for leaf, count in leaves.items():
        for index in range(count):
            names.append(f"{name}-{leaf}-{index}")
            within = {"podGroupName": f"{name}-{leaf}"}
            await scene.create(pod_body(names[-1], queue=of, gpus=gpus, schedulingGroup=within))
    return names


async def tidy(cluster: Cluster, scene: PodLab, names: list[str]) -> None:
    await scene.finish(names)
    await scene.clean()
    cluster.kubectl("delete", GROUPS, "-n", TEAM, "--all", "--timeout=60s")
    cluster.kubectl("delete", TREES, "-n", TEAM, "--all", "--timeout=60s")
    cluster.kubectl("delete", "workloads.scheduling.k8s.io", "-n", TEAM, "--all")


def counted(scene: PodLab, name: str) -> list[int]:
    """The pod sets of the tree's Workload; empty while there is none."""
    workload = scene.workload(GroupName(None, name, composite=True).workload)
    return sorted(each["count"] for each in workload.get("spec", {}).get("podSets", []))


async def test_equal_groups_start_together_each_in_its_own_rack_of_one_block(cluster: Cluster, tmp_path: Path) -> None:
    leaves = {"a": 2, "b": 2}
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await queue(scene, "racks", 16)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            tree(cluster, "pair", leaves, outer=BLOCK, inner=RACK)
            names = await members(scene, "racks", "pair", leaves, 4)
            await scene.until(lambda: scene.runs(*names), "both groups run")
            assert counted(scene, "pair") == [2, 2]
            assert {scene.pod(name)["metadata"]["annotations"][COMPOSITE_GROUP] for name in names} == {"pair"}
            nodes = {leaf: {scene.pod(f"pair-{leaf}-{at}")["spec"]["nodeName"] for at in range(2)} for leaf in leaves}
            assert [len(each) for each in nodes.values()] == [1, 1]
            assert nodes["a"] != nodes["b"], "a rack has room for one group"
            await tidy(cluster, scene, names)


async def test_unlike_groups_are_one_workload_that_waits_for_the_quota_of_all(cluster: Cluster, tmp_path: Path) -> None:
    leaves = {"driver": 1, "workers": 3}
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await queue(scene, "small", 3)
        await queue(scene, "large", 4)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            tree(cluster, "short", leaves)
            waits = await members(scene, "small", "short", leaves, 1)
            await scene.until(lambda: counted(scene, "short") == [1, 3], "it is one workload")
            tree(cluster, "whole", leaves)
            names = await members(scene, "large", "whole", leaves, 1)
            await scene.until(lambda: scene.runs(*names), "the tree with quota for all of its pods runs")
            assert not any(scene.pod(name)["spec"].get("nodeName") for name in waits)
            for name in waits:
                await scene.delete(name)
            await tidy(cluster, scene, names)
