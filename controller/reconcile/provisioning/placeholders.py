"""Decides on placeholders: pods of ours that make an autoscaler bring nodes for a workload whose own pods wait.

Autoscalers act on pods that no node takes, and look at none that is gated or not created yet. So while a workload holds
quota and some of its places are on nodes to come, as many placeholders as pods of it that are to go there wait
unscheduled. One that is bound to a node stays there: it keeps the node from being removed as idle until the workload
starts. Then it makes room as the pod for its node comes, or at once where none will come to that node.

Invariants, which ``validate`` recomputes: ``_by`` has each placeholder exactly once, under its workload; and
no step creates a placeholder under a name that is taken.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.meta import is_true
from controller.objects.placeencoding import HOSTNAME_LABEL, decode
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import topology_outstanding
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import PLACEHOLDER_FOR, PLACEHOLDER_OF

MOST_BOUND_ELSEWHERE: Final = 100
"""How many placeholders of a pod set may stand on nodes that the workload does not count on: free places that it cannot
use. More are not made, or a large cluster would be filled with them.
"""
SETTLED_S: Final = 5.0
"""Seconds for which one that was bound counts as one that waits: its node may have come, and not be known here yet."""
_DIGITS: Final = 10


class Placeholder(NamedTuple):
    """``of``: the uid of its Workload. ``node``: where it is bound; empty while it waits. ``over``: it has ended, be it
    that kube-scheduler or a node put an end to it. ``going``: it is being deleted.
    """

    name: str
    uid: str
    of: str
    workload: WorkloadKey
    pod_set: str
    node: str
    over: bool
    going: bool


class Phase(Enum):
    """What a workload's placeholders are for. WAITS: nodes are to come. STARTS: it is admitted, and its pods go to its
    places. NOTHING: there are to be none.
    """

    NOTHING = auto()
    WAITS = auto()
    STARTS = auto()


class PlaceholderSteps(NamedTuple):
    """Placeholders to remove, and names and pod sets of those to create. ``unsettled``: some were bound just now, and
    the workload is to be decided on again.
    """

    remove: tuple[Placeholder, ...] = ()
    create: tuple[tuple[str, str], ...] = ()
    unsettled: bool = False


def placeholder_of(pod: Pod) -> Placeholder | None:
    """The placeholder that a pod of our own namespace is; None for any other pod."""
    of = pod.metadata.labels.get(PLACEHOLDER_OF)
    if of is None:
        return None
    workload, _, pod_set = pod.metadata.annotations.get(PLACEHOLDER_FOR, "").partition(" ")
    return Placeholder(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        of=of,
        workload=WorkloadKey(workload),
        pod_set=pod_set,
        node=pod.spec.node_name,
        over=pod.status.phase in ENDED_PHASES,
        going=pod.metadata.deletion_timestamp is not None,
    )


def phase_of(workload: Workload | None) -> Phase:
    if workload is None or not workload.spec.active:
        return Phase.NOTHING
    conditions = workload.status.conditions
    over = is_true(conditions, reasons.FINISHED) or is_true(conditions, reasons.EVICTED)
    if over or not is_true(conditions, reasons.QUOTA_RESERVED):
        return Phase.NOTHING
    if is_true(conditions, reasons.ADMITTED):
        return Phase.NOTHING if is_true(conditions, reasons.PODS_READY) else Phase.STARTS
    # Placeholders are made last: all else that may keep the workload from starting has been settled before.
    ready = all(each.state == "Ready" for each in workload.status.admission_checks)
    return Phase.WAITS if ready and topology_outstanding(workload) else Phase.NOTHING


class Placeholders:
    """All placeholders that there are, and the nodes to which pods of workloads that start were sent."""

    def __init__(self) -> None:
        self._all: dict[str, Placeholder] = {}
        """All placeholders, by name."""
        self._by: dict[WorkloadKey, dict[str, Placeholder]] = {}
        """All placeholders, by workload; a workload without any has no entry."""
        self._bound_s: dict[str, float] = {}
        """When each was seen bound for the first time, by name."""
        self._sent: dict[WorkloadKey, dict[str, str]] = {}
        """The node of each pod, by key, of workloads that have placeholders."""

    def tell(self, name: str, placeholder: Placeholder | None, now_s: float) -> list[WorkloadKey]:
        """Store a placeholder; None for one that is gone. Returns the workloads to decide on."""
        before = self._all.pop(name, None)
        if before is not None:
            self._by[before.workload].pop(name)
            if not self._by[before.workload]:
                del self._by[before.workload]
        if placeholder is None or not placeholder.node:
            self._bound_s.pop(name, None)
        else:
            self._bound_s.setdefault(name, now_s)
        if placeholder is not None:
            self._all[name] = placeholder
            self._by.setdefault(placeholder.workload, {})[name] = placeholder
        found = {each.workload for each in (before, placeholder) if each is not None}
        for key in found - self._by.keys():
            self._sent.pop(key, None)
        return sorted(found)

    def names(self) -> frozenset[str]:
        return frozenset(self._all)

    def workloads(self) -> frozenset[WorkloadKey]:
        return frozenset(self._by)

    def has(self, workload: WorkloadKey) -> bool:
        return workload in self._by

    def tell_pod(self, key: str, workload: WorkloadKey, node: str) -> bool:
        """Note that a pod was sent to a node; empty for none. Returns whether its workload is to be decided on."""
        known = self._sent.get(workload)
        if not node:
            return known is not None and known.pop(key, None) is not None
        if known is None:
            if workload not in self._by:
                return False
            known = self._sent[workload] = {}
        if known.get(key) == node:
            return False
        known[key] = node
        return True

    def remove_pod(self, key: str) -> None:
        for sent in self._sent.values():
            sent.pop(key, None)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self,
        key: WorkloadKey,
        workload: Workload | None,
        phase: Phase,
        missing: Mapping[str, int] | None,
        now_s: float,
        *,
        joining: Callable[[str, str], bool] = lambda _pod_set, _node: False,
    ) -> PlaceholderSteps:
        """The next steps for a workload. ``missing``: by pod set, how many of its pods are to go to nodes to come; None
        where that is not known, or even these do not hold it now: then all stays as it is. ``joining``: whether a node
        for a pod set is there and counts as to come all the same: one that is bound to it counts as one that waits.
        """
        every = list(self._by.get(key, {}).values())
        uid = workload.metadata.uid if workload is not None else ""
        mine = [each for each in every if each.of == uid and phase is not Phase.NOTHING]
        remove = [each for each in every if each not in mine]
        if workload is None or phase is Phase.NOTHING:
            return PlaceholderSteps(tuple(_still(remove)))
        remove += [each for each in mine if each.over]
        mine = [each for each in mine if not each.over]
        if phase is Phase.STARTS:
            remove += _making_room(workload, mine, Counter(self._sent.get(key, {}).values()))
            return PlaceholderSteps(tuple(_still(remove)))
        if missing is None:
            return PlaceholderSteps(tuple(_still(remove)))
        create: list[tuple[str, str]] = []
        unsettled = False
        taken = {each.name for each in every}
        for pod_set in workload.spec.pod_sets:
            own = [each for each in mine if each.pod_set == pod_set.name and not each.going]
            waiting = sorted(each for each in own if not each.node)
            fresh = sum(self._is_fresh(each, now_s) or joining(pod_set.name, each.node) for each in own if each.node)
            wanted = missing.get(pod_set.name, 0)
            remove += waiting[wanted:]
            room = pod_set.count + MOST_BOUND_ELSEWHERE - len(own)
            names = _names(uid, pod_set.name, taken)
            create += [(next(names), pod_set.name) for _ in range(min(wanted - len(waiting) - fresh, room))]
            unsettled = unsettled or (fresh > 0 and len(waiting) < wanted)
        return PlaceholderSteps(tuple(_still(remove)), tuple(create), unsettled)

    def _is_fresh(self, placeholder: Placeholder, now_s: float) -> bool:
        return now_s < self._bound_s.get(placeholder.name, now_s) + SETTLED_S

    def validate(self) -> None:
        """Raises DriftError."""
        again: dict[WorkloadKey, dict[str, Placeholder]] = {}
        for name, each in self._all.items():
            again.setdefault(each.workload, {})[name] = each
        if again != self._by:
            raise DriftError("placeholders by workload differ from all placeholders")
        if self._bound_s.keys() != {name for name, each in self._all.items() if each.node}:
            raise DriftError("times of placeholders that are not bound, or none of those that are")
        if strange := self._sent.keys() - self._by.keys():
            raise DriftError(f"pods are followed of workloads without placeholders: {sorted(strange)[:5]}")


def _still(placeholders: Iterable[Placeholder]) -> Iterator[Placeholder]:
    return (each for each in placeholders if not each.going)


def _names(uid: str, pod_set: str, taken: Collection[str]) -> Iterator[str]:
    """Names for placeholders of a pod set: the same for every leader, so that none is made twice."""
    digest = hashlib.sha256(f"{uid} {pod_set}".encode()).hexdigest()[:_DIGITS]
    number = 0
    while True:
        name = f"placeholder-{digest}-{number}"
        if name not in taken:
            yield name
        number += 1


def _making_room(workload: Workload, mine: Sequence[Placeholder], sent: Counter[str]) -> Iterator[Placeholder]:
    """Placeholders that go as the workload starts: those that wait, those on nodes that it does not use, and on each of
    its nodes all but as many as pods are still to be sent there.
    """
    places = Counter[str]()
    admission = workload.status.admission
    for given in admission.pod_set_assignments if admission is not None else ():
        if given.topology_assignment is not None:
            for domain in decode(given.topology_assignment):
                places[domain.values[-1]] += domain.pods
    stands: dict[str, list[Placeholder]] = {}
    for each in sorted(mine):
        if not each.going:
            stands.setdefault(each.node, []).append(each)
    for node, here in stands.items():
        yield from here[max(0, places[node] - sent[node]) :]


def sent_to(pod: Pod) -> str:
    """The node to which a pod was sent, or on which it runs; empty while it waits."""
    return pod.spec.node_name or pod.spec.node_selector.get(HOSTNAME_LABEL, "")
