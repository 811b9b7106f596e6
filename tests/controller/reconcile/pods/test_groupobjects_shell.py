"""PodGroups of Volcano and KAI in the whole process: pods go to their group's queue, and it says how they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import JOBS, NAMESPACES, POD_GROUPS_OF, PODS, QUEUES_OF
from controller.jobs.framework.podview import ADMISSION_GATE
from controller.scheduler.mirror.specs import System
from kube.testing import eventually
from tests.controller.cluster.process.test_foreignqueues import BOTH, job, node
from tests.controller.reconcile.pods.test_reconcile_shell import free, pod, runs, told
from tests.support.controller.stage import Stage, config, stage

CONFIG = config(BOTH + "integrations: {frameworks: [batch/job, pod]}\n")
NOTES: dict[System, dict[str, str]] = {
    System.VOLCANO: {"scheduling.k8s.io/group-name": "g"},
    System.KAI: {"pod-group-name": "g", "tessera.dev/scheduler-name": "kai-scheduler"},
}
BOTH_SYSTEMS = pytest.mark.parametrize("system", System)


@asynccontextmanager
async def scene_of(system: System, settings: ControllerConfig = CONFIG) -> AsyncIterator[Stage]:
    async with stage() as scene:
        for resource in (QUEUES_OF[system], POD_GROUPS_OF[system]):
            scene.server.install(resource)
        scene.server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
        node(scene, "n", 4)
        limits = {"cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1}}
        top, spec = {"spec": {"resources": limits}}, {"resources": limits, "parentQueue": "top"}
        if system is System.KAI:
            scene.server.create(QUEUES_OF[system], "top", top)
        scene.server.create(QUEUES_OF[system], "q", {"spec": spec if system is System.KAI else {"weight": 1}})
        async with scene.controller(settings, core_only=False):
            yield scene


def group(scene: Stage, system: System, minimum: int, **metadata: Any) -> None:
    body = {"metadata": metadata, "spec": {"minMember": minimum, "queue": "q"}}
    scene.server.create(POD_GROUPS_OF[system], "g", body, namespace="team")


def says(scene: Stage, system: System) -> tuple[str, str]:
    """The phase, and the reason of the last condition."""
    found = scene.server.get(POD_GROUPS_OF[system], "g", namespace="team").get("status", {})
    conditions = found.get("conditions") or [{}]
    return found.get("phase", ""), conditions[-1].get("reason", "")


@BOTH_SYSTEMS
async def test_a_group_waits_runs_and_ends_as_its_status_says(system: System) -> None:
    async with scene_of(system) as scene:
        group(scene, system, 2)
        await eventually(lambda: says(scene, system) == ("Inqueue", "NotEnoughTasks"), what="no pods yet")
        for name in ("p0", "p1"):
            pod(scene, name, cpu=1, queue="", notes=NOTES[system])
        await eventually(lambda: free(scene, "p0") and free(scene, "p1"), what="the pods of the group's queue start")
        runs(scene, "p0", "p1")
        await eventually(lambda: says(scene, system) == ("Running", "Scheduled"), what="it runs")
        found = scene.server.get(POD_GROUPS_OF[system], "g", namespace="team")["status"]
        assert found["conditions"][-1]["lastTransitionTime"]
        assert found["running"] == 2
        if system is System.KAI:
            assert found["resourcesStatus"]["allocated"]["cpu"] == "2"
            assert found["schedulingConditions"] == []
        runs(scene, "p0", "p1", phase="Succeeded")
        await eventually(lambda: says(scene, system)[0] == "Completed")


@BOTH_SYSTEMS
async def test_pods_above_the_minimum_are_counted_with_their_group(system: System) -> None:
    async with scene_of(system) as scene:
        group(scene, system, 1)
        for name in ("p0", "p1"):
            pod(scene, name, cpu=1, queue="", notes=NOTES[system])
        await eventually(lambda: free(scene, "p0") and free(scene, "p1"), what="the second starts beside the first")
        runs(scene, "p0", "p1")

        def running() -> int:
            status = scene.server.get(POD_GROUPS_OF[system], "g", namespace="team").get("status", {})
            return int(status.get("running", 0))

        await eventually(lambda: running() == 2)


async def test_a_gang_of_kais_that_runs_below_its_minimum_is_evicted_as_a_whole() -> None:
    async with scene_of(System.KAI) as scene:
        group(scene, System.KAI, 2)
        patience = {"spec": {"stalenessGracePeriod": "0s"}}
        scene.server.merge(POD_GROUPS_OF[System.KAI], "g", patience, namespace="team")
        for name in ("p0", "p1"):
            pod(scene, name, cpu=1, queue="", notes=NOTES[System.KAI])
        await eventually(lambda: free(scene, "p0") and free(scene, "p1"), what="the gang starts")
        runs(scene, "p0", "p1")
        runs(scene, "p0", phase="Failed")
        await eventually(lambda: scene.condition("g", "Evicted") == "True/StaleGang")
        left = partial(scene.server.get, PODS, "p1", namespace="team")
        await eventually(lambda: "deletionTimestamp" in left()["metadata"], what="the other pod goes too")
        runs(scene, "p1", phase="Failed")
        there = partial(scene.server.list_all, PODS)
        await eventually(
            lambda: [each["metadata"]["name"] for each in there()] == ["p0"], what="it is not awaited anew"
        )
        await eventually(lambda: not scene.used("q"))
        (why,) = told(scene, "EvictedDueToStaleGang")
        assert why.startswith("It has run below its minimum for 0s: 1 of 2 pods have failed")


@BOTH_SYSTEMS
async def test_a_group_that_finds_no_room_says_so(system: System) -> None:
    async with scene_of(system) as scene:
        group(scene, system, 2)
        for name in ("p0", "p1"):
            pod(scene, name, cpu=3, queue="", notes=NOTES[system])
        await eventually(lambda: says(scene, system) == ("Pending", "NotEnoughResources"))
        gates = scene.server.get(PODS, "p0", namespace="team")["spec"]["schedulingGates"]
        assert gates == [{"name": ADMISSION_GATE}]


@BOTH_SYSTEMS
async def test_a_scheduler_that_stays_writes_the_status_of_its_groups_itself(system: System) -> None:
    kept = BOTH.replace("auto", "true").replace("enabled: true", "enabled: true, keepSchedulerName: true")
    async with scene_of(system, config(kept + "integrations: {frameworks: [batch/job, pod]}\n")) as scene:
        group(scene, system, 2)
        for name in ("p0", "p1"):
            pod(scene, name, cpu=1, queue="", notes=NOTES[system])
        await eventually(lambda: free(scene, "p0") and free(scene, "p1"), what="the pods of the group's queue start")
        assert says(scene, system) == ("", "")


async def test_pods_of_a_group_that_wants_them_marked_are_told_why_they_wait() -> None:
    async with scene_of(System.KAI) as scene:
        group(scene, System.KAI, 1)
        scene.server.merge(POD_GROUPS_OF[System.KAI], "g", {"spec": {"markUnschedulable": True}}, namespace="team")
        pod(scene, "p0", cpu=9, queue="", notes=NOTES[System.KAI])
        await eventually(lambda: bool(told(scene, "Unschedulable")))
        assert says(scene, System.KAI)[0] == "Pending"


async def test_a_group_of_a_queued_job_waits_and_starts_with_the_job() -> None:
    """Operators that make the group make no pods while it is Pending."""
    async with scene_of(System.VOLCANO) as scene:
        job(scene, "j", "q", 8)
        uid = scene.server.get(JOBS, "j", namespace="team")["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        group(scene, System.VOLCANO, 1, ownerReferences=[owner])
        await eventually(lambda: says(scene, System.VOLCANO) == ("Pending", "NotEnoughResources"))
        node(scene, "large", 8)
        await eventually(lambda: says(scene, System.VOLCANO)[0] == "Inqueue", what="its job is admitted")


async def test_where_others_decide_the_status_is_theirs() -> None:
    async with stage() as scene:
        scene.server.install(POD_GROUPS_OF[System.VOLCANO])
        scene.queue(cpus=9)
        text = BOTH.replace("enabled: true", "enabled: false") + "integrations: {frameworks: [batch/job, pod]}\n"
        async with scene.controller(config(text), core_only=False):
            group(scene, System.VOLCANO, 1)
            pod(scene, "p0", notes=NOTES[System.VOLCANO])
            await eventually(lambda: free(scene, "p0"))
        assert "status" not in scene.server.get(POD_GROUPS_OF[System.VOLCANO], "g", namespace="team")
