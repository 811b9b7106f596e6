"""The API of PodGroups is switched on and off while the controller runs; the Job controller makes groups of its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import NAMESPACES
from hack.cluster.cluster import Cluster
from hack.cluster.waiting import until
from tests.support.e2e.nativelab import (
    GROUPS,
    await_grouped,
    configure,
    group,
    group_of,
    member,
    native_cluster,
    pods_of,
    running,
    start,
)
from tests.support.e2e.outage import away
from tests.support.e2e.podlab import TEAM, PodLab, pod_lab, refused
from tests.support.e2e.queuelab import ALONE

pytestmark = pytest.mark.e2e

COMPONENTS = ("apiserver", "controller-manager", "scheduler")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with native_cluster("nativeswitch") as cluster:
        yield cluster


async def switch(scene: PodLab, *, on: bool) -> None:
    """The API comes or goes, and the Job controller's groups, which are alpha, with it."""
    cluster = scene.cluster
    word = str(on).lower()
    gates = f"--feature-gates=GenericWorkload={word},WorkloadWithJob={word}"
    served = f"--runtime-config=scheduling.k8s.io/v1beta1={word},scheduling.k8s.io/v1alpha3={word}"
    for component in COMPONENTS:
        with away(cluster, component, gates, *([served] if component == "apiserver" else [])):
            pass
        until(lambda: not cluster.problems(), f"the cluster with its {component} back", timeout_s=120)
    # Connections of the test's client that the old API server has closed are found out here.
    asked = (scene.client.get(NAMESPACES, TEAM, dict[str, Any]) for _ in range(20))
    await asyncio.gather(*asked, return_exceptions=True)


async def ended(scene: PodLab, job: str) -> None:
    await scene.finish(pods_of(scene, job))
    await scene.until(lambda: scene.queues.complete(job), f"{job} has run")


async def test_gangs_get_groups_while_the_api_is_there_and_start_without_before_and_after(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("sixteen", 16)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await start(scene, "before", "sixteen")
            await scene.until(lambda: running(scene, "before") == 4, "a gang runs without the API")
            assert "resource type" in refused(cluster, "get", GROUPS)
            await switch(scene, on=True)
            await_grouped(cluster)
            await ended(scene, "before")
            group(cluster, "train", "sixteen", 4)
            names = [f"train-{index}" for index in range(4)]
            await scene.create(*(member(name, "train", "sixteen") for name in names))
            await scene.until(lambda: scene.runs(*names), "a group of a user's runs")
            named = f"{TEAM}/podgroup-train"
            assert [key for key in scene.queues.watcher.workloads if key.startswith(named)] != []
            await scene.finish(names)

            async def grouped() -> bool:
                await start(scene, "with", "sixteen", gpus=2)
                await scene.until(lambda: running(scene, "with") == 4, "a gang runs with the API")
                if group_of(scene, "with"):
                    return True
                cluster.kubectl("delete", "job", "with", "-n", TEAM, "--cascade=foreground")
                return False

            for _ in range(40):  # the API is looked for every 30 seconds
                if await grouped():
                    break
            assert group_of(scene, "with")
            policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
            await start(scene, "own", "sixteen", gpus=2, scheduling=policy)
            await scene.until(lambda: running(scene, "own") == 4, "a Job with a group of the Job controller's runs")
            owner = "jsonpath={.metadata.ownerReferences[?(@.controller==true)].kind}"
            assert cluster.kubectl("get", GROUPS, group_of(scene, "own"), "-n", TEAM, "-o", owner) == "Job"
            await ended(scene, "own")
            await switch(scene, on=False)
            await ended(scene, "with")
            await start(scene, "after", "sixteen")
            await scene.until(lambda: running(scene, "after") == 4, "a gang runs without the API again")
            assert group_of(scene, "after") == ""
            await ended(scene, "after")
            assert controller.runs
            cluster.kubectl("delete", "jobs", "-n", TEAM, "--all")
            await scene.clean()
