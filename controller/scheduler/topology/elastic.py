"""Placement of an elastic workload's new slice (gate ElasticJobsViaWorkloadSlicesWithTAS): running pods stay where they
are.

If the slice has more pods, only the new ones are placed, beside the old ones. If it has fewer, the last domains of the
old assignment lose pods. If old places no longer exist, all pods are placed anew. Source: KEP-77.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from controller.objects.placeencoding import Domain
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.finder import Finder
from controller.scheduler.topology.port import PlacementRequest
from controller.scheduler.topology.replacement import merged

Assume = Callable[[TopologyUsage, int], None]
"""Charges a usage (1) or gives it back (-1) for the duration of a trial."""


class Resized(NamedTuple):
    """The complete assignment of one pod set after resizing, with the pod set's name."""

    name: str
    whole: TopologyUsage


def resize(
    finder: Finder, workers: PlacementRequest, leader: PlacementRequest | None, assume: Assume, *, empty: bool
) -> list[Resized] | str | None:
    """The new assignments. None where the old places cannot be reused; a sentence where the new pods find no place."""
    old = workers.previous
    old_leader = leader.previous if leader is not None else None
    if old is None or _gone(finder, old) or (old_leader is not None and _gone(finder, old_leader)):
        return None
    before = sum(domain.pods for domain in old.domains)
    layers = workers.asked.layers
    size = layers[0].size if layers else 1
    if size > 1 and (before % size or workers.count % size):
        return None
    kept = [] if leader is None or old_leader is None else [Resized(leader.pod_set.name, old_leader)]
    if workers.count <= before and (leader is None or old_leader is not None):
        return [Resized(workers.pod_set.name, _first(old, workers.count)), *kept]
    return _grow(finder, workers, leader if old_leader is None else None, before, kept, assume, empty=empty)


def _grow(
    finder: Finder,
    workers: PlacementRequest,
    leader: PlacementRequest | None,
    before: int,
    kept: list[Resized],
    assume: Assume,
    *,
    empty: bool,
) -> list[Resized] | str | None:
    old = workers.previous
    if old is None or workers.count < before:
        return None
    running = [old, *(resized.whole for resized in kept)]
    for usage in running:
        assume(usage, 1)
    try:
        more = msgspec.structs.replace(workers, count=workers.count - before, previous=None)
        grown = finder.find(more, leader, empty=empty, within=_domain(finder, workers, running))
    finally:
        for usage in running:
            assume(usage, -1)
    if isinstance(grown, str):
        return grown
    whole = merged(finder.tree, old.domains, grown.pop(workers.pod_set.name))
    return [Resized(workers.pod_set.name, whole), *kept, *(Resized(name, usage) for name, usage in grown.items())]


def _domain(finder: Finder, workers: PlacementRequest, running: list[TopologyUsage]) -> int:
    """The domain in which all pods must be because running pods are there; -1 if any domain will do."""
    required = workers.asked.required
    level = finder.tree.level_of(required) if required is not None else None
    leaves = [finder.tree.leaf(domain.values) for usage in running for domain in usage.domains]
    return -1 if level is None or not leaves or leaves[0] is None else finder.tree.ancestor(leaves[0], level)


def _gone(finder: Finder, usage: TopologyUsage) -> bool:
    return any(finder.tree.leaf(domain.values) is None for domain in usage.domains)


def _first(usage: TopologyUsage, count: int) -> TopologyUsage:
    """The assignment cut off after its first ``count`` pods."""
    domains: list[Domain] = []
    for domain in usage.domains:
        taken = min(domain.pods, count)
        if taken:
            domains.append(Domain(domain.values, taken))
        count -= taken
    return msgspec.structs.replace(usage, domains=tuple(domains))
