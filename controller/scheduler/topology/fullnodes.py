"""Explains full nodes: which workloads hold nodes that are open to pods though none fits on them, and which nodes could
not take one even when empty.

This is read when a unplaced is put into words, not when it is decided. The holders may be a few seconds out of date.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.devices.cache import HeldPlace
from controller.scheduler.devices.nofit import DeviceNoFit
from controller.scheduler.model.caches import ByIdentity
from controller.scheduler.model.devicerequest import ANY
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.requests import DomainRequest, Each, RequestShape

_FRESH_S: Final = 5.0
"""Seconds for which an answer is reused: holders change with every decision."""
_KEPT: Final = 64

Amounts = Mapping[ResourceName, Amount]
Holders = tuple[WorkloadKey, ...]
"""Keys of the workloads with pods on one node, sorted. A workload with several pod sets there appears once for each."""


class UnplacedRequest(NamedTuple):
    """The request that found no places, and the flavor whose nodes were searched."""

    flavor: FlavorName
    ask: DomainRequest


class FullNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are open and on which not one pod fits. Each node is counted in exactly one of the three fields."""

    held: Mapping[Holders, int] = {}
    """Number of nodes by the workloads that hold them."""
    outside: int = 0
    """Number of nodes where the missing amount is taken by pods that no queue placed."""
    unfit: tuple[tuple[str, int], ...] = ()
    """Number of nodes that could not take a pod, by a clause that follows the number in a sentence; the most frequent
    first.
    """


_State = tuple[int, int, int]
_NOTHING: Final[Amounts] = {}


class FullNodesReader:
    """Finds the holders of full nodes. ``_on`` and ``_answers`` repeat who holds places; both may be ``_FRESH_S`` old.
    An answer is shared by all requests of one shape: nothing in it depends on who asks.
    """

    def __init__(self, held: Callable[[], Iterable[HeldPlace]], outside: Callable[[str], Amounts]) -> None:
        """``held`` returns all places that are held now. ``outside`` returns what pods of no queue take of the node
        with this name.
        """
        self._held = held
        self._outside = outside
        self._on: dict[str, Holders] = {}
        """Holders by host. Computed from ``_places``, which has each place held at that time by its ``id()``."""
        self._places: dict[int, HeldPlace] = {}
        self._made_s = float("-inf")
        self._answers = ByIdentity[Counts, tuple[_State, float, FullNodes]](_KEPT)

    def of(self, counts: Counts, now_s: float) -> FullNodes:
        """The full nodes of a tree whose lowest level is the host. ``counts`` must be up to date."""
        journal = counts.tree.journal
        state = (counts.tree.shape, journal.epoch, len(journal.leaves))
        known = self._answers.get(id(counts))
        if known is not None and (known[1][0] == state or abs(now_s - known[1][1]) < _FRESH_S):
            return known[1][2]
        if abs(now_s - self._made_s) >= _FRESH_S:
            self._renew()
            self._made_s = now_s
        return self._answers.keep(counts, (state, now_s, self._read(counts)))[2]

    def _renew(self) -> None:
        """Brings ``_on`` up to date. Only places that came or went since the last time are processed: the others are
        the same objects.
        """
        places = {id(place): place for place in self._held()}
        known, self._places = self._places, places
        on = self._on
        for key in known.keys() - places.keys():
            _, usage, (workload, _) = known[key]
            for host in _hosts(usage):
                others = list(on.pop(host))
                others.remove(workload)
                if others:
                    on[host] = tuple(others)
        for key in places.keys() - known.keys():
            _, usage, (workload, _) = places[key]
            alone = (workload,)
            for host in _hosts(usage):
                others_there = on.get(host)
                on[host] = alone if others_there is None else tuple(sorted((*others_there, workload)))

    def _read(self, counts: Counts) -> FullNodes:
        tree, requested, empty = counts.tree, counts.shape.each, counts.shape.empty
        by_devices = counts.shape.devices is not None and tree.devices is not None
        by_claim = tree.claims is not None and bool(tree.claims.requests.extended)
        held: list[Holders] = []
        unfit = Counter[str]()
        outside = 0
        on, path, free_of, used_of = self._on, tree.path, tree.free, tree.used
        # Most nodes equal the one before them, so its result is reused.
        last_own, last_free, last_used, sure = requested, _NOTHING, _NOTHING, False
        leaves = list(counts.full_leaves())
        whose = [None] * len(leaves) if empty else [on.get(path[leaf][-1]) for leaf in leaves]
        for leaf, holders in zip(leaves, whose, strict=True):
            if holders is not None:
                own = tree.served(leaf, requested, None)[0] if by_claim else requested
                free = free_of[leaf]
                if free != last_free or own is not last_own or (by_devices and used_of[leaf] != last_used):
                    last_own, last_free, last_used = own, free, used_of[leaf]
                    sure = _is_large_enough(own, free) and not (by_devices and _is_left(own, free, last_used))
                if sure:
                    held.append(holders)
                    continue
            why, is_outside = self._why(counts, leaf)
            if why and not (holders and why == DeviceNoFit.TAKEN):
                unfit[why] += 1
            elif holders:
                held.append(holders)
            else:
                outside += is_outside
        return FullNodes(held=Counter(held), outside=outside, unfit=tuple(unfit.most_common()))

    def _why(self, counts: Counts, leaf: int) -> tuple[str, bool]:
        """A clause that says why the node takes no pod even when empty, or what of its GPUs is missing; empty where
        holders have what is missing, or claims decide. The flag says whether pods of no queue hold it.
        """
        tree, shape = counts.tree, counts.shape
        facts = next(iter(tree.nodes[leaf].values()))
        used = tree.assumed[leaf] if shape.empty else tree.used[leaf]
        for name, amount in tree.served(leaf, shape.each, None)[0]:
            if facts.free.get(name, 0) - used.get(name, 0) < amount:
                foreign = self._outside(facts.name).get(name, 0)
                if facts.free.get(name, 0) + foreign < amount:
                    return _too_small(counts, facts.name, shape, name), False
                return "", bool(foreign)
        single_pod = dict(shape.each)
        if shape.devices is None or tree.devices is None:
            return "", False
        if tree.devices.fitting_pods(facts.name, single_pod, shape.devices, empty=shape.empty):
            return "", False
        return tree.devices.unfit(facts.name, single_pod, shape.devices, empty=shape.empty), False


def _is_large_enough(each: Each, free: Amounts) -> bool:
    for name, amount in each:  # noqa: SIM110 - a generator costs twice as much, for each node
        if free.get(name, 0) < amount:
            return False
    return True


def _is_left(each: Each, free: Amounts, used: Amounts) -> bool:
    for name, amount in each:  # noqa: SIM110 - as above
        if free.get(name, 0) - used.get(name, 0) < amount:
            return False
    return True


def _hosts(usage: TopologyUsage) -> list[str]:
    levels = usage.levels
    return [values[-1] for values, _ in usage.domains] if levels and levels[-1] == HOSTNAME_LABEL else []


def _too_small(counts: Counts, node: str, shape: RequestShape, lacking: ResourceName) -> str:
    state = counts.tree.devices.node(node) if counts.tree.devices is not None else None
    pool = state.board.pools.get(lacking) if state is not None else None
    if pool is not None and counts.tree.devices is not None:
        why = counts.tree.devices.unfit(node, dict(shape.each), shape.devices or ANY, empty=shape.empty)
        if why == DeviceNoFit.UNHEALTHY:
            return why
    return f"with too little {lacking} even when empty"
