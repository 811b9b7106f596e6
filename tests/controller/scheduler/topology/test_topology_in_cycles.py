"""Placement in whole cycles: nodes come, go and fail, workloads wait for them, evict for them and move."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Node, Pod, Toleration
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import decode as decode_places
from controller.objects.quantity import parse_quantity
from controller.objects.workload import (
    AdmissionCheckState,
    CheckState,
    PodSetAssignment,
    PodSetTopologyRequest,
    PodSetUpdate,
    ReclaimablePod,
    UnhealthyNode,
    Workload,
)
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.decisions.records import Rule
from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.gangshape import GangShape, Subgroup, written
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.topology.placement import Topologies
from inventory.api.names import GANG
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node, pod
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload

LOWER = {"withinClusterQueue": "LowerPriority"}


def topology() -> KubernetesObject:
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    data = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
    return decode_object(data)


def world_of(hosts: dict[str, int], *, quota: int = 100, gates: dict[str, bool] | None = None, **queue: Any) -> World:
    world = World(EngineConfig(gates=FeatureGates(gates)))
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    world.put(
        decode_object(
            {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
        ),
        flavor("default", topologyName="dc"),
        cluster_queue("q", quota, **queue),
        local_queue("q"),
        *(node(path, gpus) for path, gpus in hosts.items()),
    )
    return world


def gang(name: str, count: int, gpus: int = 1, level: str = HOST, **given_: Any) -> Workload:
    made = workload(name, "q", gpus, count=count, **given_)
    asked = PodSetTopologyRequest(required=level)
    sets = (msgspec.structs.replace(made.spec.pod_sets[0], topology_request=asked),)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def quotas(gpu: int, cpu: int) -> list[dict[str, Any]]:
    amounts = [{"name": "gpu", "nominalQuota": str(gpu)}, {"name": "cpu", "nominalQuota": str(cpu)}]
    return [{"coveredResources": ["gpu", "cpu"], "flavors": [{"name": "default", "resources": amounts}]}]


def places(world: World, name: str, at: int = 0) -> dict[str, int]:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    assert admission is not None
    given_ = admission.pod_set_assignments[at].topology_assignment
    assert given_ is not None
    return {values[-1]: pods for values, pods in decode_places(given_)}


def lose(world: World, name: str, host: str) -> None:
    world.engine.drop(Node, "", host, world.now_s)
    known = world.workloads[WorkloadKey(f"ns/{name}")]
    status = msgspec.structs.replace(known.status, unhealthy_nodes=(UnhealthyNode(name=host),))
    world.put(msgspec.structs.replace(known, status=status))
    world.now_s += 1.0


def test_who_waits_for_a_node_is_admitted_when_it_comes_and_says_so_until_then() -> None:
    world = world_of({"b/r/a": 2})
    world.put(gang("w", 4))
    world.settle()
    assert world.condition("w") == "False/TopologyPlacementFailed"
    world.put(node("b/r/b", 4))
    world.settle()
    assert places(world, "w") == {"b": 4}


def test_a_foreign_pod_that_ends_makes_room() -> None:
    world = world_of({"b/r/a": 4})
    world.put(pod("other", "a", 2), gang("w", 4))
    world.settle()
    assert world.running() == set()
    world.engine.drop(Pod, "other", "other", world.now_s)
    world.settle()
    assert world.running() == {"w"}


def test_victims_are_those_whose_gpus_are_usable_together() -> None:
    world = world_of({"b/r/a": 4, "b/r/c": 4}, preemption=LOWER)
    for at, name in enumerate(("oldest", "old", "new", "newest")):
        # Best fit would fill one node after the other: the other half is held while these come.
        world.put(gang(name, 2, created_s=at))
        world.settle()
    assert [places(world, name) for name in ("oldest", "old", "new", "newest")] == [
        {"a": 2},
        {"a": 2},
        {"c": 2},
        {"c": 2},
    ]
    world.finish("old")
    world.put(gang("mid", 2, created_s=9, priority=5))
    world.settle()
    # Of the two lowest one is on each node, and neither alone would leave four GPUs on one.
    world.put(gang("big", 4, priority=9, created_s=20))
    world.settle()
    gone = {key.partition("/")[2] for kind, key in world.log if kind == "Evicted"}
    assert gone == {"new", "newest"}
    world.stop_evicted()
    world.settle()
    assert places(world, "big") == {"c": 4}


def test_what_a_preemptor_waits_for_is_not_given_to_another_in_the_same_cycle() -> None:
    world = world_of({"b/r/a": 4}, preemption=LOWER, cohort="all")
    world.put(cluster_queue("other", 100, cohort="all"), local_queue("other"))
    world.put(gang("low", 2))
    world.settle()
    small = gang("small", 2, created_s=3)
    small = msgspec.structs.replace(small, spec=msgspec.structs.replace(small.spec, queue_name="other"))
    world.put(gang("high", 4, priority=9, created_s=2), small)
    world.cycle()
    assert "small" not in world.running()


def test_pods_of_a_lost_node_move_and_the_others_stay() -> None:
    world = world_of({"b/r1/a": 2, "b/r1/b": 2, "b/r1/c": 2, "b/r2/d": 8})
    world.put(gang("w", 4, level=RACK), gang("other", 8, created_s=1))
    world.settle()
    assert (places(world, "w"), places(world, "other")) == ({"a": 2, "b": 2}, {"d": 8})
    lose(world, "w", "b")
    world.settle()
    assert (places(world, "w"), places(world, "other")) == ({"a": 2, "c": 2}, {"d": 8})
    assert world.workloads[WorkloadKey("ns/w")].status.unhealthy_nodes == ()


def led(name: str, workers: int) -> Workload:
    """One leader and its workers, all in one rack."""
    made = gang(name, workers)
    asked = PodSetTopologyRequest(required=RACK, pod_set_group_name="g")
    sets = tuple(
        msgspec.structs.replace(made.spec.pod_sets[0], name=role, count=count, topology_request=asked)
        for role, count in (("leader", 1), ("workers", workers))
    )
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def test_a_lost_leader_goes_where_its_workers_are_or_all_of_them_go() -> None:
    world = world_of({"b/r1/a": 1, "b/r1/b": 1, "b/r1/c": 1, "b/r1/x": 1, "b/r1/y": 1, "b/r2/d": 1})
    world.put(led("w", 2))
    world.settle()
    (host,), workers = places(world, "w"), places(world, "w", 1)
    lose(world, "w", host)
    world.settle()
    (other,) = places(world, "w")
    assert other != "d", "it is in the rack of its workers, though the other rack is tighter"
    assert places(world, "w", 1) == workers
    (spare,) = {"a", "b", "c", "x", "y"} - {host, other, *workers}
    world.engine.drop(Node, "", spare, world.now_s)
    lose(world, "w", other)
    world.settle()
    assert world.condition("w", "Evicted") == "True/NodeFailures"
    world.stop_evicted()
    world.put(node("b/r2/e", 1), node("b/r2/f", 1))
    world.settle()
    assert {*places(world, "w"), *places(world, "w", 1)} == {"d", "e", "f"}


def sliced(name: str, count: int, size: int, **given_: Any) -> Workload:
    made = gang(name, count, **given_)
    asked = PodSetTopologyRequest(pod_set_slice_required_topology=RACK, pod_set_slice_size=size)
    sets = (msgspec.structs.replace(made.spec.pod_sets[0], topology_request=asked),)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def test_fewer_pods_are_fewer_slices() -> None:
    world = world_of({"b/r1/a": 3, "b/r2/b": 1})
    world.put(sliced("w", 6, 2, least=1))
    world.settle()
    assert places(world, "w") == {"a": 2}


def test_fewer_pods_that_find_no_place_keep_no_other_with_the_same_requests_from_running() -> None:
    def of(name: str, asked: PodSetTopologyRequest, created_s: int) -> Workload:
        made = gang(name, 6, least=2, created_s=created_s)
        pod_set = made.spec.pod_sets[0]
        metadata = msgspec.structs.replace(pod_set.template.metadata, labels={"app": "a"})
        template = msgspec.structs.replace(pod_set.template, metadata=metadata)
        sets = (msgspec.structs.replace(pod_set, template=template, topology_request=asked),)
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))

    world = world_of({"b/r1/a": 1, "b/r2/b": 1}, quota=4)
    world.put(
        of("tight", PodSetTopologyRequest(required=RACK), 0), of("wide", PodSetTopologyRequest(preferred=RACK), 5)
    )
    world.settle()
    assert world.running() == {"wide"}


def test_a_gang_of_which_a_pod_has_finished_comes_back_after_an_eviction() -> None:
    world = world_of({"b/r1/a": 2, "b/r2/b": 2}, preemption=LOWER)
    world.put(sliced("w", 4, 2))
    world.settle()
    known = world.workloads[WorkloadKey("ns/w")]
    done = msgspec.structs.replace(known.status, reclaimable_pods=(ReclaimablePod(name="main", count=1),))
    world.put(msgspec.structs.replace(known, status=done))
    world.put(gang("high", 2, priority=9, created_s=5))
    world.settle()
    world.stop_evicted()
    world.settle()
    assert world.running() == {"high"}
    world.finish("high")
    world.settle()
    assert sum(places(world, "w").values()) == 3


def test_without_a_place_it_is_evicted_and_a_refused_write_is_tried_again() -> None:
    world = world_of({"b/r/a": 2})
    world.put(gang("w", 2))
    world.settle()
    lose(world, "w", "a")
    world.cycle(refuse=[Evicted])
    assert world.condition("w", "Evicted") == ""
    world.now_s += 1.0
    world.cycle()
    assert world.condition("w", "Evicted") == "True/NodeFailures"


def test_one_that_is_preempted_in_the_same_cycle_gets_no_new_place() -> None:
    world = World(EngineConfig(fair_sharing=FairSharing()))
    world.put(topology(), flavor("default", topologyName="dc"), *(node(f"b/r/{host}", 2) for host in "abc"))
    world.put(cluster_queue("q", 2, cohort="all"), local_queue("q"))
    world.put(cluster_queue("p", 2, cohort="all", preemption={"reclaimWithinCohort": "Any"}), local_queue("p"))
    world.put(gang("w", 2, 2, level=RACK))
    world.settle()
    lose(world, "w", min(places(world, "w")))
    reclaiming = gang("h", 1, 2, created_s=5)
    world.put(msgspec.structs.replace(reclaiming, spec=msgspec.structs.replace(reclaiming.spec, queue_name="p")))
    world.now_s += 1.0
    made = [(type(one).__name__, one.key) for one in world.cycle().made]
    assert made == [("Evicted", "ns/w"), ("Pending", "ns/h")]
    told = world.engine.stories.last(WorkloadKey("ns/w"))
    assert told is not None
    assert (told.rule, told.detail) == (Rule.NOT_PLACED, "it was preempted meanwhile")


def test_without_fail_fast_it_waits_for_another_node() -> None:
    world = world_of({"b/r/a": 2}, gates={"TASFailedNodeReplacementFailFast": False})
    world.put(gang("w", 2))
    world.settle()
    lose(world, "w", "a")
    world.settle()
    assert world.condition("w", "Evicted") == ""
    world.put(node("b/r/b", 2))
    world.now_s += 2.0
    world.settle()
    assert places(world, "w") == {"b": 2}


def test_tries_to_place_it_again_are_ever_further_apart_and_never_more_than_half_a_minute() -> None:
    world = world_of({"b/r/a": 2}, gates={"TASFailedNodeReplacementFailFast": False})
    world.put(gang("w", 2))
    world.settle()
    lose(world, "w", "a")
    pauses = []
    for _ in range(8):
        world.settle()
        due_s = world.engine.next_wakeup_s()
        assert due_s is not None
        pauses.append(due_s - world.now_s)
        world.now_s = due_s
    assert pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


def test_a_larger_slice_keeps_the_places_of_the_one_it_replaces() -> None:
    world = world_of({"b/r1/a": 2, "b/r1/b": 2, "b/r2/c": 4}, gates={"ElasticJobsViaWorkloadSlicesWithTAS": True})
    world.put(gang("old", 2, level=RACK), gang("other", 4, created_s=1))
    world.settle()
    assert places(world, "old") == {"a": 2}
    replacing = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}
    world.put(gang("new", 4, level=RACK, created_s=2, annotations=replacing))
    world.settle()
    assert world.condition("old", "Finished") == "True/WorkloadSliceReplaced"
    assert places(world, "new") == {"a": 2, "b": 2}


def test_a_slice_that_has_ended_gets_no_second_pass_unless_its_end_is_taken_back() -> None:
    gates = {"ElasticJobsViaWorkloadSlices": True, "TASFailedNodeReplacementFailFast": False}
    world = world_of({"b/r1/a": 2, "b/r1/b": 2}, gates=gates)
    world.put(gang("old", 4, level=BLOCK))
    world.settle()
    lose(world, "old", "a")
    world.settle()
    assert world.engine.state.notes.passes.keys() == {"ns/old"}
    replacing = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}
    world.put(node("b/r2/c", 8), gang("new", 6, level=BLOCK, created_s=2, annotations=replacing))
    admitted, replaced = world.engine.cycle(world.now_s).made
    world.now_s += 60
    assert world.engine.cycle(world.now_s).made == ()
    world.engine.validate()
    assert world.engine.failed(replaced, world.now_s, "refused")
    assert world.engine.state.notes.passes.keys() == {"ns/old"}
    assert world.engine.failed(admitted, world.now_s, "refused")
    world.engine.validate()


def test_a_flavor_told_after_its_workloads_counts_them() -> None:
    first = world_of({"b/r1/a": 2, "b/r2/b": 2})
    first.put(gang("w", 2))
    first.settle()
    second = World(EngineConfig())
    second.put(first.workloads[WorkloadKey("ns/w")], cluster_queue("q", 100), local_queue("q"))
    second.put(node("b/r1/a", 2), node("b/r2/b", 2), flavor("default", topologyName="dc"))
    second.put(topology(), gang("next", 2, created_s=1))
    second.settle()
    assert {*places(second, "w"), *places(second, "next")} == {"a", "b"}


def test_where_nodes_are_made_for_it_places_are_chosen_when_they_are_there_and_as_the_check_says() -> None:
    """The check makes two nodes; its updates say which is the workload's, and what its pods tolerate there."""
    made = {"kind": "AdmissionCheck", "apiVersion": KUEUE, "metadata": {"name": "make"}}
    world = world_of({"b/r/a": 4}, admissionChecksStrategy={"admissionChecks": [{"name": "make"}]})
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    world.put(decode_object({**made, "spec": spec, "status": active}), gang("w", 2))
    world.settle()
    assert world.condition("w") == "True/QuotaReserved"
    assert assigned(world).topology_assignment is None
    assert assigned(world).delayed_topology_request == "Pending"
    check(world, "Pending")
    assert assigned(world).topology_assignment is None, "not before the check is ready"
    taint = {"key": "new", "effect": "NoSchedule"}
    world.put(node("b/r/alien", 2), node("b/r/new", 2, labels={"for": "w"}, taints=[taint]))
    check(world, "Ready", node_selector={"for": "w"}, tolerations=(Toleration(key="new", operator="Exists"),))
    assert places(world, "w") == {"new": 2}
    assert assigned(world).delayed_topology_request == "Ready"


def assigned(world: World) -> PodSetAssignment:
    admission = world.workloads[WorkloadKey("ns/w")].status.admission
    assert admission is not None
    return admission.pod_set_assignments[0]


def check(world: World, state: CheckState, **update: Any) -> None:
    """What the check's controller says, and all that follows from it."""
    known = world.workloads[WorkloadKey("ns/w")]
    said = AdmissionCheckState(name="make", state=state, pod_set_updates=(PodSetUpdate(name="main", **update),))
    status = msgspec.structs.replace(known.status, admission_checks=(said,))
    world.put(msgspec.structs.replace(known, status=status))
    world.now_s += 2.0
    world.settle()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["gang", "gang", "gang", "finish", "node", "unready", "lose", "stop"]),
        st.integers(0, 5),
        st.integers(1, 4),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.booleans())
def test_no_node_is_ever_given_more_than_it_has(steps: list[tuple[str, int, int]], fair: bool) -> None:
    """And no gang is torn or short. Nodes that shrink or fail, which the engine cannot help, stay out of the sum."""
    world = world_of({f"b/r{at % 2}/n{at}": 3 for at in range(4)}, quota=20, preemption=LOWER)
    shrunk: set[str] = set()
    for number, (what, at, amount) in enumerate(steps):
        names = sorted(world.running())
        level = (HOST, RACK, BLOCK)[at % 3]
        match what:
            case "gang":
                priority = number if fair else 0
                world.put(gang(f"w{number}", amount, 1 + at % 2, level, priority=priority, created_s=number))
            case "finish" if names:
                world.finish(names[at % len(names)])
            case "node" | "unready":
                shrunk.add(f"n{at}")
                world.put(node(f"b/r{at % 2}/n{at}", amount, ready=what == "node"))
            case "lose" if names:
                host = next(iter(places(world, names[at % len(names)])))
                shrunk.add(host)
                lose(world, names[at % len(names)], host)
            case "stop":
                world.stop_evicted()
        world.now_s += 1.0
        world.settle()
        placement = world.engine.state.cluster.placement
        assert isinstance(placement, Topologies)
        tree = placement.tree(FlavorName("default"))
        assert tree is not None
        for leaf in tree.at_level[-1]:
            if tree.path[leaf][-1] not in shrunk:
                free, used = tree.free[leaf], tree.used[leaf]
                assert all(free.get(name, 0) >= amount for name, amount in used.items())
        for name in world.running():
            pods, (one,) = places(world, name), world.workloads[WorkloadKey(f"ns/{name}")].spec.pod_sets
            assert sum(pods.values()) == one.count
            assert one.topology_request is not None
            if one.topology_request.required == RACK and not shrunk & pods.keys():
                assert len({int(host[1:]) % 2 for host in pods}) == 1


LOWS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), st.sampled_from([HOST, RACK, BLOCK])), max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), LOWS, st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_victims_free_a_domain_that_holds_the_gang_and_none_of_them_is_spared(
    gpus_of: list[int], lows: list[tuple[int, int, str]], count: int, gpus: int, together: bool
) -> None:
    """Against the definition: a rack, or a node, that holds all its pods once they have gone, and not without one."""
    hosts = {f"b/r{at % 2}/n{at}": room for at, room in enumerate(gpus_of)}
    level = RACK if together else HOST
    world = world_of(hosts, quota=1000, preemption=LOWER)
    for at, low in enumerate(lows):
        world.put(gang(f"w{at}", *low, created_s=at))
    world.settle()
    running = world.running()
    held = {name: places(world, name) for name in running}
    world.log.clear()
    world.put(gang("high", count, gpus, level, priority=9, created_s=50))
    world.settle()
    gone = {key.partition("/")[2] for kind, key in world.log if kind == "Evicted"}

    def holds(without: set[str]) -> bool:
        sums: dict[str, int] = {}
        for path, room in hosts.items():
            _, rack, host = path.split("/")
            taken = sum(held[name].get(host, 0) * lows[int(name[1:])][1] for name in running - without)
            domain = rack if together else host
            sums[domain] = sums.get(domain, 0) + (room - taken) // gpus
        return max(sums.values()) >= count

    assert ("high" in world.running()) == holds(set())
    assert bool(gone) == (holds(running) and not holds(set()))
    assert not gone or holds(gone)
    assert not any(holds(gone - {one}) for one in gone)
    if gone:
        world.stop_evicted()
        world.settle()
        assert "high" in world.running()


def bound(name: str, shape: GangShape) -> Workload:
    return workload(name, "q", count=2, annotations={GANG: written(shape)})


def message(world: World, name: str) -> str:
    conditions = world.workloads[WorkloadKey(f"ns/{name}")].status.conditions
    return next(one.message for one in conditions if one.type == "QuotaReserved")


def test_a_gang_that_is_bound_to_a_level_takes_no_flavor_without_a_topology() -> None:
    """Its pods would run anywhere. A level that is only preferred waits for none."""
    world = World()
    world.put(flavor("loose"), cluster_queue("q", flavors=("loose",)), local_queue("q"))
    leaf = Subgroup(name="a", minimum=2, required_level=RACK)
    world.put(
        bound("whole", GangShape(required_level=RACK)),
        bound("part", GangShape(groups=(leaf,), members={"main": "a"})),
        bound("outside", GangShape(groups=(leaf,))),
        bound("wishes", GangShape(preferred_level=RACK)),
    )
    world.settle()
    assert world.running() == {"outside", "wishes"}
    for name in ("whole", "part"):
        says = f"flavor loose names no topology and the gang asks for one domain of {RACK}"
        assert says in message(world, name)


def test_beside_flavors_without_one_a_bound_gang_takes_the_flavor_with_a_topology() -> None:
    world = world_of({"b1/r1/h1": 1, "b1/r2/h2": 1, "b1/r3/h3": 2})
    world.put(flavor("loose"), cluster_queue("q", flavors=("loose", "default")))
    world.put(bound("whole", GangShape(required_level=RACK)), bound("wishes", GangShape(preferred_level=RACK)))
    world.settle()
    assert world.running() == {"whole", "wishes"}
    admission = world.workloads[WorkloadKey("ns/whole")].status.admission
    assert admission is not None
    (given,) = admission.pod_set_assignments
    assert given.topology_assignment is not None
    places = [place.values[-1] for place in decode_places(given.topology_assignment)]
    assert (dict(given.flavors), places) == ({"gpu": "default"}, ["h3"])
    wishes = world.workloads[WorkloadKey("ns/wishes")].status.admission
    assert wishes is not None
    assert dict(wishes.pod_set_assignments[0].flavors) == {"gpu": "loose"}


def test_a_bound_gang_preempts_where_its_rack_is_taken_and_the_other_flavor_is_free() -> None:
    world = world_of({"b1/r1/h1": 2})
    world.put(flavor("loose"), cluster_queue("q", flavors=("loose", "default"), preemption=LOWER))
    world.put(gang("low", 2, level=RACK))
    world.settle()
    high = bound("high", GangShape(required_level=RACK))
    world.put(msgspec.structs.replace(high, spec=msgspec.structs.replace(high.spec, priority=9)))
    world.settle()
    world.stop_evicted()
    world.settle()
    assert world.running() == {"high"}


@pytest.mark.parametrize(("cpu", "victims"), [(1, set()), (2, {"ns/borrower"})])
def test_pods_on_a_topology_reclaim_gpus_within_the_quota_of_each_resource_they_ask_for(
    cpu: int, victims: set[str]
) -> None:
    """A queue at its quota of CPU may not reclaim GPUs for pods that take both, though the CPU is there to borrow."""
    world = world_of({})
    reclaims = {"reclaimWithinCohort": "LowerPriority", **LOWER}
    host = node("b1/r1/h1", 40)
    status = msgspec.structs.replace(host.status, allocatable={**host.status.allocatable, "cpu": parse_quantity("100")})
    world.put(
        msgspec.structs.replace(host, status=status),
        cluster_queue("q", cohort="all", preemption=reclaims, resourceGroups=quotas(10, cpu)),
        cluster_queue("other", cohort="all", resourceGroups=quotas(10, 9)),
        local_queue("other"),
        requesting(gang("own", 1, priority=-1), {"gpu": "1", "cpu": "1"}),
    )
    borrower = requesting(gang("borrower", 1), {"gpu": "16", "cpu": "1"})
    world.put(msgspec.structs.replace(borrower, spec=msgspec.structs.replace(borrower.spec, queue_name="other")))
    world.cycle()
    assert world.running() == {"own", "borrower"}
    world.put(requesting(gang("new", 1, priority=5), {"gpu": "5", "cpu": "1"}))
    evicted = {str(one.key) for one in world.cycle().made if isinstance(one, Evicted)}
    assert evicted == victims
