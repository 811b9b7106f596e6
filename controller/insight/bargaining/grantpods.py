"""Pods that name a CapacityRequest, live: which of them start now, and on which units of its grant. Pure.

A pod of a grant waits behind the queue's gate. As it starts, the numbers of its units are written beside what flavor
and places require: so another leader finds the same units taken. Pods start one by one, from the oldest on.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from controller.insight.bargaining.inside import Needs, Place, PodNeed, Room, units_of
from controller.jobs.framework.podsets import typed_template
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError
from controller.messages import bargains as words
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, ResourceName, WorkloadKey
from inventory.api.names import GRANTED_UNITS


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The units of a grant. ``places`` has the place of each unit, ``units`` of which may be used. ``unit``: what each
    has. ``counted``: the resources that its ClusterQueue has quota of. ``begins_s``: see ``State.from_s``.
    """

    name: str
    units: int
    places: tuple[Place, ...]
    unit: Mapping[ResourceName, Amount]
    counted: Collection[str]
    begins_s: float


class Start(NamedTuple):
    """``units``: numbers of the units that the pod gets. ``place``: of all of them, empty where the grant has none."""

    pod: SeenPod
    units: tuple[int, ...]
    place: Place

    @property
    def note(self) -> str:
        """The value of the annotation ``GRANTED_UNITS``."""
        return ",".join(map(str, self.units))


class Inside(NamedTuple):
    """``used``: units of pods that run or start. ``waits``: pods that wait, each with the sentence that says why."""

    start: tuple[Start, ...]
    used: int
    waits: tuple[tuple[SeenPod, str], ...]


def is_inside(pod: SeenPod) -> bool:
    """Whether the pod was started inside of a grant and may run."""
    return GRANTED_UNITS in pod.annotations and pod.may_run


def inside(grant: Grant, pods: Sequence[SeenPod], now_s: float) -> Inside:
    """What becomes of the pods of a grant. Raises JobError for JSON that is no pod's."""
    room = Room(grant.places)
    for pod in filter(is_inside, pods):
        room.keep(WorkloadKey(pod.uid), _numbers(pod))
    start: list[Start] = []
    waits: list[tuple[SeenPod, str]] = []
    for pod in sorted(waiting(pods), key=lambda each: each.age_key):
        try:
            outcome = _start(grant, room, pod, now_s)
        except JobError as error:
            outcome = str(error)
        if isinstance(outcome, Start):
            start.append(outcome)
        else:
            waits.append((pod, outcome))
    room.validate()
    return Inside(tuple(start), room.used, tuple(waits))


def waiting(pods: Sequence[SeenPod]) -> list[SeenPod]:
    return [pod for pod in pods if pod.is_gated and pod.stays]


def _start(grant: Grant, room: Room, pod: SeenPod, now_s: float) -> Start | str:
    """The start of a pod, or the sentence that says why it waits."""
    spec = typed_template({"spec": pod.raw.get("spec") or {}}, "pod").spec
    needed, outside = units_of(one_pod(spec), grant.unit, grant.counted)
    free = min(room.free, grant.units - room.used)
    if outside:
        return words.outside_of_unit(grant.name, ", ".join(outside))
    if needed > grant.units:
        return words.larger_than_grant(grant.name, needed, grant.units)
    key = WorkloadKey(pod.uid)
    needs = Needs((PodNeed("", 1, needed),))
    if now_s < grant.begins_s or needed > free or not room.take(key, needs):
        return words.waits_for_units(grant.name, needed, free)
    units = room.given(key).units
    return Start(pod, units, room.places[units[0]] if units else ())


def _numbers(pod: SeenPod) -> tuple[int, ...]:
    """The units that a pod has by its annotation; none that cannot be read."""
    found = pod.annotations.get(GRANTED_UNITS, "").split(",")
    return tuple({int(each) for each in found if each.isdecimal()})
