"""The suites of job kinds: what is out of scope, what has a runner, and what is not replayed yet."""

import importlib
from typing import Final

from tests.conformance.replay import JOBS, RUNNERS, Case

RUNNER_MODULES: tuple[str, ...] = (
    "runners_core",
    "runners_defaults",
    "runners_failures",
    "runners_jobframework",
    "runners_kinds",
    "runners_pods",
    "runners_podsets",
    "runners_podstarts",
    "runners_provisioning",
    "runners_ray",
    "runners_queues",
    "runners_reconcile",
    "runners_serving",
    "runners_servinggroups",
    "runners_slices",
    "runners_small",
    "runners_tas",
    "runners_validation",
    "runners_webhooks",
    "runners_withheld",
    "runners_workload",
)

SCOPE: Final = (
    "multikueue",
    "RemoteObject",
    "workloaddispatcher",
    "concurrentadmission",
)
"""Parts of suites' names, in any case: what Tessera does not do (yet). MultiKueue's own are the first two and the
dispatcher's: a remote object is one on a worker cluster.
"""

NOT_YET: tuple[str, ...] = ()
"""Suites that are in scope and not replayed: what they are about is missing, or not all of their cases pass."""


def is_out_of_scope(case: Case) -> bool:
    return _out_of_scope(case.suite)


def _out_of_scope(suite: str) -> bool:
    return any(part.lower() in suite.lower() for part in SCOPE)


def is_missing(case: Case) -> bool:
    """In scope, and not replayed: listed above, or a suite that nothing here has a runner for."""
    return not _out_of_scope(case.suite) and not in_force(case)


def in_force(case: Case) -> bool:
    known = case.corpus == JOBS and case.suite in RUNNERS
    return known and case.suite not in NOT_YET and not _out_of_scope(case.suite)


def load_runners() -> None:
    for module in RUNNER_MODULES:
        importlib.import_module(f"tests.conformance.kueuejobs.{module}")
