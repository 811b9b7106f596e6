"""Where what all kinds of jobs share differs from Kueue on purpose, see ``differences``."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.replay import Rule


def _lookups_of_classes(given: Mapping[str, Any]) -> bool:
    """A class that cannot be read, or that pods name and that is not there."""
    named = any((one["template"].get("spec") or {}).get("priorityClassName") for one in given.get("podSets") or ())
    return ("podSets" in given and named) or "get" in (given.get("interceptors") or {})


def _variants(given: Mapping[str, Any]) -> bool:
    return bool(given.get("flavor") or given.get("flavor1"))


def _job_decides_on_activation(given: Mapping[str, Any]) -> bool:
    return "jobActive" in given


def _failing_lists(given: Mapping[str, Any]) -> bool:
    """A list of a job's Workloads, of which an API knows none: whether it fails does not stand in the input."""
    args = given.get("args") or {}
    return "jobObjectGVK" in args and "jobPodSets" not in args and not (args.get("clnt") or {}).get("clientObjects")


JOB_RULES: tuple[Rule, ...] = (
    Rule("Workloads are known by a watch, and there is no list of them that could fail", _failing_lists),
    Rule(
        "classes are known by a watch: one that it does not show is missing, and told in an Event, also where the pods "
        "name it",
        _lookups_of_classes,
    ),
    Rule("a Workload has no variants: concurrent admission is not there", _variants),
    Rule(
        "spec.active is the user's and the controller's: no job sets it; a job that must not start is on hold",
        _job_decides_on_activation,
    ),
)
