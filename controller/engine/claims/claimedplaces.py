"""The places that a preemptor's claim keeps: those its pods are to get, less what its victims still hold there.

A node is kept by amounts, not by pods: victim and preemptor need not be of one shape.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from controller.engine.model.encoding import HOSTNAME_LABEL, Domain
from controller.engine.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.engine.model.workload import TopologyUsage
from controller.engine.quota.queuestate import Holder
from controller.engine.topology.ask import each_of
from controller.engine.topology.nodes import PODS

Places = tuple[tuple[FlavorName, TopologyUsage], ...]
_Location = tuple[str, ...]


def kept_places(places: Places, victims: Iterable[Holder]) -> Places:
    """What of ``places`` is free already, or will not come from these, as one pod for each domain."""
    held = _held(victims)
    kept: list[tuple[FlavorName, TopologyUsage]] = []
    for flavor, usage in places:
        rests: dict[tuple[tuple[ResourceName, Amount], ...], list[Domain]] = {}
        for domain in usage.domains:
            there = held.get(_location(usage.levels, domain))
            rest = []
            for name, amount in each_of(usage.single_pod):
                wanted, taken = amount * domain.pods, there.get(name, 0) if there is not None else 0
                rest.append((name, max(0, wanted - taken)))
                if there is not None:
                    there[name] = max(0, taken - wanted)
            if any(amount for _, amount in rest):
                rests.setdefault(tuple(rest), []).append(Domain(domain.values, 1))
        kept += [(flavor, _usage(usage.levels, domains, rest)) for rest, domains in rests.items()]
    return tuple(kept)


class KeptPlaces:
    """``kept_places`` of each claim, worked out again only when one of its victims has changed or left."""

    def __init__(self) -> None:
        self._known: dict[WorkloadKey, tuple[Places, list[Holder], Places]] = {}
        """By claimant: what was asked (places, victims), compared by identity, and the answer."""

    def of(self, key: WorkloadKey, places: Places, victims: list[Holder]) -> Places:
        known = self._known.get(key)
        if known is not None and known[0] is places and list(map(id, known[1])) == list(map(id, victims)):
            return known[2]
        kept = kept_places(places, victims)
        self._known[key] = (places, victims, kept)
        return kept

    def forget(self, key: WorkloadKey) -> None:
        self._known.pop(key, None)

    def keys(self) -> AbstractSet[WorkloadKey]:
        return self._known.keys()


def _held(victims: Iterable[Holder]) -> dict[_Location, dict[ResourceName, Amount]]:
    held: dict[_Location, dict[ResourceName, Amount]] = {}
    for topology in (pod_set.topology for holder in victims for pod_set in holder.info.pod_sets):
        if topology is None:
            continue
        for domain in topology.domains:
            sums = held.setdefault(_location(topology.levels, domain), {})
            for name, amount in each_of(topology.single_pod):
                sums[name] = sums.get(name, 0) + amount * domain.pods
    return held


def _location(levels: Sequence[str], domain: Domain) -> _Location:
    """Of a domain. A node is the same one whatever flavor it was assigned by, so its name alone tells it."""
    return domain.values[-1:] if levels[-1:] == (HOSTNAME_LABEL,) else domain.values


def _usage(
    levels: tuple[str, ...], domains: list[Domain], rest: tuple[tuple[ResourceName, Amount], ...]
) -> TopologyUsage:
    """As one pod for each domain. Placement counts each pod itself: the number of pods in ``rest`` is one less."""
    single = {name: amount - (name == PODS) for name, amount in rest}
    return TopologyUsage(levels=levels, domains=tuple(domains), single_pod=single)
