"""What a job's controller made of it counts with the job: an export of a cluster holds both."""

from typing import Any

import pytest

from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    cluster_queue,
    config,
    flavor,
    given,
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


def marked(missing: Json, name: str, label: str, of_: str = "l") -> Json:
    """A pod whose owner is not there, with the label of who made the owner."""
    return made_by(missing, pod(name, labels={**QUEUE, label: of_}))


def lws_workers(leader: str) -> Json:
    return of(
        "apps/v1",
        "StatefulSet",
        leader,
        {"replicas": 1, "template": {"metadata": {"labels": {}}, **TEMPLATE}},
        labels={**QUEUE, "leaderworkerset.sigs.k8s.io/name": "l"},
    )


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
LEADERS = of(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    "l",
    {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
)
MPI = of(
    "kubeflow.org/v2beta1",
    "MPIJob",
    "mpi",
    {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": TEMPLATE}, "Worker": {"template": TEMPLATE}}},
)
NO_SET = of("apps/v1", "StatefulSet", "not-there", {})
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
    "a Deployment's pods whose hash is another": (
        DEPLOYMENT,
        (made_by(REPLICA_SET, pod("d-5f7-x", labels={**QUEUE, "pod-template-hash": "abc"})),),
    ),
    "a LeaderWorkerSet's pods without their StatefulSets": (
        LEADERS,
        (marked(NO_SET, "l-0", "leaderworkerset.sigs.k8s.io/name"), made_by(pod("l-0"), lws_workers("l-0"))),
    ),
    "a LeaderWorkerSet's workers without their leader": (LEADERS, (made_by(pod("l-0"), lws_workers("l-0")),)),
    "a RayJob's pods without its cluster": (RAY_JOB, (made_by(ray("RayCluster", "rj-x2x9z"), pod("rj-x2x9z-head")),)),
    "a RayJob's pods, called as of old": (
        RAY_JOB,
        (made_by(ray("RayCluster", "rj-raycluster-x2x9z"), pod("rj-raycluster-x2x9z-head")),),
    ),
    "a JobSet's pods without their Jobs": (
        job_set("js"),
        (marked(batch("js-w-0"), "js-w-0-0", "jobset.sigs.k8s.io/jobset-name", "js"),),
    ),
    "a TrainJob's pods without what is between": (
        TRAIN,
        (marked(batch("t-w-0"), "t-w-0-0", "jobset.sigs.k8s.io/jobset-name", "t"),),
    ),
    "an MPIJob's launcher without its Job": (
        MPI,
        (marked(batch("mpi-launcher"), "mpi-launcher-x", "training.kubeflow.org/job-name", "mpi"),),
    ),
    "an AppWrapper's pods without their Job": (
        WRAPPED,
        (marked(batch("inner"), "inner-x", "workload.codeflare.dev/appwrapper", "aw"),),
    ),
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


def test_pods_of_a_replica_set_that_nobody_made_are_queued_by_themselves() -> None:
    """A hash is the mark of a Deployment's: a name that looks like one is none."""
    alone = made_by(REPLICA_SET, pod("d-5f7-x"))
    assert "0 Admitted d-5f7-x" in told(run(*QUEUES, DEPLOYMENT, alone))


def test_pods_of_a_ray_cluster_that_somebody_named_are_queued_by_themselves() -> None:
    alone = made_by(ray("RayCluster", "rj-mine"), pod("p"))
    assert "0 Admitted p" in told(run(*QUEUES, RAY_JOB, alone))


def test_the_mark_of_a_link_that_is_not_there_leads_nobody_to_itself() -> None:
    marked = job_set("js")
    marked["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "js"
    assert told(run(*QUEUES, made_by(TRAIN, marked))) == ["0 Admitted js"]
    assert not scenario(given(*QUEUES, made_by(TRAIN, marked)), config()).warnings


@pytest.mark.parametrize("length", [1, 2, 12])
def test_jobs_that_own_each_other_are_queued_by_themselves_with_a_warning(length: int) -> None:
    jobs = [batch(f"j{number}") for number in range(length)]
    circle = [made_by(jobs[number - 1], each) for number, each in enumerate(jobs)]
    child = made_by(jobs[0], pod("child"))
    assert told(run(*QUEUES, *circle, child)) == [f"0 Admitted j{number}" for number in range(length)]
    notes = scenario(given(*QUEUES, *circle, child), config()).warnings
    assert len(notes) == length
    assert "Job j0: metadata.ownerReferences: found owners that lead back to it" in notes[0]


def test_a_workload_in_a_circle_with_its_job_counts_once() -> None:
    own = {**OWN_WORKLOAD, "metadata": {**OWN_WORKLOAD["metadata"], "uid": "u"}}
    assert told(run(*QUEUES, made_by(own, batch("j")), made_by(batch("j"), own))) == ["0 Admitted j"]
