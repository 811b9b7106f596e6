"""One workload on its way through a cycle."""

from collections.abc import Mapping

import msgspec

from controller.engine.cluster.incoming import Incoming, Target
from controller.engine.conditions.records import DecisionRecord, Rule
from controller.engine.conditions.status import waits_for_victims
from controller.engine.flavors.assignment import Assignment, Mode
from controller.engine.model.resources import WorkloadKey
from controller.engine.model.workload import TopologyUsage
from controller.engine.queues.pending import PendingWorkload, RequeueReason
from controller.engine.quota.queuestate import Holder

NOTHING = Assignment(pod_sets=(), mode=Mode.NO_FIT, usage={})

# What is not here parks alone until something changes.
_REQUEUE = {
    Rule.NO_FIT: RequeueReason.NO_FIT,
    Rule.NO_CANDIDATES: RequeueReason.NO_FIT,
    Rule.HELD_BACK: RequeueReason.HELD_BACK,
    Rule.NAMESPACE_MISMATCH: RequeueReason.NAMESPACE_MISMATCH,
    Rule.PREEMPTS: RequeueReason.PENDING_PREEMPTION,
    Rule.FITS_AFTER_PREEMPTION: RequeueReason.PENDING_PREEMPTION,
    # As for a preemptor: who makes way for it must not come back first.
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
    """Mutable while the cycle lasts. ``pending`` is None for a second pass, ``holder`` for everybody else."""

    incoming: Incoming
    pending: PendingWorkload | None = None
    holder: Holder | None = None
    assignment: Assignment = NOTHING
    targets: tuple[Target, ...] = ()
    places: Mapping[str, TopologyUsage] = {}
    """Of a second pass: where its pod sets go."""
    moved: Mapping[str, TopologyUsage] = {}
    """Of a second pass: what of ``places`` it does not hold yet."""
    ignores_claims: bool = False
    """It needs no more than its own queue's quota: no claim of another ClusterQueue holds against it."""
    charged: bool = False
    """It was admitted, and its usage is charged already."""
    rule: Rule = Rule.NO_FIT
    detail: str = ""
    short_of_quota: bool = False
    """Quota alone keeps it out, wherever its pods could be: nobody could be made to go for any number of them."""
    gated: bool = False
    """Others would have to go for it, and its preemption gates forbid that."""

    @property
    def key(self) -> WorkloadKey:
        return self.incoming.key

    @property
    def second_pass(self) -> bool:
        return self.holder is not None

    @property
    def preemptor(self) -> bool:
        """Others were told to go for it in an earlier cycle: what was decided here, or what its conditions say."""
        pending = self.pending
        return pending is not None and (pending.sticky or waits_for_victims(pending.info.workload))

    @property
    def requeue(self) -> RequeueReason:
        reason = _REQUEUE.get(self.rule, RequeueReason.GENERIC)
        if reason is RequeueReason.NO_FIT and self.short_of_quota:
            return RequeueReason.NO_QUOTA
        return reason

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
