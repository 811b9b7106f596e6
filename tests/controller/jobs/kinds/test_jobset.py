"""What a JobSet asks for, and what its status means."""

from typing import Any

import pytest

from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.jobset import JobSet

KIND = JobSet()


def replicated(name: str, replicas: int | None = None, **spec: Any) -> Json:
    found: Json = {"name": name, "template": {"spec": {"template": {"spec": {"containers": []}}, **spec}}}
    return found if replicas is None else {**found, "replicas": replicas}


def job_set(*jobs: Json, status: Json | None = None, **spec: Any) -> Json:
    meta = {"name": "js", "namespace": "ns", "uid": "u"}
    return {"metadata": meta, "spec": {"suspend": True, "replicatedJobs": list(jobs), **spec}, "status": status or {}}


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (replicated("a"), 1),
        (replicated("a", 3, parallelism=2), 6),
        (replicated("a", 3, parallelism=4, completions=2), 6),
        (replicated("a", 2, completions=5), 2),
        (replicated("a", 0, parallelism=2), 0),
    ],
)
def test_pods_are_replicas_times_those_that_one_job_runs_at_a_time(job: Json, count: int) -> None:
    assert KIND.counts(job_set(job)) == {"a": count}


def test_a_number_that_is_none_is_refused_with_its_path() -> None:
    with pytest.raises(JobError, match=r"^spec\.replicatedJobs\[1\]\.template\.spec\.parallelism: expected an integer"):
        KIND.pod_sets(job_set(replicated("a"), replicated("b", parallelism="2")))


def test_ranks_are_those_of_the_job_within_its_replicated_job() -> None:
    (pod_set,) = KIND.pod_sets(job_set(replicated("Workers", 3, parallelism=2)))
    assert pod_set.name == "workers"
    assert pod_set.topology_request == {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 3,
    }


@pytest.mark.parametrize(
    ("statuses", "ready", "active"),
    [
        ([], False, False),
        ([{"name": "a", "ready": 1}, {"name": "b", "ready": 1, "active": 2}], False, True),
        ([{"name": "a", "succeeded": 1}, {"name": "b", "ready": 2, "active": 2}], True, True),
        ([{"name": "a", "succeeded": 1}, {"name": "b", "succeeded": 2}], True, False),
    ],
)
def test_readiness_counts_jobs_and_activity_is_any_job(statuses: list[Json], ready: bool, active: bool) -> None:
    job = job_set(replicated("a"), replicated("b", 2, parallelism=5), status={"replicatedJobsStatus": statuses})
    assert KIND.pods_ready(job) is ready
    assert KIND.is_active(job) is active


SUCCEEDED = {"replicatedJobsStatus": [{"name": "B", "succeeded": 1}]}


@pytest.mark.parametrize(
    ("policy", "status", "spare"),
    [
        ({}, {}, {"b": 5}),
        ({"maxRestarts": 2}, {"restartsCountTowardsMax": 1}, {}),
        ({"maxRestarts": 2}, {"restartsCountTowardsMax": 2}, {"b": 5}),
        ({"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}, {}, {}),
        ({"rules": [{"action": "FailJobSet"}]}, {}, {"b": 5}),
    ],
)
def test_pods_of_succeeded_jobs_are_given_up_unless_a_restart_would_run_them_again(
    policy: Json, status: Json, spare: dict[str, int]
) -> None:
    job = job_set(replicated("B", 2, parallelism=5), failurePolicy=policy, status={**SUCCEEDED, **status})
    assert KIND.reclaimed(job) == spare


def test_it_ends_by_its_conditions() -> None:
    done = {"conditions": [{"type": "Completed", "status": "True", "message": "all done"}]}
    assert KIND.finished(job_set(status=done)) == Outcome(reason="Succeeded", message="all done")
    lost = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert KIND.finished(job_set(status=lost)) == Outcome(reason="Failed", message="JobSet failed")
    assert KIND.finished(job_set()) is None


@pytest.mark.parametrize(
    ("suspend", "status", "stopped"),
    [
        (True, {}, True),
        (True, {"conditions": [{"type": "StartupPolicyInProgress", "status": "True"}]}, False),
        (True, {"conditions": [{"type": "Suspended", "status": "True"}]}, True),
        (
            True,
            {
                "conditions": [{"type": "Suspended", "status": "True"}],
                "replicatedJobsStatus": [{"name": "a", "active": 1}],
            },
            False,
        ),
        (False, {}, False),
    ],
)
def test_it_is_stopped_when_its_controller_says_so(suspend: bool, status: Json, stopped: bool) -> None:
    assert KIND.is_stopped(job_set(suspend=suspend, status=status)) is stopped


def test_its_pods_carry_its_name() -> None:
    assert KIND.pod_selector(job_set()) == "jobset.sigs.k8s.io/jobset-name=js"
