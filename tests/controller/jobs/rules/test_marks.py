"""Rules about the queue's marks on any job."""

from typing import Any

import msgspec
import pytest

from controller.jobs.kinds.policies import RULED
from controller.jobs.rules import marks
from controller.scheduler.model.gates import FeatureGates
from tests.support.controller.celpolicies import said

GATES = FeatureGates()
Q = "kueue.x-k8s.io/"
GATED_BY = f"metadata.annotations[{Q}admission-gated-by]"


def job(labels: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    keyed = {f"{Q}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": {"labels": {f"{Q}{key}": value for key, value in (labels or {}).items()}, "annotations": keyed}}


GROUPS = {"Job": "batch", "JAXJob": "kubeflow.org", "JobSet": "jobset.x-k8s.io", "RayCluster": "ray.io"}


def created(given: dict[str, Any], kind: str = "Job", group: str = "", **gates: bool) -> list[tuple[str, str]]:
    found = marks.created(given, kind, group or GROUPS[kind], FeatureGates(gates))
    assert all(one.sentence for one in found)
    return [(one.type, one.field) for one in found]


def updated(old: dict[str, Any], new: dict[str, Any], *, runs: bool = False, **more: Any) -> list[tuple[str, str]]:
    found = marks.updated(old, new, "Job", "batch", GATES, was_suspended=not runs, is_suspended=not runs, **more)
    return [(one.type, one.field) for one in found]


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (job({"queue-name": "q"}), "Job", []),
        (job({"queue-name": "No Queue"}), "Job", [("Invalid", f"metadata.labels[{Q}queue-name]")]),
        (job({"max-exec-time-seconds": "60"}), "Job", []),
        (job({"max-exec-time-seconds": "0"}), "Job", [("Invalid", f"metadata.labels[{Q}max-exec-time-seconds]")]),
        (job({"max-exec-time-seconds": "1h"}), "Job", [("Invalid", f"metadata.labels[{Q}max-exec-time-seconds]")]),
        (job({"prebuilt-workload-name": "w"}), "JobSet", []),
        (job({"prebuilt-workload-name": "w"}), "JAXJob", [("Invalid", f"metadata.labels[{Q}prebuilt-workload-name]")]),
        (job(prebuilt_workload_name="W w"), "Job", [("Invalid", f"metadata.annotations[{Q}prebuilt-workload-name]")]),
        (job(elastic_job="true"), "RayCluster", []),
        (job(elastic_job="true"), "JobSet", [("Forbidden", f"metadata.annotations[{Q}elastic-job]")]),
        (job(elastic_job="false"), "JobSet", []),
        (job(admission_gated_by="a.example/one, b.example/two"), "Job", []),
        (job(admission_gated_by="a.example/x" + "x" * 60), "Job", [("TooLong", GATED_BY)]),
        (job(admission_gated_by="a.example/x,a.example/x"), "Job", [("Invalid", GATED_BY)]),
        (job(admission_gated_by="nothing"), "Job", [("Invalid", GATED_BY)]),
    ],
)  # fmt: skip
def test_a_mark_says_what_its_kind_allows(given: dict[str, Any], kind: str, expected: list[tuple[str, str]]) -> None:
    assert created(given, kind) == expected


def test_a_kind_of_the_same_name_in_another_group_is_another_kind() -> None:
    """In Python, and in CEL."""
    own = next(ruled for ruled in RULED if ruled.framework == "batch/job")
    other = msgspec.structs.replace(own, group="batch.volcano.sh", rules=marks.rules("Job", "batch.volcano.sh"))
    for marked in (job(elastic_job="true"), job(prebuilt_workload_name="w")):
        assert created(marked) == []
        assert said(own, marked) == ""
        (sentence,) = marks.created(marked, "Job", "batch.volcano.sh", GATES)
        assert said(other, marked) == f"{sentence.field}: {sentence.sentence}"


def test_marks_of_gates_that_are_off_are_not_looked_at() -> None:
    assert created(job(admission_gated_by="nothing"), AdmissionGatedBy=False) == []
    assert created(job(elastic_job="true"), "JobSet", ElasticJobsViaWorkloadSlices=False) == []
    assert created(job(prebuilt_workload_name="W w"), WorkloadIdentifierAnnotations=False) == []


def test_a_queue_changes_only_while_the_job_is_suspended() -> None:
    one, other = job({"queue-name": "a"}), job({"queue-name": "b"})
    assert updated(one, other) == []
    assert updated(one, other, runs=True) == [("Invalid", f"metadata.labels[{Q}queue-name]")]


def test_a_queue_is_not_taken_away_where_there_is_a_default_one() -> None:
    assert updated(job({"queue-name": "a"}), job()) == []
    found = updated(job({"queue-name": "a"}), job(), has_default_queue=True)
    assert found == [("Invalid", f"metadata.labels[{Q}queue-name]")]


def test_a_priority_class_is_changed_at_any_time_added_before_the_start_and_never_removed() -> None:
    path = f"metadata.labels[{Q}priority-class]"
    low, high, none = job({"priority-class": "low"}), job({"priority-class": "high"}), job()
    assert updated(low, high, runs=True) == []
    assert updated(none, low) == []
    assert updated(none, low, runs=True) == [("Invalid", path)]
    assert updated(low, none) == [("Invalid", path)]


def test_a_time_limit_changes_only_where_the_job_was_and_is_suspended() -> None:
    one, other = job({"max-exec-time-seconds": "1"}), job({"max-exec-time-seconds": "2"})
    assert updated(one, other) == []
    assert updated(one, other, runs=True) == [("Invalid", f"metadata.labels[{Q}max-exec-time-seconds]")]


def test_only_an_elastic_job_changes_its_prebuilt_workload_while_it_runs() -> None:
    path = f"metadata.annotations[{Q}prebuilt-workload-name]"
    assert updated(job(prebuilt_workload_name="a"), job(prebuilt_workload_name="b"), runs=True) == [("Invalid", path)]
    assert updated(job({"prebuilt-workload-name": "a"}), job(prebuilt_workload_name="a"), runs=True) == []
    old, new = (job(prebuilt_workload_name=name, elastic_job="true") for name in "ab")
    assert updated(old, new, runs=True) == []


def test_being_elastic_does_not_change() -> None:
    assert updated(job(elastic_job="true"), job()) == [("Invalid", f"metadata.annotations[{Q}elastic-job]")]


def test_admission_gates_are_only_taken_off() -> None:
    both, one = job(admission_gated_by="a.b/c,d.e/f"), job(admission_gated_by="d.e/f")
    assert updated(both, one) == []
    assert updated(both, job()) == []
    assert updated(one, both) == [("Forbidden", GATED_BY)]
