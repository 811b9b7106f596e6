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


JOB_RULES: tuple[Rule, ...] = (
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
