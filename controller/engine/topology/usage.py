"""What placed pods take, by domain. Flavors over the same nodes share one entry, so each sees the other's usage.

With hostname as the lowest level a domain is a node, whatever flavor it was given by; otherwise it is the path of one
flavor's tree. With the gate TASHandleOverlappingFlavors off, nodes are counted by flavor as well.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from controller.engine.model.encoding import HOSTNAME_LABEL
from controller.engine.model.identity import ByIdentity
from controller.engine.model.resources import Amount, FlavorName, ResourceName
from controller.engine.model.workload import TopologyUsage
from controller.engine.topology.nodes import PODS

DomainKey = tuple[str, tuple[str, ...]]
"""Flavor ("" where all flavors share the domain) and the domain's values."""

Charge = tuple[DomainKey, tuple[tuple[ResourceName, Amount], ...]]
"""What is taken in one domain."""

DomainTotals = dict[ResourceName, Amount]
Watcher = Callable[[int], None]
Wire = tuple[DomainTotals, tuple[tuple[ResourceName, Amount], ...], tuple[tuple[Watcher, int], ...]]

_SMALL: Final = 4
_KNOWN: Final = 16_384


class UsageSums:
    """Sums are never replaced, only changed in place: trees hold on to those of their leaves.

    ``_sums`` of a domain that no tree watches is there only while something is taken in it. ``_known`` and ``_wired``
    repeat what they were made of: ``_wired`` is void as soon as a domain gains or loses a watcher.
    """

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._sums: dict[DomainKey, DomainTotals] = {}
        self._watchers: dict[DomainKey, tuple[tuple[Watcher, int], ...]] = {}
        self._known = ByIdentity[TopologyUsage, tuple[FlavorName, Sequence[Charge]]]()
        self._wired = ByIdentity[TopologyUsage, tuple[FlavorName, list[Wire]]]()
        """Charges led to where they are counted, as long as no tree begins or ceases to watch."""

    def key(self, flavor: FlavorName, levels: tuple[str, ...], values: tuple[str, ...]) -> DomainKey:
        if levels and levels[-1] == HOSTNAME_LABEL:
            return "" if self._shared else flavor, values[-1:]
        return flavor, values

    def watch(self, key: DomainKey, told: Watcher, leaf: int) -> DomainTotals:
        """The sums of a domain; ``told(leaf)`` is called after each change."""
        self._wired.clear()
        self._watchers[key] = (*self._watchers.get(key, ()), (told, leaf))
        return self._sums.setdefault(key, {})

    def unwatch(self, key: DomainKey, told: Watcher, leaf: int) -> None:
        self._wired.clear()
        left = tuple(watcher for watcher in self._watchers.get(key, ()) if watcher != (told, leaf))
        if left:
            self._watchers[key] = left
            return
        self._watchers.pop(key, None)
        if not self._sums.get(key):
            self._sums.pop(key, None)

    def change(self, flavor: FlavorName, usage: TopologyUsage, sign: int) -> None:
        """Charge (1) or give back (-1) all pods of an assignment, wherever the domains are known."""
        wired = self._wired.get(id(usage))
        if wired is not None and wired[1][0] == flavor:
            for sums, amounts, watchers in wired[1][1]:
                for name, amount in amounts:
                    total = sums.get(name, 0) + sign * amount
                    if total:
                        sums[name] = total
                    else:
                        sums.pop(name, None)
                for told, leaf in watchers:
                    told(leaf)
            return
        charges = self._charges(flavor, usage)
        self._change(charges, sign)
        if sign < 0:
            # What is looked at for victims is given back first, and may be again and again; most never is.
            self._remember(flavor, usage, charges)

    def _remember(self, flavor: FlavorName, usage: TopologyUsage, charges: Sequence[Charge]) -> None:
        """Of small assignments what they charge; and where, as long as all of their domains are watched: there the sums
        stay the same objects.
        """
        if len(charges) > _SMALL:
            return
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[id(usage)] = (usage, (flavor, charges))
        if all(key in self._watchers for key, _ in charges):
            if len(self._wired) >= _KNOWN:
                self._wired.clear()
            wires = [(self._sums[key], amounts, self._watchers[key]) for key, amounts in charges]
            self._wired[id(usage)] = (usage, (flavor, wires))

    def _change(self, charges: Iterable[Charge], sign: int) -> None:
        sums_of, watchers_of = self._sums, self._watchers
        for key, amounts in charges:
            sums = sums_of.get(key)
            if sums is None:
                sums = sums_of[key] = {}
            for name, amount in amounts:
                total = sums.get(name, 0) + sign * amount
                if total:
                    sums[name] = total
                else:
                    sums.pop(name, None)
            watchers = watchers_of.get(key)
            if watchers is not None:
                for told, leaf in watchers:
                    told(leaf)
            elif not sums:
                del sums_of[key]

    def _charges(self, flavor: FlavorName, usage: TopologyUsage) -> Sequence[Charge]:
        """What is taken by domain."""
        known = self._known.get(id(usage))
        if known is not None and known[1][0] == flavor:
            return known[1][1]
        pod = tuple(usage.single_pod.items())
        by_host = bool(usage.levels) and usage.levels[-1] == HOSTNAME_LABEL
        owner = "" if by_host and self._shared else flavor
        whole = {pods: _taken(pod, pods) for pods in {domain.pods for domain in usage.domains}}
        return [
            ((owner, domain.values[-1:] if by_host else domain.values), whole[domain.pods]) for domain in usage.domains
        ]

    def totals(self) -> dict[DomainKey, DomainTotals]:
        """For checks: every domain on which something is taken."""
        return {key: dict(sums) for key, sums in self._sums.items() if sums}


@lru_cache(_KNOWN)
def _taken(pod: tuple[tuple[ResourceName, Amount], ...], pods: int) -> tuple[tuple[ResourceName, Amount], ...]:
    """By so many pods that ask for ``pod`` each, and each for room for one. Once for all workloads alike."""
    own = dict(pod).get(PODS, 0)
    each = (*((name, amount) for name, amount in pod if amount and name != PODS), (PODS, own + 1))
    return tuple((name, amount * pods) for name, amount in each)
