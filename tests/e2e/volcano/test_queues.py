"""Volcano's Queues on a real control plane with 8 GPUs: gangs that take turns, a division by weight, reclaim in a tree,
queues that are closed. Nothing is written for them but their status and a mark.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, POD_GROUPS
from hack.cluster.cluster import Cluster
from hack.cluster.waiting import until as wait_until
from kube.errors import ConflictError
from kube.resources import PODS, Resource
from tests.support.e2e.charttext import rendered
from tests.support.e2e.lab import EXAMPLES
from tests.support.e2e.podlab import is_stuck, node
from tests.support.e2e.queuelab import Controller, Json
from tests.support.e2e.volcanolab import (
    SWITCHED_ON,
    TEAM,
    VOLCANO_CONFIG,
    VolcanoLab,
    controlling,
    pod_of,
    still,
    task,
    volcano_job,
    volcano_lab,
)

pytestmark = pytest.mark.e2e

BINDINGS = Resource("", "v1", "bindings", "Binding", namespaced=True)
VOLCANO = EXAMPLES / "volcano"


def test_every_example_is_applied() -> None:
    """The article's is, in test_jobs.py, and what needs containers is, in test_containers.py."""
    in_containers = {"mpi", "pytorch"}
    applied = {"job", "pod-group", "pytorch-distributed", "queue-tree", "queues-by-weight", *in_containers}
    assert {path.stem for path in VOLCANO.iterdir()} == applied


def applied(scene: VolcanoLab, name: str) -> list[Json]:
    """An example, as it is."""
    file: Path = VOLCANO / f"{name}.yaml"
    scene.cluster.kubectl("apply", "-f", str(file))
    return list(yaml.safe_load_all(file.read_text()))


async def fill(scene: VolcanoLab, queue: str, jobs: int) -> list[str]:
    """So many jobs of one GPU. Return their names."""
    names = [f"{queue}-{number}" for number in range(jobs)]
    for name in names:
        await scene.create(volcano_job(name, task("a", 1, gpus=1), queue=queue))
    return names


def running(scene: VolcanoLab, names: list[str]) -> int:
    return sum(scene.running(name) for name in names)


async def has(scene: VolcanoLab, **gpus: int) -> None:
    """The Queues' statuses say so, and their jobs' pods run."""

    def told() -> bool:
        return all(scene.gpus(name) == amount for name, amount in gpus.items())

    await scene.until(told, f"{gpus} are allocated")


# -- gangs


async def test_two_gangs_that_deadlock_by_themselves_have_their_turns(
    scene: VolcanoLab, controller: Controller
) -> None:
    """Six pods each, on eight GPUs: left to the scheduler alone, each has four. The controller is killed between."""
    gangs = ("left", "right")
    for index in range(6):
        for gang in gangs:
            body = {**pod_of(1), "metadata": {"name": f"{gang}-{index}"}}
            await scene.client.create(PODS, body, dict[str, Any], namespace=TEAM)
    known = scene.watcher.known[PODS]

    def halves() -> bool:
        own = [[pod for name, pod in known.items() if name.startswith(gang)] for gang in gangs]
        return all(len(list(filter(node, pods))) == 4 and len(list(filter(is_stuck, pods))) == 2 for pods in own)

    await scene.until(halves, "each has four GPUs and waits for two")
    scene.cluster.kubectl("delete", "pods", "-n", TEAM, "--all", "--wait=false")
    await scene.until(lambda: not known, "all are free")

    for gang in gangs:
        await scene.create(volcano_job(gang, task("a", 6, gpus=1)))

    def one_runs() -> bool:
        return any(scene.runs(gang, 6) and scene.waits(other) for gang, other in (gangs, gangs[::-1]))

    await scene.until(one_runs, "one has all of its pods, the other none")
    first, second = gangs if scene.pods("left") else gangs[::-1]
    controller.kill()
    await scene.finish(*scene.pods(first))
    controller.start()
    await scene.until(lambda: scene.phase(first) == "Completed", "it is done")
    await scene.until(lambda: scene.runs(second, 6), "the other has all of its pods")
    await scene.finish(*scene.pods(second))
    await scene.until(lambda: scene.phase(second) == "Completed", "so is the other")


async def test_the_examples_run_in_the_queue_that_they_name(scene: VolcanoLab) -> None:
    applied(scene, "queues-by-weight")
    (job,) = applied(scene, "job")
    group, *pods = applied(scene, "pod-group")
    name, queue = job["metadata"]["name"], job["spec"]["queue"]
    names = [pod["metadata"]["name"] for pod in pods]
    known = scene.watcher.known[PODS]
    await scene.until(lambda: scene.runs(name, 3), "the job runs")

    def group_runs() -> bool:
        return all(known.get(each, {}).get("status", {}).get("phase") == "Running" for each in names)

    await scene.until(group_runs, "so does the group")
    assert group["spec"]["minMember"] == len(names)
    assert all(known[each]["spec"]["schedulerName"] == "default-scheduler" for each in names)
    await scene.until(lambda: list(scene.pod_groups().values()) == ["Running"] * 2, "both groups say so")
    own = next(each for each in scene.pod_groups() if each != group["metadata"]["name"])
    assert own.startswith(f"{name}-")
    assert scene.printed("podgroups.scheduling.volcano.sh", own)["MINMEMBER"] == "3"
    await has(scene, **{queue: 5})
    shown = {"NAME": "sweep", "STATUS": "Running", "MINMEMBER": "2", "RUNNINGS": "2", "AGE": "", "QUEUE": queue}

    def told() -> bool:
        return scene.printed("podgroups", "sweep") | {"AGE": ""} == shown

    await scene.until(told, "its PodGroup says so")
    for resource in (CLUSTER_QUEUES, LOCAL_QUEUES):
        assert not (await scene.client.list_all(resource, dict[str, Any])).items, "no object of Kueue's stands for them"
    await scene.finish(*names, f"{name}-worker-0", f"{name}-worker-1")
    await has(scene, **{queue: 3})  # a policy of the job may run its workers again
    await scene.finish(f"{name}-master-0")
    await scene.until(lambda: scene.phase(name) == "Completed", "its only master is done")
    await scene.until(lambda: set(scene.pod_groups().values()) == {"Completed"}, "so are the groups")
    scene.cluster.kubectl("delete", "podgroups.scheduling.volcano.sh", "-n", TEAM, "--all")
    await has(scene, **{queue: 0})


async def test_a_subgroup_above_the_minimum_joins_its_group_as_a_whole(scene: VolcanoLab) -> None:
    """Two pods of each value of the label ``at``, two GPUs each: a group that needs one pair."""

    def pair(at: str, *numbers: int) -> None:
        for number in numbers:
            meta = {"name": f"{at}-{number}", "namespace": TEAM, "labels": {"at": at}}
            meta |= {"annotations": {"scheduling.k8s.io/group-name": "pairs"}}
            scene.apply(
                apiVersion="v1", kind="Pod", metadata=meta, spec={**pod_of(2)["spec"], "schedulerName": "volcano"}
            )

    def run(*names: str) -> bool:
        known = scene.watcher.known[PODS]
        phases = {name: known.get(name, {}).get("status", {}).get("phase") for name in ("a-0", "a-1", "b-0", "b-1")}
        return {name for name, phase in phases.items() if phase == "Running"} == set(names)

    await scene.queue("pairs")
    policy = {"name": "pair", "matchLabelKeys": ["at"], "subGroupSize": 2, "minSubGroups": 1}
    spec = {"minMember": 2, "queue": "pairs", "subGroupPolicy": [policy]}
    scene.apply(
        apiVersion=POD_GROUPS.api_version, kind="PodGroup", metadata={"name": "pairs", "namespace": TEAM}, spec=spec
    )
    pair("b", 0)
    pair("a", 0, 1)
    await scene.until(lambda: run("a-0", "a-1"), "the pair that is whole runs, although the other began before")
    pair("b", 1)
    await scene.until(lambda: run("a-0", "a-1", "b-0", "b-1"), "the other joins")
    await has(scene, pairs=8)
    scene.cluster.kubectl("delete", "pods", "-n", TEAM, "a-0", "a-1", "b-0", "b-1", "--wait=false")
    scene.cluster.kubectl("delete", "podgroups.scheduling.volcano.sh", "-n", TEAM, "pairs")
    await has(scene, pairs=0)


# -- division


async def test_by_weight_eight_gpus_end_as_two_and_six(scene: VolcanoLab, controller: Controller) -> None:
    """The controller is killed while the first's jobs are going."""
    applied(scene, "queues-by-weight")
    first = await fill(scene, "students", 10)
    await scene.until(lambda: running(scene, first) == 8, "the first has all of it")
    await has(scene, students=8, research=0)
    told = {"running": 8, "pending": 2}
    await scene.until(lambda: told.items() <= scene.queue_status("students").items(), "its status counts jobs")
    with still(scene.cluster):
        second = await fill(scene, "research", 8)
        await scene.until(lambda: sum(map(len, map(scene.going, first))) > 0, "some have to go")
        controller.kill()
        controller.start()
        await scene.until(lambda: sum(map(len, map(scene.going, first))) == 6, "six have to go")
    await scene.until(lambda: running(scene, second) == 6, "the second has its part")
    await scene.until(lambda: running(scene, first) == 2, "the first has what is left")
    await has(scene, students=2, research=6)

    def victims() -> list[str]:
        return [name for name in first if scene.condition(name, "Evicted").startswith("True")]

    await scene.until(lambda: len(victims()) == 6, "six were evicted")
    assert all(scene.status(name).get("retryCount", 0) == 0 for name in victims())
    await scene.finish(*(pod for name in second if scene.running(name) for pod in scene.pods(name)))
    await scene.until(lambda: running(scene, second) == 2, "its last jobs have their turn")
    await scene.until(lambda: running(scene, first) == 6, "what the second leaves is the first's again")
    await has(scene, students=6, research=2)


async def test_a_tree_keeps_what_is_guaranteed_and_gives_each_what_it_deserves(
    scene: VolcanoLab, controller: Controller
) -> None:
    """The controller is killed while jobs of one queue are going for another's."""
    applied(scene, "queue-tree")
    language = await fill(scene, "language", 8)
    await scene.until(lambda: running(scene, language) == 6, "it has all but what is guaranteed to another")
    await scene.until(lambda: sum(map(scene.waits, language)) == 2, "the rest waits")
    await has(scene, language=6, science=6)
    with still(scene.cluster):
        vision = await fill(scene, "vision", 5)
        await scene.until(lambda: sum(map(len, map(scene.going, language))) > 0, "some have to go")
        controller.kill()
        controller.start()
    await scene.until(lambda: running(scene, vision) == 4, "it has what it deserves")
    await has(scene, language=4, vision=4, science=8)
    product = await fill(scene, "product", 3)
    await scene.until(lambda: running(scene, product) == 2, "so has the last")
    await has(scene, language=2, vision=4, product=2, science=6)
    await scene.until(lambda: running(scene, language) == 2, "the first is left with its own")
    shown = scene.printed("queues.scheduling.volcano.sh", "vision")
    assert shown == {"NAME": "vision", "PARENT": "science"}


async def test_a_closed_queue_admits_nothing_until_it_is_opened(scene: VolcanoLab) -> None:
    """Neither do those below it, which say so too and open with it."""
    await scene.queue("house")
    await scene.queue("doors", parent="house")
    await scene.create(volcano_job("before", task("a", 1), queue="doors"))
    await scene.until(lambda: scene.runs("before", 1), "it is open")
    await scene.until(lambda: scene.queue_status("doors").get("state") == "Open", "it says so")
    await scene.queue_command("CloseQueue", "house")
    await scene.until(lambda: scene.queue_status("doors")["state"] == "Closing", "a job of it runs on")
    await scene.finish("before-a-0")
    await scene.until(lambda: scene.queue_status("doors")["state"] == "Closed", "none runs any more")
    await scene.until(lambda: scene.queue_status("house")["state"] == "Closed", "nor below it")
    await scene.create(volcano_job("during", task("a", 1), queue="doors"))
    await scene.until(lambda: scene.waits("during"), "it waits")
    await scene.queue_command("OpenQueue", "house")
    await scene.until(lambda: scene.runs("during", 1), "it is open again")
    await scene.until(lambda: scene.queue_status("doors")["state"] == "Open", "and says so")


# -- a site that keeps Volcano's scheduler


class GangScheduler:
    """Stands in for Volcano's: it binds the pods that name it once as many are there as their PodGroup needs."""

    def __init__(self, scene: VolcanoLab) -> None:
        self._scene = scene

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            waiting: dict[str, list[str]] = {}
            for name, pod in self._scene.watcher.known[PODS].items():
                free = not node(pod) and not pod["spec"].get("schedulingGates")
                if pod["spec"].get("schedulerName") == "volcano" and free:
                    waiting.setdefault(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], []).append(name)
            groups = await self._scene.client.list_all(POD_GROUPS, dict[str, Any])
            needed = {group["metadata"]["name"]: group["spec"]["minMember"] for group in groups.items}
            for group, names in waiting.items():
                if group in needed and len(names) >= needed[group]:
                    await self._bind(sorted(names))
            await asyncio.sleep(0.1)

    async def _bind(self, names: list[str]) -> None:
        """The first four to one node, the others to the other."""
        for at, name in enumerate(names):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"kwok-{1 - at // 4}"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            with suppress(ConflictError):  # it is bound, and the watch has not said so yet
                await self._scene.client.create(BINDINGS, body, dict[str, Any], namespace=TEAM)


@pytest.fixture
def keeping(cluster: Cluster, controller: Controller, tmp_path: Path) -> Iterator[None]:
    """Installed with ``keepSchedulerName``; the module's controller is started again in the end."""
    controller.kill()
    kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    cluster.kubectl("delete", kinds, "t-tessera-controller-volcano-scheduler")
    probe = json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **pod_of(schedulerName="volcano")}
    )
    create = ("create", "-n", TEAM, "--dry-run=server", "-o", "jsonpath={.spec.schedulerName}", "-f", "-")
    wait_until(lambda: cluster.kubectl(*create, input=probe) == "volcano", "names are kept", timeout_s=120, every_s=0.1)
    config = VOLCANO_CONFIG.replace("volcano: {enabled: true}", "volcano: {enabled: true, keepSchedulerName: true}")
    assert config != VOLCANO_CONFIG
    with controlling(cluster, tmp_path, config):
        yield
    cluster.kubectl(
        "apply", "--server-side", "-f", "-", input=rendered("foreign-defaults-policy", values=(SWITCHED_ON,))
    )
    controller.start()


@pytest.mark.usefixtures("keeping")
async def test_a_site_that_keeps_its_scheduler_gets_admission_alone(cluster: Cluster) -> None:
    async with volcano_lab(cluster) as scene:
        for name in ("first", "second"):
            await scene.create(volcano_job(name, task("a", 6, gpus=1)))
        known = scene.watcher.known[PODS]
        await scene.until(lambda: len(known) == 6, "the pods of one are made")
        (admitted,) = {pod["metadata"]["labels"]["volcano.sh/job-name"] for pod in known.values()}
        (other,) = {"first", "second"} - {admitted}
        await scene.until(lambda: scene.waits(other), "the other has no quota")
        for pod in scene.pods(admitted).values():
            assert pod["spec"]["schedulerName"] == "volcano"
            assert not node(pod)
            assert not pod["spec"].get("schedulingGates")
            assert not pod["spec"].get("nodeSelector"), "where it runs is not decided here"
        binding = asyncio.create_task(GangScheduler(scene).run())
        try:
            await scene.until(lambda: scene.runs(admitted, 6), "the other scheduler binds it")
            assert [node(pod) for pod in scene.pods(admitted).values()] == ["kwok-1"] * 4 + ["kwok-0"] * 2
            applied(scene, "queues-by-weight")
            applied(scene, "pod-group")
            sweep = ("sweep-0", "sweep-1")
            await scene.until(lambda: all(node(known.get(name, {"spec": {}})) for name in sweep), "and a group of pods")
            assert scene.waits(other), "all GPUs are taken"
            await scene.finish(*sweep, *scene.pods(admitted))
            await scene.until(lambda: scene.runs(other, 6), "then the other has its turn")
        finally:
            binding.cancel()
            await asyncio.gather(binding, return_exceptions=True)
