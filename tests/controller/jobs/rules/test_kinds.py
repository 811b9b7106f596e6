"""Rules about batch Jobs and about pods, beside those of any job; and about pod templates."""

import copy
from typing import Any

import pytest

from controller.jobs.framework.topologyrequest import REQUIRED, SLICE_SIZE, SLICE_TOPOLOGY
from controller.jobs.rules import batchjob, pods, podspec
from controller.scheduler.model.gates import FeatureGates

GATES = FeatureGates()
Q = "kueue.x-k8s.io/"
RACK = "example.com/rack"
LARGER = {"name": "c", "resources": {"requests": {"cpu": "2"}}}


def job(*, suspend: bool = True, topology: dict[str, str] | None = None, spec: Any = None, **notes: str) -> Any:
    annotations = {f"{Q}{key.replace('_', '-')}": value for key, value in notes.items()}
    template = {"metadata": {"annotations": topology or {}}}
    body = {"parallelism": 4, "completions": 6, "suspend": suspend, "template": template, **(spec or {})}
    return {"metadata": {"annotations": annotations}, "spec": body}


def refused(given: Any) -> list[tuple[str, str]]:
    return [(one.type, one.field) for one in batchjob.created(given, GATES)]


@pytest.mark.parametrize("minimum", ["0", "4", "many"])
def test_a_minimum_lies_below_the_parallelism(minimum: str) -> None:
    assert refused(job(job_min_parallelism=minimum)) == [("Invalid", f"metadata.annotations[{Q}job-min-parallelism]")]
    assert refused(job(job_min_parallelism="3")) == []


def test_completions_follow_the_parallelism_only_of_an_indexed_job_with_as_many() -> None:
    key = f"metadata.annotations[{Q}job-completions-equal-parallelism]"
    indexed = {"completionMode": "Indexed", "completions": 4}
    assert refused(job(spec=indexed, job_completions_equal_parallelism="true")) == []
    assert refused(job(spec={**indexed, "completions": 6}, job_completions_equal_parallelism="true")) == [
        ("Invalid", "spec.completions")
    ]
    assert refused(job(job_completions_equal_parallelism="true")) == [("Invalid", key)]
    assert refused(job(job_completions_equal_parallelism="-")) == [("Invalid", key)]


def test_a_job_asks_for_slices_that_fit_it() -> None:
    path = "spec.template.metadata.annotations"
    assert refused(job(topology={SLICE_TOPOLOGY: RACK, SLICE_SIZE: "2"})) == []
    assert refused(job(topology={SLICE_TOPOLOGY: RACK, SLICE_SIZE: "5"})) == [("Invalid", f"{path}[{SLICE_SIZE}]")]
    assert refused(job(topology={SLICE_TOPOLOGY: RACK})) == [("Required", f"{path}[{SLICE_SIZE}]")]
    assert refused(job(topology={REQUIRED: RACK}, elastic_job="true")) == [("Forbidden", f"{path}.{REQUIRED}")]


def test_a_job_that_runs_with_fewer_pods_keeps_its_size() -> None:
    old = job(suspend=False, job_min_parallelism="2")
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 5
    found = [(one.type, one.field) for one in batchjob.updated(old, new, GATES)]
    assert found == [("Forbidden", "spec.parallelism")]
    old["spec"]["suspend"] = new["spec"]["suspend"] = True
    assert batchjob.updated(old, new, GATES) == []


def pod(group: str = "", *, gated: bool = True, **notes: str) -> Any:
    annotations = {f"{Q}{key.replace('_', '-')}": value for key, value in notes.items()}
    gates = [{"name": f"{Q}admission"}] if gated else []
    labels = {f"{Q}pod-group-name": group} if group else {}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"schedulingGates": gates}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(), []),
        (pod("g", pod_group_total_count="2"), []),
        (pod("g"), [("Required", f"metadata.annotations[{Q}pod-group-total-count]")]),
        (pod("g", pod_group_total_count="0"), [("Invalid", f"metadata.annotations[{Q}pod-group-total-count]")]),
        (pod("g", pod_group_total_count="two"), [("Invalid", f"metadata.annotations[{Q}pod-group-total-count]")]),
        (pod(pod_group_total_count="2"), [("Required", f"metadata.labels[{Q}pod-group-name]")]),
        (pod("a b", pod_group_total_count="2"), [("Invalid", f"metadata.labels[{Q}pod-group-name]")]),
        (
            pod("g", pod_group_total_count="2", prebuilt_workload_name="w"),
            [("Invalid", f"metadata.annotations[{Q}prebuilt-workload-name]")],
        ),
    ],
)
def test_a_pod_of_a_group_says_which_and_of_how_many(given: Any, expected: list[tuple[str, str]]) -> None:
    assert [(one.type, one.field) for one in pods.created(given, GATES)] == expected


def test_a_pod_stays_in_its_group_and_a_group_does_not_become_retriable() -> None:
    one, other = (pod(name, pod_group_total_count="2") for name in ("g", "h"))
    assert [one.field for one in pods.updated(one, other, GATES)] == [f"metadata.labels[{Q}pod-group-name]"]
    ended = pod("g", pod_group_total_count="2", retriable_in_group="false")
    assert [one.field for one in pods.updated(ended, one, GATES)] == [f"metadata.annotations[{Q}retriable-in-group]"]
    assert pods.updated(one, ended, GATES) == []


def test_a_pod_may_be_given_its_group_later_and_without_one_nothing_is_retried() -> None:
    alone, member = pod(""), pod("g", pod_group_total_count="2")
    assert pods.updated(alone, member, GATES) == []
    assert [one.field for one in pods.updated(member, alone, GATES)] == [f"metadata.labels[{Q}pod-group-name]"]
    assert pods.updated(pod("", retriable_in_group="false"), alone, GATES) == []


def test_a_mark_on_a_pod_of_a_queued_job_is_warned_of() -> None:
    owned = pod()
    owned["metadata"]["labels"][f"{Q}managed"] = "true"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    assert len(pods.warnings(owned, is_job_kind=True)) == 1
    assert pods.warnings(owned, is_job_kind=False) == []
    assert pods.warnings(pod(), is_job_kind=True) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodeSelector": {"a": "b"}}, "spec.nodeSelector"),
        ({"tolerations": [{"key": "a"}]}, "spec.tolerations"),
        ({"initContainers": [{"name": "i"}]}, "spec.initContainers"),
        ({"containers": [LARGER]}, "spec.containers[0].resources.requests"),
        ({"containers": [{"name": "c", "image": "another"}]}, ""),
        ({"nodeSelector": {}}, ""),
    ],
)  # fmt: skip
def test_a_template_keeps_what_its_quota_follows_from(change: dict[str, Any], field: str) -> None:
    old = {"containers": [{"name": "c", "image": "one"}]}
    found = [one.field for one in podspec.changed(old, {**old, **change}, "spec")]
    assert found == ([field] if field else [])
