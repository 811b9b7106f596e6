"""What a job's controller made of it counts with the job: an export of a cluster holds both."""

from typing import Any

import pytest

from controller.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    cluster_queue,
    flavor,
    job,
    kueue,
    local_queue,
    run,
    told,
)

Json = dict[str, Any]
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
QUEUES = (flavor(), cluster_queue(gpus=64), local_queue())
CONTAINER = {"name": "main", "image": "i", "resources": {"limits": {GPU: 1}}}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}


def of(version: str, kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    uid = f"uid-of-{name}"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "labels": dict(QUEUE), **metadata},
        "spec": spec,
    }


def made_by(owner: Json, child: Json, **reference: Any) -> Json:
    metadata = owner["metadata"]
    told_ = {key: owner[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    references = [{**told_, "controller": True, **reference}]
    return {**child, "metadata": {**child["metadata"], "ownerReferences": references}}


def pod(name: str, **metadata: Any) -> Json:
    return of("v1", "Pod", name, TEMPLATE["spec"], **metadata)


def batch(name: str) -> Json:
    return of("batch/v1", "Job", name, {"parallelism": 2, "completions": 2, "template": TEMPLATE})


def job_set(name: str) -> Json:
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}]
    return of("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"replicatedJobs": jobs})


CLUSTER: Json = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "w", "template": TEMPLATE}],
}


def ray(kind: str, name: str, **spec: Any) -> Json:
    return of("ray.io/v1", kind, name, spec)


RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "r"},
    "spec": {"template": {"spec": job_set("")["spec"]}},
}
TRAIN = of("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", {"runtimeRef": {"name": "r"}})
RAY_JOB = ray("RayJob", "rj", rayClusterSpec=CLUSTER, shutdownAfterJobFinishes=True, submissionMode="HTTPMode")
WRAPPED = of("workload.codeflare.dev/v1beta2", "AppWrapper", "aw", {"components": [{"template": batch("inner")}]})
SET = of("apps/v1", "StatefulSet", "sts", {"replicas": 2, "template": {"metadata": {"labels": {}}, **TEMPLATE}})
DEPLOYMENT = of("apps/v1", "Deployment", "d", {"replicas": 2, "template": {"metadata": {"labels": {}}, **TEMPLATE}})
TASKS = [{"name": "a", "replicas": 2, "template": TEMPLATE}]
VOLCANO = of("batch.volcano.sh/v1alpha1", "Job", "vj", {"minAvailable": 2, "tasks": TASKS})
POD = pod("p")
MADE_JOB = made_by(job_set("js"), batch("js-w-0"))
MADE_SET = made_by(TRAIN, job_set("t"))
REPLICA_SET = made_by(DEPLOYMENT, of("apps/v1", "ReplicaSet", "d-5f7", {"replicas": 2}))
OF_REPLICA = made_by(REPLICA_SET, pod("d-5f7-x", labels={**QUEUE, "pod-template-hash": "5f7"}))
OWN_WORKLOAD = kueue("Workload", "w", "ns", spec={"queueName": "main", "podSets": []})

CASES: dict[str, tuple[Json, tuple[Json, ...]]] = {
    "a RayJob's cluster": (RAY_JOB, (made_by(RAY_JOB, ray("RayCluster", "rj-x", **CLUSTER)),)),
    "a JobSet's Jobs": (job_set("js"), (MADE_JOB, made_by(job_set("js"), batch("js-w-1")))),
    "a TrainJob's JobSet, its Jobs and their pods": (
        TRAIN,
        (MADE_SET, made_by(MADE_SET, batch("t-w-0")), made_by(batch("t-w-0"), pod("t-w-0-0"))),
    ),
    "what is in an AppWrapper": (WRAPPED, (made_by(WRAPPED, batch("inner")),)),
    "a Job's pods": (batch("j"), (made_by(batch("j"), pod("j-0")), made_by(batch("j"), pod("j-1")))),
    "a Volcano Job's pods": (VOLCANO, (made_by(VOLCANO, pod("vj-a-0")), made_by(VOLCANO, pod("vj-a-1")))),
    "a StatefulSet's pods": (SET, (made_by(SET, pod("sts-0")), made_by(SET, pod("sts-1")))),
    "a Deployment's pods": (DEPLOYMENT, (REPLICA_SET, OF_REPLICA)),
    "a Deployment's pods without their ReplicaSet": (DEPLOYMENT, (OF_REPLICA,)),
    "the Workload of a Job": (batch("j"), (made_by(batch("j"), OWN_WORKLOAD),)),
    "the Workload of a pod": (POD, (made_by(POD, OWN_WORKLOAD, controller=False),)),
    "the Workload of a StatefulSet": (SET, (made_by(SET, OWN_WORKLOAD),)),
    "an owner whose uid is not told": (
        {**batch("j"), "metadata": {"name": "j", "namespace": "ns", "labels": QUEUE}},
        (made_by(batch("j"), pod("j-0")),),
    ),
}


def charged(result: SimulationResult) -> int:
    return int(result.final.cluster_queues["main"].usage.get(GPU, 0))


@pytest.mark.parametrize("first", ["owner", "children"])
@pytest.mark.parametrize("what", CASES)
def test_what_a_job_is_made_into_counts_once(what: str, first: str) -> None:
    owner, children = CASES[what]
    alone = run(*QUEUES, RUNTIME, owner)
    assert charged(alone) > 0
    both = (owner, *children) if first == "owner" else (*reversed(children), owner)
    beside = run(*QUEUES, RUNTIME, *both)
    assert told(beside) == told(alone)
    assert charged(beside) == charged(alone)


def test_a_workload_that_a_job_names_as_made_for_it_counts_once() -> None:
    named = batch("j")
    named["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "w"
    assert told(run(*QUEUES, OWN_WORKLOAD, named)) == ["0 Admitted j"]


def test_a_child_whose_owner_is_not_there_is_queued_by_itself() -> None:
    (cluster,) = CASES["a RayJob's cluster"][1]
    assert told(run(*QUEUES, cluster)) == ["0 Admitted rj-x"]
    assert told(run(*QUEUES, made_by(MADE_SET, batch("t-w-0")), TRAIN, RUNTIME)) == ["0 Admitted t-w-0", "0 Admitted t"]


@pytest.mark.parametrize(
    "reference",
    [{"controller": False}, {"uid": "of-an-older-job"}, {"name": "another"}, {"kind": "JobSet"}],
    ids=lambda one: next(iter(one)),
)
def test_a_job_that_nobody_there_made_is_queued_by_itself(reference: Json) -> None:
    result = run(*QUEUES, batch("j"), made_by(batch("j"), pod("p"), **reference))
    assert told(result) == ["0 Admitted j", "0 Admitted p"]


def test_a_child_of_an_owner_that_does_not_queue_is_queued_by_itself() -> None:
    free = batch("j")
    free["metadata"]["labels"] = {}
    assert told(run(*QUEUES, free, made_by(free, pod("p")))) == ["0 Admitted p"]
    assert told(run(*QUEUES, POD, made_by(POD, pod("executor")))) == ["0 Admitted p", "0 Admitted executor"]


def test_pods_of_a_job_without_a_mark_wait_in_no_default_queue() -> None:
    """They would, were they nobody's."""
    default = local_queue("default", "main")
    bare = {**pod("j-0"), "metadata": {**pod("j-0")["metadata"], "labels": {}}}
    assert told(run(*QUEUES, default, job("j"), bare)) == ["0 Admitted j", "0 Admitted j-0"]
    of_job = {**job("j"), "metadata": {**job("j")["metadata"], "uid": "u"}}
    assert told(run(*QUEUES, default, of_job, made_by(of_job, bare))) == ["0 Admitted j"]


def test_owners_in_a_circle_are_followed_no_further() -> None:
    one, two = batch("one"), batch("two")
    circle = made_by(two, one), made_by(one, two)
    assert told(run(*QUEUES, *circle)) == []
