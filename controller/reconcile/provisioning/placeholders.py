"""Decides on placeholders: pods of ours that make an autoscaler bring nodes for a workload whose own pods wait.

Autoscalers act on pods that no node takes, and look at none that is gated or not created yet. So while a workload holds
quota and some of its places are on nodes to come, as many placeholders as pods of it that are to go there wait
unscheduled. One that is bound to a node stays there: it keeps the node from being removed as idle until the workload
starts. Then it makes room as the pod for its node comes, or at once where none will come to that node.

Copies of the claim templates that placeholders name stay as long as the workload waits.

Invariants, which ``validate`` recomputes: ``_by`` has each placeholder exactly once, under its workload, ``_copies_by``
each copy; and no step creates a placeholder under a name that is taken.
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
from controller.reconcile.provisioning.claimcopies import NOBODYS, ClaimCopy
from controller.reconcile.provisioning.givingway import GivingWay
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
DEVICES_FOUND_S: Final = 15.0
"""Seconds for which one with claims that is too many waits on: the devices of its node may have been published just
now, and kube-scheduler tries a pod again after 10 seconds at most. One that went, as its neighbour gets the node, would
be made anew, and provoke a node too many.
"""
_DIGITS: Final = 10
_NO_COPIES: Final[Mapping[str, ClaimCopy]] = {}


class Placeholder(NamedTuple):
    """``of``: the uid of its Workload. ``node``: where it is bound; empty while it waits. ``over``: it has ended, be it
    that kube-scheduler or a node put an end to it. ``going``: it is being deleted. ``claims``: whether it gets devices
    by claim; kube-scheduler makes one for an extended resource, which the pod does not name.
    """

    name: str
    uid: str
    of: str
    workload: WorkloadKey
    pod_set: str
    node: str
    over: bool
    going: bool
    claims: bool


class Phase(Enum):
    """What a workload's placeholders are for. WAITS: nodes are to come. STARTS: it is admitted, and its pods go to its
    places. NOTHING: there are to be none.
    """

    NOTHING = auto()
    WAITS = auto()
    STARTS = auto()


class PlaceholderSteps(NamedTuple):
    """Placeholders and then copies to remove, and names and pod sets of placeholders to create. ``claiming``: pod sets
    of which some wait that may name copies, which have to be there. ``unsettled``: some were bound or gave way just
    now, and the workload is to be decided on again.
    """

    remove: tuple[Placeholder, ...] = ()
    remove_copies: tuple[ClaimCopy, ...] = ()
    claiming: tuple[str, ...] = ()
    create: tuple[tuple[str, str], ...] = ()
    unsettled: bool = False


def placeholder_of(pod: Pod) -> Placeholder | None:
    """The placeholder that a pod of our own namespace is; None for any other pod."""
    of = pod.metadata.labels.get(PLACEHOLDER_OF)
    if of is None:
        return None
    workload, _, pod_set = pod.metadata.annotations.get(PLACEHOLDER_FOR, NOBODYS).partition(" ")
    return Placeholder(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        of=of,
        workload=WorkloadKey(workload),
        pod_set=pod_set,
        node=pod.spec.node_name,
        over=pod.status.phase in ENDED_PHASES,
        going=pod.metadata.deletion_timestamp is not None,
        claims=bool(pod.spec.resource_claims),
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
    """All placeholders and copies that there are, and the nodes to which pods were sent."""

    def __init__(self) -> None:
        self._all: dict[str, Placeholder] = {}
        """All placeholders, by name."""
        self._by: dict[WorkloadKey, dict[str, Placeholder]] = {}
        """All placeholders, by workload; a workload without any has no entry."""
        self._bound_s: dict[str, float] = {}
        """When each was seen bound for the first time, by name."""
        self._sent: dict[WorkloadKey, dict[str, str]] = {}
        """The node of each pod, by key, of workloads that have placeholders."""
        self._copies: dict[str, ClaimCopy] = {}
        """All copies of claim templates, by name."""
        self._copies_by: dict[WorkloadKey, dict[str, ClaimCopy]] = {}
        """All copies, by workload; a workload without any has no entry."""
        self._giving_way = GivingWay()
        self._too_many_s: dict[WorkloadKey, dict[str, float]] = {}
        """Since when too many with claims wait, by workload that waits and by pod set. ``_surplus`` writes it."""

    def tell(self, name: str, placeholder: Placeholder | None, now_s: float) -> list[WorkloadKey]:
        """Store a placeholder; None for one that is gone. Returns the workloads to decide on."""
        before = self._all.pop(name, None)
        if before is not None and placeholder is not None and before.uid == placeholder.uid and before.claims:
            placeholder = placeholder._replace(claims=True)
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

    def tell_claim(self, name: str, now_s: float) -> list[WorkloadKey]:
        """Note that there is a claim for the placeholder of this name, if it is one. Returns the workloads to decide
        on.
        """
        placeholder = self._all.get(name)
        if placeholder is None or placeholder.claims:
            return []
        return self.tell(name, placeholder._replace(claims=True), now_s)

    def tell_copy(self, name: str, copy: ClaimCopy | None) -> list[WorkloadKey]:
        """Store a copy; None for one that is gone. Returns the workloads to decide on."""
        before = self._copies.pop(name, None)
        if before is not None:
            self._copies_by[before.workload].pop(name)
            if not self._copies_by[before.workload]:
                del self._copies_by[before.workload]
        if copy is not None:
            self._copies[name] = copy
            self._copies_by.setdefault(copy.workload, {})[name] = copy
        return sorted({each.workload for each in (before, copy) if each is not None})

    def names(self) -> frozenset[str]:
        return frozenset(self._all)

    def has_copy(self, name: str) -> bool:
        return name in self._copies

    def workloads(self) -> frozenset[WorkloadKey]:
        """Those that have placeholders or copies."""
        return frozenset(self._by) | frozenset(self._copies_by)

    def has(self, workload: WorkloadKey) -> bool:
        return workload in self._by or workload in self._copies_by

    def tell_pod(self, key: str, workload: WorkloadKey, node: str, *, waits: bool = False) -> list[WorkloadKey]:
        """Note that a pod was sent to a node; empty for none. ``waits``: it has not got there yet. Returns the
        workloads to decide on.
        """
        concerned = {workload} if self._tell_sent(key, workload, node) else set()
        if self._giving_way.tell(key, node if waits else ""):
            concerned |= {each.workload for each in self._all.values() if each.node == node and each.claims}
        return sorted(concerned)

    def _tell_sent(self, key: str, workload: WorkloadKey, node: str) -> bool:
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
        self._giving_way.tell(key, "")
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
        waits = phase is Phase.WAITS
        copies = [each for each in self._copies_by.get(key, _NO_COPIES).values() if not waits or each.of != uid]
        mine = [each for each in every if each.of == uid and phase is not Phase.NOTHING]
        remove = [each for each in every if each not in mine]
        remove += [each for each in mine if each.over]
        mine = [each for each in mine if not each.over]
        in_the_way = [each for each in mine if each.claims and each.node and self._giving_way.is_awaited(each.node)]
        remove += in_the_way
        mine = [each for each in mine if each not in in_the_way]
        if workload is None or not waits:
            self._giving_way.forget(key)
            self._too_many_s.pop(key, None)
            if workload is not None and phase is Phase.STARTS:
                remove += _making_room(workload, mine, Counter(self._sent.get(key, {}).values()))
            return PlaceholderSteps(tuple(_still(remove)), tuple(copies))
        for each in in_the_way:
            self._giving_way.gave(key, each.node, now_s)
        claiming = tuple(sorted({each.pod_set for each in mine if each.claims and not each.node}))
        steps = PlaceholderSteps(tuple(_still(remove)), tuple(copies), claiming)
        if missing is None:
            return steps
        return self._awaiting(steps, workload, mine, missing, {each.name for each in every}, joining, now_s)

    def _awaiting(
        self,
        steps: PlaceholderSteps,
        workload: Workload,
        mine: Sequence[Placeholder],
        missing: Mapping[str, int],
        taken: Collection[str],
        joining: Callable[[str, str], bool],
        now_s: float,
    ) -> PlaceholderSteps:
        """``steps`` with as many placeholders of each pod set waiting as are missing."""
        remove: list[Placeholder] = []
        create: list[tuple[str, str]] = []
        unsettled = False
        uid = workload.metadata.uid
        for pod_set in workload.spec.pod_sets:
            own = [each for each in mine if each.pod_set == pod_set.name and not each.going]
            waiting = sorted(each for each in own if not each.node)
            fresh = sum(self._is_fresh(each, now_s) or joining(pod_set.name, each.node) for each in own if each.node)
            wanted = missing.get(pod_set.name, 0)
            surplus, late = self._surplus(WorkloadKey(workload.key), pod_set.name, waiting[wanted:], now_s)
            remove += surplus
            room = pod_set.count + MOST_BOUND_ELSEWHERE - len(own)
            names = _names(uid, pod_set.name, taken)
            create += [(next(names), pod_set.name) for _ in range(min(wanted - len(waiting) - fresh, room))]
            unsettled = unsettled or late or (fresh > 0 and len(waiting) < wanted)
        if create and self._giving_way.holds_back(WorkloadKey(workload.key), now_s):
            create, unsettled = [], True
        return steps._replace(remove=(*steps.remove, *_still(remove)), create=tuple(create), unsettled=unsettled)

    def _surplus(
        self, key: WorkloadKey, pod_set: str, waiting: Sequence[Placeholder], now_s: float
    ) -> tuple[list[Placeholder], bool]:
        """Those of a pod set's that are too many and go now, and whether others may go later."""
        if not any(each.claims for each in waiting):
            self._too_many_s.get(key, {}).pop(pod_set, None)
            return list(waiting), False
        since_s = self._too_many_s.setdefault(key, {}).setdefault(pod_set, now_s)
        if now_s >= since_s + DEVICES_FOUND_S:
            return list(waiting), False
        return [each for each in waiting if not each.claims], True

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
        copies: dict[WorkloadKey, dict[str, ClaimCopy]] = {}
        for name, copy in self._copies.items():
            copies.setdefault(copy.workload, {})[name] = copy
        if copies != self._copies_by:
            raise DriftError("copies of claim templates by workload differ from all copies")
        self._giving_way.validate()
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
