"""Nodes that can come, on a real control plane: placeholders that kube-scheduler finds no node for make a stand-in
autoscaler bring nodes, and the gang lands on exactly these. By the controller's own rights; nodes and pods are played
by kwok. Whatever happens, no placeholder is left in the end.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import (
    CLAIM_TEMPLATES,
    CLUSTER_QUEUES,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    TOPOLOGIES,
    WORKLOAD_CLASSES,
)
from controller.objects.core import SPOT_LABELS
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.controlplane import KWOK_ANNOTATION
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import INTERRUPTED_OFTEN, INTERRUPTIONS, NODE_TEMPLATE, PLACEHOLDER_OF, PROVISION_TIMEOUT, SPOT
from kube.client import Selection
from kube.errors import ConflictError
from kube.resources import Resource
from tests.support.e2e import queuelab
from tests.support.e2e.queuelab import ALONE, CHART, CONFIG, NAMESPACE, QUEUE, Json, QueueLab, install, lab, until
from tests.support.standinkarpenter import StandInKarpenter

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[3] / "examples" / "capacity" / "nodes-that-come.yaml"
HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
LIMIT = {"*": 100}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"coming-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        install(cluster)
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("controller-classes"))
        yield cluster


def rendered(template: str, *more: str) -> str:
    """The objects of one of the chart's templates."""
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE, *more]
    command += ["--show-only", f"templates/{template}.yaml"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def node(pool: str, number: int, **more: str) -> Json:
    """One cpu, as much as a pod of these tests requests."""
    name, amounts = f"{pool}-{number}", {"cpu": "1", "memory": "8Gi", "pods": "10"}
    labels = {HOST: name, "pool": pool, "kubernetes.io/os": "linux", **more}
    metadata = {"name": name, "labels": labels, "annotations": dict([KWOK_ANNOTATION])}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


async def furnish(scene: QueueLab, name: str, *pools: str, limit: str = "15m", most: int = 4) -> None:
    """A queue of flavors of which no node is there, in this order. ``most``: that can come; 0: none does by itself."""
    await scene.share(NAMESPACES, "team")
    await scene.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
    template = json.dumps({"allocatable": {"cpu": "1"}, "max": most, "after": "1s"})
    for pool in pools:
        notes = {NODE_TEMPLATE: template, PROVISION_TIMEOUT: limit} if most else {}
        meta = {"name": pool, "annotations": notes}
        body = {"apiVersion": FLAVORS.api_version, "kind": FLAVORS.kind, "metadata": meta}
        spec = {"nodeLabels": {"pool": pool}, "topologyName": "hosts"}
        await scene.client.create(FLAVORS, {**body, "spec": spec}, dict[str, Any])
    quotas = [{"name": pool, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for pool in pools]
    whole = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}]}
    await scene.make(CLUSTER_QUEUES, name, spec=whole)
    await scene.make(LOCAL_QUEUES, name, namespace="team", spec={"clusterQueue": name})


async def loop(scene: QueueLab, scaler: StandInKarpenter) -> None:
    """The autoscaler, until cancelled."""
    while True:
        pods = (await scene.client.list_all(PODS, dict[str, Any])).items
        for body in scaler.look(pods, time.time()):
            with suppress(ConflictError):
                await scene.client.create(NODES, body, dict[str, Any])
        await asyncio.sleep(0.2)


def autoscaled(cluster: Cluster, folder: Path, scaler: StandInKarpenter) -> AbstractAsyncContextManager[QueueLab]:
    """A controller and the autoscaler run. At the end no placeholder is left, and the nodes go."""
    return queuelab.autoscaled(cluster, folder, LIMIT, lambda scene: loop(scene, scaler), none_left)


async def placeholders(scene: QueueLab) -> list[Json]:
    found = (await scene.client.list_all(PODS, dict[str, Any])).items
    return [each for each in found if PLACEHOLDER_OF in each["metadata"].get("labels", {})]


async def placeholders_once(scene: QueueLab, are_so: Callable[[list[Json]], bool], what: str) -> list[Json]:
    """The placeholders as soon as they are so, by the API server."""
    deadline_s = time.monotonic() + 60.0
    while not are_so(seen := await placeholders(scene)):
        assert time.monotonic() < deadline_s, f"{what}: {[one['metadata']['name'] for one in seen]}"
        await asyncio.sleep(0.1)
    return seen


async def none_left(scene: QueueLab) -> None:
    await placeholders_once(scene, lambda seen: not seen, "none is left")


def ready(scene: QueueLab, name: str, pods: int) -> bool:
    return bool(scene.watcher.jobs.get(f"team/{name}", {}).get("status", {}).get("ready", 0) == pods)


async def hosts(scene: QueueLab, name: str) -> set[str]:
    pods = (await scene.client.list_all(PODS, dict[str, Any])).items
    own = [pod for pod in pods if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name]
    return {pod["spec"].get("nodeName", "") for pod in own if not pod["metadata"].get("deletionTimestamp")}


async def test_a_gang_lands_on_exactly_the_nodes_that_came_for_it(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInKarpenter(node, delay_s=1.0)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "first", "first")
        await scene.job("gang", "first", pods=2)
        await until(lambda: ready(scene, "gang", 2), "the gang runs")
        assert await hosts(scene, "gang") == {"first-1", "first-2"}
        assert scaler.made == ["first-1", "first-2"], "no more than it needs"
        await none_left(scene)
        scene.finish("gang")
        await until(lambda: scene.complete("gang"), "the gang ends")


async def test_two_gangs_get_what_they_need_and_no_more(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInKarpenter(node, delay_s=0.5)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "second", "second")
        await scene.job("one", "second", pods=2)
        await scene.job("two", "second", pods=2)
        await until(lambda: ready(scene, "one", 2) and ready(scene, "two", 2), "both run")
        assert len(await hosts(scene, "one") | await hosts(scene, "two")) == 4
        assert len(scaler.made) == 4


async def test_claims_count_on_devices_to_come_and_get_those_that_are_published(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Nodes join for the placeholders, which claim by a copy of the gang's template; the gang starts once a driver has
    published the last of their devices. The next job finds CPU on a node that is there, and provokes another for its
    devices.
    """
    (tmp_path / "controller.yaml").write_text(MAPPED)
    scaler = StandInKarpenter(roomy, delay_s=0.5)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish_claims(scene, "claims")
        await claiming_gang(scene, "gang", "claims")
        await ours_once(scene, DEVICE_CLAIMS, 2, "each placeholder gets a claim by the copy")
        await ours_once(scene, CLAIM_TEMPLATES, 1, "the copy is there")
        await until(lambda: scaler.made == ["claims-1", "claims-2"], "two nodes join")
        assert scene.condition("gang", "QuotaReserved").startswith("True")
        publish(cluster, "claims-1")
        await bound(scene, 1)
        assert scene.suspended("gang"), "the devices of one node are not enough"
        publish(cluster, "claims-2")
        await until(lambda: ready(scene, "gang", 2), "the gang runs")
        assert await hosts(scene, "gang") == {"claims-1", "claims-2"}
        assert given_out(cluster) == {(name, f"gpu-{at}") for name in ("claims-1", "claims-2") for at in (0, 1)}
        await nothing_left(scene)
        assert scaler.made == ["claims-1", "claims-2"], "no more than it needs"
        await claiming_gang(scene, "more", "claims", pods=1)
        await until(lambda: scaler.made == ["claims-1", "claims-2", "claims-3"], "a node joins for the devices alone")
        publish(cluster, "claims-3")
        await until(lambda: ready(scene, "more", 1), "it runs there")
        await nothing_left(scene)
    cluster.kubectl("delete", "resourceslices,deviceclasses", "--all")


async def test_a_placeholder_leaves_its_devices_to_a_pod_that_was_placed_on_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    """kube-scheduler preempts nobody for devices: without that the urgent job would wait as long as the gang does."""
    (tmp_path / "controller.yaml").write_text(MAPPED)
    scaler = StandInKarpenter(roomy, delay_s=0.5)
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await scene.share(WORKLOAD_CLASSES, "urgent", value=1000)
        await furnish_claims(scene, "left")
        await claiming_gang(scene, "gang", "left")
        await until(lambda: len(scaler.made) == 2, "two nodes join")
        publish(cluster, "left-1")
        await bound(scene, 1)
        await claiming_gang(scene, "urgent", "left", pods=1, priority="urgent")
        await until(lambda: ready(scene, "urgent", 1), "it gets the devices that the placeholder had")
        assert await hosts(scene, "urgent") == {"left-1"}
        assert scene.suspended("gang")
        publish(cluster, "left-2")
        await until(lambda: "left-3" in scaler.made, "another node joins for the gang")
        publish(cluster, "left-3")
        await until(lambda: ready(scene, "gang", 2), "the gang runs")
        await nothing_left(scene)
    cluster.kubectl("delete", "resourceslices,deviceclasses", "--all")


DRIVER = "coming.example.com"
DEVICE = "example.com/device"
MAPPED = f"{CONFIG}resources: {{deviceClassMappings: [{{name: {DEVICE}, deviceClassNames: [{DRIVER}]}}]}}\n"


def roomy(pool: str, number: int) -> Json:
    """A node of four cpus."""
    made = node(pool, number)
    for amounts in made["status"].values():
        amounts["cpu"] = "4"
    return made


async def furnish_claims(scene: QueueLab, name: str) -> None:
    """A queue of a flavor whose nodes come with two devices, and a template of claims for both devices of a node."""
    await scene.share(NAMESPACES, "team")
    await scene.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
    devices = [{"driver": DRIVER, "count": 2, "attributes": {"model": "a"}}]
    notes = {NODE_TEMPLATE: json.dumps({"allocatable": {"cpu": "4"}, "devices": devices, "max": 3, "after": "1s"})}
    flavor = {"apiVersion": FLAVORS.api_version, "kind": FLAVORS.kind, "metadata": {"name": name, "annotations": notes}}
    flavor["spec"] = {"nodeLabels": {"pool": name}, "topologyName": "hosts"}
    await scene.client.create(FLAVORS, flavor, dict[str, Any])
    quotas = [{"name": name, "resources": [{"name": each, "nominalQuota": "10"} for each in ("cpu", DEVICE)]}]
    groups = [{"coveredResources": ["cpu", DEVICE], "flavors": quotas}]
    await scene.make(CLUSTER_QUEUES, name, spec={"namespaceSelector": {}, "resourceGroups": groups})
    await scene.make(LOCAL_QUEUES, name, namespace="team", spec={"clusterQueue": name})
    selects = {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model == 'a'"}}
    await scene.share(DEVICE_CLASSES, DRIVER, spec={"selectors": [selects]})
    asked = {"name": "both", "exactly": {"deviceClassName": DRIVER, "count": 2}}
    spec = {"spec": {"devices": {"requests": [asked]}}}
    await scene.share(CLAIM_TEMPLATES, "both", namespace="team", spec=spec)


async def claiming_gang(scene: QueueLab, name: str, queue: str, *, pods: int = 2, priority: str | None = None) -> None:
    """Each pod has a claim for both devices of a node, and CPU that four of them find there."""
    resources = {"requests": {"cpu": "1"}, "claims": [{"name": "devices"}]}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": resources}],
        "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "both"}],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"annotations": {COMPLETE_AFTER: "1h"}}, "spec": pod}
    labels = {QUEUE: queue, **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}}
    body["spec"] = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    await scene.client.create(JOBS, body, dict[str, Any], namespace="team")


async def bound(scene: QueueLab, number: int) -> None:
    """Wait until this number of placeholders has a node."""
    await placeholders_once(
        scene, lambda seen: sum(bool(one["spec"].get("nodeName")) for one in seen) == number, f"{number} are bound"
    )


def publish(cluster: Cluster, name: str) -> None:
    """The driver of a node."""
    devices = [{"name": f"gpu-{at}", "attributes": {"model": {"string": "a"}}} for at in (0, 1)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    body = {
        "apiVersion": DEVICE_SLICES.api_version,
        "kind": DEVICE_SLICES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))


async def ours_once(scene: QueueLab, resource: Resource, number: int, what: str) -> None:
    """Wait until the controller's namespace has so many objects of placeholders."""
    selection = Selection(namespace=NAMESPACE, label_selector=PLACEHOLDER_OF)
    deadline_s = time.monotonic() + 60.0
    while len(seen := (await scene.client.list_all(resource, dict[str, Any], selection)).items) != number:
        assert time.monotonic() < deadline_s, f"{what}: {[one['metadata']['name'] for one in seen]}"
        await asyncio.sleep(0.1)


async def nothing_left(scene: QueueLab) -> None:
    await none_left(scene)
    for resource in (CLAIM_TEMPLATES, DEVICE_CLAIMS):
        await ours_once(scene, resource, 0, f"no {resource.plural} are left")


def given_out(cluster: Cluster) -> set[tuple[str, str]]:
    """The devices that claims have, each with the pool of its node."""
    found = json.loads(cluster.kubectl("get", "resourceclaims", "-n", "team", "-o", "json"))["items"]
    results = [each["status"]["allocation"]["devices"]["results"] for each in found]
    return {(one["pool"], one["device"]) for each in results for one in each}


async def test_a_flavor_whose_nodes_do_not_come_is_followed_by_the_next(cluster: Cluster, tmp_path: Path) -> None:
    scaler = StandInKarpenter(node, never=frozenset({"never"}))
    async with autoscaled(cluster, tmp_path, scaler) as scene:
        await furnish(scene, "third", "never", "third", limit="3s")
        await scene.job("gang", "third", pods=2)
        await until(lambda: ready(scene, "gang", 2), "the gang runs on the next flavor")
        assert await hosts(scene, "gang") == {"third-1", "third-2"}


async def test_wherever_the_controller_dies_each_gang_runs_and_no_placeholder_is_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    scaler = StandInKarpenter(node, delay_s=0.3)
    async with lab(cluster, LIMIT) as scene:
        task = asyncio.create_task(loop(scene, scaler))
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await furnish(scene, "fourth", "fourth", most=6)
            names = [f"gang-{number}" for number in range(3)]
            for number, name in enumerate(names):
                await scene.job(name, "fourth", pods=2)
                await until(lambda name=name: bool(scene.watcher.of_job(name)), "it is queued")  # type: ignore[misc]
                await asyncio.sleep(0.2 * number)
                controller.kill()
                controller.start()
            await until(lambda: all(ready(scene, name, 2) for name in names), "all gangs run")
            await none_left(scene)
            await scene.clean()
            await none_left(scene)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    cluster.kubectl("delete", "nodes", "-l", "pool", "--wait=false")


NOTICE = "aws-node-termination-handler/spot-itn"


async def test_a_flavor_whose_nodes_are_taken_away_often_is_tried_last_and_by_the_next_leader_too(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with lab(cluster, LIMIT) as scene:
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await furnish(scene, "fifth", "often", "calm", most=0)
            for pool in ("often", "calm"):
                for number in (1, 2):
                    await scene.client.create(NODES, node(pool, number), dict[str, Any])
            await scene.job("gang", "fifth", pods=2)
            await until(lambda: ready(scene, "gang", 2), "the gang runs")
            assert await hosts(scene, "gang") == {"often-1", "often-2"}
            cluster.kubectl("taint", "nodes", "-l", "pool=often", f"{NOTICE}=event-1:NoSchedule")
            await until(lambda: flavor_given(scene, "gang") == "calm", "the gang goes on beside it")
            await until(lambda: ready(scene, "gang", 2), "it runs there")
            assert (
                scene.watcher.of_job("gang")["status"]["schedulingStats"]["evictions"][0]["reason"] == "NodeInterrupted"
            )
            await until(lambda: INTERRUPTED_OFTEN in notes_of(cluster, "often"), "two in a node-day are too often")
            cluster.kubectl("taint", "nodes", "-l", "pool=often", f"{NOTICE}-")
            scene.finish("gang")
            await until(lambda: scene.complete("gang"), "the gang ends")
            await scene.job("later", "fifth")
            await until(lambda: ready(scene, "later", 1), "the next job runs")
            assert flavor_given(scene, "later") == "calm", "all nodes are free again"
            counted = notes_of(cluster, "often")
            controller.kill()
            controller.start()
            await scene.job("after", "fifth")
            await until(lambda: ready(scene, "after", 1), "a job of the next leader runs")
            assert flavor_given(scene, "after") == "calm", "it knows what the one before has counted"
            await scene.job("third", "fifth")
            await until(lambda: ready(scene, "third", 1), "calm is full")
            assert flavor_given(scene, "third") == "often", "it is the last one, and taken all the same"
            assert notes_of(cluster, "often")[INTERRUPTIONS] == counted[INTERRUPTIONS]
            assert INTERRUPTIONS not in notes_of(cluster, "calm")
            await scene.clean()
    cluster.kubectl("delete", "nodes", "-l", "pool", "--wait=false")


def flavor_given(scene: QueueLab, name: str) -> str:
    admitted = scene.watcher.of_job(name).get("status", {}).get("admission") or {}
    return next((str(each["flavors"]["cpu"]) for each in admitted.get("podSetAssignments", [])), "")


def notes_of(cluster: Cluster, flavor: str) -> dict[str, str]:
    found = json.loads(cluster.kubectl("get", "resourceflavors.kueue.x-k8s.io", flavor, "-o", "json"))
    notes: dict[str, str] = found["metadata"].get("annotations", {})
    return notes


async def test_the_example_provokes_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, LIMIT) as scene:
        await scene.share(NAMESPACES, "team-a")
        cluster.kubectl("apply", "--server-side", "-f", str(EXAMPLE))
        with scene.controllers(tmp_path, "one", flags=ALONE):
            found = await placeholders_once(scene, lambda seen: len(seen) == 2, "there are two")
            assert found[0]["spec"]["nodeSelector"] == {"pool": "cloud-gpus"}
            assert found[0]["spec"]["priority"] == -10
            cluster.kubectl("delete", "job", "-n", "team-a", "two-nodes")
            await none_left(scene)


async def test_the_example_with_claims_provokes_its_nodes_by_their_devices(cluster: Cluster, tmp_path: Path) -> None:
    mapping = f"{{name: {GPU}, deviceClassNames: [gpu.nvidia.com]}}"
    (tmp_path / "controller.yaml").write_text(f"{CONFIG}resources: {{deviceClassMappings: [{mapping}]}}\n")
    async with lab(cluster, LIMIT) as scene:
        await scene.share(NAMESPACES, "team-a")
        selects = {
            "cel": {
                "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
            }
        }
        await scene.make(DEVICE_CLASSES, "gpu.nvidia.com", spec={"selectors": [selects]})
        cluster.kubectl("apply", "--server-side", "-f", str(EXAMPLE.with_name("claims-that-come.yaml")))
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await ours_once(scene, DEVICE_CLAIMS, 2, "each placeholder has a claim")
            for claim in (await scene.client.list_all(DEVICE_CLAIMS, dict[str, Any])).items:
                assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 8
            cluster.kubectl("delete", "job", "-n", "team-a", "two-nodes-by-claim")
            await nothing_left(scene)
    cluster.kubectl("delete", "deviceclasses", "--all")


def of_both_kinds(pool: str, spot: int, safe: int) -> list[Json]:
    """Nodes of a pool: spot ones, by the label of GKE, are numbered from 1 on, and the others after them."""
    label = {"cloud.google.com/gke-spot": "true"}
    return [node(pool, number, **(label if number <= spot else {})) for number in range(1, spot + safe + 1)]


async def mixed_queue(scene: QueueLab, name: str, nodes: list[Json], *, placed: bool, **notes: str) -> None:
    """A queue with one flavor of these nodes, with or without a topology, and annotations of its ClusterQueue."""
    await scene.share(NAMESPACES, "team")
    await scene.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
    for body in nodes:
        await scene.client.create(NODES, body, dict[str, Any])
    spec = {"nodeLabels": {"pool": name}, **({"topologyName": "hosts"} if placed else {})}
    await scene.make(FLAVORS, name, spec=spec)
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "10"}, {"name": GPU, "nominalQuota": "10"}]}]
    groups = [{"coveredResources": ["cpu", GPU], "flavors": quotas}]
    queue: Json = {"apiVersion": CLUSTER_QUEUES.api_version, "kind": CLUSTER_QUEUES.kind}
    queue["metadata"] = {"name": name, "annotations": {f"tessera.dev/{key}": text for key, text in notes.items()}}
    queue["spec"] = {"namespaceSelector": {}, "resourceGroups": groups}
    await scene.client.create(CLUSTER_QUEUES, queue, dict[str, Any])
    await scene.make(LOCAL_QUEUES, name, namespace="team", spec={"clusterQueue": name})


def dry_run(cluster: Cluster, notes: dict[str, str], **spec: Any) -> Json:
    """The spec of a queue's pod as the API server would create it."""
    meta = {"name": "p", "namespace": "default", "labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": notes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    pod["spec"] = {"containers": [{"name": "c", "image": "none"}], **spec}
    found: Json = json.loads(
        cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod))
    )
    made: Json = found["spec"]
    return made


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OFF = {"tessera.dev/kept-off": "spot"}


def terms_of(spec: Json) -> list[Json]:
    found: list[Json] = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return found


async def keeps_pods_off_spot(cluster: Cluster) -> None:
    """The chart's policy is in force."""
    values = ("--set", "controller.jobs.suspendBy=policy", "--set", "controller.config.tessera.spotLabels.kind=cheap")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-capacity-policy", *values))
    await until(lambda: bool(terms_of(dry_run(cluster, OFF))), "the API server keeps pods off spot nodes")


async def test_the_api_server_keeps_pods_off_spot_nodes_beside_their_own_affinity(cluster: Cluster) -> None:
    await keeps_pods_off_spot(cluster)
    (alone,) = terms_of(dry_run(cluster, OFF))
    off = alone["matchExpressions"]
    assert {each["key"]: each["values"] for each in off} == {
        **{key: [value] for key, value in SPOT_LABELS.items()},
        "kind": ["cheap"],
    }
    assert {each["operator"] for each in off} == {"NotIn"}
    zone, name = (
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "metadata.name", "operator": "In", "values": ["n"]},
    )
    own = [{"matchExpressions": [zone]}, {"matchFields": [name]}, {}]
    has = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": own}}, "podAffinity": {}}
    made = terms_of(dry_run(cluster, OFF, affinity=has))
    assert made == [{"matchExpressions": [zone, *off]}, {"matchFields": [name], "matchExpressions": off}, {}]
    assert terms_of(dry_run(cluster, OFF, affinity={"podAffinity": {}})) == [alone]
    assert "affinity" not in dry_run(cluster, {})


async def test_spot_nodes_and_others_of_one_flavor_get_the_pods_that_are_for_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    await keeps_pods_off_spot(cluster)
    async with lab(cluster, LIMIT) as scene:
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await mixed_queue(scene, "mixed", of_both_kinds("mixed", 2, 2), placed=True)
            await scene.job("safe", "mixed", pods=2, notes={SPOT: "never"})
            await until(lambda: ready(scene, "safe", 2), "it runs")
            assert await hosts(scene, "safe") == {"mixed-3", "mixed-4"}
            await scene.job("late", "mixed", notes={SPOT: "never"})
            await scene.job("fond", "mixed", notes={SPOT: "preferred"})
            await until(lambda: ready(scene, "fond", 1), "it runs on what others leave")
            assert await hosts(scene, "fond") < {"mixed-1", "mixed-2"}
            assert await hosts(scene, "late") == set(), "a spot node is free, and not for it"
            # Where nobody chooses nodes but kube-scheduler the pods themselves keep off, here by their queue's word.
            await mixed_queue(scene, "loose", of_both_kinds("loose", 4, 2), placed=False, spot="never")
            await scene.job("kept", "loose", pods=2)
            await until(lambda: ready(scene, "kept", 2), "it runs where kube-scheduler has put it")
            assert await hosts(scene, "kept") == {"loose-5", "loose-6"}
            await scene.clean()


async def test_pods_of_a_queue_are_marked_as_they_are_created(cluster: Cluster) -> None:
    """The API server alone marks them: no controller runs."""
    switch = ("--set", "controller.jobs.suspendBy=policy")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-marks-policy", *switch))
    labels = {"kueue.x-k8s.io/podset": "main"}
    grace = {"tessera.dev/checkpoint-grace": "90s"}

    def made(labels: dict[str, str], notes: dict[str, str]) -> Json:
        meta = {"name": "p", "namespace": "default", "labels": labels, "annotations": notes}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        pod["spec"] = {"containers": [{"name": "c", "image": "none"}]}
        command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        found: Json = json.loads(cluster.kubectl(*command, input=json.dumps(pod)))
        return found

    await until(lambda: "annotations" in made(labels, {})["metadata"], "the API server marks pods")
    pod = made(labels, grace)
    assert pod["metadata"]["annotations"] == {
        **grace,
        "tessera.dev/marked": "autoscalers",
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    assert pod["spec"]["terminationGracePeriodSeconds"] == 90
    for asked, seconds in (("1.5m", 90), ("60.5s", 61), ("1h", 600), ("99999h99999h99999h99999h", 600), ("soon", 30)):
        given = made(labels, {"tessera.dev/checkpoint-grace": asked})
        assert given["spec"]["terminationGracePeriodSeconds"] == seconds, asked
    less = (*switch, "--set", "controller.config.tessera.spot.maxGrace=1m")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-marks-policy", *less))
    await until(
        lambda: made(labels, grace)["spec"]["terminationGracePeriodSeconds"] == 60, "pods get no more than that"
    )
    own = {"karpenter.sh/do-not-disrupt": "8h"}
    assert made(labels, own)["metadata"]["annotations"] == own
    assert "annotations" not in made({"app": "web"}, {})["metadata"]
