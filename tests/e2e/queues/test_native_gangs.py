"""PodGroups of Kubernetes' own behind a queue, users' and Tessera's, where API server and scheduler have them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from failpoints.names import Failpoint
from hack.cluster.cluster import Cluster
from hack.failpoints.armed import VARIABLE, Moment, Point
from inventory.api.names import GANG_SCHEDULED
from tests.support.e2e.nativelab import (
    GATES,
    GROUPS,
    HOLD,
    configure,
    give,
    group,
    group_of,
    lift,
    member,
    native_cluster,
    pods_of,
    running,
    start,
)
from tests.support.e2e.outage import away
from tests.support.e2e.podlab import TEAM, PodLab, pod_body, pod_lab
from tests.support.e2e.queuelab import ALONE, ROOT, Controller

pytestmark = pytest.mark.e2e

SEAM = {"PYTHONPATH": f"{ROOT / 'hack' / 'failpoints' / 'seam'}:{ROOT}"}
STEPS = (Failpoint.WORKLOAD, Failpoint.ADMITTED, Failpoint.START_GROUP, Failpoint.JOB_STARTED, Failpoint.POD_PLACED)
DEATHS = tuple(Point(step, moment) for step in STEPS for moment in Moment)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with native_cluster("nativegangs", f"{GATES},PodGroupPreemptionPolicy=true") as cluster:
        yield cluster


async def groups_gone(cluster: Cluster, scene: PodLab) -> None:
    cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
    await scene.until(lambda: not cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name"), "no group is left")


async def test_a_gang_waits_whole_for_its_quota_and_starts_whole(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("three", 3)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "train", "three", 4)
            names = [f"train-{index}" for index in range(4)]
            await scene.create(*(member(name, "train", "three") for name in names))
            await scene.create(pod_body("single", queue="three"))
            await scene.until(lambda: scene.runs("single"), "what fits beside it runs")
            known = scene.queues.watcher.workloads
            named = f"{TEAM}/podgroup-train"
            await scene.until(lambda: sum(key.startswith(named) for key in known) == 1, "the gang is one workload")
            assert not scene.runs("train-0")
            give(cluster, "three", 5)
            await scene.until(lambda: scene.runs(*names), "all four run")
            await scene.create(member("train-4", "train", "three"))
            await scene.until(lambda: bool(scene.pod("train-4")), "a fifth is there")
            await scene.finish(["single"])
            await scene.until(lambda: scene.runs(*names, "train-4"), "the fifth joins when there is quota")
            await scene.finish([*names, "train-4"])
            await scene.clean()
        cluster.kubectl("delete", "podgroups.scheduling.k8s.io", "-n", TEAM, "--all", "--timeout=60s")


async def test_a_job_starts_with_a_group_of_its_own_and_is_preempted_whole(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("sixteen", 16)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await start(scene, "gang", "sixteen")
            await scene.until(lambda: bool(cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name")), "the group")
            controller.kill()
            controller.start()
            await scene.until(lambda: running(scene, "gang") == 4, "the gang runs")
            first = group_of(scene, "gang")
            names = cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name").split()
            assert [each.rpartition("/")[2] for each in names] == [first]
            cluster.kubectl("create", "priorityclass", "vip", "--value=9")
            before = set(pods_of(scene, "gang"))
            await scene.create(pod_body("vip", gpus=8, labels={"app": "vip"}, priorityClassName="vip"))
            await scene.until(lambda: scene.runs("vip"), "a pod that is not queued takes their nodes")
            began_s = time.monotonic()
            await scene.until(lambda: not before & set(pods_of(scene, "gang")), "no half of the gang is left")
            assert time.monotonic() - began_s < 30
            assert running(scene, "gang") == 0
            await scene.delete("vip")
            await groups_gone(cluster, scene)
            await scene.clean()


async def test_a_gang_of_a_class_that_never_preempts_starts_in_a_group_that_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("never", 16)
        cluster.kubectl("create", "priorityclass", "never", "--value=5", "--preemption-policy=Never")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            await start(scene, "calm", "never", of_class="never")
            await scene.until(lambda: running(scene, "calm") == 4, "the gang runs")
            named = ("get", GROUPS, group_of(scene, "calm"), "-n", TEAM, "-o", "jsonpath={.spec.preemptionPolicy}")
            assert cluster.kubectl(*named) == "Never"
            await scene.finish(pods_of(scene, "calm"))
            await scene.until(lambda: scene.queues.complete("calm"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()


async def test_places_that_a_pod_without_a_queue_has_taken_are_given_back_with_kube_schedulers_sentence(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("placed", 16, placed=True)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):

            def placed() -> bool:
                gates = [each["spec"].get("schedulingGates", []) for each in pods_of(scene, "gang").values()]
                return len(gates) == 4 and all(each == [{"name": HOLD}] for each in gates)

            await start(scene, "gang", "placed", held=True)
            await scene.until(placed, "all pods have their places")
            first = group_of(scene, "gang")
            await scene.create(pod_body("thief", gpus=8, labels={"app": "thief"}))
            await scene.until(lambda: scene.runs("thief"), "a pod that is not queued takes a node")
            lift(cluster, scene, "gang")
            await scene.until(
                lambda: scene.queues.condition("gang", GANG_SCHEDULED) == "False/Unschedulable", "the verdict"
            )
            assert running(scene, "gang") == 0
            await scene.until(
                lambda: scene.queues.condition("gang", "Evicted") == "True/GangNotScheduled", "places are taken back"
            )
            await scene.delete("thief")
            await scene.until(lambda: placed() and group_of(scene, "gang") != first, "it has places again")
            lift(cluster, scene, "gang")
            await scene.until(lambda: running(scene, "gang") == 4, "it runs")
            await scene.finish(pods_of(scene, "gang"))
            await scene.until(lambda: scene.queues.complete("gang"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()


async def dies_once(scene: PodLab, controller: Controller, name: str, point: Point) -> None:
    """A gang starts while its controller is killed at ``point``; the next one starts the rest of it."""
    controller.kill()
    controller.environment = {**SEAM, VARIABLE: f"{point}=die"}
    controller.start()
    await start(scene, name, "steps")
    await scene.until(lambda: not controller.runs, f"the controller dies at {point}")
    if point.failpoint is not Failpoint.POD_PLACED:  # gates are lifted at once: all may be before it dies
        assert running(scene, name) == 0
    controller.environment = {}
    controller.start()
    await scene.until(lambda: running(scene, name) == 4, f"the gang runs after a death at {point}")
    made = scene.cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name").split()
    assert [each.rpartition("/")[2] for each in made] == [group_of(scene, name)], point
    await scene.finish(pods_of(scene, name))
    await scene.until(lambda: scene.queues.complete(name), "it has run")
    await groups_gone(scene.cluster, scene)


async def test_a_gang_runs_whole_with_one_group_wherever_its_controller_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("steps", 16, placed=True)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            for number, point in enumerate(DEATHS):
                await dies_once(scene, controller, f"gang-{number}", point)
            await scene.clean()


async def test_a_gang_starts_whole_when_kube_scheduler_was_away_in_between(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("away", 16)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            with away(cluster, "scheduler"):
                await start(scene, "gang", "away")
                await scene.until(lambda: bool(group_of(scene, "gang")), "its pods name their group")
                assert running(scene, "gang") == 0
            await scene.until(lambda: running(scene, "gang") == 4, "the gang runs")
            assert scene.queues.condition("gang", "Evicted") == ""
            await scene.finish(pods_of(scene, "gang"))
            await scene.until(lambda: scene.queues.complete("gang"), "it has run")
            await groups_gone(cluster, scene)
            await scene.clean()
