"""Why a workload was decided on as it was, kept as numbers: the sentence is made when it is read.

A record only refers to objects that the decision had at hand, so making one costs an allocation. One is kept for each
workload that waits: ``gc=False`` saves 16 bytes of each and the collector's walk over 100,000.
``controller.scheduler.decisions.sentences`` puts it into words.
"""

from enum import StrEnum

import msgspec

from controller.scheduler.cluster.incoming import Target
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.flavors.assignment import Assignment, Mode, QuotaNoFit
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, WorkloadKey


class Rule(StrEnum):
    """What decided. The first group reserves quota, the second tries again soon, the third waits for a change."""

    FITS = "fits"
    PLACED = "its pods got their places"
    PREEMPTS = "preempts other workloads"
    MIGRATES = "moves to a better flavor"
    FITS_AFTER_PREEMPTION = "fits once the victims of another have stopped"

    OVERLAPPING_TARGETS = "another preempts the same victims"
    NO_LONGER_FITS = "another workload took the capacity"
    PODS_NOT_READY = "admitted workloads are not ready yet"
    SLICE_GONE = "the slice it replaces is being evicted"
    BETTER_VARIANT_ADMITTED = "a better variant runs"
    VARIANT_NOT_ACCEPTABLE = "the flavor is worse than the last acceptable one"
    NOT_PLACED = "no place for its pods yet"
    NODE_LOST = "a node is lost and no other takes its pods"
    WRITE_FAILED = "the API server did not take it"
    HELD_BACK = "it would delay the head of a queue"

    NO_FIT = "no flavor fits"
    OVER_SHARE = "its queue may have no more now"
    NEVER = "its queue can never have so much"
    NO_CANDIDATES = "no workload may be preempted"
    PREEMPTION_GATED = "its preemption gates are closed"
    FREES_NODE = "it leaves a node that is to be free"
    BELOW_MINIMUM = "the minimum of its gang holds no quota"
    SISTERS = "it fits, and pods that start with it do not"
    CHECKS_FAILED = "an admission check rejected it"
    QUEUE_INACTIVE = "the ClusterQueue is not active"
    QUEUE_MISSING = "there is no such ClusterQueue"
    NAMESPACE_MISMATCH = "the ClusterQueue does not take this namespace"
    BAD_REQUESTS = "its requests are not valid"
    UNCOUNTED_CLAIMS = "its claims of devices cannot be counted"


_CODES: dict[Rule, PendingReason] = {
    Rule.PREEMPTS: PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
    Rule.MIGRATES: PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
    Rule.FITS_AFTER_PREEMPTION: PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
    Rule.PODS_NOT_READY: PendingReason.WAITING_FOR_PODS_READY,
    Rule.BETTER_VARIANT_ADMITTED: PendingReason.PENDING_EVALUATION,
    Rule.VARIANT_NOT_ACCEPTABLE: PendingReason.PENDING_EVALUATION,
    Rule.CHECKS_FAILED: PendingReason.PENDING_EVALUATION,
    Rule.PREEMPTION_GATED: PendingReason.ADMISSION_GATED,
    Rule.WRITE_FAILED: PendingReason.PENDING_EVALUATION,
    Rule.NEVER: PendingReason.EXCEEDS_MAX_QUOTA,
    Rule.QUEUE_INACTIVE: PendingReason.SUSPENDED,
    Rule.QUEUE_MISSING: PendingReason.MISCONFIGURED,
    Rule.NAMESPACE_MISMATCH: PendingReason.MISCONFIGURED,
    Rule.BAD_REQUESTS: PendingReason.MISCONFIGURED,
    Rule.UNCOUNTED_CLAIMS: PendingReason.MISCONFIGURED,
}


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One decision about one workload."""

    at_s: float
    workload: WorkloadKey
    cluster_queue: ClusterQueueName
    rule: Rule
    assignment: Assignment | None = None
    """What was asked, and how each flavor tried fitted; None where the decision came before that."""
    targets: tuple[Target, ...] = ()
    awaited: tuple[Target, ...] = ()
    """Victims whose checkpoints are waited for, with their prices; looked up for an explanation."""
    spared: tuple[Target, ...] = ()
    """Candidates that the search looked at and that stay, with their prices; looked up for an explanation."""
    detail: str = ""
    """What the rule found, where no numbers say it: a name, a path, a state."""
    taken: "TakenNodes | None" = None
    """The holders of nodes that are too full; looked up when the record is about to be read."""

    @property
    def reason(self) -> PendingReason:
        """The reason code of a workload that stays without quota by this rule."""
        code = _CODES.get(self.rule)
        if code is not None:
            return code
        found = self.assignment.no_fit_reason.name if self.assignment is not None else "NONE"
        return PendingReason.WAITING_FOR_QUOTA if found == "NONE" else PendingReason(found)

    def beside(self, awaited: tuple[Target, ...], spared: tuple[Target, ...]) -> "DecisionRecord":
        """The record with the victims that are waited for, and the candidates that stay."""
        return msgspec.structs.replace(self, awaited=awaited, spared=spared) if awaited or spared else self

    def missing(self) -> "FlavorNoFit | None":
        """The smallest change of quota that would admit the workload: the flavor with the smallest missing part of the
        request. None if no flavor lacks quota.
        """
        best: FlavorNoFit | None = None
        for pod_set in self.assignment.pod_sets if self.assignment is not None else ():
            for attempt in pod_set.attempts:
                if attempt.mode is Mode.FIT or attempt.problem or not attempt.shortfalls:
                    continue
                found = FlavorNoFit(pod_set.name, attempt.flavor, attempt.shortfalls)
                if best is None or found.part < best.part:
                    best = found
        return best


class TakenNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of nodes that are open to the pods and on which not one of them fits."""

    by: tuple[tuple[str, int], ...] = ()
    """Number of nodes by holder, the one with most nodes first. A holder is a workload's key, or a name for the
    workloads of a ClusterQueue. A node that several holders share counts for each.
    """
    outside: int = 0
    """The number of nodes that are filled by pods of no queue."""
    unfit: tuple[tuple[str, int], ...] = ()
    """Nodes that take no such pod even when empty, by a clause that follows their number."""


class FlavorNoFit(msgspec.Struct, frozen=True):
    """The quota that ``flavor`` lacks for ``pod_set``."""

    pod_set: str
    flavor: FlavorName
    shortfalls: tuple[QuotaNoFit, ...]

    @property
    def part(self) -> tuple[bool, float]:
        """Whether no waiting can help, and the largest missing part of a requested amount (0 to 1)."""
        beyond = any(shortfall.needed > shortfall.potential for shortfall in self.shortfalls)
        return beyond, max(
            (shortfall.needed - shortfall.available) / max(shortfall.needed, 1) for shortfall in self.shortfalls
        )
