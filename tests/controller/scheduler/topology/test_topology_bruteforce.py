"""Placement against all there is to try on small clusters: what exists is found, and on no more domains than needed."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.topology.port import Placed, PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest
from tests.controller.scheduler.topology.test_topology_properties import LEVELS, check, free, labs, requests
from tests.support.engine.topologylab import FLAVOR, HOST, Lab, ask

FEW = settings(max_examples=40, deadline=None)

Path = tuple[str, ...]
Given = tuple[Lab, dict[str, int]]


class Trial:
    """One request on one cluster: how many of its pods each domain holds, by the definition."""

    def __init__(self, given_lab: Given, request: PlacementRequest) -> None:
        lab, hosts = given_lab
        asked = request.asked
        every = asked.layers if lab.layered else asked.layers[:1]
        self.asked: TopologyRequest = asked
        self.sizes = {LEVELS.index(layer.topology): layer.size for layer in every}
        self.paths = {path.rpartition("/")[2]: tuple(path.split("/")) for path in hosts}
        left, each = free(lab), request.single_pod["gpu"]  # type: ignore[index]
        self.rooms = {host: max(0, left[host] // each) for host in self.paths}

    def below(self, domain: Path) -> set[Path]:
        """The next level's domains of this one; of all there is where it is empty."""
        depth = len(domain)
        return {path[: depth + 1] for path in self.paths.values() if path[:depth] == domain}

    def holds(self, domain: Path) -> int:
        """Pods in whole slices."""
        full = len(domain) == len(LEVELS)
        pods = self.rooms[domain[-1]] if full else sum(map(self.holds, self.below(domain)))
        size = self.sizes.get(len(domain) - 1, 1)
        return pods // size * size


@FEW
@given(labs(), requests())
def test_slices_in_slices_find_a_place_exactly_where_there_is_one(given_lab: Given, request: PlacementRequest) -> None:
    trial, required = Trial(given_lab, request), ()
    domains: set[Path] = {required}
    if trial.asked.required is not None:
        domains = {path[: LEVELS.index(trial.asked.required) + 1] for path in trial.paths.values()}
    possible = max(map(trial.holds, domains)) >= request.count
    assert isinstance(given_lab[0].topologies.place((request,), on_empty=False), Placed) == possible


@FEW
@given(labs(), requests())
def test_best_fit_takes_no_more_domains_of_a_level_than_those_above_make_needed(
    given_lab: Given, request: PlacementRequest
) -> None:
    """Down to the level of the slices: below it Kueue fills the smallest first."""
    (lab, _), trial = given_lab, Trial(given_lab, request)
    if lab.balanced or not request.count or trial.asked.unconstrained or trial.asked.slices_alone:
        return
    found = lab.main(request)
    if found is None:
        return
    slice_at = min(trial.sizes, default=len(LEVELS) - 1)
    size = trial.sizes.get(slice_at, 1)
    for level in range(slice_at + 1):
        used, above = ({trial.paths[host][:depth] for host in found} for depth in (level + 1, level))
        slices = sorted((trial.holds(one) // size for domain in above for one in trial.below(domain)), reverse=True)
        fewest = next(count for count in range(len(slices) + 1) if sum(slices[:count]) >= request.count // size)
        assert len(used) == fewest


@FEW
@given(
    labs(),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(LEVELS),
    st.sampled_from(["required", "preferred"]),
)
def test_a_leader_and_its_workers_find_a_place_exactly_where_there_is_one_and_as_low_as_there_is(
    given_lab: Given, workers: int, gpus: int, leader_gpus: int, level: str, kind: str
) -> None:
    lab, hosts = given_lab
    left = free(lab)
    paths = {path.rpartition("/")[2]: tuple(path.split("/")) for path in hosts}

    def both_fit(domain: Path) -> bool:
        inside = [left[host] for host, path in paths.items() if path[: len(domain)] == domain]
        pods = sum(max(0, room // gpus) for room in inside)
        # The leader stands on one of the hosts, and costs it what it takes there.
        beside = (pods - room // gpus + (room - leader_gpus) // gpus for room in inside if room >= leader_gpus)
        return max(beside, default=-1) >= workers

    def somewhere(depth: int) -> bool:
        return any(map(both_fit, {path[:depth] for path in paths.values()}))

    asked: dict[str, Any] = {kind: level, "podSetGroupName": "g"}
    found = lab.place(ask(1, leader_gpus, name="leader", **asked), ask(workers, gpus, name="workers", **asked))
    lowest = LEVELS.index(level) + 1
    assert isinstance(found, dict) == somewhere(lowest if kind == "required" else 0)
    if isinstance(found, dict) and not lab.balanced:
        depth = next(depth for depth in range(lowest, -1, -1) if somewhere(depth))
        assert len({paths[host][:depth] for pods in found.values() for host in pods}) == 1


def not_on(hosts: set[str]) -> dict[str, Any]:
    """A pod's spec that keeps it away from these hosts."""
    term = {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": sorted(hosts)}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": rule}}


@FEW
@given(
    labs(),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from(LEVELS),
    st.lists(st.booleans(), min_size=30, max_size=30),
    st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_leader_and_workers_with_node_rules_of_their_own_find_a_place_exactly_where_there_is_one(
    given_lab: Given, workers: int, gpus: int, level: str, led: list[bool], worked: list[bool]
) -> None:
    lab, hosts = given_lab
    left = free(lab)
    paths = {path.rpartition("/")[2]: tuple(path.split("/")) for path in hosts}
    no_leader = {host for host, shut in zip(sorted(paths), led, strict=False) if shut}
    no_worker = {host for host, shut in zip(sorted(paths), worked, strict=False) if shut}

    def both_fit(domain: Path) -> bool:
        inside = [host for host, path in paths.items() if path[: len(domain)] == domain]
        pods = {host: 0 if host in no_worker else max(0, left[host] // gpus) for host in inside}
        beside = (
            sum(pods.values()) - pods[host] + (0 if host in no_worker else (left[host] - 1) // gpus)
            for host in inside
            if left[host] >= 1 and host not in no_leader
        )
        return max(beside, default=-1) >= workers

    depth = LEVELS.index(level) + 1
    possible = any(map(both_fit, {path[:depth] for path in paths.values()}))
    asked: dict[str, Any] = {"required": level, "podSetGroupName": "g"}
    found = lab.place(
        ask(1, 1, name="leader", spec=not_on(no_leader), **asked),
        ask(workers, gpus, name="workers", spec=not_on(no_worker), **asked),
    )
    assert isinstance(found, dict) == possible
    if isinstance(found, dict):
        assert not no_leader & found["leader"].keys()
        assert not no_worker & found["workers"].keys()
        assert sum(found["workers"].values()) == workers


def spreads(rooms: Mapping[str, int], hosts: list[str], pods: int) -> Iterator[dict[str, int]]:
    """All ways to put so many pods on hosts."""
    if not hosts:
        yield from ([] if pods else [{}])
        return
    for here in range(min(rooms[hosts[0]], pods) + 1):
        for rest in spreads(rooms, hosts[1:], pods - here):
            yield {hosts[0]: here, **rest}


def sound(trial: Trial, pods: Mapping[str, int]) -> bool:
    """Whether these pods by host keep what was asked for."""
    sums: dict[Path, int] = {}
    for host, count in pods.items():
        for depth in range(1, len(LEVELS) + 1):
            domain = trial.paths[host][:depth]
            sums[domain] = sums.get(domain, 0) + count
    if trial.asked.required is not None:
        depth = LEVELS.index(trial.asked.required) + 1
        if sum(1 for domain, count in sums.items() if len(domain) == depth and count) > 1:
            return False
    return all(count % trial.sizes.get(len(domain) - 1, 1) == 0 for domain, count in sums.items())


@FEW
@given(labs(), requests(), st.integers(0, 8))
def test_a_lost_node_is_made_up_for_exactly_where_that_can_be_and_nobody_else_moves(
    given_lab: Given, request: PlacementRequest, which: int
) -> None:
    lab, hosts = given_lab
    first = lab.topologies.place((request,), on_empty=False)
    if len(hosts) > 9 or request.count == 0 or not isinstance(first, Placed):
        return
    before = first.topologies["main"]
    lab.topologies.add(FLAVOR, before)
    pods = {values[-1]: count for values, count in before.domains}
    lost = sorted(pods)[which % len(pods)]
    missing = pods.pop(lost)
    lab.topologies.remove_node(lost)
    left = {**free(lab), lost: 0}
    moved = msgspec.structs.replace(request, previous=before, lost=lost)
    found = lab.topologies.place((moved,), on_empty=False)
    lab.topologies.validate_trees()
    if isinstance(found, Placed):
        after = found.topologies["main"]
        now = {values[-1]: count for values, count in after.domains}
        assert all(now.get(host, 0) >= count for host, count in pods.items())
        each = request.single_pod["gpu"]  # type: ignore[index]
        check(lab, request, after, {host: left[host] + pods.get(host, 0) * each for host in left})
    if missing <= 4:
        trial = Trial((lab, {path: gpus for path, gpus in hosts.items() if not path.endswith(f"/{lost}")}), request)
        ways = spreads(trial.rooms, sorted(trial.rooms), missing)
        possible = any(sound(trial, {host: pods.get(host, 0) + way[host] for host in way}) for way in ways)
        assert isinstance(found, Placed) == possible
