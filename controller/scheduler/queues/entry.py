"""One workload on its way through a cycle."""

from collections.abc import Mapping

import msgspec

from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.status import waits_for_victims
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.queues.pending import PendingWorkload, RequeueReason
from controller.scheduler.quota.queuestate import Holder

NOTHING = Assignment(pod_sets=(), mode=Mode.NO_FIT, usage={})

# Every other rule parks the workload by itself until something changes.
_REQUEUE = {
    Rule.NO_FIT: RequeueReason.NO_FIT,
    Rule.NO_CANDIDATES: RequeueReason.NO_FIT,
    Rule.HELD_BACK: RequeueReason.HELD_BACK,
    Rule.SISTERS: RequeueReason.SISTERS,
    Rule.NAMESPACE_MISMATCH: RequeueReason.NAMESPACE_MISMATCH,
    Rule.PREEMPTS: RequeueReason.PENDING_PREEMPTION,
    Rule.FITS_AFTER_PREEMPTION: RequeueReason.PENDING_PREEMPTION,
    # A migration is requeued like a preemption: the variant that it evicts must not be tried before it.
    Rule.MIGRATES: RequeueReason.PENDING_PREEMPTION,
    Rule.OVERLAPPING_TARGETS: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.NO_LONGER_FITS: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.PODS_NOT_READY: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.SLICE_GONE: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.BETTER_VARIANT_ADMITTED: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.VARIANT_NOT_ACCEPTABLE: RequeueReason.FAILED_AFTER_NOMINATION,
    Rule.WRITE_FAILED: RequeueReason.FAILED_AFTER_NOMINATION,
}


class Entry(msgspec.Struct, eq=False, gc=False):
    """A workload in a cycle. ``pending`` is None for a second pass, ``holder`` is None for all others.

    An entry is mutable while the turn that decides on it lasts, and only that turn writes it. In Kueue's order these
    are two steps: nomination (``Nominator``, ``nominate_beside_reservations``, or ``Reservations.recall`` in their
    place) says what was found, and ``Cycle`` decides: it sets ``rule`` and ``detail``, and may search anew.
    ``PackTurn``, ``GangTurn`` and ``FairnessSession`` decide in one step. After the decision others read the entry and
    write nothing.

    ``gc=False``: nothing that an entry holds refers to it, and it is made in 42 ns in place of 76.
    """

    incoming: Incoming
    pending: PendingWorkload | None = None
    holder: Holder | None = None
    assignment: Assignment = NOTHING
    """Flavors, places and what they are charged. Nomination writes it (``kueue.nomination``, ``Reservations.recall``),
    ``Cycle`` replaces it where what was taken meanwhile makes it search anew; ``PackTurn``, ``GangTurn`` and
    ``FairnessSession`` write it with their decision.
    """
    targets: tuple[Target, ...] = ()
    """The victims, chosen together with ``assignment`` by the same writers (nomination, ``Reservations.recall``,
    ``Cycle``, ``PackTurn``, ``GangTurn``, ``FairnessSession``); ``Cycle`` empties it where they may not be evicted now.
    """
    places: Mapping[str, TopologyUsage] = {}
    """Assignments by pod set name; only for a second pass. ``place_again`` writes it together with ``moved``."""
    moved: Mapping[str, TopologyUsage] = {}
    """The part of ``places`` that the workload does not hold yet; only for a second pass, from ``place_again``."""
    ignores_reservations: bool = False
    """Whether the workload needs no more than its own queue's quota: no reservation of another ClusterQueue holds
    against it. ``nominate_beside_reservations`` finds it, and ``Reservations.recall`` brings back what it found in an
    earlier cycle.
    """
    charged: bool = False
    """Whether the workload was admitted and its usage charged for good: the end of the cycle's trial does not
    undo it.
    """
    rule: Rule = Rule.NO_FIT
    """The decision. ``decide`` sets it together with ``detail``; NO_FIT until then."""
    detail: str = ""
    """What a message adds to ``rule``. ``Nominator`` notes the closed gates here before the decision (see ``gated``),
    and ``PackTurn.tell`` adds the moves that would help; else ``decide`` alone writes it.
    """
    short_of_quota: bool = False
    """Whether quota alone keeps the workload out, wherever its pods could be: no victims were found for any number of
    them. The module ``nomination`` finds it; ``Cycle`` clears it with every assignment of its own, which others'
    charges decided.
    """
    gated: bool = False
    """Whether the workload would need victims and its preemption gates forbid any: ``targets`` is empty and ``detail``
    names the gates. ``Nominator`` sets it; ``nominate_beside_reservations`` puts it back where its second try does not
    count.
    """
    recalled: bool = False
    """Whether the nomination is what an earlier cycle found and still stands: nothing was searched for."""
    checked_at: int | None = None
    """The value of ``Reservations.scarcity`` when the workload was found to fit beside all reservations, once its
    victims have left; None if never. ``Cycle`` sets it when it decides, ``Reservations.recall`` to that of the earlier
    cycle.
    """
    mirrored: bool = False
    """Whether another system's rules decide on the workload: it reserves nothing, and is tried again when its tree
    changes.
    """

    @property
    def key(self) -> WorkloadKey:
        return self.incoming.key

    @property
    def second_pass(self) -> bool:
        return self.holder is not None

    @property
    def preemptor(self) -> bool:
        """Whether victims were evicted for the workload in an earlier cycle, decided here or known from its
        conditions.
        """
        pending = self.pending
        return pending is not None and (pending.sticky or waits_for_victims(pending.info.workload))

    @property
    def requeue(self) -> RequeueReason:
        if self.mirrored:
            return RequeueReason.GENERIC
        reason = _REQUEUE.get(self.rule, RequeueReason.GENERIC)
        if self.assignment.bookmark.overtaken and reason in (RequeueReason.NO_FIT, RequeueReason.HELD_BACK):
            return RequeueReason.PARTLY_SEARCHED
        if reason is not RequeueReason.NO_FIT:
            return reason
        if self.assignment.by_sums:
            return RequeueReason.NO_SUMS
        return RequeueReason.NO_QUOTA if self.short_of_quota else reason

    def decide(self, rule: Rule, detail: str = "") -> None:
        self.rule = rule
        self.detail = detail

    def record(self, at_s: float) -> DecisionRecord:
        return DecisionRecord(
            at_s=at_s,
            workload=self.incoming.info.key,
            cluster_queue=self.incoming.queue.name,
            rule=self.rule,
            assignment=None if self.assignment is NOTHING else self.assignment,
            targets=self.targets,
            detail=self.detail,
        )
