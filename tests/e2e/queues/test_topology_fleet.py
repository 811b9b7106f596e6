"""A fleet of 64 played nodes in NVLink cliques, and one real node: preemption frees GPUs that are usable together, and
a lost node costs a gang one place.

Section names: the fleet's GPUs are full in the first test, as in the articles that ask for topology-aware preemption.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    TOPOLOGIES,
    WORKLOAD_CLASSES,
)
from controller.objects.decode import decode
from controller.objects.placeencoding import decode as decode_places
from controller.objects.workload import Workload
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, Agent, Lab, fleet
from tests.support.e2e.queuelab import ALONE, CONFIG, QUEUE, Json, QueueLab, install, lab, until

pytestmark = pytest.mark.e2e

CLIQUE, HOST = "nvidia.com/gpu.clique", "kubernetes.io/hostname"
CLIQUES, SIZE = 16, 4
"""NVLink cliques, and nodes of 8 GPUs in each."""
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
RUNTIME = "tessera.dev/runtime"
FREES_NODES = (
    "{policy: tessera, packing: {freeNodes: true}, "
    "consolidation: {enabled: true, minimumRuntime: 1s, movesPerHour: 10},"
)
TEAM = "team"


def clique_of(host: str) -> str:
    return f"c{int(host.removeprefix('kwok-')) // SIZE:02}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(kwok_nodes=CLIQUES * SIZE, kwok_capacity={GPU: "8"})
    with Cluster.up(f"fleet-{os.getpid()}", spec) as cluster:
        install(cluster)
        for number in range(CLIQUES):
            hosts = [f"kwok-{number * SIZE + i}" for i in range(SIZE)]
            cluster.kubectl("label", "node", *hosts, f"{CLIQUE}=c{number:02}")
        yield cluster


@pytest.fixture(scope="module")
def agent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Of the one real node."""
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    node = fleet(path, gpus=8, product="NVIDIA H100 80GB HBM3", nvlink="pairs")
    bench = Lab(cluster, cluster.node("node-1"))
    with bench.agent(node, f"version: v1\nhealth: {FAST}\n") as agent:
        bench.await_amounts({GPU: 8})
        yield agent


async def prepare(scene: QueueLab) -> None:
    """Queue ``fleet`` over the cliques, ``real`` over the real node; three priority classes."""
    assert not scene.watcher.workloads, f"a test before did not end well and left {sorted(scene.watcher.workloads)[:5]}"
    await scene.share(NAMESPACES, TEAM)
    for name, value in (("lowest", 1), ("low", 10), ("high", 100)):
        await scene.share(WORKLOAD_CLASSES, name, value=value)
    levels = {"fleet": [CLIQUE, HOST], "real": [HOST]}
    nodes = {"fleet": {"type": "kwok"}, "real": {HOST: "node-1"}}
    for name, labels in nodes.items():
        await scene.share(TOPOLOGIES, name, spec={"levels": [{"nodeLabel": level} for level in levels[name]]})
        await scene.share(FLAVORS, name, spec={"nodeLabels": labels, "topologyName": name})
        quota = {"name": name, "resources": [{"name": GPU, "nominalQuota": "512"}]}
        groups = [{"coveredResources": [GPU], "flavors": [quota]}]
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
        await scene.make(CLUSTER_QUEUES, name, spec=spec)
        await scene.make(LOCAL_QUEUES, name, namespace=TEAM, spec={"clusterQueue": name})


async def job(
    scene: QueueLab,
    name: str,
    *,
    pods: int,
    gpus: int = 8,
    queue: str = "fleet",
    priority: str = "low",
    clique: str = "",
    notes: dict[str, str] | None = None,
) -> None:
    """``notes``: annotations of the pods, and a run time of the job."""
    container: Json = {"name": "main", "image": TEST_IMAGE, "resources": {"limits": {GPU: str(gpus)}}}
    container |= {"imagePullPolicy": "Never", "command": ["sh", "-c", "trap 'exit 143' TERM; sleep 86400 & wait"]}
    spec: Json = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}
    spec |= {"automountServiceAccountToken": False, **({"nodeSelector": {CLIQUE: clique}} if clique else {})}
    template = {"metadata": {"annotations": {COMPLETE_AFTER: "1h", **(notes or {})}}, "spec": spec}
    labels = {QUEUE: queue, "kueue.x-k8s.io/priority-class": priority}
    told = {key: value for key, value in (notes or {}).items() if key == RUNTIME}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": told},
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "backoffLimit": 100, "template": template},
    }
    await scene.client.create(JOBS, body, dict[str, Any], namespace=TEAM)


def ready(scene: QueueLab, name: str, pods: int) -> bool:
    found = scene.watcher.jobs.get(f"{TEAM}/{name}", {}).get("status", {})
    return bool(found.get("ready", 0) == pods)


def all_run(scene: QueueLab, pods: dict[str, int]) -> bool:
    return all(ready(scene, name, count) for name, count in pods.items())


def hosts(scene: QueueLab, name: str) -> Counter[str]:
    """Pods by host, as its workload has them placed."""
    given = scene.watcher.of_job(name)
    if not given:
        return Counter()
    admission = decode(given, Workload).status.admission
    found: Counter[str] = Counter()
    for one in admission.pod_set_assignments if admission is not None else ():
        if one.topology_assignment is not None:
            for domain in decode_places(one.topology_assignment):
                found[domain.values[-1]] += domain.pods
    return found


def evicted(scene: QueueLab) -> dict[str, str]:
    """Why, by job: those that were ever evicted."""
    found = {}
    for one in scene.watcher.workloads.values():
        stats = one.get("status", {}).get("schedulingStats", {}).get("evictions", [])
        if stats:
            found[one["metadata"]["ownerReferences"][0]["name"]] = stats[0]["reason"]
    return found


async def test_preemption_frees_one_clique_and_not_the_cheapest_gpus_all_over_the_fleet(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In every clique one node runs what is worth least. Four of those would be the cheapest victims, and useless."""
    async with lab(cluster, {}) as scene:
        await prepare(scene)
        with scene.controllers(tmp_path, "one", flags=ALONE):
            for number in range(CLIQUES):
                clique = f"c{number:02}"
                await job(scene, f"low-{clique}", pods=SIZE - 1, clique=clique)
                await job(scene, f"lowest-{clique}", pods=1, priority="lowest", clique=clique)
            names = {f"low-c{n:02}": SIZE - 1 for n in range(CLIQUES)} | {f"lowest-c{n:02}": 1 for n in range(CLIQUES)}
            await until(
                lambda: all(ready(scene, name, pods) for name, pods in names.items()), "the fleet is full", 400.0
            )
            await job(scene, "training", pods=SIZE, priority="high", notes={REQUIRED: CLIQUE})
            await until(lambda: ready(scene, "training", SIZE), "the gang runs")
            (clique,) = {clique_of(host) for host in hosts(scene, "training")}
            assert set(hosts(scene, "training").values()) == {1}
            assert evicted(scene) == {f"low-{clique}": "Preempted", f"lowest-{clique}": "Preempted"}
            left = {name: pods for name, pods in names.items() if not name.endswith(clique)}
            assert all_run(scene, left)
            await scene.clean()


async def test_a_lost_node_costs_a_gang_one_place_and_a_second_one_its_clique(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, {}) as scene:
        await prepare(scene)
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await job(scene, "ring", pods=SIZE - 1, notes={REQUIRED: CLIQUE})
            await until(lambda: ready(scene, "ring", SIZE - 1), "the gang runs")
            before = hosts(scene, "ring")
            (clique,) = {clique_of(host) for host in before}
            first, second = sorted(before)[:2]
            lose(cluster, first)
            await until(lambda: first not in hosts(scene, "ring"), "its place is another")
            after = hosts(scene, "ring")
            assert {clique_of(host) for host in after} == {clique}
            assert len(after & before) == SIZE - 2, "the others stay"
            forget_pods(cluster, first)
            await until(lambda: ready(scene, "ring", SIZE - 1), "all of the gang runs again")
            assert not evicted(scene)
            lose(cluster, second)
            forget_pods(cluster, second)
            await until(lambda: evicted(scene) == {"ring": "NodeFailures"}, "it is evicted")
            await until(lambda: ready(scene, "ring", SIZE - 1), "it runs elsewhere")
            (other,) = {clique_of(host) for host in hosts(scene, "ring")}
            assert other != clique
            # Another place without a new admission is what this is about: once, after the first node.
            assert len(scene.watcher.broken) == 1, scene.watcher.broken
            scene.watcher.broken.clear()
            await scene.clean()


async def test_the_examples_job_runs_on_linked_gpus_and_moves_as_a_whole(cluster: Cluster, tmp_path: Path) -> None:
    """On played nodes an agent's word is ours to write: GpuNodes of two cliques, and then one with a failed GPU."""
    async with lab(cluster, {}) as scene:
        await prepare(scene)
        await scene.share(NAMESPACES, "ml-research")
        await scene.make(LOCAL_QUEUES, "ml-research-queue", namespace="ml-research", spec={"clusterQueue": "fleet"})
        for number in range(2 * SIZE):
            report(cluster, f"kwok-{8 + number}")
        with scene.controllers(tmp_path, "one", flags=ALONE):
            body = yaml.safe_load((EXAMPLES / "gangs" / "job-requeued-on-gpu-failure.yaml").read_text())
            body["spec"]["suspend"] = True  # as the chart's policy has the API server do
            cluster.kubectl("create", "-f", "-", input=json.dumps(body))

            def runs() -> bool:
                return bool(scene.watcher.jobs.get("ml-research/pretrain", {}).get("status", {}).get("ready") == SIZE)

            await until(runs, "the example runs")
            where = hosts(scene, "pretrain")
            assert len({clique_of(host) for host in where}) == 1
            host = min(where)
            pods = json.loads(cluster.kubectl("get", "pods", "-n", "ml-research", "-o", "json"))["items"]
            (pod,) = [one["metadata"]["name"] for one in pods if one["spec"]["nodeName"] == host]
            report(cluster, host, failed=3, holder=pod)
            await until(lambda: evicted(scene) == {"pretrain": "NodeFailures"}, "it goes back to its queue")
            await until(lambda: runs() and host not in hosts(scene, "pretrain"), "it runs elsewhere")
            cluster.kubectl("delete", "job", "-n", "ml-research", "pretrain", "--cascade=foreground", "--timeout=180s")
            cluster.kubectl("delete", "gpunodes", "-l", "played=true")
            cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "-n", "ml-research", "--all")
            await scene.clean()


async def test_a_running_job_moves_so_that_a_node_is_free(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text(CONFIG.replace("{policy: tessera,", FREES_NODES))
    async with lab(cluster, {}) as scene:
        await prepare(scene)
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await job(scene, "stays", pods=1, gpus=4, notes={RUNTIME: "3h"})
            await until(lambda: ready(scene, "stays", 1), "the first job runs")
            await job(scene, "fills", pods=1, gpus=4, notes={RUNTIME: "3h"})
            await until(lambda: ready(scene, "fills", 1), "its node is full")
            (host,) = hosts(scene, "stays") | hosts(scene, "fills")
            await job(scene, "moves", pods=1, gpus=2, notes={RUNTIME: "2h"})
            await until(lambda: ready(scene, "moves", 1), "the next job runs")
            assert host not in nodes_of(cluster, "moves")
            cluster.kubectl("delete", "job", "-n", TEAM, "fills", "--cascade=foreground", "--timeout=60s")
            # A node is looked for once a minute.
            await until(lambda: nodes_of(cluster, "moves") == {host}, "it moved beside the first job", 150.0)
            await until(lambda: ready(scene, "moves", 1), "it runs there")
            await until(lambda: evicted(scene) == {"moves": "Preempted"}, "the watcher has its eviction")
            (moved,) = [one for one in scene.watcher.workloads.values() if "moves" in one["metadata"]["name"]]
            said = [one["message"] for one in moved["status"]["conditions"] if one["type"] == "Preempted"]
            assert "is free" in said[0]
            assert host in said[0]
            assert ready(scene, "stays", 1)
            await scene.clean()


def nodes_of(cluster: Cluster, name: str) -> set[str]:
    """The nodes of the job's pods, by the API server."""
    found = json.loads(cluster.kubectl("get", "pods", "-n", TEAM, "-l", f"job-name={name}", "-o", "json"))["items"]
    return {one["spec"].get("nodeName", "") for one in found if "deletionTimestamp" not in one["metadata"]}


def report(cluster: Cluster, host: str, *, failed: int = -1, holder: str = "") -> None:
    """What an agent on that node would say: eight GPUs on one NVSwitch; ``failed`` is one's index, held by a pod."""
    devices = [
        {
            "uuid": f"GPU-{host}-{i}",
            "index": i,
            "product": "NVIDIA H100 80GB HBM3",
            "memoryMiB": 81559,
            "pciBusId": f"0000:{i:02}:00.0",
            "offers": [{"resource": GPU}],
            "health": {"state": "Unhealthy" if i == failed else "Healthy"},
        }
        for i in range(8)
    ]
    links = [{"a": a, "b": b, "nvswitch": 18} for a in range(8) for b in range(a + 1, 8)]
    held = [
        {"device": f"GPU-{host}-{i}", "namespace": "ml-research", "pod": holder, "container": "trainer"}
        for i in range(8)
        if holder
    ]
    summary = {"gpus": 8, "healthy": 8 - (failed >= 0), "product": "NVIDIA H100 80GB HBM3"}
    status = {"summary": summary, "devices": devices, "links": links, "holders": held}
    metadata = {"name": host, "labels": {"played": "true"}}
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": metadata, "status": status}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(body))


async def test_the_real_node_gives_the_linked_gpus_that_were_planned(
    cluster: Cluster, agent: Agent, tmp_path: Path
) -> None:
    async with lab(cluster, {}) as scene:
        await prepare(scene)
        with scene.controllers(tmp_path, "one", flags=ALONE):
            link = {"tessera.dev/required-gpu-link": "nvlink"}
            await job(scene, "pairs", pods=3, gpus=2, queue="real", notes=link)
            await until(lambda: ready(scene, "pairs", 3), "the pods run")
            report = agent.until(lambda found: len(found.holders) == 6, "six GPUs are held")
            index = {str(gpu.uuid): gpu.index for gpu in report.node.gpus}
            held: dict[str, set[int]] = {}
            for one in report.holders:
                held.setdefault(one.holder.pod, set()).add(index[one.device])
            assert all(one in [{0, 1}, {2, 3}, {4, 5}, {6, 7}] for one in held.values()), held
            await scene.clean()


def lose(cluster: Cluster, host: str) -> None:
    """As a cloud takes a machine away."""
    cluster.kubectl("delete", "node", host)


def forget_pods(cluster: Cluster, host: str) -> None:
    """What Kubernetes' garbage collector does to a lost node's pods, less than a minute later."""
    chosen = ("-n", TEAM, "--field-selector", f"spec.nodeName={host}")
    cluster.kubectl("delete", "pods", *chosen, "--force", "--grace-period=0", "--wait=false")
