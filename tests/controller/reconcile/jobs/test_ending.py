"""Jobs that end before their pods do: what still runs is charged, and is taken away where its quota is."""

import pytest

from controller.jobs.framework.actions import AwaitPods, FinishWorkload, RemoveFinalizer
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.reconcile.jobs.ending import awaits_pods
from tests.support.controller.kindworld import KindWorld

PYTORCH = KUBEFLOW_JOBS[0]
TO_THE_END = JobSettings(charges_to_the_end=True)
CLEAN = ("spec", "runPolicy", "cleanPodPolicy")


def train(**policy: str) -> Json:
    """A master and three workers."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
    specs = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 3, "template": template}}
    metadata = {"name": "t", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"runPolicy": {"suspend": True, **policy}, "pytorchReplicaSpecs": specs},
        "status": {},
    }


def run(job: Json, on: bool) -> None:
    job["status"]["replicaStatuses"] = {"Master": {"active": int(on)}, "Worker": {"active": 3 * on}}


def ended(**policy: str) -> KindWorld:
    """One that ran, and has succeeded: its status counts all pods as succeeded."""
    world = KindWorld(PYTORCH, train(**policy), run)
    world.settings = TO_THE_END
    world.settle()
    world.admit(world.only)
    world.settle()
    assert world.job is not None
    assert not world.suspended()
    world.job["status"] = {"conditions": [{"type": "Succeeded", "status": "True", "message": "done"}]}
    return world


def finished(world: KindWorld) -> bool:
    (workload,) = world.workloads.values()
    return any(each["type"] == "Finished" for each in workload["status"]["conditions"])


def spare(world: KindWorld) -> dict[str, int]:
    listed = world.workloads[world.only]["status"].get("reclaimablePods", [])
    return {each["name"]: each["count"] for each in listed}


def test_quota_is_held_for_the_pods_that_still_run_and_given_back_for_each_that_has_ended() -> None:
    world = ended()
    world.left_pods = {"worker": 3}
    assert world.step()[-1] == AwaitPods(count=3)
    assert spare(world) == {"master": 1}
    world.left_pods = {"worker": 1}
    assert world.step()[-1] == AwaitPods(count=1)
    assert spare(world) == {"master": 1, "worker": 2}
    assert not finished(world)
    said = "The job has ended, and the quota of 1 of its pods is held while it runs"
    assert world.events[-1] == ("PodsOutliveJob", said)
    world.left_pods = {}
    world.settle()
    assert finished(world)
    assert world.job is not None
    assert CLEAN[-1] not in world.job["spec"]["runPolicy"]


def test_all_quota_is_held_while_it_is_not_known_which_pods_run() -> None:
    world = ended()
    world.left_pods = {"worker": 1, "": 1}
    assert world.step()[-1] == AwaitPods(count=2)
    assert spare(world) == {}
    world.left_pods = {"master": 1, "worker": 3}
    world.step()
    assert spare(world) == {}


@pytest.mark.parametrize("policy", [{}, {CLEAN[-1]: "None"}])
def test_pods_that_outlive_their_job_are_taken_away_where_its_quota_is(policy: dict[str, str]) -> None:
    world = ended(**policy)
    world.left_pods = {"worker": 1}
    world.step()
    world.evict(world.only)
    world.step()
    assert world.job is not None
    assert world.job["spec"]["runPolicy"][CLEAN[-1]] == "Running"
    assert world.step()[-1] == AwaitPods(count=1), "its own controller takes them away now"
    assert not finished(world)
    world.left_pods = {}
    world.settle()
    assert finished(world)


@pytest.mark.parametrize("policy", ["Running", "All"])
def test_what_is_taken_away_already_needs_no_change_of_the_job(policy: str) -> None:
    world = ended(cleanPodPolicy=policy)
    world.left_pods = {"worker": 1}
    world.evict(world.only)
    assert world.step()[-1] == AwaitPods(count=1)


def test_a_workload_that_is_deleted_stays_while_pods_run() -> None:
    world = ended()
    world.left_pods = {"worker": 1}
    world.delete_workload(world.only)
    assert not [action for action in world.step() if isinstance(action, RemoveFinalizer | FinishWorkload)]
    assert world.job is not None
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not [action for action in world.step() if isinstance(action, RemoveFinalizer | FinishWorkload)]
    world.left_pods = {}
    world.settle()
    assert not world.workloads


def leaving() -> KindWorld:
    """One that runs and is being deleted: its own controller looks at it no more, so its status says that all run."""
    world = KindWorld(PYTORCH, train(), run)
    world.settings = TO_THE_END
    world.settle()
    world.admit(world.only)
    world.settle()
    assert world.job is not None
    run(world.job, on=True)
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return world


def test_a_job_that_is_deleted_gives_its_quota_back_when_its_pods_are_gone_whatever_its_status_says() -> None:
    world = leaving()
    assert not awaited(world), "it is suspended first"
    world.step()
    assert world.suspended()
    assert awaited(world)
    assert awaited(world, settings=JobSettings()), "whatever is charged to the end"
    assert world.step() == (), "nobody has asked for its pods yet"
    world.left_pods = {"worker": 2}
    assert world.step() == (AwaitPods(count=2),)
    assert not finished(world)
    world.left_pods = {}
    world.step()
    assert finished(world)


def awaited(world: KindWorld, kind: JobKind = PYTORCH, settings: JobSettings = TO_THE_END) -> bool:
    assert world.job is not None
    return awaits_pods(kind, world.job, world.observed().workloads, settings)


def test_pods_are_asked_for_only_where_they_decide() -> None:
    world = ended()
    assert awaited(world)
    assert not awaited(world, settings=JobSettings()), "under policy: kueue the end of the job is the end"
    assert not awaited(world, kind=BatchJob()), "its status tells"
    assert world.job is not None
    status = world.job["status"]
    world.job["status"] = {"conditions": [{"type": "Running", "status": "True"}]}
    assert not awaited(world)
    world.job["status"] = {"conditions": "none"}
    assert not awaited(world), "what cannot be read is refused elsewhere"
    world.job["status"] = status
    world.condition(world.only, "Finished", "True", "Succeeded")
    assert not awaited(world)
