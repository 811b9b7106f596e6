"""Jobs inside of a grant: which of its units each has. Pure.

A pod takes as many whole units as it needs for what it requests, all of them in one place. A job starts when all of its
pods have their units, and gives them back when it ends: the grant alone is charged, so nothing is charged twice.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from controller.objects.placeencoding import Domain, decode
from controller.objects.workload import Admission, Workload
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, ResourceName, WorkloadKey

Place = tuple[str, ...]
"""The values of a topology's levels; empty where the grant has no places."""


class PodNeed(NamedTuple):
    """``pods`` pods of one set, each with so many units."""

    pod_set: str
    pods: int
    units: int


class Needs(NamedTuple):
    """What a job needs. ``outside``: resources that it requests, quota counts and the units do not hold."""

    pods: tuple[PodNeed, ...]
    outside: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        return sum(each.pods * each.units for each in self.pods)


class Given(NamedTuple):
    """The units of one job. ``pods``: by pod set, the units of each pod."""

    pods: Mapping[str, tuple[tuple[int, ...], ...]]

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(unit for pods in self.pods.values() for units in pods for unit in units)


def needs_of(workload: Workload, unit: Mapping[ResourceName, Amount], counted: Collection[str]) -> Needs:
    """What a job needs of a grant. ``counted``: the resources that the grant's ClusterQueue has quota of."""
    pods: list[PodNeed] = []
    outside: dict[str, None] = {}
    for pod_set in workload.spec.pod_sets:
        units, more = units_of(one_pod(pod_set.template.spec), unit, counted)
        outside |= dict.fromkeys(more)
        pods.append(PodNeed(pod_set.name, pod_set.count, units))
    return Needs(tuple(pods), tuple(outside))


def units_of(
    requests: Mapping[ResourceName, Amount], unit: Mapping[ResourceName, Amount], counted: Collection[str]
) -> tuple[int, tuple[str, ...]]:
    """The units that a pod needs for what it requests, and the resources of ``Needs.outside``."""
    asked = {name: amount for name, amount in requests.items() if amount}
    units = max((-(-amount // unit[name]) for name, amount in asked.items() if name in unit), default=0)
    return units, tuple(name for name in asked if name not in unit and name in counted)


def places_of(admission: Admission, units: int) -> tuple[Place, ...]:
    """The place of each unit of a grant, in the order of its pods."""
    for assigned in admission.pod_set_assignments:
        if assigned.topology_assignment is not None:
            found = [domain.values for domain in decode(assigned.topology_assignment) for _ in range(domain.pods)]
            return tuple(found[:units])
    return ((),) * units


class Room:
    """The units of one grant. ``take`` and ``give_back`` alone change it."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._free: dict[Place, list[int]] = {}
        """Free units by place, the first at the end of its list."""
        for unit in reversed(range(len(self.places))):
            self._free.setdefault(self.places[unit], []).append(unit)
        self._given: dict[WorkloadKey, Given] = {}

    @property
    def free(self) -> int:
        return sum(map(len, self._free.values()))

    @property
    def used(self) -> int:
        return len(self.places) - self.free

    @property
    def jobs(self) -> tuple[WorkloadKey, ...]:
        return tuple(self._given)

    def given(self, key: WorkloadKey) -> Given:
        return self._given[key]

    def take(self, key: WorkloadKey, needs: Needs) -> bool:
        """Gives a job its units. Returns whether they are there; if not, nothing is given. The largest pods choose
        first, each the place with the fewest free units that are enough.
        """
        taken: list[tuple[Place, int]] = []
        pods: dict[str, list[tuple[int, ...]]] = {each.pod_set: [] for each in needs.pods}
        for need in sorted(needs.pods, key=lambda each: -each.units):
            for _ in range(need.pods):
                chosen = self._tightest(need.units)
                if chosen is None:
                    self._put_back(taken)
                    return False
                units = tuple(self._free[chosen].pop() for _ in range(need.units))
                taken += [(chosen, unit) for unit in units]
                pods[need.pod_set].append(units)
        self._given[key] = Given({name: tuple(some) for name, some in pods.items()})
        return True

    def keep(self, key: WorkloadKey, units: Collection[int]) -> bool:
        """Gives a pod the units that it has already. Returns whether they are free; if not, nothing is given."""
        if not all(0 <= unit < len(self.places) and unit in self._free[self.places[unit]] for unit in units):
            return False
        for unit in units:
            self._free[self.places[unit]].remove(unit)
        self._given[key] = Given({"": (tuple(units),)})
        return True

    def give_back(self, key: WorkloadKey) -> None:
        """Takes back the units of a job; nothing for one that has none."""
        given = self._given.pop(key, None)
        if given is not None:
            self._put_back([(self.places[unit], unit) for unit in given.units])

    def domains(self, key: WorkloadKey, pod_set: str) -> tuple[Domain, ...]:
        """The places of a job's pods of one set, with the number of pods in each; empty where the grant has none."""
        counts: dict[Place, int] = {}
        for units in self._given[key].pods[pod_set]:
            place = self.places[units[0]] if units else self.places[0]
            counts[place] = counts.get(place, 0) + 1
        return tuple(Domain(place, count) for place, count in counts.items() if place)

    def _tightest(self, units: int) -> Place | None:
        enough = [(len(free), place) for place, free in self._free.items() if len(free) >= units]
        return min(enough)[1] if enough else None

    def _put_back(self, taken: Sequence[tuple[Place, int]]) -> None:
        for place, unit in taken:
            self._free[place].append(unit)
        for place in {place for place, _ in taken}:
            self._free[place].sort(reverse=True)

    def validate(self) -> None:
        """Every unit is free or one job's. AssertionError where one is not."""
        given = [unit for each in self._given.values() for unit in each.units]
        free = [unit for units in self._free.values() for unit in units]
        assert sorted(given + free) == list(range(len(self.places))), "a unit is given twice, or lost"
        assert all(self.places[unit] == place for place, units in self._free.items() for unit in units)
