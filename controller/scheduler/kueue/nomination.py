"""Nomination: each head by itself, on the state before the cycle takes anything.

A head is refused outright (its checks, its queue, its namespace, its requests), or it gets an assignment of flavors
and, where it needs them, its victims. Victims for the full number of pods are preferred to fewer pods.

Source: Kueue's scheduler (nominate), and KEP-420 for fewer pods. Nomination charges nothing: every trial in it is
undone, so the order of the heads does not matter. It costs one assignment (20 to 60 us) and, where that needs them, one
search for victims; with fewer pods as many of both as halving their number takes.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from controller.objects.core import Namespace
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.status import closed_preemption_gates
from controller.scheduler.flavors.assigner import FlavorAssigner, Pinned
from controller.scheduler.flavors.assignment import Assignment, Bookmark, Mode
from controller.scheduler.flavors.partialadmission import may_reduce, reduce_counts
from controller.scheduler.flavors.topologystep import with_topologies
from controller.scheduler.kueue.sisters import Beside, Nobody
from controller.scheduler.model.devicerequest import device_problems
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
)
from controller.scheduler.model.workload import is_growth, limit_range_problems, resource_problems
from controller.scheduler.preemption.neededcapacity import needed_capacity
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.reservations.charges import ReservationCharges
from controller.scheduler.topology.port import PlacementNoFit

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
_NO_LIMITS = LimitSummary()
NOBODY: Final = Nobody()
_REMEMBERED = 10_000


class Nominator:
    """Nominates heads one by one; its only state is a memory of requests that it has checked.

    ``_sound`` saves 4 of 39 us of a decision. It is valid while ``_sound_at`` is the sum of the cluster's
    ``generation`` and ``scope``: both only grow, so an equal sum means that neither has changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        preemptor: Preemption,
        is_open: Callable[[ClusterQueueName], bool] = lambda _: True,
        beside: Beside = NOBODY,
    ) -> None:
        """``is_open``: whether a ClusterQueue is active. ``beside``: what workloads need beside them."""
        self._cluster = cluster
        self._is_open = is_open
        self.beside = beside
        self._assigner = assigner
        self._preemptor = preemptor
        gates = cluster.config.gates
        self._sound: dict[tuple[LocalQueueKey, str], QueueState] = {}
        """The ClusterQueue for which a shape was found valid, by the LocalQueue that it came with and the shape."""
        self._sound_at = -1
        self._gated = gates.on("MultiKueueOrchestratedPreemption")
        self.cycle: int | None = None
        """The number of the cycle, by which bookmarks age; the engine counts cycles here."""

    def nominate(self, entry: Entry, now_s: float) -> bool:
        """Nominate the entry. Returns whether it goes on to be decided; if not, its rule says why."""
        pending = entry.pending
        if pending is None:
            return self._may_place(entry)
        refused = self.refusal(pending, entry.incoming.queue)
        if refused is not None:
            entry.decide(*refused)
            return False
        entry.assignment, entry.targets = self._assign(entry.incoming, pending.bookmark, now_s)
        pending.bookmark = entry.assignment.bookmark
        entry.short_of_quota = entry.assignment.by_quota and self._short(entry, now_s)
        if not entry.targets and (why := self._preemptor.waits(entry.incoming, now_s)):
            entry.detail = why
        if entry.targets and self._gated and (closed := closed_preemption_gates(pending.info.workload)):
            entry.targets = ()
            entry.gated = True
            entry.detail = ", ".join(closed)
        return True

    def _may_place(self, entry: Entry) -> bool:
        """Whether the entry's ClusterQueue is active. A second pass in an inactive one fails and evicts nothing: what
        runs there stays.
        """
        queue = entry.incoming.queue.name
        if self._is_open(queue):
            return True
        entry.decide(Rule.NOT_PLACED, f"ClusterQueue {queue} is not active")
        return False

    def _short(self, entry: Entry, now_s: float) -> bool:
        """Whether only quota refused the entry: places played no part in finding no victims, nor in refusing fewer
        pods.
        """
        incoming, assignment = entry.incoming, entry.assignment
        if entry.targets or incoming.replaces is not None or may_reduce(incoming.info, self._cluster.config.gates):
            return False
        if assignment.mode is Mode.NO_FIT or self._answered(assignment):
            return True
        return assignment.mode is Mode.NO_CANDIDATES and not self._preemptor.quota_gives(incoming, assignment, now_s)

    def refusal(self, pending: PendingWorkload, queue: QueueState) -> tuple[Rule, str] | None:
        """The rule that keeps the workload from being assigned, and what that found; None where none does."""
        workload = pending.info.workload
        checks = workload.status.admission_checks
        if checks and (failed := [f"{check.name} ({check.state})" for check in checks if check.state in _FAILED]):
            return Rule.CHECKS_FAILED, ", ".join(failed)
        if (before := self.beside.waits_for(workload)) is not None:
            return Rule.BELOW_MINIMUM, before
        claims = pending.info.claims
        if claims is not None and claims.problem:
            return Rule.UNCOUNTED_CLAIMS, claims.problem
        at = self._cluster.generation + self._cluster.scope
        if at != self._sound_at or len(self._sound) > _REMEMBERED:
            self._sound.clear()
            self._sound_at = at
        if self._sound.get((pending.local_queue, pending.shape)) is queue:
            return None
        name = workload.metadata.namespace
        namespace, limits = self._cluster.namespaces.get(name), self._cluster.limits.get(name, _NO_LIMITS)
        if not _takes(queue, name, namespace):
            return Rule.NAMESPACE_MISMATCH, name or "(none)"
        problems = resource_problems(workload) or device_problems(workload) or limit_range_problems(workload, limits)
        if problems:
            return Rule.BAD_REQUESTS, str(problems[0])
        self._sound[pending.local_queue, pending.shape] = queue
        return None

    def fits_now(self, entry: Entry) -> bool:
        """Whether the entry fits on the present state without victims. It gets the assignment."""
        if entry.pending is None or self.refusal(entry.pending, entry.incoming.queue) is not None:
            return False
        entry.assignment = self._assigner.assign(entry.incoming, cycle=self.cycle)
        return entry.assignment.mode is Mode.FIT

    def again(self, incoming: Incoming, flavors: Pinned, now_s: float) -> tuple[Assignment, tuple[Target, ...]]:
        """Assign as at nomination, fewer pods included, on the present state and with these flavors only."""
        return self._assign(incoming, None, now_s, flavors)

    def _aimed(self, incoming: Incoming, assignment: Assignment, now_s: float) -> tuple[Assignment, tuple[Target, ...]]:
        """The assignment with the places that its victims leave to its pods, and the victims; no victims where none
        help.
        """
        if assignment.mode is Mode.FIT or assignment.mode is Mode.NO_FIT or self._answered(assignment):
            return assignment, ()
        targets = self._preemptor.targets(incoming, assignment, now_s)
        if not targets or all(pod_set.topology is None for pod_set in assignment.pod_sets):
            return assignment, targets
        with self._cluster.trial():
            for target in targets:
                self._cluster.release(target.holder)
            placed = self._cluster.placement.place(
                needed_capacity(self._cluster, incoming, assignment).places, on_empty=False
            )
        if isinstance(placed, PlacementNoFit):
            return assignment, targets
        sets = tuple(with_topologies(assignment.pod_sets, placed.topologies))
        return msgspec.structs.replace(assignment, pod_sets=sets), targets

    def _assign(
        self, incoming: Incoming, bookmark: Bookmark | None, now_s: float, flavors: Pinned | None = None
    ) -> tuple[Assignment, tuple[Target, ...]]:
        made = self._assigner.assign(incoming, bookmark=bookmark, allowed=flavors, cycle=self.cycle)
        if made.mode is Mode.FIT:
            return made, ()
        full = self._aimed(incoming, made, now_s)
        if full[1] or (incoming.replaces is not None and not is_growth(incoming.info.workload)):
            return full
        if not may_reduce(incoming.info, self._cluster.config.gates):
            return full

        least = full[0]

        def fewer(counts: Mapping[str, int]) -> tuple[Assignment, tuple[Target, ...]] | None:
            nonlocal least
            made = self._assigner.assign(incoming, bookmark=bookmark, counts=counts, allowed=flavors, cycle=self.cycle)
            found = self._aimed(incoming, made, now_s)
            least = found[0]  # where none fits, the least counts are the last ones tried
            return found if found[0].mode is Mode.FIT or found[1] else None

        told = self._cluster.config.extensions.fewest_pods_told
        return reduce_counts(incoming.info, fewer) or (_told_of(full[0], least, whole=told), ())

    def _answered(self, made: Assignment) -> bool:
        """Whether the oracle was asked exactly what a search for victims would ask, and found no candidates.

        It was not where two flavor-resources are contested, because a ClusterQueue is a candidate while it borrows
        either of them; nor where several pod sets request one, of which only the last was asked about in full; nor,
        with fair sharing, where others are requested beside it, because those count in the preemptor's share.
        """
        if made.mode is not Mode.NO_CANDIDATES:
            return False
        contested: FlavorResource | None = None
        for pod_set in made.pod_sets:
            for resource, choice in pod_set.choices.items():
                if choice.mode is Mode.FIT:
                    continue
                fr = FlavorResource(choice.flavor, resource)
                if choice.mode is not Mode.NO_CANDIDATES or (contested is not None and contested != fr):
                    return False
                contested = fr
        return contested is not None and (self._cluster.config.fair_sharing is None or len(made.usage) == 1)


def _told_of(full: Assignment, least: Assignment, *, whole: bool) -> Assignment:
    """The assignment of all pods, which tells what the fewest of them lack: with these the workload would start. Where
    these wait for another reason it is as it was, since Kueue gives the reason of all pods; ``whole``: it gives theirs.
    """
    if len(full.pod_sets) != len(least.pod_sets) or (full.no_fit_reason is not least.no_fit_reason and not whole):
        return full
    replace = msgspec.structs.replace
    sets = tuple(
        replace(each, attempts=other.attempts) for each, other in zip(full.pod_sets, least.pod_sets, strict=True)
    )
    fewest = sum(each.count for each in least.pod_sets) if whole else 0
    return replace(full, pod_sets=sets, no_fit_reason=least.no_fit_reason, fewest=fewest)


def nominate_beside_reservations(
    entry: Entry, nominator: Nominator, charges: ReservationCharges, cluster: Cluster, now_s: float
) -> bool:
    """``Nominator.nominate`` with reservations: what is reserved for the entry is free to it, what is reserved for
    others is not.

    Reservations of other ClusterQueues do not hold against an entry that needs no more than its own queue's quota: one
    that does not fit beside them is nominated a second time without them, and the result counts if it is such an entry.
    Reservations of others take nothing from the queue's own quota: where that is too little for the entry, there is no
    second time.
    """
    bookmark = entry.pending.bookmark if entry.pending is not None else None
    own, others = charges.own(entry), charges.of_other_queues(entry)
    with cluster.trial():
        charges.lift(*own)
        goes_on = nominator.nominate(entry, now_s)
        if not goes_on or not others or entry.pending is None or entry.assignment.mode is Mode.FIT:
            return goes_on
        if not _could_stay_within_own_quota(entry.incoming, cluster):
            return True
    bookmark, entry.pending.bookmark = entry.pending.bookmark, bookmark
    nominated = (entry.assignment, entry.targets, entry.short_of_quota, entry.gated, entry.detail)
    with cluster.trial():
        charges.lift(*own)
        charges.lift_quota(*others)
        nominator.nominate(entry, now_s)
    entry.ignores_reservations = _within_own_quota(entry.assignment)
    if not entry.ignores_reservations:
        entry.assignment, entry.targets, entry.short_of_quota, entry.gated, entry.detail = nominated
        entry.pending.bookmark = bookmark
    return True


def _could_stay_within_own_quota(incoming: Incoming, cluster: Cluster) -> bool:
    """False only where the ClusterQueue's own quota, summed over all flavors, is too little of some resource."""
    if incoming.replaces is not None or may_reduce(incoming.info, cluster.config.gates):
        return True
    free: dict[ResourceName, Amount] = {}
    cells = incoming.queue.node.cells
    for fr in incoming.queue.flavor_resources:
        cell = cells[fr]
        free[fr.resource] = free.get(fr.resource, 0) + max(0, cell.subtree_quota - cell.usage)
    asked: dict[ResourceName, Amount] = {}
    for pod_set in incoming.info.pod_sets:
        for name, amount in pod_set.requests.items():
            asked[name] = asked.get(name, 0) + amount
    return all(amount <= free[name] for name, amount in asked.items() if name in free)


def _within_own_quota(assignment: Assignment) -> bool:
    return assignment.mode is Mode.FIT and assignment.borrowing == 0


def _takes(queue: QueueState, name: str, namespace: Namespace | None) -> bool:
    """Whether the queue takes workloads of the namespace. An absent selector takes none. A namespace that was not seen
    yet has the one label that every namespace has.
    """
    selector = queue.object.spec.namespace_selector
    if selector is None:
        return False
    return selector.matches(namespace.metadata.labels if namespace is not None else {NAMESPACE_NAME_LABEL: name})


_FAILED = ("Retry", "Rejected")
