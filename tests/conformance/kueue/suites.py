"""The suites in force, each registered by a ``runners_*.py`` module that is imported here. The list grows until every
suite of the corpus is in it.
"""

import importlib

RUNNER_MODULES: tuple[str, ...] = ("runners_queues", "runners_quota", "runners_workload")

IN_FORCE: tuple[str, ...] = (
    "cache-TestAvailable",
    "cache-TestIsBorrowingOn",
    "cache-TestDominantResourceShare",
    "cache-TestClusterQueueUsage",
    "queue-TestFsAdmission",
    "workload-TestNewInfo",
    "workload-TestAdjustResources",
    "workload-TestValidateResources",
    "workload-TestValidateLimitRange",
    "workload-TestResourceUsage",
    "workload-TestGetQueueOrderTimestamp",
    "tas-TestV1Beta2FromInternal",
)


def load_runners() -> None:
    for module in RUNNER_MODULES:
        importlib.import_module(f"tests.conformance.kueue.{module}")
