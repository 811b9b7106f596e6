"""PodGroups of which some pods have no quota, on a real kube-scheduler: it starts none of a group while one waits."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.framework.podview import GroupName
from hack.cluster.cluster import Cluster
from inventory.api.names import GANG_SCHEDULED, PODS_ABOVE
from tests.support.e2e.nativelab import (
    GATES,
    GROUPS,
    HOLD,
    configure,
    give,
    group,
    group_of,
    member,
    native_cluster,
    pods_of,
    running,
    start,
)
from tests.support.e2e.podlab import TEAM, PodLab, pod_body, pod_lab
from tests.support.e2e.queuelab import ALONE

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with native_cluster("nativewaiting", f"{GATES},WorkloadWithJob=true") as cluster:
        yield cluster


def left(scene: PodLab, prefix: str) -> list[str]:
    """The pods of these names that are not being deleted."""
    found = scene.watcher.pods.items()
    return [name for name, each in found if name.startswith(prefix) and "deletionTimestamp" not in each["metadata"]]


async def tidy(cluster: Cluster, scene: PodLab, prefix: str, *, evicted: bool = False) -> None:
    """Ends the scene. Of an evicted group that nobody makes anew the Workload is deleted, which keeps its last pod."""
    if evicted:
        await scene.until(lambda: not left(scene, prefix), "its pods are gone")
        cluster.kubectl("delete", "workloads.kueue.x-k8s.io", "-n", TEAM, "--all", "--wait=false")
    else:
        await scene.finish(left(scene, prefix))
    await scene.clean()
    cluster.kubectl("delete", GROUPS, "-n", TEAM, "--all", "--timeout=60s")


@pytest.mark.parametrize(
    ("minimum", "notes", "pods", "quota"),
    [(4, {}, 6, 5), (None, {PODS_ABOVE: "delete"}, 4, 3)],
    ids=["gang", "basic group that says so"],
)
async def test_as_many_pods_of_a_group_run_as_have_quota(
    cluster: Cluster, tmp_path: Path, minimum: int | None, notes: dict[str, str], pods: int, quota: int
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("few", quota)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "some", "few", minimum, notes)
            await scene.create(*(member(f"some-{index}", "some", "few") for index in range(pods)))
            await scene.until(
                lambda: len(left(scene, "some-")) == quota and scene.runs(*left(scene, "some-")), "all with quota run"
            )
            await tidy(cluster, scene, "some-")


async def test_no_pod_of_a_basic_group_is_lost_and_all_start_once_all_have_quota(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("some", 3)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            names = [f"some-{index}" for index in range(4)]
            await scene.create(*(member(name, "some", "some") for name in names))
            await scene.until(lambda: all(scene.pod(name) for name in names), "all are there")
            first = {scene.pod(name)["metadata"]["uid"] for name in names}
            group(cluster, "some", "some", None)

            def told() -> str:
                return cluster.kubectl("get", "events", "-n", TEAM, "-o", "jsonpath={.items[*].message}")

            await scene.until(lambda: "pods of PodGroup some wait" in told(), "it is told why they wait")
            await scene.create(pod_body("beside", gpus=3, queue="some"))
            await scene.until(lambda: scene.runs("beside"), "they hold no quota")
            await scene.finish(["beside"])
            give(cluster, "some", 4)
            await scene.until(lambda: scene.runs(*names), "all four run")
            assert {scene.pod(name)["metadata"]["uid"] for name in names} == first
            await tidy(cluster, scene, "some-")


async def test_bare_pods_that_come_one_by_one_while_others_start_are_kept_too(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("burst", 5)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "some", "burst", None)
            names = [f"some-{index}" for index in range(12)]
            await scene.create(*(member(name, "some", "burst") for name in names))
            await scene.until(lambda: len(left(scene, "some-")) == 12, "all are there")
            give(cluster, "burst", 12)
            await scene.until(lambda: scene.runs(*names), "all twelve run")
            await tidy(cluster, scene, "some-")


async def test_a_plain_job_starts_whole_where_the_job_controller_makes_groups(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("plain", 16)
        await scene.create(pod_body("thief", gpus=8, labels={"app": "thief"}))
        await scene.until(lambda: scene.runs("thief"), "a pod that is not queued has a node")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            await start(scene, "train", "plain")
            await scene.until(
                lambda: scene.queues.condition("train", GANG_SCHEDULED) == "False/Unschedulable", "the verdict"
            )
            assert running(scene, "train") == 0
            made = cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name").split()
            assert [each.rpartition("/")[2] for each in made] == [group_of(scene, "train")]
            await scene.delete("thief")
            await scene.until(lambda: running(scene, "train") == 4, "all of it runs")
            await scene.finish(pods_of(scene, "train"))
            await scene.until(lambda: scene.queues.complete("train"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()


async def test_a_group_of_the_job_controllers_is_judged_by_kube_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("said", 16)
        await scene.create(pod_body("thief", gpus=8, labels={"app": "thief"}))
        await scene.until(lambda: scene.runs("thief"), "a pod that is not queued has a node")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            await start(scene, "train", "said", scheduling={"schedulingPolicy": {"gang": {"minCount": 4}}})
            await scene.until(
                lambda: scene.queues.condition("train", GANG_SCHEDULED) == "False/Unschedulable", "the verdict"
            )
            await scene.delete("thief")
            await scene.until(lambda: running(scene, "train") == 4, "all of it runs")
            await scene.finish(pods_of(scene, "train"))
            await scene.until(lambda: scene.queues.complete("train"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()


@pytest.mark.parametrize("placed", [False, True], ids=["nodes of kube-scheduler's choice", "nodes of ours"])
async def test_a_gang_of_a_job_that_runs_with_a_part_grows_as_quota_comes(
    cluster: Cluster, tmp_path: Path, *, placed: bool
) -> None:
    """``running`` counts what kube-scheduler has bound; each pod of the Job asks for four GPUs."""
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("grows", 11, placed=placed)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            await start(scene, "train", "grows", scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})
            await scene.until(lambda: running(scene, "train") == 2, "as many as have quota run")
            before = set(pods_of(scene, "train"))
            give(cluster, "grows", 12, placed=placed)
            await scene.until(lambda: running(scene, "train") == 3, "one more runs")
            give(cluster, "grows", 16, placed=placed)
            await scene.until(lambda: running(scene, "train") == 4, "all of it runs")
            assert before < set(pods_of(scene, "train")), "none was stopped for it"
            (made,) = json.loads(cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "json"))["items"]
            assert made["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2
            await scene.finish(pods_of(scene, "train"))
            await scene.until(lambda: scene.queues.complete("train"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()


def said_of(scene: PodLab, type_: str) -> str:
    """The condition of the Workload of PodGroup ``some``."""
    known = scene.queues.watcher.workloads
    found = [each for key, each in known.items() if key == f"{TEAM}/{GroupName(None, 'some').workload}"]
    conditions = [one for each in found for one in each.get("status", {}).get("conditions", [])]
    return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == type_), "")


async def test_places_of_a_users_group_that_somebody_took_are_given_back(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("taken", 16, placed=True)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "some", "taken", 4)
            names = [f"some-{index}" for index in range(4)]
            held = [{"name": HOLD}]
            spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": "some"}, "schedulingGates": held}
            await scene.create(*(pod_body(name, queue="taken", gpus=4, **spec) for name in names))

            def placed() -> bool:
                return all((scene.pod(name) or {}).get("spec", {}).get("schedulingGates") == held for name in names)

            await scene.until(placed, "all pods have their places")
            await scene.create(pod_body("thief", gpus=8, labels={"app": "thief"}))
            await scene.until(lambda: scene.runs("thief"), "a pod that is not queued takes a node")
            for name in names:
                lifted = ("--type=merge", "-p", '{"spec": {"schedulingGates": null}}')
                cluster.kubectl("patch", "pod", name, "-n", TEAM, *lifted)
            await scene.until(lambda: said_of(scene, GANG_SCHEDULED) == "False/Unschedulable", "the verdict")
            await scene.until(lambda: said_of(scene, "Evicted") == "True/GangNotScheduled", "places are taken back")
            await scene.delete("thief")
            await tidy(cluster, scene, "some-", evicted=True)


async def test_no_half_of_a_users_gang_is_left_by_a_pod_without_a_queue(cluster: Cluster, tmp_path: Path) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("half", 16)
        cluster.kubectl("create", "priorityclass", "urgent", "--value=9")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "some", "half", 4)
            names = [f"some-{index}" for index in range(4)]
            spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": "some"}, "terminationGracePeriodSeconds": 0}
            await scene.create(*(pod_body(name, queue="half", gpus=4, **spec) for name in names))
            await scene.until(lambda: scene.runs(*names), "the gang runs")
            await scene.create(pod_body("urgent", gpus=8, labels={"app": "urgent"}, priorityClassName="urgent"))
            await scene.until(lambda: scene.runs("urgent"), "a pod that is not queued takes a node")
            began_s = time.monotonic()
            await scene.until(lambda: not left(scene, "some-"), "no half of it is left")
            assert time.monotonic() - began_s < 30
            await scene.delete("urgent")
            await tidy(cluster, scene, "some-", evicted=True)


@pytest.mark.parametrize("gpus", [(8,), (8, 4)], ids=["two of its four pods", "three, made anew after 40 s"])
async def test_a_job_in_the_job_controllers_group_starts_whole_again_after_a_preemption(
    cluster: Cluster, tmp_path: Path, gpus: tuple[int, ...]
) -> None:
    queue, class_ = f"again-{len(gpus)}", f"rush-{len(gpus)}"
    rush = {f"{class_}-{amount}": amount for amount in gpus}
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue(queue, 16)
        cluster.kubectl("create", "priorityclass", class_, "--value=9")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            await start(scene, "train", queue, scheduling={"schedulingPolicy": {"gang": {"minCount": 4}}})
            await scene.until(lambda: running(scene, "train") == 4, "the gang runs")
            before = set(pods_of(scene, "train"))
            for name, amount in rush.items():
                await scene.create(pod_body(name, gpus=amount, labels={"app": name}, priorityClassName=class_))
            await scene.until(lambda: scene.runs(*rush), "pods that are not queued take the nodes")
            began_s = time.monotonic()
            await scene.until(lambda: not before & set(pods_of(scene, "train")), "no half of it is left")
            assert time.monotonic() - began_s < 30
            for name in rush:
                await scene.delete(name)
            await scene.until(lambda: running(scene, "train") == 4, "all of it runs again")
            await scene.finish(pods_of(scene, "train"))
            await scene.until(lambda: scene.queues.complete("train"), "it has run")
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()
