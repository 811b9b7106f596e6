"""Condition types, reasons and event names that users of Kueue know. The words are the API's; the descriptions are
ours.
"""

from enum import StrEnum
from typing import Final

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
FINISHED: Final = "Finished"
REQUEUED: Final = "Requeued"
PODS_READY: Final = "PodsReady"
WAITING_FOR_PODS: Final = "WaitingForReplacementPods"
BLOCKED_ON_PREEMPTION_GATES: Final = "BlockedOnPreemptionGates"
DEACTIVATION_TARGET: Final = "DeactivationTarget"

PODS_FAILED: Final = "PodsFailed"
"""Reason of WaitingForReplacementPods: pods of a group that was admitted are missing."""
WORKLOAD_SLICE_REPLACED: Final = "WorkloadSliceReplaced"
ALL_PODS_DELETED: Final = "all pods were deleted"
"""The end of the message of Finished with reason Failed, where users deleted a group's pods."""
OWNER_NOT_FOUND: Final = "OwnerNotFound"
"""Reason of Finished: the workload's job or pods were deleted."""
FLAVOR_MIGRATION: Final = "FlavorMigration"
NODE_FAILURES: Final = "NodeFailures"
NODE_INTERRUPTED: Final = "NodeInterrupted"
"""Reason of Evicted: the provider, or an autoscaler, takes nodes away on which the workload has pods."""
NODES_DID_NOT_COME: Final = "NodesDidNotCome"
"""Reason of Evicted: the workload held quota, and the nodes that it waited for did not come in time."""
BELOW_MINIMUM: Final = "BelowMinimum"
"""Reason of Evicted: a pod above the minimum of a gang, whose minimum holds no quota any more."""
STALE_GANG: Final = "StaleGang"
"""Reason of Evicted: a foreign gang that has run below its minimum for longer than allowed."""
QUOTA_TAKEN: Final = "QuotaTaken"
"""Reason of Evicted: an admission that an earlier leader wrote came when its quota had gone to others."""
GANG_NOT_SCHEDULED: Final = "GangNotScheduled"
"""Reason of Evicted: kube-scheduler has started none of the workload's gang for too long."""
POD_GROUP_NOT_MADE: Final = "PodGroupNotMade"
"""Reason of GangScheduled=False: the API server refuses the PodGroup with which the gang would start."""
PREEMPTED_BY_SCHEDULER: Final = "PreemptedByScheduler"
"""Reason of Evicted: kube-scheduler has preempted the workload's gang."""
PREEMPTION_GATED: Final = "PreemptionGated"
INADMISSIBLE: Final = "Inadmissible"
"""Reason of Requeued=False: the workload's ResourceClaims cannot be counted."""


class PendingReason(StrEnum):
    """Reasons of QuotaReserved=False: why a workload holds no quota."""

    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"

    @property
    def coarse(self) -> str:
        """The reason that is written while the gate UnadmittedWorkloadsObservability is off."""
        if self in _INADMISSIBLE:
            return "Inadmissible"
        if self in (PendingReason.ADMISSION_GATED, PendingReason.ON_HOLD):
            return self.value
        return "Waiting" if self is PendingReason.WAITING_FOR_PODS_READY else "Pending"


_INADMISSIBLE: Final = frozenset({PendingReason.MISCONFIGURED, PendingReason.SUSPENDED, PendingReason.DEACTIVATED})


class NotAdmittedReason(StrEnum):
    """Reasons of Admitted=False."""

    NO_RESERVATION = "NoReservation"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"
    PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests"


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"
