"""Queues of Volcano and KAI in the engine: their names, their trees, their jobs, and nothing left behind."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.core import Namespace, Node
from controller.objects.meta import KubernetesObject, LabelSelector, ObjectMeta
from controller.objects.queues import ClusterQueue, LocalQueue
from controller.objects.workload import PodSetTopologyRequest
from controller.scheduler.mirror.mirror import Mirror, Tell
from controller.scheduler.mirror.specs import Adoption, System, spec_of
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import QUOTA_ALONE
from tests.support.engine.foreignqueues import GPU, asks, kai_queue, node, volcano_queue
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, requesting, workload

REQUIRED_GROUPS = "requiredDuringSchedulingIgnoredDuringExecution"


def world(*objects: Any) -> World:
    made = World()
    made.put(node("n1"), *objects)
    return made


def test_amounts_are_the_engines() -> None:
    resources = {"cpu": {"quota": 1500, "limit": -1}, "memory": {"quota": 2}, "gpu": {"quota": 0.5}}
    spec = spec_of(kai_queue("q", resources=resources, reclaimMinRuntime="1h30m"))
    assert spec.quota == {"cpu": 1500, "memory": 2_000_000, GPU: 0.5}
    assert spec.limit == {"cpu": math.inf, "memory": 0, GPU: 0}
    assert (spec.reclaim_min_runtime_s, spec.preempt_min_runtime_s, spec.priority) == (5400, None, 100)


def test_a_leaf_is_a_queue_of_its_own_name_and_its_jobs_reach_it_from_any_namespace() -> None:
    lab = world(kai_queue("dept"), kai_queue("team", "dept"), asks("a", "team", 2))
    lab.settle()
    assert lab.running() == {"a"}
    assert [*lab.engine.state.cluster.queues] == ["team"]
    assert lab.engine.state.cluster.queues["team"].node.used()[("all-nodes.tessera.dev", GPU)] == 2  # type: ignore[index]


@pytest.mark.parametrize("queue", [volcano_queue("q"), kai_queue("q", quota=8)], ids=["Volcano", "KAI"])
def test_pods_that_request_nothing_run_on_any_node(queue: Any) -> None:
    lab = world(queue, requesting(workload("launcher", "q"), {}), asks("a", "q", 8, created_s=1))
    lab.settle()
    assert lab.running() == {"launcher", "a"}


def test_jobs_that_came_before_their_queue_wait_for_it() -> None:
    lab = world(asks("a", "q"))
    lab.settle()
    assert lab.running() == set()
    lab.put(volcano_queue("q"))
    lab.settle()
    assert lab.running() == {"a"}


def test_capacity_is_that_of_healthy_nodes() -> None:
    lab = world(volcano_queue("q"), asks("a", "q", 8), asks("b", "q", 8, created_s=1))
    lab.settle()
    assert lab.running() == {"a"}
    lab.put(node("n2", ready=False))
    lab.settle()
    assert lab.running() == {"a"}
    lab.put(node("n2"))
    lab.settle()
    assert lab.running() == {"a", "b"}
    assert lab.engine.mirror.capacity[GPU] == 16  # type: ignore[index]


def test_systems_have_their_own_queues_without_objects() -> None:
    lab = world(asks("a", "default"), asks("b", "default-queue"))
    lab.settle()
    assert lab.running() == set()
    lab.engine.imply(System.VOLCANO, NOW_S)
    lab.engine.imply(System.KAI, NOW_S)
    lab.settle()
    assert lab.running() == {"a", "b"}
    assert sorted(lab.engine.state.cluster.queues) == ["default", "default-queue"]
    lab.rebuild()
    assert sorted(lab.engine.state.cluster.queues) == ["default", "default-queue"]


@pytest.mark.parametrize(
    ("queue", "running"),
    [
        (volcano_queue("q"), {"a", "c"}),
        (volcano_queue("q", capability={GPU: "12"}), {"a"}),
        (kai_queue("q"), {"a", "c"}),
        (kai_queue("q", limit=12), {"a"}),
    ],
)
def test_jobs_get_quota_alone_where_another_scheduler_chooses_nodes(queue: Any, running: set[str]) -> None:
    """The first pod is larger than either node: it is counted against the sum of both."""
    lab = world(node("n2"), queue, asks("a", "q", 10), asks("b", "q", 7, created_s=1), asks("c", "q", 6, created_s=2))
    system = System.KAI if isinstance(queue, KaiQueue) else System.VOLCANO
    lab.settle()
    assert "a" not in lab.running()
    for name in lab.running():
        lab.delete(name)
    lab.engine.imply(system, NOW_S, Adoption(places=False))
    lab.put(asks("c", "q", 6, created_s=2))
    lab.settle()
    assert lab.running() == running
    admission = lab.engine.state.workloads.objects[WorkloadKey("ns/a")].status.admission
    assert admission is not None
    (given,) = admission.pod_set_assignments
    assert (given.topology_assignment, set(given.flavors.values())) == (None, {QUOTA_ALONE})
    lab.rebuild()
    assert (lab.engine.mirror.implied(), lab.running()) == ({system: Adoption(places=False)}, running)


def host(name: str, **labels: str) -> Node:
    made = node(name)
    metadata = msgspec.structs.replace(made.metadata, labels={**made.metadata.labels, **labels})
    return msgspec.structs.replace(made, metadata=metadata)


def test_levels_of_the_table_hold_jobs_together_and_nodes_without_them_stand_alone() -> None:
    def wide(name: str, pods: int, level: str = "", **more: Any) -> Any:
        made = asks(name, "q", 8, **more)
        request = {"topology_request": PodSetTopologyRequest(required=level)} if level else {}
        (pod_set,) = made.spec.pod_sets
        pod_sets = (msgspec.structs.replace(pod_set, count=pods, **request),)
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=pod_sets))

    nodes = [host("n2", rack="r1"), host("n3", rack="r2"), host("n4", rack="r2"), host("n5", rack="r2")]
    lab = world(*nodes, volcano_queue("q"))
    lab.engine.imply(System.VOLCANO, NOW_S, Adoption(levels=("rack",)))
    lab.put(wide("a", 2, "rack"), wide("b", 2, "rack", created_s=1), wide("c", 2, created_s=2))
    lab.settle()
    assert lab.running() == {"a", "c"}, "no rack has two hosts any more, and two of three others need none"
    admission = lab.engine.state.workloads.objects[WorkloadKey("ns/a")].status.admission
    assert admission is not None
    placed = admission.pod_set_assignments[0].topology_assignment
    assert placed is not None
    assert placed.levels == ("kubernetes.io/hostname",)
    lab.engine.validate()
    lab.delete("c")
    lab.put(wide("d", 1, "rack", created_s=3), wide("e", 1, "rack", created_s=4), wide("f", 1, "rack", created_s=5))
    lab.settle()
    assert lab.running() == {"a", "d", "e", "f"}, "the host without a rack is one of its own"


def test_a_queue_takes_jobs_of_the_namespaces_of_its_systems_switch() -> None:
    lab = world(volcano_queue("q"), asks("a", "q"))
    lab.engine.imply(System.VOLCANO, NOW_S, Adoption(namespaces=LabelSelector(match_labels={"volcano": "gone"})))
    lab.settle()
    assert lab.running() == set()
    lab.put(Namespace(metadata=ObjectMeta(name="ns", labels={"volcano": "gone"})))
    lab.settle()
    assert lab.running() == {"a"}


def test_a_closed_queue_takes_no_jobs_and_those_that_run_go_on() -> None:
    lab = world(volcano_queue("q"), asks("a", "q"))
    lab.settle()
    lab.put(volcano_queue("q", state="Closing"), asks("b", "q"))
    lab.settle()
    assert lab.running() == {"a"}


def test_a_closed_queue_closes_those_below_it() -> None:
    below = volcano_queue("q", parent="top")
    lab = world(volcano_queue("top", state="Closed"), below, volcano_queue("other"), asks("a", "q"), asks("b", "other"))
    lab.settle()
    assert lab.running() == {"b"}
    lab.put(volcano_queue("top", state="Open"))
    lab.settle()
    assert lab.running() == {"a", "b"}


def test_a_name_that_a_cluster_queue_has_is_refused_until_it_is_free() -> None:
    lab = world(flavor(), cluster_queue("q"), local_queue("q"), kai_queue("q"))
    said = "metadata.name: expected a name of its own, found 'q', which a ClusterQueue has"
    assert lab.engine.mirror.problem(KaiQueue, "q") == said
    lab.engine.drop(LocalQueue, "ns", "q", NOW_S)
    lab.engine.drop(ClusterQueue, "", "q", NOW_S)
    lab.settle()
    assert lab.engine.mirror.problem(KaiQueue, "q") == ""
    assert lab.engine.state.cluster.queues["q"].object.spec.cohort_name == "nodes/kai"  # type: ignore[index]


def test_a_cluster_queue_takes_its_name_from_a_mirrored_queue() -> None:
    lab = world(kai_queue("q"), flavor(), cluster_queue("q"))
    assert lab.engine.state.cluster.queues["q"].object.spec.cohort_name == ""  # type: ignore[index]
    assert "which a ClusterQueue has" in lab.engine.mirror.problem(KaiQueue, "q")


def test_of_two_systems_queues_of_one_name_the_older_stands() -> None:
    lab = world(volcano_queue("q", born_s=9), kai_queue("q", born_s=3))
    assert lab.engine.mirror.problem(KaiQueue, "q") == ""
    assert "which a Queue of kai has" in lab.engine.mirror.problem(VolcanoQueue, "q")
    lab.engine.drop(KaiQueue, "", "q", NOW_S)
    assert lab.engine.mirror.problem(VolcanoQueue, "q") == ""


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ([kai_queue("q", "x")], "spec.parentQueue: expected a Queue that is there, found 'x'"),
        ([kai_queue("q", "p"), kai_queue("p", "q")], "spec.parentQueue: expected a tree, found 'p', which is below"),
        ([kai_queue("q", "p"), volcano_queue("p")], "spec.parentQueue: expected a Queue that is there, found 'p'"),
        ([kai_queue("q", reclaimMinRuntime="soon")], "spec.reclaimMinRuntime: expected a duration such as"),
        (
            [volcano_queue("q", affinity={"nodeGroupAffinity": {REQUIRED_GROUPS: ["g"]}})],
            "spec.affinity: expected no required node groups",
        ),
    ],
)
def test_a_queue_that_hangs_nowhere_is_refused(queues: list[Any], said: str) -> None:
    lab = world(*queues)
    assert lab.engine.mirror.problem(type(queues[0]), "q").startswith(said)
    assert "q" not in lab.engine.state.cluster.queues


def test_a_queue_that_gets_others_below_it_takes_jobs_no_longer() -> None:
    lab = world(kai_queue("dept"), asks("a", "dept"))
    lab.settle()
    assert lab.running() == {"a"}
    lab.put(kai_queue("team", "dept"), asks("b", "dept"), asks("c", "team"))
    lab.settle()
    assert "dept" not in lab.engine.state.cluster.queues
    assert "c" in lab.running()
    assert "b" not in lab.running()


def test_a_namespaces_own_local_queue_goes_before_a_mirrored_queue_of_its_name() -> None:
    lab = world(flavor(), cluster_queue("mine"), local_queue("q", "mine"), kai_queue("q"), asks("a", "q"))
    lab.settle()
    assert lab.engine.state.cluster.local_queues["ns/q"].spec.cluster_queue == "mine"  # type: ignore[index]
    lab.engine.drop(LocalQueue, "ns", "q", NOW_S)
    lab.settle()
    assert lab.running() == {"a"}


NAMES = st.sampled_from(["a", "b", "c", "default"])
EVENTS = st.one_of(
    st.builds(kai_queue, NAMES, st.sampled_from(["", "a", "b"]), born_s=st.integers(0, 3)),
    st.builds(volcano_queue, NAMES, parent=st.sampled_from(["", "root", "c"]), born_s=st.integers(0, 3)),
    st.builds(lambda kind, name: (kind, name), st.sampled_from([KaiQueue, VolcanoQueue, ClusterQueue]), NAMES),
    st.builds(lambda name: name, NAMES),
    st.builds(node, NAMES, st.integers(0, 2), ready=st.booleans()),
    st.sampled_from(System),
)


@settings(max_examples=30)
@given(st.lists(EVENTS, max_size=20), st.booleans())
def test_what_is_told_follows_from_what_is_there_in_any_order(events: list[Any], every: bool) -> None:
    mirror = Mirror()
    told: dict[tuple[type[KubernetesObject], str], KubernetesObject] = {}
    for event in events:
        match event:
            case KaiQueue() | VolcanoQueue():
                mirror.put(event)
            case (kind, name):
                if kind is ClusterQueue:
                    mirror.free_name(name)
                else:
                    mirror.gone(kind, name)
            case Node():
                mirror.node(event)
            case System():
                mirror.imply(event)
            case _:
                mirror.take_name(event)
        mirror.validate()
        for change in mirror.changes() if every or event is events[-1] else ():
            if isinstance(change, Tell):
                told[type(change.given), change.given.metadata.name] = change.given
            else:
                del told[change.kind, change.name]
        mirror.validate()
    leaves = {spec.name for spec in mirror.queues.leaves()}
    assert {name for kind, name in told if kind is ClusterQueue} == leaves
    for told_ in told.values():
        spec = getattr(told_, "spec", None)
        parent = getattr(spec, "cohort_name", "") or getattr(spec, "parent_name", "")
        assert not parent or any(known == parent for _, known in told)
