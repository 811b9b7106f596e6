"""Nodes that are not there yet: requested of a stand-in Cluster Autoscaler, by the controller's own rights, on a real
control plane. Nodes and pods are played by kwok; whatever comes of a request, none is left in the end.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PROVISIONING_CONFIGS,
    PROVISIONING_REQUESTS,
    TOPOLOGIES,
)
from controller.reconcile.provisioning.provisioning_shell import POD_TEMPLATES
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.controlplane import KWOK_ANNOTATION
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import FLAVORS_GIVEN_UP
from kube.errors import ConflictError, NotFoundError
from tests.support.e2e import queuelab
from tests.support.e2e.queuelab import ALONE, Json, QueueLab, install, lab, until
from tests.support.standinautoscaler import SCALE_UP, AddNode, RemoveNode, Say, StandInAutoscaler

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CRD = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds/autoscaler/provisioningrequests.yaml"
EXAMPLE = ROOT / "examples" / "capacity" / "provisioning-request.yaml"
HOST = "kubernetes.io/hostname"
LIMIT = {"*": 100}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    assert CRD.exists(), f"ProvisioningRequest's CRD not found: {CRD} is no file; set TESSERA_SHARED"
    with Cluster.up(f"provisioning-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        install(cluster)
        cluster.kubectl("apply", "--server-side", "-f", str(CRD))
        yield cluster


def node_of(pool: str) -> Callable[[int], Json]:
    """Bodies of nodes of one cpu, as many pods of these tests as fit."""

    def node(number: int) -> Json:
        name, amounts = f"{pool}-{number}", {"cpu": "1", "memory": "8Gi", "pods": "10"}
        labels = {HOST: name, "pool": pool, "kubernetes.io/os": "linux"}
        metadata = {"name": name, "labels": labels, "annotations": dict([KWOK_ANNOTATION])}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    return node


async def furnish(scene: QueueLab, name: str, *pools: str, **retries: int) -> None:
    """A queue whose check requests nodes of these pools, in this order."""
    await scene.share(NAMESPACES, "team")
    await scene.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
    for pool in pools:
        await scene.share(FLAVORS, pool, spec={"nodeLabels": {"pool": pool}, "topologyName": "hosts"})
    strategy = {"backoffLimitCount": 3, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2, **retries}
    await scene.make(PROVISIONING_CONFIGS, name, spec={"provisioningClassName": SCALE_UP, "retryStrategy": strategy})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    await scene.make(CHECKS, name, spec=spec)
    quotas = [{"name": pool, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for pool in pools]
    whole = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": name}]},
    }
    await scene.make(CLUSTER_QUEUES, name, spec=whole)
    await scene.make(LOCAL_QUEUES, name, namespace="team", spec={"clusterQueue": name})


async def loop(scene: QueueLab, scaler: StandInAutoscaler) -> None:
    """The autoscaler, until cancelled."""
    client = scene.client
    while True:
        requests = (await client.list_all(PROVISIONING_REQUESTS, dict[str, Any])).items
        templates = [
            f"{one['metadata']['namespace']}/{one['metadata']['name']}"
            for one in (await client.list_all(POD_TEMPLATES, dict[str, Any])).items
        ]
        pods = (await client.list_all(PODS, dict[str, Any])).items
        for act in scaler.look(requests, templates, pods, time.time()):
            with suppress(NotFoundError, ConflictError):
                match act:
                    case Say(namespace=namespace, name=name, status=status):
                        body = {"status": status}
                        await client.merge_patch(
                            PROVISIONING_REQUESTS, name, body, dict[str, Any], namespace=namespace, subresource="status"
                        )
                    case AddNode(body=body):
                        await client.create(NODES, body, dict[str, Any])
                    case RemoveNode(name=name):
                        await client.delete(NODES, name)
        await asyncio.sleep(0.2)


def autoscaled(cluster: Cluster, folder: Path, scaler: StandInAutoscaler) -> AbstractAsyncContextManager[QueueLab]:
    """A controller and the autoscaler run. At the end nothing is left, and the nodes go."""
    return queuelab.autoscaled(cluster, folder, LIMIT, lambda scene: loop(scene, scaler), none_left)


async def none_left(scene: QueueLab) -> None:
    deadline_s = time.monotonic() + 60.0
    while left := (await scene.client.list_all(PROVISIONING_REQUESTS, dict[str, Any])).items:
        assert time.monotonic() < deadline_s, f"left: {[one['metadata']['name'] for one in left]}"
        await asyncio.sleep(0.1)


def ready(scene: QueueLab, name: str, pods: int) -> bool:
    return bool(scene.watcher.jobs.get(f"team/{name}", {}).get("status", {}).get("ready", 0) == pods)


async def hosts(scene: QueueLab, name: str) -> set[str]:
    """The nodes on which pods of the job run, with what these consume."""
    pods = (await scene.client.list_all(PODS, dict[str, Any])).items
    own = [pod for pod in pods if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name]
    return {pod["spec"].get("nodeName", "") for pod in own if not pod["metadata"].get("deletionTimestamp")}


def retries(scene: QueueLab, name: str) -> int:
    states = scene.watcher.of_job(name).get("status", {}).get("admissionChecks", [])
    return int(states[0].get("retryCount", 0)) if states else 0


async def test_a_gang_is_requested_and_starts_on_its_nodes_when_all_have_come(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInAutoscaler(node_of("first"), provision_s=0.5, node_s=1.0)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "first", "first")
        await scene.job("gang", "first", pods=2)
        await until(lambda: ready(scene, "gang", 2), "the gang runs")
        assert await hosts(scene, "gang") == {"first-1", "first-2"}
        scene.finish("gang")
        await until(lambda: scene.complete("gang"), "the gang ends")
        await none_left(scene)


async def test_a_flavor_whose_nodes_do_not_come_is_retried_and_then_given_up(cluster: Cluster, tmp_path: Path) -> None:
    fails = lambda name: "none left" if name.endswith(("-1", "-2")) else ""  # noqa: E731
    async with autoscaled(cluster, tmp_path, StandInAutoscaler(node_of("second"), fails=fails)) as scene:
        await furnish(scene, "fallback", "never", "second", backoffLimitCount=1)
        await scene.job("gang", "fallback", pods=2)
        await until(lambda: ready(scene, "gang", 2), "the gang runs on the next flavor")
        assert retries(scene, "gang") == 2
        assert scene.watcher.of_job("gang")["metadata"]["annotations"][FLAVORS_GIVEN_UP] == "never"
        assert await hosts(scene, "gang") == {"second-1", "second-2"}


async def test_a_booking_that_expires_before_the_nodes_are_there_is_made_anew(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInAutoscaler(node_of("third"), node_s=60.0, booking_s=1.0)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "third", "third")
        await scene.job("gang", "third", pods=2)
        await until(lambda: retries(scene, "gang") > 0, "the booking has expired")
        scaler.node_s, scaler.booking_s = 0.1, 60.0
        await until(lambda: ready(scene, "gang", 2), "the gang runs")


async def test_a_gang_whose_capacity_is_taken_away_queues_again_and_runs_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    scaler = StandInAutoscaler(node_of("fourth"))
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "fourth", "fourth")
        await scene.job("gang", "fourth", pods=2)
        await until(lambda: ready(scene, "gang", 2), "the gang runs")
        (request,) = (await scene.client.list_all(PROVISIONING_REQUESTS, dict[str, Any])).items
        scaler.revoked.add(request["metadata"]["name"])
        await until(lambda: retries(scene, "gang") == 1, "it is evicted")
        await until(lambda: not ready(scene, "gang", 2), "its pods are gone")
        await until(lambda: ready(scene, "gang", 2), "the gang runs again")
        assert await hosts(scene, "gang") == {"fourth-3", "fourth-4"}


async def test_a_gang_that_finds_room_meanwhile_takes_its_request_back(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInAutoscaler(node_of("sixth"))
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "sixth", "sixth")
        await scene.job("first", "sixth", pods=2)
        await until(lambda: ready(scene, "first", 2), "the first gang runs")
        scaler.provision_s = 600.0
        await scene.job("second", "sixth", pods=2)
        await until(lambda: scene.condition("second", "QuotaReserved").startswith("True"), "the second one waits")
        scene.finish("first")
        await until(lambda: ready(scene, "second", 2), "it runs on the nodes of the first")
        assert await hosts(scene, "second") == {"sixth-1", "sixth-2"}
        await none_left(scene)


async def test_wherever_the_controller_dies_each_gang_runs_and_no_request_is_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    scaler = StandInAutoscaler(node_of("fifth"), provision_s=0.3, node_s=0.1)
    async with lab(cluster, LIMIT) as scene:
        task = asyncio.create_task(loop(scene, scaler))
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await furnish(scene, "fifth", "fifth")
            names = [f"gang-{number}" for number in range(4)]
            for number, name in enumerate(names):
                await scene.job(name, "fifth", pods=2)
                await until(lambda name=name: bool(scene.watcher.of_job(name)), "it is queued")  # type: ignore[misc]
                await asyncio.sleep(0.15 * number)
                controller.kill()
                controller.start()
            await until(lambda: all(ready(scene, name, 2) for name in names), "all gangs run")
            made = [name for found in scaler.made.values() for name in found]
            assert len(made) <= 8, f"requested twice: {scaler.made}"
            await scene.clean()
            await none_left(scene)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    cluster.kubectl("delete", "nodes", "-l", "pool", "--wait=false")


async def test_the_example_is_accepted_and_its_check_is_active(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("create", "namespace", "team-a")
    cluster.kubectl("apply", "--server-side", "-f", str(EXAMPLE))
    kinds = {each["kind"] for each in yaml.safe_load_all(EXAMPLE.read_text())}
    assert {"AdmissionCheck", "ProvisioningRequestConfig", "ClusterQueue", "Job"} <= kinds
    path = "jsonpath={.status.conditions[?(@.type=='Active')].status}"
    async with lab(cluster, LIMIT) as scene:
        with scene.controllers(tmp_path, "one", flags=ALONE):

            def is_active() -> bool:
                return cluster.kubectl("get", "admissioncheck", "nodes-of-the-cloud", "-o", path) == "True"

            await until(is_active, "the check is active")
            await until(lambda: "nodes-of-the-cloud" in requests_of(cluster), "its nodes are requested")


def requests_of(cluster: Cluster) -> str:
    return cluster.kubectl("get", "provisioningrequests", "-n", "team-a", "-o", "name")
