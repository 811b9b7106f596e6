"""JobKinds through the whole process: their kinds come and go while it runs, and their status says what is missing."""

import copy
from typing import Any

from controller.cluster.watching.kinds import DECLARATIONS, JOBS, WORKLOADS
from controller.jobs.framework.raw import Json
from kube.resources import Resource
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import job, workload_of
from tests.support.controller.declarations import SWEEP, job_kind
from tests.support.controller.stage import Stage, stage, stamp
from tests.support.controller.told import page

SWEEPS = Resource("lab.example", "v1", "sweeps", "Sweep", namespaced=True)
TRIALS = Resource("lab.example", "v1", "trials", "Trial", namespaced=True)
IN_USE = "kueue.x-k8s.io/resource-in-use"
POD: Json = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def declare(scene: Stage, given: Json) -> None:
    name = given["metadata"]["name"]
    metadata = {"creationTimestamp": stamp(), "generation": 1, **given["metadata"]}
    scene.server.create(DECLARATIONS, name, copy.deepcopy({**given, "metadata": metadata}))


def sweep(scene: Stage, name: str, parallel: int = 1) -> None:
    spec = {"paused": True, "search": {"template": POD}, "trials": {"parallel": parallel, "template": POD}}
    metadata = {
        "creationTimestamp": stamp(),
        "generation": 1,
        "labels": {"kueue.x-k8s.io/queue-name": "lq-cq"},
    }
    body = {"apiVersion": "lab.example/v1", "kind": "Sweep", "metadata": metadata, "spec": copy.deepcopy(spec)}
    scene.server.create(SWEEPS, name, body, namespace="team")


def paused(scene: Stage, name: str) -> bool:
    return bool(scene.server.get(SWEEPS, name, namespace="team")["spec"]["paused"])


def plays(scene: Stage, name: str, phase: str, pods: int) -> None:
    """What the controller of Sweeps writes."""
    status = {"phase": phase, "pods": pods, "readyPods": pods}
    scene.server.merge(SWEEPS, name, {"status": status}, namespace="team")


def conditions(scene: Stage, name: str = "sweeps.lab.example") -> list[Json]:
    return list(scene.server.get(DECLARATIONS, name).get("status", {}).get("conditions", []))


def says(scene: Stage, type_: str, name: str = "sweeps.lab.example") -> str:
    found = conditions(scene, name)
    return next((f"{each['status']}/{each['reason']}" for each in found if each["type"] == type_), "")


def of_workload(scene: Stage, name: str, type_: str) -> str:
    found = workload_of(scene, name).get("status", {}).get("conditions", [])
    return next((f"{each['status']}/{each['reason']}" for each in found if each["type"] == type_), "")


async def test_a_kind_is_queued_from_its_job_kind_on_without_a_restart() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        scene.server.install(DECLARATIONS)
        scene.server.install(SWEEPS)
        sweep(scene, "a")
        async with scene.controller(core_only=False) as process:
            job(scene, "before", 1)
            await eventually(lambda: not scene.server.get(JOBS, "before", namespace="team")["spec"]["suspend"])
            declare(scene, SWEEP)
            await eventually(lambda: not paused(scene, "a"), what="the Sweep is started")
            await eventually(lambda: says(scene, "Active") == "True/Active", what="the JobKind says so")
            assert says(scene, "Accepted") == "True/Accepted"
            assert [each["count"] for each in workload_of(scene, "a")["spec"]["podSets"]] == [1, 1]
            waited = 'kueue_workload_creation_latency_seconds_count{job_kind="Sweep",replica_role="standalone"} 1.0'
            await eventually(lambda: waited in page(process).splitlines(), what="its Workload is counted")
            plays(scene, "a", "Running", 2)
            sweep(scene, "b", 2)
            await eventually(lambda: workload_of(scene, "b") != {}, what="the second waits")
            await eventually(lambda: scene.used() == 3, what="the first and the Job hold all of the quota")
            plays(scene, "a", "Succeeded", 0)
            scene.server.merge(
                JOBS,
                "before",
                {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
                namespace="team",
            )
            await eventually(lambda: not paused(scene, "b"), what="the second is started")


async def test_a_job_kind_that_is_deleted_goes_when_its_objects_hold_no_quota_and_nothing_starts_meanwhile() -> None:
    async with stage() as scene:
        scene.queue(cpus=4)
        scene.server.install(SWEEPS)
        declare(scene, SWEEP)
        async with scene.controller(core_only=False):
            sweep(scene, "a")
            await eventually(lambda: not paused(scene, "a"))
            plays(scene, "a", "Running", 2)
            await eventually(
                lambda: (
                    scene.server.get(DECLARATIONS, SWEEP["metadata"]["name"])["metadata"].get("finalizers") == [IN_USE]
                )
            )
            scene.server.merge(DECLARATIONS, "sweeps.lab.example", {"metadata": {"deletionTimestamp": stamp()}})
            await eventually(lambda: says(scene, "Active") == "False/Terminating")
            sweep(scene, "b")
            await eventually(lambda: of_workload(scene, "b", "Requeued") == "False/OnHold", what="the new one is held")
            assert paused(scene, "b")
            assert not paused(scene, "a")
            plays(scene, "a", "Succeeded", 0)
            await eventually(
                lambda: not scene.server.get(DECLARATIONS, "sweeps.lab.example")["metadata"].get("finalizers"),
                what="the JobKind may go",
            )
            scene.server.delete(DECLARATIONS, "sweeps.lab.example")
            job(scene, "after", 4)
            await eventually(lambda: not scene.server.get(JOBS, "after", namespace="team")["spec"]["suspend"])
            assert paused(scene, "b")
            scene.server.delete(JOBS, "after", namespace="team")
            declare(scene, SWEEP)
            await eventually(lambda: not paused(scene, "b"), what="the kind is there again")


async def test_what_is_wrong_with_a_job_kind_stands_in_its_status() -> None:
    async with stage() as scene:
        scene.queue()
        scene.server.install(DECLARATIONS)
        async with scene.controller(core_only=False):
            known = job_kind(group="jobset.x-k8s.io", kind="JobSet", plural="jobsets")
            scene.server.denied |= {("patch", "sweeps"), ("update", "sweeps")}
            declare(scene, {**known, "metadata": {"name": "jobsets.jobset.x-k8s.io"}})
            declare(scene, SWEEP)
            await eventually(lambda: says(scene, "Accepted", "jobsets.jobset.x-k8s.io") == "False/KindIsKnown")
            assert says(scene, "Active", "jobsets.jobset.x-k8s.io") == "False/NotAccepted"
            await eventually(lambda: says(scene, "Accepted") == "True/Accepted")
            await eventually(lambda: says(scene, "Active") == "False/Forbidden")
            (why,) = (each["message"] for each in conditions(scene) if each["type"] == "Active")
            assert "may not patch sweeps.lab.example, update sweeps/finalizers.lab.example: grant it" in why
            assert not scene.server.get(DECLARATIONS, "jobsets.jobset.x-k8s.io")["metadata"].get("finalizers")


async def test_what_an_object_makes_through_another_kind_belongs_to_its_workload() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.server.install(SWEEPS)
        scene.server.install(TRIALS)
        owns = [{"group": "lab.example", "version": "v1", "kind": "Trial", "plural": "trials"}]
        declare(scene, job_kind(owns=owns))
        async with scene.controller(core_only=False):
            sweep(scene, "a", 3)
            await eventually(lambda: workload_of(scene, "a") != {})
            uid = scene.server.get(SWEEPS, "a", namespace="team")["metadata"]["uid"]
            owned_by(scene, TRIALS, "t", "Sweep", "a", uid)
            trial = scene.server.get(TRIALS, "t", namespace="team")["metadata"]["uid"]
            job(scene, "part")
            reference = {"apiVersion": "lab.example/v1", "kind": "Trial", "name": "t", "uid": trial, "controller": True}
            patch = {"metadata": {"ownerReferences": [reference]}, "spec": {"suspend": False}}
            scene.server.merge(JOBS, "part", patch, namespace="team")
            await eventually(lambda: scene.server.get(JOBS, "part", namespace="team")["spec"]["suspend"] is True)
            await eventually(
                lambda: (
                    [
                        each["metadata"]["name"]
                        for each in scene.server.list_all(WORKLOADS)
                        if "deletionTimestamp" not in each["metadata"]
                    ]
                    == [workload_of(scene, "a")["metadata"]["name"]]
                )
            )


def owned_by(scene: Stage, resource: Resource, name: str, kind: str, owner: str, uid: Any) -> None:
    reference = {"apiVersion": "lab.example/v1", "kind": kind, "name": owner, "uid": uid, "controller": True}
    metadata = {"creationTimestamp": stamp(), "ownerReferences": [reference]}
    body = {"apiVersion": "lab.example/v1", "kind": resource.kind, "metadata": metadata}
    scene.server.create(resource, name, body, namespace="team")
