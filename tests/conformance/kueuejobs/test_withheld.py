"""Runners of the suites whose cases are all withheld, on cases in the documented form: right ones alone pass."""

from typing import Any

import pytest

from tests.conformance.kueuejobs import suites
from tests.conformance.replay import RUNNERS, Case, Difference

pytestmark = pytest.mark.conformance

suites.load_runners()
ADMITTED_AT, NOW = "2024-12-31T23:59:58Z", "2025-01-01T00:00:00Z"
GATE = {"name": "kueue.x-k8s.io/elastic-job"}


def run(suite: str, given: dict[str, Any], expect: dict[str, Any]) -> Difference | None:
    return RUNNERS[suite](Case(suite, "own", "", {"now": NOW, "featureGatesNonDefault": {}, **given}, expect))


def pod(name: str = "pod", *, gates: tuple[dict[str, str], ...] = (), **meta: Any) -> dict[str, Any]:
    container = {"image": "none", "name": "c", "resources": {}}
    spec = {"containers": [container], "restartPolicy": "Never", "schedulingGates": list(gates)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", **meta}, "spec": spec}


def slice_of(count: int) -> dict[str, Any]:
    """An elastic job's Workload that was admitted two seconds ago."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    listed = [
        {"type": type_, "status": "True", "reason": "ByTest", "message": "", "lastTransitionTime": ADMITTED_AT}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assigned = {"name": "main", "count": count, "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": str(count)}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": "ns", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {"podSets": [{"name": "main", "count": count, "template": template}]},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}, "conditions": listed},
    }


def test_a_gate_of_an_elastic_job_is_measured_from_the_admission_of_its_slice() -> None:
    suite = "jobs-elasticjobs-TestRecordPodSchedulingGateRemovalSeconds"
    meta: dict[str, Any] = {
        "annotations": {"kueue.x-k8s.io/workload": "wl"},
        "labels": {"kueue.x-k8s.io/podset": "main"},
    }
    held = [pod("a", gates=(GATE,), **meta), pod("b", gates=(GATE,), **meta)]
    given = {"pods": held, "workloads": [slice_of(1)], "isGroup": False}
    right = {"wantErr": None, "wantPods": [pod("a", **meta), held[1]], "wantMetricsCount": 1, "wantMetricsSeconds": 2}
    assert run(suite, given, right) is None
    assert run(suite, given, {**right, "wantMetricsCount": 2}) is not None
    assert run(suite, given, {**right, "wantPods": held}) is not None
    assert run(suite, given | {"workloads": [slice_of(2)]}, right) is not None


@pytest.mark.parametrize(
    ("version", "kind", "known"),
    [("batch/v1", "Job", True), ("ray.io/v1", "RayCluster", True), ("apps/v1", "ReplicaSet", False),
     ("batch.volcano.sh/v9", "Job", False)],
)  # fmt: skip
def test_a_pod_s_owner_is_of_a_queued_kind_by_its_version_and_kind(version: str, kind: str, known: bool) -> None:
    suite, owner = (
        "jobs-pod-TestIsPodOwnerManagedByQueue",
        {"apiVersion": version, "kind": kind, "name": "o", "uid": "u"},
    )
    for given in (
        {"ownerReference": owner | {"controller": True}},
        {"pod": pod(ownerReferences=[owner | {"controller": True}])},
    ):
        assert run(suite, given, {"wantRes": known}) is None
        assert run(suite, given, {"wantRes": not known}) is not None
    assert run(suite, {"ownerReference": owner}, {"wantRes": False}) is None, "it controls nothing"


def test_a_stop_marks_and_deletes_what_may_run() -> None:
    suite, free = "jobs-pod-TestStop", pod()
    held = pod("held", gates=({"name": "kueue.x-k8s.io/admission"},))
    assert run(suite, {"pods": [free, held]}, {"wantStopped": ["pod"], "wantDeleted": 1, "wantPods": [held]}) is None
    assert run(suite, {"pods": [free, held]}, {"wantStopped": [free, held]}) is not None
    assert run(suite, {"pods": [free]}, {"want": [free], "wantErr": {"error": True}}) is not None


def test_a_pod_that_vanished_counts_as_stopped_and_is_not_deleted() -> None:
    suite = "jobs-pod-TestStop"
    intercepted: dict[str, Any] = {"$intercepted": True}
    ways: tuple[dict[str, Any], ...] = (
        {"existingPods": []},
        {"client": {"clientObjects": [], **intercepted}},
        intercepted,
    )
    for given in ways:
        asked = {"pod": {"pod": pod(), "isGroup": False}, **given}
        assert run(suite, asked, {"wantStopped": [pod()], "wantDeleted": [], "wantErr": None}) is None
        assert run(suite, asked, {"wantDeleted": ["pod"]}) is not None


def test_a_wish_that_no_runner_knows_fails() -> None:
    with pytest.raises(KeyError, match=r"expect\.wantMore"):
        run("jobs-pod-TestStop", {"pods": [pod()]}, {"wantMore": 1})
