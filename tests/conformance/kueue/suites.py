"""The suites in force, each registered by a ``runners_*.py`` module that is imported here. The list grows until every
suite of the corpus is in it.
"""

import importlib

from tests.conformance.replay import Case

RUNNER_MODULES: tuple[str, ...] = (
    "runners_cycle",
    "runners_flavors",
    "runners_preemption",
    "runners_queues",
    "runners_quota",
    "runners_topology",
    "runners_workload",
)

IN_FORCE: tuple[str, ...] = (
    "cache-TestAvailable",
    "cache-TestIsBorrowingOn",
    "cache-TestDominantResourceShare",
    "cache-TestClusterQueueUsage",
    "cache-TestFindTopologyAssignments",
    "cache-TestFindTopologyAssignmentsMultiLayerReplacement",
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
    "scheduler-TestScheduleForTAS",
    "scheduler-TestScheduleForTASCohorts",
    "scheduler-TestScheduleForTASPreemption",
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


def in_force(case: Case) -> bool:
    return case.suite in IN_FORCE


def load_runners() -> None:
    for module in RUNNER_MODULES:
        importlib.import_module(f"tests.conformance.kueue.{module}")
