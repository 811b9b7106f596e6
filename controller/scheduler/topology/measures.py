"""Measures how much of the free devices of a flavor can be used: the free devices of the largest domains, and those
that no request could use. Only nodes whose devices are known count.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.requests import SpotRule
from controller.scheduler.topology.tree import Tree

_ROUNDED: Final = 1e-6


class Spread(NamedTuple):
    """The measure of one flavor, in devices. ``largest``: for each level, the free devices of the domain that has most.
    ``unusable``: how many of ``free`` are expected to be of no use to a request. What is left of GPUs that are given
    away by the percent counts in ``free`` as fractions of a device.
    """

    flavor: FlavorName
    free: float
    unusable: float
    largest: Mapping[str, int]

    @property
    def ratio(self) -> float:
        return self.unusable / self.free if self.free else 0.0


def spread(tree: Tree, cache: DeviceCache, *, empty: bool) -> Spread | None:
    """The measure of one flavor's tree. ``empty``: as if nothing that was placed here were running. None where the
    devices of none of its nodes are known.
    """
    sums = [0.0] * len(tree.parent)
    unusable = 0.0
    known = False
    for leaf in tree.at_level[-1] if tree.depth else ():
        for name in tree.nodes[leaf]:
            measured = cache.measured(name, empty=empty)
            if measured is not None:
                known = True
                sums[leaf] += measured[0]
                unusable += measured[1]
    if not known:
        return None
    for level in range(tree.depth - 1, 0, -1):
        for domain in tree.at_level[level]:
            sums[tree.parent[domain]] += sums[domain]
    largest = {
        label: int(max((sums[domain] for domain in tree.at_level[level]), default=0.0) + _ROUNDED)
        for level, label in enumerate(tree.levels)
    }
    return Spread(tree.flavor, round(sum(sums[domain] for domain in tree.at_level[0]), 2), unusable, largest)


def spreads(trees: Mapping[FlavorName, Tree], cache: DeviceCache, *, empty: bool) -> Iterator[Spread]:
    for name in sorted(trees):
        found = spread(trees[name], cache, empty=empty)
        if found is not None:
            yield found


def spot_pods(
    places: TopologyUsage | None, count: int, rule: SpotRule, labels_at: Callable[[str], Mapping[str, str]]
) -> int:
    """See ``Placement.spot_pods``. ``labels_at``: the labels of the node of a host, empty where it is not there."""
    on = [(each.pods, labels_at(each.values[-1])) for each in (places.domains if places is not None else ())]
    spot = sum(pods for pods, labels in on if not labels or rule.is_spot(labels))
    unplaced = max(0, count - sum(pods for pods, _ in on))
    return min(count, spot + unplaced)
