"""Whatever is asked of whatever cluster: nothing is over capacity, nothing torn, nothing forgotten."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.port import Placed, PlacementRequest
from tests.support.engine.topologylab import BLOCK, FLAVOR, HOST, RACK, Lab, ask, even, node, usage

LEVELS = (BLOCK, RACK, HOST)
FEW = settings(max_examples=40, deadline=None)
GATES = ("TASProfileMixed", "TASBalancedPlacement", "TASMultiLayerTopology")


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, int]:
    blocks, racks, hosts = (draw(st.integers(1, 3)) for _ in range(3))
    return {path: draw(st.integers(0, 5)) for path in even(blocks, racks, hosts, 0)}


@st.composite
def requests(draw: st.DrawFn, name: str = "main", *, layered: bool = True) -> PlacementRequest:
    size = draw(st.sampled_from([1, 1, 2, 3]))
    asked: dict[str, Any] = {}
    at = draw(st.integers(0, 2))
    kind = draw(st.sampled_from(["required", "preferred", "unconstrained"]))
    if kind == "unconstrained":
        asked["unconstrained"] = True
        at = 2
    else:
        asked[kind] = LEVELS[at]
    if size > 1:
        asked |= {"podSetSliceRequiredTopology": LEVELS[draw(st.integers(at, 2))], "podSetSliceSize": size}
        asked.pop("unconstrained", None)
    if layered and size == 1 and at < 2 and draw(st.booleans()):
        size = 4
        levels = sorted(draw(st.sets(st.integers(at, 2), min_size=2, max_size=2)))
        asked["podsetSliceRequiredTopologyConstraints"] = [
            {"topology": LEVELS[level], "size": part} for level, part in zip(levels, (4, 2), strict=True)
        ]
    return ask(size * draw(st.integers(0, 6)), draw(st.integers(1, 3)), name=name, **asked)


@st.composite
def labs(draw: st.DrawFn) -> tuple[Lab, dict[str, int]]:
    hosts = draw(clusters())
    gates = {gate: draw(st.booleans()) for gate in GATES}
    lab = Lab(hosts, gates)
    lab.balanced, lab.layered = gates["TASBalancedPlacement"], gates["TASMultiLayerTopology"]
    for path, gpus in hosts.items():
        # Workloads may hold more than a node still has.
        taken = draw(st.integers(0, gpus + 1))
        if taken:
            lab.hold({path.rpartition("/")[2]: taken})
    return lab, hosts


def free(lab: Lab) -> dict[str, int]:
    tree = lab.topologies.tree(FLAVOR)
    assert tree is not None
    return {
        tree.path[leaf][-1]: tree.free[leaf].get("gpu", 0) - tree.used[leaf].get("gpu", 0)  # type: ignore[call-overload]
        for leaf in tree.at_level[-1]
    }


def check(lab: Lab, request: PlacementRequest, found: TopologyUsage, left: Mapping[str, int]) -> None:
    tree = lab.topologies.tree(FLAVOR)
    assert tree is not None
    each = request.single_pod["gpu"]  # type: ignore[index]
    pods = {values[-1]: count for values, count in found.domains}
    assert sum(pods.values()) == request.count
    assert all(count > 0 and count * each <= left[host] for host, count in pods.items())
    leaves = [leaf for leaf in tree.at_level[-1] if tree.path[leaf][-1] in pods]
    asked = request.asked
    if asked.required is not None and request.count:
        assert len({tree.ancestor(leaf, LEVELS.index(asked.required)) for leaf in leaves}) == 1
    for layer in asked.layers if lab.layered else asked.layers[:1]:
        level = LEVELS.index(layer.topology)
        sums: dict[int, int] = {}
        for leaf in leaves:
            domain = tree.ancestor(leaf, level)
            sums[domain] = sums.get(domain, 0) + pods[tree.path[leaf][-1]]
        assert all(count % layer.size == 0 for count in sums.values())


@FEW
@given(labs(), requests("one"), requests("two"))
def test_all_pods_are_placed_within_what_is_free_and_as_they_asked(
    given_lab: tuple[Lab, dict[str, int]], one: PlacementRequest, two: PlacementRequest
) -> None:
    lab, _ = given_lab
    found = lab.topologies.place((one, two), on_empty=False)
    assert lab.topologies.can_place((one, two)) == isinstance(found, Placed)
    lab.topologies.validate_trees()
    if isinstance(found, Placed):
        left = free(lab)
        for request in (one, two):
            places = found.topologies[request.pod_set.name]
            check(lab, request, places, left)
            assert lab.topologies.fits([(FLAVOR, places)])
            for values, pods in places.domains:
                left[values[-1]] -= pods * request.single_pod["gpu"]  # type: ignore[index]
        assert lab.topologies.place((one, two), on_empty=False) == found


@FEW
@given(labs(), requests(layered=False))
def test_one_pod_set_finds_a_place_exactly_where_there_is_one(
    given_lab: tuple[Lab, dict[str, int]], request: PlacementRequest
) -> None:
    """Against the definition: some domain of the required level, or the whole cluster, holds enough whole slices."""
    lab, hosts = given_lab
    asked = request.pod_set.topology_request
    assert asked is not None
    size = asked.pod_set_slice_size or 1
    slice_at = LEVELS.index(asked.pod_set_slice_required_topology or HOST)
    left, each = free(lab), request.single_pod["gpu"]  # type: ignore[index]
    slices: dict[tuple[str, ...], int] = {}
    for path in hosts:
        domain = tuple(path.split("/"))[: slice_at + 1]
        slices[domain] = slices.get(domain, 0) + max(0, left[path.rpartition("/")[2]] // each)
    level = LEVELS.index(asked.required) + 1 if asked.required is not None else 0
    sums: dict[tuple[str, ...], int] = {}
    for domain, pods in slices.items():
        sums[domain[:level]] = sums.get(domain[:level], 0) + pods // size
    possible = max(sums.values()) >= request.count // size
    assert isinstance(lab.topologies.place((request,), on_empty=False), Placed) == possible


@FEW
@given(labs(), st.integers(1, 8), st.integers(1, 3))
def test_what_one_domain_can_hold_is_not_spread_by_a_preference(
    given_lab: tuple[Lab, dict[str, int]], count: int, gpus: int
) -> None:
    """And best fit takes no more hosts in that domain than needed: brute force over its sets of hosts."""
    lab, hosts = given_lab
    if lab.balanced:
        return
    required, preferred = lab.main(ask(count, gpus, required=RACK)), lab.main(ask(count, gpus, preferred=RACK))
    if required is None:
        return
    assert preferred == required
    left = free(lab)
    rack = next(iter(required))[:4]
    rooms = [max(0, left[path.rpartition("/")[2]] // gpus) for path in hosts if path.split("/")[1] == rack]
    enough = (size for size in range(1, len(rooms) + 1) if any(sum(one) >= count for one in combinations(rooms, size)))
    assert len(required) == next(enough)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["hold", "release", "node", "gone", "unready"]), st.integers(0, 26), st.integers(0, 5)),
    max_size=12,
)


@FEW
@given(labs(), st.lists(requests(), min_size=1, max_size=3), CHANGES)
def test_kept_counts_are_those_made_anew_and_a_trial_leaves_nothing(
    given_lab: tuple[Lab, dict[str, int]], shapes: list[PlacementRequest], changes: list[tuple[str, int, int]]
) -> None:
    lab, hosts = given_lab
    paths = sorted(hosts)
    held: list[TopologyUsage] = []
    for what, at, amount in changes:
        for request in shapes:
            lab.topologies.place((request,), on_empty=False)
        path = paths[at % len(paths)]
        name = path.rpartition("/")[2]
        match what:
            case "hold":
                held.append(usage({name: amount}))
                lab.topologies.add(FLAVOR, held[-1])
            case "release" if held:
                lab.topologies.remove(FLAVOR, held.pop(at % len(held)))
            case "node":
                lab.topologies.set_node(node(f"b{amount % 3}/b{amount % 3}r0/{name}", amount))
            case "unready":
                lab.topologies.set_node(node(path, amount, ready=False))
            case "gone":
                lab.topologies.remove_node(name)
        lab.topologies.validate_trees()
    before = [lab.place(request) for request in shapes], free(lab)
    with lab.undo.trial():
        for at, path in enumerate(paths):
            place = usage({path.rpartition("/")[2]: at % 3})
            lab.topologies.add(FLAVOR, place)
            if at % 2:
                lab.topologies.remove(FLAVOR, place)
        for request in shapes:
            lab.place(request)
        lab.topologies.validate_trees()
    lab.topologies.validate_trees()
    assert ([lab.place(request) for request in shapes], free(lab)) == before


@FEW
@given(labs(), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from([BLOCK, RACK]))
def test_a_leader_and_its_workers_are_all_placed_in_one_domain_within_what_is_free(
    given_lab: tuple[Lab, dict[str, int]], workers: int, gpus: int, leader_gpus: int, level: str
) -> None:
    lab, _ = given_lab
    group: dict[str, Any] = {"required": level, "podSetGroupName": "g"}
    found = lab.place(ask(1, leader_gpus, name="leader", **group), ask(workers, gpus, name="workers", **group))
    if isinstance(found, str):
        return
    left = free(lab)
    assert (sum(found["leader"].values()), sum(found["workers"].values())) == (1, workers)
    for host in {*found["leader"], *found["workers"]}:
        taken = found["leader"].get(host, 0) * leader_gpus + found["workers"].get(host, 0) * gpus
        assert taken <= left[host]
    width = 2 if level == BLOCK else 4
    assert len({host[:width] for host in {*found["leader"], *found["workers"]}}) == 1
