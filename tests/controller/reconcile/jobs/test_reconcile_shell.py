"""A second kind of job in the table: the shell runs it beside Jobs, also beside one of the same name."""

import logging
from typing import Any

import msgspec
import pytest

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching import feeds
from controller.cluster.watching.kinds import JOBS, PODS, WORKLOADS
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.kinds.raycluster import RayCluster
from controller.jobs.kinds.rayjob import RayJob
from controller.jobs.kinds.trainjob import CLUSTER_RUNTIMES, TrainJob
from controller.reconcile.jobshell import watched
from controller.reconcile.jobshell.watched import read_resource, resource_of
from kube.resources import EVENTS, Resource
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import job
from tests.support.controller.rayobjects import ray_job
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp


class OtherKind(BatchJob):
    """Shaped as a Job, of another API group."""

    framework = "example.dev/other"
    group = "example.dev"
    kind = "Other"
    plural = "others"


OTHERS = resource_of(OtherKind())


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> ControllerConfig:
    monkeypatch.setattr(watched, "JOB_KINDS", (BatchJob(), OtherKind()))
    given = config()
    frameworks = (*given.integrations.frameworks, OtherKind.framework)
    return msgspec.structs.replace(
        given, integrations=msgspec.structs.replace(given.integrations, frameworks=frameworks)
    )


def other(scene: Stage, name: str) -> None:
    job(scene, name)
    body = scene.server.get(JOBS, name, namespace="team")
    scene.server.delete(JOBS, name, namespace="team")
    metadata = {"labels": body["metadata"]["labels"], "creationTimestamp": stamp()}
    made = {"apiVersion": OTHERS.api_version, "kind": OTHERS.kind, "metadata": metadata, "spec": body["spec"]}
    scene.server.create(OTHERS, name, made, namespace="team")


def suspended(scene: Stage, resource: Resource, name: str) -> bool:
    return bool(scene.server.get(resource, name, namespace="team")["spec"]["suspend"])


def condition(scene: Stage, kind: str, type_: str) -> str:
    """Of the Workload that an object of the kind owns."""
    for one in scene.server.list_all(WORKLOADS):
        if any(owner["kind"] == kind for owner in one["metadata"].get("ownerReferences", [])):
            found: list[dict[str, Any]] = one.get("status", {}).get("conditions", [])
            return next((f"{each['status']}/{each['reason']}" for each in found if each["type"] == type_), "")
    return ""


async def test_jobs_of_two_kinds_with_one_name_run_one_after_the_other(both: ControllerConfig) -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        other(scene, "a")
        async with scene.controller(both, core_only=False):
            await eventually(lambda: not suspended(scene, OTHERS, "a"))
            job(scene, "a")
            await eventually(lambda: condition(scene, "Job", "QuotaReserved") == "False/WaitingForQuota")
            assert suspended(scene, JOBS, "a")
            done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp()}
            scene.server.merge(OTHERS, "a", {"status": {"conditions": [done], "succeeded": 1}}, namespace="team")
            await eventually(lambda: condition(scene, "Other", "Finished") == "True/Succeeded")
            await eventually(lambda: not suspended(scene, JOBS, "a"))
            wanted = {("Other", "Started"), ("Job", "Started")}
            await eventually(
                lambda: wanted <= {(e["regarding"]["kind"], e["reason"]) for e in scene.server.list_all(EVENTS)}
            )


async def test_a_job_that_is_gone_leaves_one_of_another_kind_and_the_same_name_alone(both: ControllerConfig) -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        other(scene, "a")
        async with scene.controller(both, core_only=False):
            job(scene, "a")
            await eventually(lambda: not suspended(scene, OTHERS, "a") and not suspended(scene, JOBS, "a"))
            scene.server.delete(OTHERS, "a", namespace="team")
            await eventually(lambda: condition(scene, "Other", "Finished") == "True/OwnerNotFound")
            assert condition(scene, "Job", "Finished") == ""
            assert not suspended(scene, JOBS, "a")


async def test_a_kind_whose_crd_comes_and_goes_while_the_controller_runs(
    both: ControllerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "ASK_S", 0.05)
    caplog.set_level(logging.INFO)
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.server.unknown.add("others")
        async with scene.controller(both, core_only=False):
            job(scene, "b")
            await eventually(lambda: not suspended(scene, JOBS, "b"), what="Jobs run though the other kind is absent")
            scene.server.install(OTHERS)
            other(scene, "a")
            await eventually(lambda: not suspended(scene, OTHERS, "a"))
            scene.server.uninstall(OTHERS)
            await eventually(lambda: condition(scene, "Other", "Finished") == "True/OwnerNotFound")
            await eventually(lambda: "others are not served any more" in caplog.text)
            scene.server.install(OTHERS)
            other(scene, "c")
            await eventually(lambda: not suspended(scene, OTHERS, "c"))
            assert condition(scene, "Job", "Finished") == ""
        assert not [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def part(scene: Stage, name: str, owner: Resource, owner_name: str, *, suspend: bool = True) -> None:
    """A Job that a controller made for its owner, with the owner's labels."""
    job(scene, name)
    meta = scene.server.get(owner, owner_name, namespace="team")["metadata"]
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner_name, "uid": meta["uid"]}
    references = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
    scene.server.merge(JOBS, name, {**references, "spec": {"suspend": suspend}}, namespace="team")


def owners_of_workloads(scene: Stage) -> set[str]:
    return {owner["kind"] for one in scene.server.list_all(WORKLOADS) for owner in one["metadata"]["ownerReferences"]}


async def test_a_part_with_copied_labels_is_left_to_its_owner_also_where_the_owners_kind_is_found_later(
    both: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "ASK_S", 0.05)
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.server.unknown.add("others")
        other(scene, "a")
        part(scene, "a-0", OTHERS, "a")
        async with scene.controller(both, core_only=False):
            await eventually(lambda: owners_of_workloads(scene) == {"Job"}, what="queued while its owner is unknown")
            scene.server.install(OTHERS)
            await eventually(lambda: owners_of_workloads(scene) == {"Other"})
            await eventually(lambda: not suspended(scene, OTHERS, "a"))


async def test_a_part_of_a_kind_that_others_queue_runs_once_the_others_workload_is_admitted() -> None:
    given = config(CONFIG + "integrations: {externalFrameworks: [Other.v1.example.dev]}\n")
    async with stage() as scene:
        scene.queue(cpus=2)
        other(scene, "a")
        part(scene, "a-0", OTHERS, "a", suspend=False)
        async with scene.controller(given, core_only=False):
            await eventually(lambda: suspended(scene, JOBS, "a-0"))
            scene.workload("of-a")
            uid = scene.server.get(OTHERS, "a", namespace="team")["metadata"]["uid"]
            reference = {"apiVersion": OTHERS.api_version, "kind": OTHERS.kind, "name": "a", "uid": uid}
            owned = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
            scene.server.merge(WORKLOADS, "of-a", owned, namespace="team")
            await scene.until_admitted("of-a")
            assert owners_of_workloads(scene) == {"Other"}
            scene.server.merge(JOBS, "a-0", {"spec": {"suspend": False}}, namespace="team")
            scene.server.merge(JOBS, "a-0", {"metadata": {"labels": {"touched": "yes"}}}, namespace="team")
            job(scene, "b")
            await eventually(lambda: not suspended(scene, JOBS, "b"))
            assert not suspended(scene, JOBS, "a-0")
            assert suspended(scene, OTHERS, "a"), "what others queue is left alone"


TRAIN_JOBS, RUNTIMES = resource_of(TrainJob()), read_resource(CLUSTER_RUNTIMES)


def runtime(scene: Stage, name: str, pods: int) -> None:
    container = {"name": "node", "resources": {"requests": {"cpu": "1"}}}
    child = {"parallelism": pods, "template": {"spec": {"containers": [container]}}}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": child}}]}}
    body = {"apiVersion": RUNTIMES.api_version, "kind": RUNTIMES.kind, "metadata": {}, "spec": {"template": template}}
    scene.server.create(RUNTIMES, name, body)


def counts(scene: Stage) -> list[int]:
    return [each["count"] for found in scene.server.list_all(WORKLOADS) for each in found["spec"]["podSets"]]


def train_job(scene: Stage) -> None:
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}, "creationTimestamp": stamp()}
    spec = {"suspend": True, "runtimeRef": {"name": "torch"}}
    made = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind, "metadata": metadata, "spec": spec}
    scene.server.create(TRAIN_JOBS, "t", made, namespace="team")


async def test_a_job_is_reconciled_when_what_its_pods_follow_from_comes() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        train_job(scene)
        async with scene.controller(core_only=False):
            refused = "there is no ClusterTrainingRuntime 'torch'"
            await eventually(lambda: any(refused in event["note"] for event in scene.server.list_all(EVENTS)))
            runtime(scene, "other", 1)
            runtime(scene, "torch", 3)
            await eventually(lambda: counts(scene) == [3])


RAY_JOBS, RAY_CLUSTERS = resource_of(RayJob()), resource_of(RayCluster())


async def test_a_job_is_looked_at_when_what_was_made_for_it_changes() -> None:
    """A RayJob that has ended holds its quota until its cluster is gone."""
    given = config()
    frameworks = (*given.integrations.frameworks, RayJob.framework, RayCluster.framework)
    integrations = msgspec.structs.replace(given.integrations, frameworks=frameworks)
    async with stage() as scene:
        scene.queue(cpus=9)
        body = ray_job(ttlSecondsAfterFinished=60, submissionMode="HTTPMode")
        made = {key: body[key] for key in ("apiVersion", "kind", "spec")}
        metadata = {"labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}, "creationTimestamp": stamp()}
        scene.server.create(RAY_JOBS, "j", {**made, "metadata": metadata}, namespace="team")
        uid = scene.server.get(RAY_JOBS, "j", namespace="team")["metadata"]["uid"]
        owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": uid, "controller": True}
        cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": body["spec"]["rayClusterSpec"]}
        owned = {"ownerReferences": [owner], "creationTimestamp": stamp()}
        scene.server.create(RAY_CLUSTERS, "j-x", {**cluster, "metadata": owned}, namespace="team")
        async with scene.controller(msgspec.structs.replace(given, integrations=integrations), core_only=False):
            await eventually(lambda: not suspended(scene, RAY_JOBS, "j"))
            ended = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "rayClusterName": "j-x"}
            mark = {"provreq.kueue.x-k8s.io/mark": "1"}
            scene.server.merge(RAY_JOBS, "j", {"metadata": {"annotations": mark}, "status": ended}, namespace="team")
            # A job that is finished passes nothing on.
            await eventually(
                lambda: any(
                    mark.items() <= one["metadata"]["annotations"].items() for one in scene.server.list_all(WORKLOADS)
                )
            )
            assert condition(scene, "RayJob", "Finished") == ""
            scene.server.delete(RAY_CLUSTERS, "j-x", namespace="team")
            await eventually(lambda: condition(scene, "RayJob", "Finished") == "True/Succeeded")


XGBOOST = KUBEFLOW_JOBS[2]


async def test_a_job_that_has_ended_holds_its_quota_while_its_pods_run() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
        specs = {name: {"replicas": 1, "template": template} for name in ("Master", "Worker")}
        metadata = {"labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}, "creationTimestamp": stamp()}
        made = {"apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob", "metadata": metadata}
        jobs, spec = resource_of(XGBOOST), {"runPolicy": {"suspend": True}, "xgbReplicaSpecs": specs}
        scene.server.create(jobs, "x", {**made, "spec": spec}, namespace="team")
        async with scene.controller(config(CONFIG.replace("policy: kueue", "policy: tessera")), core_only=False):
            await eventually(lambda: not scene.server.get(jobs, "x", namespace="team")["spec"]["runPolicy"]["suspend"])
            for name, phase in (("master", "Succeeded"), ("worker", "Running")):
                of = dict(each.split("=") for each in XGBOOST.pod_selector({"metadata": {"name": "x"}}).split(","))
                meta = {"labels": {**of, "kueue.x-k8s.io/podset": name}, "creationTimestamp": stamp()}
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": phase}}
                scene.server.create(PODS, name, body, namespace="team")
            done = {"type": "Succeeded", "status": "True", "message": "done", "lastTransitionTime": stamp()}
            scene.server.merge(jobs, "x", {"status": {"conditions": [done]}}, namespace="team")
            job(scene, "next")
            await eventually(lambda: not suspended(scene, JOBS, "next"), what="the quota of the pod that ended is free")
            assert condition(scene, "XGBoostJob", "Finished") == ""
            scene.server.merge(PODS, "worker", {"status": {"phase": "Succeeded"}}, namespace="team")
            await eventually(lambda: condition(scene, "XGBoostJob", "Finished") == "True/Succeeded")


async def test_a_start_that_the_api_server_drops_is_told_once_and_gives_its_quota_back() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.server.pruned["trainjobs"] = ("spec", "runtimePatches")
        runtime(scene, "torch", 1)
        train_job(scene)
        async with scene.controller(core_only=False):
            await eventually(lambda: condition(scene, "TrainJob", "Finished") == "True/FailedToStart")
            job(scene, "next")
            await eventually(lambda: not suspended(scene, JOBS, "next"), what="the quota is free")
            assert suspended(scene, TRAIN_JOBS, "t")
            told = [each for each in scene.server.list_all(EVENTS) if each["regarding"]["kind"] == "TrainJob"]
            assert [each["note"] for each in told if each["reason"] == "FailedToStart"] == [
                "The job cannot start: the API server does not keep spec.runtimePatches: expected a CRD with this field"
            ]
            assert "Started" not in {each["reason"] for each in told}
