"""The suites in force, each registered by a ``runners_*.py`` module that is imported here. The list grows until every
suite of the corpus is in it.
"""

import importlib

from tests.conformance.kueue.harness import Case

RUNNER_MODULES: tuple[str, ...] = (
    "runners_cycle",
    "runners_flavors",
    "runners_preemption",
    "runners_queues",
    "runners_quota",
    "runners_workload",
)

IN_FORCE: tuple[str, ...] = (
    "cache-TestAvailable",
    "cache-TestIsBorrowingOn",
    "cache-TestDominantResourceShare",
    "cache-TestClusterQueueUsage",
    "flavorassigner-TestAssignFlavors",
    "flavorassigner-TestAssignFlavorsWithAllowedFlavors",
    "flavorassigner-TestAssignFlavors_LeaderWorkerSetTASFlavor",
    "flavorassigner-TestDeletedFlavors",
    "flavorassigner-TestHierarchical",
    "flavorassigner-TestIsNoFitDueToCapacityAndLimits",
    "flavorassigner-TestReclaimBeforePriorityPreemption",
    "queue-TestFsAdmission",
    "preemption-TestPreemption",
    "preemption-TestHierarchicalPreemptions",
    "preemption-TestFairPreemptions",
    "scheduler-TestLastSchedulingContext",
    "scheduler-TestSchedule",
    "scheduler-TestScheduleConcurrentAdmission",
    "scheduler-TestScheduleForAFS",
    "scheduler-TestScheduleForFairSharing",
    "scheduler-TestScheduleForPreserveFlavorScanProgress",
    "scheduler-TestScheduleRecomputePreemptionTargets",
    "scheduler-TestSecondPassDoesNotRepushEntryPenalty",
    "scheduler-TestSecondPassSkipsWaitForPodsReadyBlock",
    "workload-TestNewInfo",
    "workload-TestAdjustResources",
    "workload-TestValidateResources",
    "workload-TestValidateLimitRange",
    "workload-TestResourceUsage",
    "workload-TestGetQueueOrderTimestamp",
    "tas-TestV1Beta2FromInternal",
)

# Suites that place no pods: their cases count whether or not they speak of topology.
PLACING_NOTHING: tuple[str, ...] = ("workload-TestNewInfo", "tas-TestV1Beta2FromInternal")


def topology_later(case: Case) -> bool:
    """Whether the case waits for pods to be placed for real: passing it without that would prove nothing."""
    return case.suite not in PLACING_NOTHING and any(tag.startswith("TAS") for tag in case.tags)


def in_force(case: Case) -> bool:
    return case.suite in IN_FORCE and not topology_later(case)


def load_runners() -> None:
    for module in RUNNER_MODULES:
        importlib.import_module(f"tests.conformance.kueue.{module}")
