"""What would let a waiting workload start now: each answer is one that the engine admits."""

import math

import msgspec

from controller.insight.forecast.changes.changes import Change, changes
from controller.objects.decode import KUEUE, decode_object
from controller.objects.queues import ClusterQueue
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import GPU_PERCENT, GROWTH
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, requesting, workload

GPU = "nvidia.com/gpu"


def gpu_queue(nominal: int, *flavors: str) -> World:
    made = World()
    groups = [
        {
            "coveredResources": [GPU],
            "flavors": [{"name": name, "resources": [{"name": GPU, "nominalQuota": str(nominal)}]} for name in flavors],
        }
    ]
    for name in flavors:
        made.put(flavor(name, nodeLabels={"gpu": name}))
    made.put(cluster_queue("q", resourceGroups=groups), local_queue("q"))
    return made


def asks(name: str, gpus: int, *, count: int = 1, created_s: int = 0) -> Workload:
    return requesting(workload(name, "q", count=count, created_s=created_s), {GPU: str(gpus)})


def found(made: World, given: Workload) -> dict[str, Change]:
    ends = {WorkloadKey("ns/a"): NOW_S + 100.0, WorkloadKey("ns/b"): NOW_S + 50.0}
    return {one.kind: one for one in changes(made.engine, given, NOW_S, lambda key: ends.get(key, math.inf))}


def test_fewer_devices_in_a_pod_would_do() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 5))
    made.settle()
    assert (
        found(made, asks("w", 8))["fewerDevices"].sentence == "With 3 instead of 8 nvidia.com/gpu in each pod of main"
    )


def test_fewer_pods_would_do() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 3))
    made.settle()
    given = found(made, asks("w", 2, count=6))
    assert given["fewerPods"].sentence == "With 2 of the 6 pods of main"
    assert "fewerDevices" not in given, "six pods with one each do not fit either"


def test_a_lower_minimum_would_do_for_a_workload_that_starts_with_its_minimum() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 5))
    made.settle()
    replace, asked = msgspec.structs.replace, asks("w", 1, count=6)
    pod_sets = tuple(replace(each, min_count=4) for each in asked.spec.pod_sets)
    given = found(made, replace(asked, spec=replace(asked.spec, pod_sets=pod_sets)))
    assert given["fewerPods"].sentence == "With a minimum of 3, not 4, pods of main"


def on_nodes(resource: str, *racks: int) -> World:
    """A node in each rack, with so much of the resource."""
    made = World()
    groups = [
        {
            "coveredResources": [resource],
            "flavors": [{"name": "one", "resources": [{"name": resource, "nominalQuota": "1000"}]}],
        }
    ]
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    made.put(
        decode_object({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": levels}),
        flavor("one", topologyName="racks", nodeLabels={"pool": "gpu"}),
        cluster_queue("q", resourceGroups=groups),
        local_queue("q"),
    )
    for number, amount in enumerate(racks):
        labels = {"rack": f"r{number}", "kubernetes.io/hostname": f"n{number}", "pool": "gpu"}
        status = {
            "allocatable": {resource: str(amount), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": labels}}
        made.put(decode_object({**node, "status": status}))
    return made


def test_a_smaller_share_would_do() -> None:
    made = on_nodes(GPU_PERCENT, 100)
    made.put(requesting(workload("a", "q"), {GPU_PERCENT: "70"}))
    made.settle()
    assert made.running() == {"a"}
    given = found(made, requesting(workload("w", "q"), {GPU_PERCENT: "50"}))
    assert given["smallerShare"].sentence == f"With 30 instead of 50 {GPU_PERCENT} in each pod of main"


def test_required_places_could_be_preferred_ones() -> None:
    made = on_nodes(GPU, 4, 4)
    given = asks("w", 2, count=4)
    replace = msgspec.structs.replace
    pod_set = replace(given.spec.pod_sets[0], topology_request=PodSetTopologyRequest(required="rack"))
    given = replace(given, spec=replace(given.spec, pod_sets=(pod_set,)))
    told = found(made, given)
    assert told["topology"].sentence == "With rack preferred, not required, for main"
    assert told["fewerPods"].sentence == "With 2 of the 4 pods of main"
    assert "ends" not in told


def test_another_flavor_would_do() -> None:
    made = gpu_queue(8, "one", "two")
    made.put(asks("a", 8))
    made.settle()
    given = asks("w", 8)
    pod_set = given.spec.pod_sets[0]
    replace = msgspec.structs.replace
    template = replace(pod_set.template, spec=replace(pod_set.template.spec, node_selector={"gpu": "one"}))
    given = replace(given, spec=replace(given.spec, pod_sets=(replace(pod_set, template=template),)))
    assert found(made, given)["flavor"].sentence == "On flavor two, without the node selector and affinity of main"


def test_the_ends_of_those_that_end_soonest_would_do() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 4), asks("b", 4, created_s=1))
    made.settle()
    few, all_ = found(made, asks("w", 4))["ends"], found(made, asks("w", 8))["ends"]
    assert few == Change(
        kind="ends", sentence="When ns/b (4 nvidia.com/gpu) ends", workloads=("ns/b",), at_s=NOW_S + 50.0
    )
    assert all_.workloads == ("ns/b", "ns/a")
    assert all_.sentence == "When ns/b (4 nvidia.com/gpu), ns/a (4 nvidia.com/gpu) end"
    assert all_.at_s == NOW_S + 100.0


def test_ends_that_the_last_one_makes_superfluous_are_not_named() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("b", 1), asks("a", 7, created_s=1))
    made.settle()
    assert found(made, asks("w", 6))["ends"].workloads == ("ns/a",)


def test_an_end_that_nobody_knows_has_no_time() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("c", 8))
    made.settle()
    assert found(made, asks("w", 8))["ends"].at_s is None


def test_of_many_ends_none_is_named() -> None:
    made = gpu_queue(8, "one")
    for number in range(8):
        made.put(asks(f"c-{number}", 1, created_s=number))
    made.settle()
    assert "ends" in found(made, asks("w", 4))
    assert "ends" not in found(made, asks("w", 5))


def test_what_can_never_fit_waits_for_no_end() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 4))
    made.settle()
    given = found(made, asks("w", 9))
    assert "ends" not in given
    assert given["fewerDevices"].sentence.startswith("With 4 instead of 9")


def test_one_that_starts_as_it_is_needs_no_change() -> None:
    made = gpu_queue(8, "one")
    assert found(made, asks("w", 8)) == {}
    assert changes(made.engine, workload("w", "nowhere"), NOW_S, lambda _: 0.0) == []


def test_a_question_leaves_the_engine_as_it_was() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 5), asks("w", 8, created_s=1))
    made.settle()
    before = made.engine.state.changes
    assert found(made, asks("w", 8, created_s=1))
    made.engine.validate()
    assert made.engine.state.changes == before
    assert made.engine.state.queues.get(WorkloadKey("ns/w")) is not None


def in_line(made: World, *gpus: int) -> dict[str, str | None]:
    """What is said of whose end would do, for jobs that come one after the other."""
    for number, each in enumerate(gpus):
        made.put(asks(f"w{number}", each, created_s=10 + number))
        made.settle()
    names = [f"w{number}" for number in range(len(gpus))]
    told = {name: found(made, made.workloads[WorkloadKey(f"ns/{name}")]).get("ends") for name in names}
    return {name: None if one is None else one.sentence for name, one in told.items()}


def test_whoever_is_not_first_is_told_who_starts_before_it() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 4), asks("b", 4, created_s=1))
    made.settle()
    assert in_line(made, 4, 4, 4, 4) == {
        "w0": "When ns/b (4 nvidia.com/gpu) ends",
        "w1": "When ns/b (4 nvidia.com/gpu), ns/a (4 nvidia.com/gpu) end, after ns/w0, which is next",
        "w2": "After ns/w0, which is next, and ns/w1, once they have ended",
        "w3": "After ns/w0, which is next, and ns/w1, once they have ended",
    }


def test_a_small_one_passes_a_large_one_that_does_not_fit_and_in_a_strict_queue_waits_for_it() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 4), asks("b", 4, created_s=1))
    made.settle()
    assert in_line(made, 8, 2)["w1"] == "When ns/b (4 nvidia.com/gpu) ends"
    made = gpu_queue(8, "one")
    given = made.others[ClusterQueue, "/q"]
    assert isinstance(given, ClusterQueue)
    made.put(msgspec.structs.replace(given, spec=msgspec.structs.replace(given.spec, queueing_strategy="StrictFIFO")))
    made.put(asks("a", 4), asks("b", 4, created_s=1))
    made.settle()
    assert in_line(made, 8, 2)["w1"] == "After ns/w0, which is next, once it has ended"
    assert set(found(made, made.workloads[WorkloadKey("ns/w1")])) == {"ends"}, "asking for less does not help"


def test_one_that_never_starts_is_not_waited_for() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 8))
    made.settle()
    assert in_line(made, 16, 4)["w1"] == "When ns/a (8 nvidia.com/gpu) ends"


def growth_of(base: Workload, least: int) -> Workload:
    """The Workload that waits for the rest of a gang's pods."""
    replace = msgspec.structs.replace
    notes = {"kueue.x-k8s.io/workload-slice-replacement-for": base.key, GROWTH: "true"}
    pod_sets = tuple(replace(each, min_count=least) for each in base.spec.pod_sets)
    meta = replace(base.metadata, name="growth", uid="uid-growth", annotations=notes)
    return replace(base, metadata=meta, spec=replace(base.spec, pod_sets=pod_sets))


def test_a_gang_that_runs_with_a_part_grows_when_others_end_and_with_no_fewer_pods() -> None:
    made = gpu_queue(8, "one")
    made.put(asks("a", 3))
    made.settle()
    replace, asked = msgspec.structs.replace, asks("w", 1, count=6, created_s=1)
    base = replace(
        asked,
        spec=replace(asked.spec, pod_sets=tuple(replace(each, min_count=1) for each in asked.spec.pod_sets)),
    )
    made.put(base)
    made.settle()
    assert made.running() == {"a", "w"}
    told = found(made, growth_of(asked, 6))
    assert {kind: one.workloads for kind, one in told.items()} == {"ends": ("ns/a",)}
