"""Where what all kinds of jobs share differs from Kueue on purpose, see ``differences``."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.replay import Rule, at


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


def _slices(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of a job that asks for other pods now."""
    args = given.get("args") or {}
    listed = (args.get("clnt") or {}).get("clientObjects") or () if "jobPodSets" in args else ()
    return [raw for raw in listed if raw["kind"] == "Workload"]


def _has(workload: Mapping[str, Any], type_: str) -> bool:
    listed = (workload.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in listed)


def _evicted_slice_with_quota(given: Mapping[str, Any]) -> bool:
    return any(_has(slice_, "QuotaReserved") and _has(slice_, "Evicted") for slice_ in _slices(given))


def _more_slices_than_a_replacement_takes(given: Mapping[str, Any]) -> bool:
    return sum(not _has(slice_, "Finished") for slice_ in _slices(given)) > 2


JOB_RULES: tuple[Rule, ...] = (
    Rule(
        "pods still run by a slice that is being evicted: it keeps its quota until they are gone, and no other takes "
        "its place before",
        _evicted_slice_with_quota,
        at("error", True, False),
    ),
    Rule(
        "of more slices than a job needs the surplus is withdrawn; an error would leave the job as it is for good",
        _more_slices_than_a_replacement_takes,
        at("error", True, False),
    ),
    Rule(
        "Workloads are known by a watch, and there is no list of them that could fail",
        _failing_lists,
        at("error", True, False),
    ),
    Rule(
        "classes are known by a watch: one that it does not show is missing, and told in an Event, also where the pods "
        "name it",
        _lookups_of_classes,
        at(r"events\.length", 0, 1),
    ),
    Rule("a Workload has no variants: concurrent admission is not there", _variants, at("variant", found=None)),
    Rule(
        "spec.active is the user's and the controller's: no job sets it; a job that must not start is on hold",
        _job_decides_on_activation,
        at("active", True, False),
    ),
)
