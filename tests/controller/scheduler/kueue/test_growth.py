"""A slice by which a gang is to grow: it takes what is free, from nobody, and as much of it as it may have."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.objects.decode import KUEUE, decode_object
from controller.scheduler.decisions.decisions import Admitted, SliceReplaced
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import GROWTH
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

HOST = "kubernetes.io/hostname"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
ANY = {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}


def running(quota: int, gang: int, pods: int, *, priority: int = 5, **queue: Any) -> World:
    """A gang of ``gang`` pods of a GPU that runs with ``pods`` of them."""
    it = World()
    it.put(flavor(), cluster_queue("a", pods), local_queue("a"))
    it.put(workload("base", "a", count=gang, least=1, priority=priority))
    it.settle()
    assert counts(it) == {"base": pods}
    it.put(cluster_queue("a", quota, **queue))
    return it


def grow(it: World, gang: int, least: int, *, priority: int = 5, of: str = "base", name: str = "growth") -> None:
    notes = {REPLACES: f"ns/{of}", GROWTH: "true"}
    it.put(workload(name, "a", count=gang, least=least, priority=priority, annotations=notes, created_s=30))


def held(it: World) -> Iterator[Any]:
    return iter(it.engine.state.cluster.holders.values())


def counts(it: World) -> dict[str, int]:
    return {each.info.workload.metadata.name: sum(one.count for one in each.info.pod_sets) for each in held(it)}


@given(gang=st.integers(2, 12), pods=st.integers(1, 11), quota=st.integers(0, 14), others=st.integers(0, 4))
def test_a_gang_grows_to_what_is_free_and_to_no_more_than_its_pods(
    gang: int, pods: int, quota: int, others: int
) -> None:
    pods = min(pods, gang - 1)
    it = running(max(quota, pods), gang, pods)
    it.put(*(workload(f"other{number}", "a", created_s=1) for number in range(others)))
    it.settle()
    grow(it, gang, pods + 1)
    it.settle()
    taken = min(others, max(quota, pods) - pods)
    free = max(quota, pods) - pods - taken
    expected = {"growth" if free else "base": min(gang, pods + free)}
    assert counts(it) == {**expected, **{f"other{number}": 1 for number in range(taken)}}
    (said,) = it.workloads[WorkloadKey(f"ns/{next(iter(expected))}")].status.admission.pod_set_assignments  # type: ignore[union-attr]
    assert said.count == min(gang, pods + free)


def test_the_workload_before_the_growth_is_over_in_the_same_decision() -> None:
    it = running(6, 8, 4)
    grow(it, 8, 5)
    assert [type(one) for one in it.cycle().made] == [Admitted, SliceReplaced]
    assert it.condition("base", "Finished") == "True/WorkloadSliceReplaced"
    assert counts(it) == {"growth": 6}


def test_a_growth_takes_nothing_from_anybody_and_holds_up_nobody() -> None:
    it = running(5, 8, 4, priority=9, preemption=ANY, queueingStrategy="StrictFIFO")
    it.put(workload("low", "a", priority=-100))
    it.settle()
    grow(it, 8, 5, priority=9)
    it.settle()
    assert counts(it) == {"base": 4, "low": 1}
    it.put(cluster_queue("a", 6, preemption=ANY, queueingStrategy="StrictFIFO"))
    it.put(workload("later", "a", priority=-100, created_s=50))
    it.settle()
    assert counts(it) == {"base": 4, "low": 1, "later": 1}, "what waits beside a growth goes first"


def test_a_gang_that_has_grown_has_its_own_priority_at_once() -> None:
    it = running(6, 6, 4, priority=9, preemption=ANY)
    grow(it, 6, 5, priority=9)
    it.cycle()
    assert [each.priority for each in held(it)] == [9]
    it.put(workload("middle", "a", priority=5))
    it.settle()
    assert counts(it) == {"growth": 6}


def test_a_growth_of_a_gang_that_holds_no_quota_or_leaves_waits() -> None:
    it = running(9, 8, 4)
    grow(it, 8, 5, of="gone", name="of-nobody")
    it.settle()
    assert counts(it) == {"base": 4}
    assert "Waits for ns/gone" in it.workloads[WorkloadKey("ns/of-nobody")].status.conditions[0].message
    it.put(workload("high", "a", count=7, priority=100))
    it.put(cluster_queue("a", 9, preemption={"withinClusterQueue": "LowerPriority"}))
    it.settle()
    grow(it, 8, 5)
    it.settle()
    assert "growth" not in it.running()


@given(free=st.lists(st.integers(0, 3), min_size=2, max_size=5), pods=st.integers(1, 4), gang=st.integers(2, 9))
def test_pods_that_run_keep_their_nodes_when_their_gang_grows(free: list[int], pods: int, gang: int) -> None:
    """The gate that lets elastic jobs keep theirs is off: the growth places pods that run, too."""
    pods = min(pods, gang - 1)
    it = World()
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    it.put(
        decode_object({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}})
    )
    it.put(flavor("default", topologyName="t"), cluster_queue("a", pods), local_queue("a"))
    it.put(node("first", pods))
    it.put(workload("base", "a", count=gang, least=1))
    it.settle()
    assert counts(it) == {"base": pods}
    it.put(*(node(f"n{number}", gpus) for number, gpus in enumerate(free)), cluster_queue("a", 100))
    grow(it, gang, pods + 1)
    it.settle()
    grown = min(gang, pods + sum(free))
    assert counts(it) == {"growth" if grown > pods else "base": grown}
    (holder,) = held(it)
    (placed,) = (each.topology for each in holder.info.pod_sets)
    assert {domain.values[-1]: domain.pods for domain in placed.domains}["first"] == pods


def node(name: str, gpus: int) -> Any:
    ready = [{"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": None}]
    status = {"allocatable": {"gpu": str(gpus), "pods": "99"}, "conditions": ready}
    labels = {"rack": "r", HOST: name}
    return decode_object(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    )
