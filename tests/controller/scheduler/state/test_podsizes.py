"""A pod that no node is large enough for is told so, though quota admits it."""

from typing import Any

import pytest

from controller.insight.explain import explained
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.state.podsizes import PodSizeNoFit, too_large
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int, *, served: int | None = None, labels: dict[str, str] | None = None, **more: str) -> Node:
    """``served``: as many of its GPUs are in service; all without it."""
    allocatable = {GPU: str(gpus if served is None else served), "memory": "100Gi", **more}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": {**allocatable, GPU: str(gpus)}, "allocatable": allocatable, "conditions": ready}
    return decode({"metadata": {"name": name, "labels": labels or {}}, "status": status}, Node)


def groups(*flavors: str) -> list[dict[str, Any]]:
    quota = [{"name": GPU, "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "100Ti"}]
    return [{"coveredResources": [GPU, "memory"], "flavors": [{"name": name, "resources": quota} for name in flavors]}]


def fleet(*nodes: Node, flavors: tuple[str, ...] = ("gpu",), **more: Any) -> World:
    made = World()
    made.put(*(flavor(name, nodeLabels={"kind": name} if len(flavors) > 1 else {}) for name in flavors))
    made.put(cluster_queue("q", resourceGroups=groups(*flavors), **more), local_queue("q"), *nodes)
    return made


def asks(gpus: int, memory: str = "1Gi", count: int = 1) -> Workload:
    return requesting(workload("w", "q", count=count), {GPU: str(gpus), "memory": memory})


def found(made: World, given: Workload) -> PodSizeNoFit | None:
    cluster = made.engine.state.cluster
    return too_large(cluster, cluster.queue(ClusterQueueName("q")), given)


def test_the_sentence_names_the_flavor_the_request_and_what_the_largest_node_has() -> None:
    told = found(fleet(node("a", 4), node("b", 8)), asks(9))
    assert told is not None
    said = "No node of flavor gpu is large enough for a pod of main: "
    assert told.sentence == f"{said}it asks for 9 nvidia.com/gpu, and the largest node has 8"
    clause = "unless it asks for at most 8 nvidia.com/gpu in each pod of main, or nodes come that take more"
    assert told.clause == clause


@pytest.mark.parametrize("count", [1, 50])
def test_pods_that_fit_on_a_node_one_at_a_time_are_not_too_large(count: int) -> None:
    assert found(fleet(node("a", 8)), asks(8, count=count)) is None


def test_what_is_out_of_service_returns() -> None:
    assert found(fleet(node("a", 8, served=7)), asks(8)) is None


def test_without_any_node_nothing_is_said() -> None:
    assert found(fleet(), asks(9)) is None


def test_a_resource_that_no_node_has_is_not_looked_at() -> None:
    given = requesting(workload("w", "q"), {"nvidia.com/mig-1g.10gb": "9"})
    assert found(fleet(node("a", 8)), given) is None


def test_each_node_may_lack_something_else() -> None:
    told = found(fleet(node("a", 8, memory="10Gi"), node("b", 1, memory="1Ti")), asks(8, "500Gi"))
    assert told is not None
    assert told.sentence.endswith("asks for 500Gi memory and 8 nvidia.com/gpu, and no node has all of that at once")
    assert told.clause == "unless it asks for fewer or smaller pods, or nodes come that take them"


def test_one_flavor_with_a_large_node_is_enough() -> None:
    small, large = node("a", 8, labels={"kind": "one"}), node("b", 16, labels={"kind": "two"})
    assert found(fleet(small, large, flavors=("one", "two")), asks(9)) is None
    told = found(fleet(small, large, flavors=("one", "two")), asks(17))
    assert told is not None
    assert told.sentence.startswith("No node of flavors one, two is large enough")
    assert told.sentence.endswith("the largest node has 16")


def test_of_one_that_is_admitted_its_own_flavor_counts() -> None:
    made = fleet(node("a", 8, labels={"kind": "one"}), node("b", 16, labels={"kind": "two"}), flavors=("one", "two"))
    made.put(asks(9))
    made.settle()
    told = found(made, next(iter(made.workloads.values())))
    assert told is not None
    assert told.flavors == ("one",)


def test_where_nodes_come_by_an_admission_check_nothing_is_too_large() -> None:
    strategy = {"admissionChecks": [{"name": "provisioning"}]}
    assert found(fleet(node("a", 8), admissionChecksStrategy=strategy), asks(9)) is None


def test_the_explanation_of_one_that_is_admitted_has_the_sentence() -> None:
    made = fleet(node("a", 8))
    made.put(asks(9))
    made.settle()
    assert "w" in made.running()
    told = explained(made.engine, made.workloads[WorkloadKey("ns/w")], made.now_s)["tooLarge"]
    assert told.endswith("and the largest node has 8")
