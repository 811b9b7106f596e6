"""PodGroups of Kubernetes' own behind a queue, users' and Tessera's, where API server and scheduler have them."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import JOBS
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until
from inventory.api.names import GANG_SCHEDULED, POD_GROUP
from tests.support.e2e.charttext import rendered
from tests.support.e2e.podlab import GPU, QUEUE, TEAM, PodLab, pod_body, pod_lab, pods_installed
from tests.support.e2e.queuelab import CONFIG, as_controller

pytestmark = pytest.mark.e2e

GATES = "--feature-gates=GenericWorkload=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
GROUPS = "podgroups.scheduling.k8s.io"
HOLD = "example.com/hold"
"""A scheduling gate that nobody but the test lifts."""
REQUEUED_SOON = "waitForPodsReady: {timeout: 10m, requeuingStrategy: {backoffBaseSeconds: 1}}\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(
        nodes=(),
        kwok_nodes=2,
        kwok_capacity={GPU: "8"},
        apiserver_args=(GATES, SERVED),
        controller_manager_args=(GATES,),
        scheduler_args=(GATES,),
    )
    with Cluster.up(f"nativegangs-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-native-group-policy"))
        await_grouped(cluster)
        yield cluster


def await_grouped(cluster: Cluster) -> None:
    body = pod_body("probe", labels={"kueue.x-k8s.io/podset": "main"}, notes={POD_GROUP: "any"})

    def grouped() -> bool:
        command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        found = json.loads(cluster.kubectl(*command, input=json.dumps(body)))
        return bool(found["spec"].get("schedulingGroup", {}).get("podGroupName") == "any")

    until(grouped, "the policy for groups in effect", timeout_s=120, every_s=0.1)


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """Flags that have the controller use the chart's rights and no others."""
    path = tmp_path / "account.kubeconfig"
    path.write_text(as_controller(cluster))
    return ("--no-leader-elect", "--kubeconfig", str(path))


def group(cluster: Cluster, name: str, queue: str, minimum: int) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
    cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def member(name: str, of: str, queue: str) -> dict[str, Any]:
    return pod_body(name, queue=queue, schedulingGroup={"podGroupName": of})


async def test_a_gang_waits_whole_for_its_quota_and_starts_whole(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("three", 3)
        with scene.queues.controllers(tmp_path, "one", flags=account):
            group(cluster, "train", "three", 4)
            names = [f"train-{index}" for index in range(4)]
            await scene.create(*(member(name, "train", "three") for name in names))
            await scene.create(pod_body("single", queue="three"))
            await scene.until(lambda: scene.runs("single"), "what fits beside it runs")
            known = scene.queues.watcher.workloads
            named = f"{TEAM}/podgroup-train"
            await scene.until(lambda: sum(key.startswith(named) for key in known) == 1, "the gang is one workload")
            assert not scene.runs("train-0")
            quota = {"flavors": [{"name": "gpus", "resources": [{"name": GPU, "nominalQuota": "5"}]}]}
            groups = json.dumps({"spec": {"resourceGroups": [{"coveredResources": [GPU], **quota}]}})
            cluster.kubectl("patch", "clusterqueue", "three", "--type=merge", "-p", groups)
            await scene.until(lambda: scene.runs(*names), "all four run")
            await scene.create(member("train-4", "train", "three"))
            await scene.until(lambda: bool(scene.pod("train-4")), "a fifth is there")
            await scene.finish(["single"])
            await scene.until(lambda: scene.runs(*names, "train-4"), "the fifth joins when there is quota")
            await scene.finish([*names, "train-4"])
            await scene.clean()
        cluster.kubectl("delete", "podgroups.scheduling.k8s.io", "-n", TEAM, "--all", "--timeout=60s")


async def start(scene: PodLab, name: str, queue: str, *, gpus: int = 4, held: bool = False) -> None:
    """A Job of four pods. ``held``: they wait behind a gate of the test's."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    gates = {"schedulingGates": [{"name": HOLD}]} if held else {}
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0, **gates}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}},
        "spec": {
            "suspend": True,
            "parallelism": 4,
            "completions": 4,
            "template": {"spec": spec},
        },
    }
    await scene.client.create(JOBS, body, dict[str, Any], namespace=TEAM)


def pods_of(scene: PodLab, job: str) -> dict[str, dict[str, Any]]:
    """Those that are not being deleted."""
    return {
        name: each
        for name, each in scene.watcher.pods.items()
        if each["metadata"]["labels"].get("job-name") == job and "deletionTimestamp" not in each["metadata"]
    }


def running(scene: PodLab, job: str) -> int:
    return sum(each["status"].get("phase") == "Running" for each in pods_of(scene, job).values())


def group_of(scene: PodLab, job: str) -> str:
    """The one that all pods of the job name; empty where they differ, or are not there."""
    named = {each["spec"].get("schedulingGroup", {}).get("podGroupName", "") for each in pods_of(scene, job).values()}
    return named.pop() if len(named) == 1 else ""


def lift(cluster: Cluster, scene: PodLab, job: str) -> None:
    for name in pods_of(scene, job):
        cluster.kubectl("patch", "pod", name, "-n", TEAM, "--type=merge", "-p", '{"spec": {"schedulingGates": null}}')


def configure(folder: Path) -> None:
    (folder / "controller.yaml").write_text(CONFIG + "integrations: {frameworks: [batch/job, pod]}\n" + REQUEUED_SOON)


async def test_a_job_starts_with_a_group_of_its_own_and_is_preempted_whole(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("sixteen", 16)
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
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
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.until(lambda: not cluster.kubectl("get", GROUPS, "-n", TEAM, "-o", "name"), "no group is left")
            await scene.clean()


async def test_places_that_a_pod_without_a_queue_has_taken_are_given_back_with_kube_schedulers_sentence(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("placed", 16, placed=True)
        with scene.queues.controllers(tmp_path, "one", flags=account):

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
