"""PodGroups of Kubernetes' own behind a queue, with an API server and a scheduler that have them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.podlab import GPU, QUEUE, TEAM, pod_body, pod_lab, pods_installed
from tests.support.e2e.queuelab import as_controller

pytestmark = pytest.mark.e2e

GATES = "--feature-gates=GenericWorkload=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"


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
        yield cluster


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
            assert not scene.runs("train-0")
            known = [key for key in scene.queues.watcher.workloads if key.startswith(f"{TEAM}/podgroup-train")]
            assert len(known) == 1
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
