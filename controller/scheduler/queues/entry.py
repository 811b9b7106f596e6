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

    An entry is mutable while the cycle lasts, and only the cycle writes it: nomination says what was found, the
    decision sets ``rule`` and ``detail`` and may replace or take back ``targets``. After the decision others read it
    and write nothing.
    """

    incoming: Incoming
    pending: PendingWorkload | None = None
    holder: Holder | None = None
    assignment: Assignment = NOTHING
    targets: tuple[Target, ...] = ()
    places: Mapping[str, TopologyUsage] = {}
    """Assignments by pod set name; only for a second pass."""
    moved: Mapping[str, TopologyUsage] = {}
    """The part of ``places`` that the workload does not hold yet; only for a second pass."""
    ignores_reservations: bool = False
    """Whether the workload needs no more than its own queue's quota: no reservation of another ClusterQueue holds
    against it.
    """
    charged: bool = False
    """Whether the workload was admitted and its usage charged for good: the end of the cycle's trial does not
    undo it.
    """
    rule: Rule = Rule.NO_FIT
    detail: str = ""
    short_of_quota: bool = False
    """Whether quota alone keeps the workload out, wherever its pods could be: no victims were found for any number of
    them.
    """
    gated: bool = False
    """Whether the workload would need victims and its preemption gates forbid any."""
    recalled: bool = False
    """Whether the nomination is what an earlier cycle found and still stands: nothing was searched for."""
    checked_at: int | None = None
    """The value of ``Reservations.scarcity`` when the workload was found to fit beside all reservations, once its
    victims have left; None if never.
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
