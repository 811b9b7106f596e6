"""Where we differ from Kueue on purpose: rules over a case's input, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.jobframework import names
from controller.jobframework.podview import GROUP_NAME
from controller.jobframework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobframework.topologyrequest import SLICE_CONSTRAINTS, SLICE_SIZE, SLICE_TOPOLOGY
from tests.conformance.replay import Rule

JOB_NAME: Final = "batch.kubernetes.io/job-name"


def _annotations(value: Any) -> Iterator[Mapping[str, str]]:
    """All annotations anywhere in a case's input."""
    if isinstance(value, Mapping):
        if isinstance(value.get("annotations"), Mapping):
            yield value["annotations"]
        for item in value.values():
            yield from _annotations(item)
    elif isinstance(value, list):
        for item in value:
            yield from _annotations(item)


def _labels_of_a_job(given: Mapping[str, Any]) -> bool:
    return JOB_NAME in (given.get("labels") or {})


def _slices_of_no_size(given: Mapping[str, Any]) -> bool:
    """Annotations of slices that webhooks refuse: one without the other, or beside a group."""
    for found in _annotations(given):
        sliced = SLICE_TOPOLOGY in found or SLICE_SIZE in found
        if sliced and (SLICE_TOPOLOGY in found) != (SLICE_SIZE in found) and SLICE_CONSTRAINTS not in found:
            return True
        if sliced and PODSET_GROUP in found:
            return True
    return False


def _workload_of_before(given: Mapping[str, Any]) -> bool:
    """A template that names the workload it was started for earlier."""
    template = (given.get("podSet") or {}).get("template") or {}
    return names.WORKLOAD in ((template.get("metadata") or {}).get("annotations") or {})


def _group_annotation_without_its_gate(given: Mapping[str, Any]) -> bool:
    gates = given.get("featureGatesNonDefault") or {}
    off = gates.get("WorkloadIdentifierAnnotations") is False
    return off and any(GROUP_NAME in found for found in _annotations(given))


RULES: tuple[Rule, ...] = (
    Rule(
        "all four labels that the API server generates for a Job are left out of its workload: another Job could not "
        "have them; Kueue keeps the one with the Job's name",
        _labels_of_a_job,
    ),
    Rule(
        "topology annotations that cannot be meant are refused with a sentence when the workload is composed, not only "
        "by a webhook; Kueue composes the workload without them",
        _slices_of_no_size,
    ),
    Rule(
        "an annotation that names an earlier workload is overwritten by the next start; Kueue never starts such a job",
        _workload_of_before,
    ),
    Rule(
        "an annotation names a pod's group also with WorkloadIdentifierAnnotations off: nothing else has that key",
        _group_annotation_without_its_gate,
    ),
)
