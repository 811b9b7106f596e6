"""Pods that name a queued job above them, and that the job's own controller did not make: the whole process."""

from typing import Any, Final

from controller.cluster.watching.kinds import JOBS, PODS
from controller.jobs.kinds.sparkapplication import SparkApplication
from controller.reconcile.jobshell.watched import resource_of
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import job
from tests.controller.reconcile.pods.test_reconcile_shell import WITH_PODS, free, pod
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.hang import HANG_S

WITH_SPARK: Final = config(
    CONFIG
    + "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication, pod]}\n"
    + "resources: {excludeResourcePrefixes: [memory]}\n"
)

APPLICATIONS: Final = resource_of(SparkApplication())


def told(scene: Stage, name: str) -> str:
    return " ".join(each["note"] for each in scene.server.list_all(EVENTS) if each["regarding"].get("name") == name)


def owner(api_version: str, kind: str, name: str, meta: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": meta["uid"], "controller": True}


async def test_a_pod_that_names_a_queued_job_as_its_owner_starts_nothing_beside_it() -> None:
    """The Job's own controller does not count it, and makes all of its pods: they are what is charged."""
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            job(scene, "j")
            await eventually(lambda: not scene.server.get(JOBS, "j", namespace="team")["spec"]["suspend"])
            above = owner("batch/v1", "Job", "j", scene.server.get(JOBS, "j", namespace="team")["metadata"])
            pod(scene, "stowaway", owners=[above])
            await eventually(lambda: "no room for 1 more" in told(scene, "stowaway"))
            assert not free(scene, "stowaway")


async def test_a_pod_that_names_a_finished_job_as_its_owner_starts_nothing() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            job(scene, "j")
            await eventually(lambda: not scene.server.get(JOBS, "j", namespace="team")["spec"]["suspend"])
            done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp()}
            scene.server.merge(JOBS, "j", {"status": {"conditions": [done], "succeeded": 1}}, namespace="team")
            await eventually(lambda: "is finished" in told(scene, "j"))
            above = owner("batch/v1", "Job", "j", scene.server.get(JOBS, "j", namespace="team")["metadata"])
            labels = {"batch.kubernetes.io/job-name": "j"}
            pod(scene, "late", owners=[above], labels=labels)
            await eventually(lambda: told(scene, "late") != "")
            assert not free(scene, "late")


def application(scene: Stage, executors: int) -> None:
    role = {"cores": 1, "memory": "512m"}
    body = {
        "apiVersion": APPLICATIONS.api_version,
        "kind": APPLICATIONS.kind,
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}, "creationTimestamp": stamp()},
        "spec": {"mode": "cluster", "suspend": True, "driver": role, "executor": {**role, "instances": executors}},
    }
    scene.server.create(APPLICATIONS, "app", body, namespace="team")


async def test_executors_start_within_what_their_application_is_charged_for() -> None:
    """The driver makes them, and the API alone tells that the application owns that. One that ends frees its room."""
    async with stage() as scene:
        scene.queue(cpus=8)
        application(scene, executors=2)
        async with scene.controller(WITH_SPARK, core_only=False):
            await eventually(
                lambda: not scene.server.get(APPLICATIONS, "app", namespace="team")["spec"]["suspend"],
                what="the application started",
            )
            meta = scene.server.get(APPLICATIONS, "app", namespace="team")["metadata"]
            above = owner(APPLICATIONS.api_version, "SparkApplication", "app", meta)
            container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
            made = {"ownerReferences": [above], "labels": {"kueue.x-k8s.io/podset": "driver"}}
            driver = {"metadata": made, "spec": {"containers": [container]}, "status": {"phase": "Running"}}
            meta = scene.server.create(PODS, "driver", driver, namespace="team")["metadata"]
            names = ["e0", "e1", "e2"]
            for name in names:
                pod(scene, name, owners=[owner("v1", "Pod", "driver", meta)])
            pod(scene, "large", cpu=3, owners=[owner("v1", "Pod", "driver", meta)])
            await eventually(lambda: sum(free(scene, name) for name in names) == 2, what="two executors")
            (waits,) = (name for name in names if not free(scene, name))
            await eventually(lambda: "no room for 1 more" in told(scene, waits) and told(scene, "large") != "")
            assert not free(scene, waits)
            ended = next(name for name in names if name != waits)
            found = scene.server.get(PODS, ended, namespace="team")["metadata"]
            assert found["labels"]["kueue.x-k8s.io/podset"] == "executor"
            assert "kueue.x-k8s.io/managed" not in found.get("finalizers", [])
            scene.server.merge(PODS, ended, {"status": {"phase": "Succeeded"}}, namespace="team")
            await eventually(lambda: free(scene, waits), within_s=HANG_S, what="the room of the executor that ended")
            assert not free(scene, "large")
