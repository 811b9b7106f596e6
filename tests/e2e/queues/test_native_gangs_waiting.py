"""PodGroups of which some pods have no quota, on a real kube-scheduler: it starts none of a group while one waits."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.charttext import rendered
from tests.support.e2e.nativelab import (
    GATES,
    GROUPS,
    SERVED,
    await_grouped,
    configure,
    group,
    member,
)
from tests.support.e2e.podlab import GPU, TEAM, PodLab, pod_lab, pods_installed
from tests.support.e2e.queuelab import ALONE

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    gates = f"{GATES},WorkloadWithJob=true"
    spec = Spec(
        nodes=(),
        kwok_nodes=2,
        kwok_capacity={GPU: "8"},
        apiserver_args=(gates, SERVED),
        controller_manager_args=(gates,),
        scheduler_args=(gates,),
    )
    with Cluster.up(f"nativewaiting-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-native-group-policy"))
        await_grouped(cluster)
        yield cluster


def left(scene: PodLab, prefix: str) -> list[str]:
    """The pods of these names that are not being deleted."""
    found = scene.watcher.pods.items()
    return [name for name, each in found if name.startswith(prefix) and "deletionTimestamp" not in each["metadata"]]


async def tidy(cluster: Cluster, scene: PodLab, prefix: str) -> None:
    await scene.finish(left(scene, prefix))
    await scene.clean()
    cluster.kubectl("delete", GROUPS, "-n", TEAM, "--all", "--timeout=60s")


@pytest.mark.parametrize(("minimum", "pods", "quota"), [(4, 6, 5), (None, 4, 3)], ids=["gang", "basic"])
async def test_as_many_pods_of_a_group_run_as_have_quota(
    cluster: Cluster, tmp_path: Path, minimum: int | None, pods: int, quota: int
) -> None:
    async with pod_lab(cluster) as scene:
        configure(tmp_path)
        await scene.queue("few", quota)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            group(cluster, "some", "few", minimum)
            await scene.create(*(member(f"some-{index}", "some", "few") for index in range(pods)))
            await scene.until(
                lambda: len(left(scene, "some-")) == quota and scene.runs(*left(scene, "some-")), "all with quota run"
            )
            await tidy(cluster, scene, "some-")
