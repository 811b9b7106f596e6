"""Devices that the controller planned, given by a real kubelet; and what becomes of pods whose GPU fails.

Each container writes down what it was given (its termination message), and when it ran: that is held against the plan.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import JOBS
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.charttext import rendered
from tests.support.e2e.devicescene import LONG, ON_FAILURE, SAY, TEAM, DeviceScene, device_scene
from tests.support.e2e.hands import Hands
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet
from tests.support.e2e.lab import until as settled
from tests.support.e2e.queuelab import Json, install, until

pytestmark = pytest.mark.e2e

GPUS, PODS_IN_BURSTS = 30, 200
PERCENT, PARTED = "tessera.dev/gpu-percent", 2
"""GPUs beyond those that are given away by the percent."""
SHAPES = ((8, 1), (4, 2), (6, 2), (4, 4), (2, 8))
"""Pods and GPUs of each: jobs of these shapes come one after the other."""
PLAN = "tessera.dev/devices"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "helm"):
        binaries.build(program)
    # Beyond the default of 110: pods that have ended stay until their job is deleted, and do not count.
    with Cluster.up(f"devices-{os.getpid()}", Spec(kubelet_config={"maxPods": 250})) as cluster:
        install(cluster)
        yield cluster


@pytest.fixture(scope="module")
def agent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    node = fleet(
        tmp_path_factory.mktemp("fleet") / "fleet.yaml",
        gpus=GPUS + PARTED,
        product="NVIDIA H100 80GB HBM3",
        nvlink="pairs",
        pcie=[list(range(16)), list(range(16, GPUS + PARTED))],
    )
    bench = Lab(cluster, cluster.node("node-1"))
    layout = f"layout:\n- {{gpus: [{GPUS}, {GPUS + 1}], mode: fractional, granularity: 10}}\n"
    with bench.agent(node, f"version: v1\nhealth: {FAST}\n{layout}") as agent, Hands(bench).watching() as hands:
        bench.await_amounts({GPU: GPUS})
        percents = str(100 * PARTED)
        settled(lambda: bench.node["status"]["allocatable"].get(PERCENT) == percents, "the parts of GPUs are offered")
        yield agent
        hands.check()


def scene(cluster: Cluster, agent: Agent, folder: Path) -> AbstractAsyncContextManager[DeviceScene]:
    return device_scene(cluster, agent, folder, {GPU: GPUS, PERCENT: 100 * PARTED})


def shapes() -> Iterator[tuple[str, int, int]]:
    """Jobs of ``PODS_IN_BURSTS`` pods in all."""
    left, number = PODS_IN_BURSTS, 0
    while left:
        pods, gpus = SHAPES[number % len(SHAPES)]
        pods = min(pods, left)
        yield f"burst-{number}", pods, gpus
        left, number = left - pods, number + 1


def given(pod: Json) -> tuple[str, ...]:
    (status,) = pod["status"]["containerStatuses"]
    return tuple(sorted(status["state"]["terminated"]["message"].split(",")))


def planned(pod: Json) -> tuple[str, ...]:
    return tuple(sorted(filter(None, pod["metadata"]["annotations"].get(PLAN, "").split(","))))


def times(pod: Json) -> tuple[str, str]:
    (status,) = pod["status"]["containerStatuses"]
    ended = status["state"]["terminated"]
    return ended["startedAt"], ended["finishedAt"]


async def test_bursts_of_pods_get_what_was_planned_and_no_device_twice(
    cluster: Cluster, agent: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(cluster, agent, tmp_path) as stage:
        jobs = list(shapes())
        for name, pods, gpus in jobs:
            await stage.job(name, pods, gpus)
        await until(
            lambda: all(stage.queues.complete(name) for name, _, _ in jobs), "all bursts are over", timeout_s=1800.0
        )
        await until(
            lambda: all(stage.has_ended(name, pods) for name, pods, _ in jobs), "the last of their pods is told"
        )
        over = [pod for name, _, _ in jobs for pod in stage.of(name)]
        assert len(over) == PODS_IN_BURSTS
        for name, pods, gpus in jobs:
            assert [len(given(pod)) for pod in stage.of(name)] == [gpus] * pods
        twice = [
            (one["metadata"]["name"], other["metadata"]["name"])
            for number, one in enumerate(over)
            for other in over[:number]
            if set(given(one)) & set(given(other))
            # Whole seconds, cut off: who began in the second in which another ended came after it.
            and times(one)[0] < times(other)[1]
            and times(other)[0] < times(one)[1]
        ]
        assert not twice, f"a device was given twice: {twice}"
        results: Counter[str] = Counter()
        strays: list[str] = []
        for name, _, _ in jobs:
            plans = Counter(map(planned, stage.of(name)))
            for pod in stage.of(name):
                mine = planned(pod)
                swapped = plans[given(pod)] > 0
                kind = "none" if not mine else "planned" if mine == given(pod) else "swapped" if swapped else "other"
                results[kind] += 1
                if kind in ("none", "other"):
                    strays.append(f"{pod['metadata']['name']}: planned {mine}, given {given(pod)}")
        kept = (results["planned"] + results["swapped"]) / PODS_IN_BURSTS
        with capsys.disabled():
            found = f"{dict(results)}, kept {kept:.1%}"
            sys.stdout.write(f"\ndevice plans of {PODS_IN_BURSTS} pods in {len(jobs)} jobs: {found}\n")
        assert kept >= 0.99, strays
        await stage.delete(*(name for name, _, _ in jobs), wait=False)


async def test_a_linked_pair_is_planned_and_given(cluster: Cluster, agent: Agent, tmp_path: Path) -> None:
    async with scene(cluster, agent, tmp_path) as stage:
        await stage.job("pair", 3, 2, **{"tessera.dev/required-gpu-link": "nvlink"})
        await until(lambda: stage.queues.complete("pair") and stage.has_ended("pair", 3), "the job is over")
        for pod in stage.of("pair"):
            low, high = sorted(map(stage.index, given(pod)))
            assert (low % 2, high) == (0, low + 1), "no NVLink joins them"
        await stage.delete("pair")


async def test_each_containers_part_of_a_gpu_is_planned_and_given(
    cluster: Cluster, agent: Agent, tmp_path: Path
) -> None:
    """What the init container had is handed on by the kubelet: the first container's part lies on the same GPU."""
    async with scene(cluster, agent, tmp_path) as stage:
        body = stage.body("parts", 1, 0, script=SAY + "sleep 2")
        spec = body["spec"]["template"]["spec"]
        (main,) = spec["containers"]
        spec["initContainers"] = [{**main, "name": "init", "resources": {"limits": {PERCENT: "30"}}}]
        spec["containers"] = [
            {**main, "name": name, "resources": {"limits": {PERCENT: "60"}}} for name in ("main", "other")
        ]
        await stage.queues.client.create(JOBS, body, dict[str, Any], namespace=TEAM)
        await until(lambda: stage.queues.complete("parts") and stage.has_ended("parts", 1), "the job is over")
        (pod,) = stage.of("parts")
        told = pod["metadata"]["annotations"][PLAN]
        statuses = (*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"])
        got = {one["name"]: one["state"]["terminated"]["message"] for one in statuses}
        assert sorted(told.split(",")) == sorted(f"{got[name]}*60" for name in ("main", "other"))
        assert got["init"] == got["main"] != got["other"]
        await stage.delete("parts")


@pytest.mark.parametrize("policy", ["notify", "evict", "requeue-gang"])
async def test_a_gpu_that_fails_under_a_running_pod(
    cluster: Cluster, agent: Agent, tmp_path: Path, policy: str
) -> None:
    async with scene(cluster, agent, tmp_path) as stage:
        name = f"long-{policy}"
        await stage.job(name, 2, 2, script=LONG, **{ON_FAILURE: policy})
        await until(lambda: len(stage.running(name)) == 2, "both pods run")
        await until(lambda: all(len(stage.held(pod)) == 2 for pod in stage.running(name)), "they hold their GPUs")
        before = {pod["metadata"]["uid"]: pod for pod in stage.running(name)}
        victim = next(iter(before.values()))
        device = min(stage.held(victim))
        agent.sim(gpu=stage.index(device), xid=79)

        def others() -> list[Json]:
            return [pod for pod in stage.running(name) if pod["metadata"]["uid"] not in before]

        wanted = {"notify": 0, "evict": 1, "requeue-gang": 2}[policy]
        await until(lambda: any(device in note for note in stage.notes(victim)), "people are told")
        await until(lambda: len(others()) == wanted and len(stage.running(name)) == 2, "they run")
        await until(lambda: all(len(stage.held(pod)) == 2 for pod in stage.running(name)), "they hold GPUs again")
        if wanted:
            assert all(device not in stage.held(pod) for pod in stage.running(name)), "the failed GPU was given again"
        else:
            assert {pod["metadata"]["uid"] for pod in stage.running(name)} == before.keys()

        def evicted() -> bool:
            history = stage.queues.watcher.of_job(name)["status"].get("schedulingStats", {}).get("evictions", [])
            return any(one["reason"] == "NodeFailures" for one in history)

        if policy == "requeue-gang":
            await until(evicted, "its workload says why")
        else:
            assert not evicted()
        agent.sim(gpu=stage.index(device), reset=True)
        await stage.delete(name)
        agent.until(lambda report: all(one.state == "Healthy" for one in report.health), "all GPUs are well again")


SAVES_S = 4
SAVING = f"trap 'sleep {SAVES_S}; echo saved > /saved/$HOSTNAME; exit 0' TERM; while :; do sleep 0.1; done"
"""It writes its checkpoint after SIGTERM, for longer than the second that its pods have of themselves."""
NOTICE = "aws-node-termination-handler/spot-itn"


async def test_an_interruption_evicts_the_gang_and_its_containers_write_their_checkpoints_in_time(
    cluster: Cluster, agent: Agent, tmp_path: Path
) -> None:
    marks = rendered("pod-marks-policy", values=("controller.jobs.suspendBy=policy",))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=marks)
    replaced = rendered("job-replacement-policy", values=("controller.jobs.suspendBy=policy",))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=replaced)
    saved = cluster.paths.home / "saved"
    saved.mkdir()
    async with scene(cluster, agent, tmp_path) as stage:
        body = stage.body("spot", 2, 2, script=SAVING, **{"tessera.dev/checkpoint-grace": "60s"})
        spec = body["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "saved", "hostPath": {"path": str(saved)}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "saved", "mountPath": "/saved"}]

        def waits_for_ends() -> bool:
            command = ("create", "--namespace", TEAM, "--dry-run=server", "-o", "json", "-f", "-")
            job = json.loads(cluster.kubectl(*command, input=json.dumps(body)))
            return bool(job["spec"]["podReplacementPolicy"] == "Failed")

        await until(waits_for_ends, "the API server lets new pods wait for the ends of old ones")
        await stage.queues.client.create(JOBS, body, dict[str, Any], namespace=TEAM)
        await until(lambda: len(stage.running("spot")) == 2, "the gang runs")
        gang = {pod["metadata"]["name"]: pod for pod in stage.running("spot")}
        assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in gang.values()} == {60}
        assert list(saved.iterdir()) == []
        cluster.kubectl("taint", "node", "node-1", f"{NOTICE}=event-1:NoSchedule")
        try:
            await until(lambda: stage.queues.condition("spot", "Evicted") == "True/NodeInterrupted", "it is evicted")
        finally:
            cluster.kubectl("taint", "node", "node-1", f"{NOTICE}-")

        def again() -> list[dict[str, Any]]:
            return [pod for pod in stage.running("spot") if pod["metadata"]["name"] not in gang]

        await until(lambda: len(again()) == 2, "with the notice gone the whole gang runs again")
        assert {file.name: file.read_text() for file in saved.iterdir()} == dict.fromkeys(gang, "saved\n")
        created = sorted(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp() for pod in again())
        ended = sorted(int(file.stat().st_mtime) for file in saved.iterdir())
        assert all(end <= start for end, start in zip(ended, created, strict=True)), "a pod began beside one that saves"
        await stage.delete("spot")
