"""Placing gangs on 10,000 nodes of 8 GPUs in five levels: ``python -m hack.bench topology``.

The cluster is empty, half full, or fragmented: some 95 % of all GPUs are in use, and what is free is strewn over a
quarter of the nodes. A gang is of 1, 64 or 1,024 pods that take a node each (one GPU each on the fragmented cluster),
required in one domain of the lowest level that can hold it. Each question is asked after a few nodes have changed; the
first one of a shape, which counts all nodes, is told apart.

Then the same with the GPUs of every node known to the last link, and each pod asking for eight joined by NVLink (or for
one GPU where it does least harm).

And victims: 2,000 nodes are full of workloads of one node each, and a gang of 700 nodes may evict them all.

Times are those of the thread, so that others on the machine add nothing.
"""

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from controller.objects.core import Node
from controller.objects.decode import GpuNode, decode
from controller.objects.meta import ObjectMeta
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.objects.queues import ClusterQueue, ResourceFlavor, Topology
from controller.objects.workload import PodSet, Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.decisions.takennodes import ranked
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import (
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import PodSetRequests, TopologyUsage, WorkloadInfo
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import Placed, PlacementNoFit, PlacementRequest, PlacementRules
from controller.scheduler.topology.requests import topology_request
from hack.bench.table import Row, show
from inventory.api.gpunode import Device, GpuNodeStatus, LinkEntry, Offer, Summary
from inventory.api.names import REQUIRED_GPU_LINK

LEVELS: Final = ("dc/zone", "dc/block", "dc/rack", "dc/switch", HOSTNAME_LABEL)
FANS: Final = (2, 5, 10, 4, 25)
"""2 zones of 5 blocks of 10 racks of 4 switches of 25 hosts: 10,000 nodes."""
GPUS: Final = 8
FLAVOR: Final = FlavorName("gpu")
GPU: Final = ResourceName("nvidia.com/gpu")
GOALS_MS: Final = {1: 1.0, 64: 5.0, 1024: 25.0}
LEVEL_OF: Final = {1: HOSTNAME_LABEL, 64: "dc/block", 1024: "dc/zone"}
VICTIMS: Final = 700
FULL_FANS: Final = (2, 2, 5, 4, 25)
"""Of the 2,000 nodes that are full when these victims are looked for."""
OFFERS: Final = (Offer(resource=GPU),)
CHURN: Final = 8
"""Nodes that change between two questions."""


def topology() -> tuple[Topology, ResourceFlavor]:
    levels = [{"nodeLabel": level} for level in LEVELS]
    spec = {"topologyName": "dc", "nodeLabels": {"gpu": "yes"}}
    return (
        decode({"metadata": {"name": "dc"}, "spec": {"levels": levels}}, Topology),
        decode({"metadata": {"name": FLAVOR}, "spec": spec}, ResourceFlavor),
    )


class Nodes(Protocol):
    """What takes nodes: a topology, or all of them."""

    def set_node(self, node: Node, /) -> object: ...


def nodes(topologies: Nodes, fans: Sequence[int]) -> list[str]:
    """Tells the hosts, so many domains below each."""
    hosts: list[str] = []
    paths: list[tuple[str, ...]] = [()]
    for level, fan in enumerate(fans):
        letter = LEVELS[level].partition("/")[2][0]
        paths = [(*path, f"{path[-1] if path else ''}{letter}{number:02d}") for path in paths for number in range(fan)]
    for path in paths:
        labels = {**dict(zip(LEVELS, path, strict=True)), "gpu": "yes"}
        status = {
            "allocatable": {"cpu": "128", "memory": "1Ti", GPU: str(GPUS), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        topologies.set_node(decode({"metadata": {"name": path[-1], "labels": labels}, "status": status}, Node))
        hosts.append(path[-1])
    return hosts


def cluster(*, known: bool = False, undo: UndoLog | None = None) -> tuple[Topologies, list[str]]:
    """``known``: the agents of all nodes have told their GPUs, eight behind switches each."""
    topologies = Topologies(undo or UndoLog(), FeatureGates(), rules=PlacementRules(packs=known))
    dc, flavor = topology()
    topologies.set_topology(dc)
    topologies.set_flavor(flavor)
    hosts = nodes(topologies, FANS)
    for host in hosts if known else ():
        topologies.set_gpu_node(gpu_node(host, lambda _a, _b: 12))
    topologies.begin(0.0)
    return topologies, hosts


def gpu_node(host: str, nvlinks: Callable[[int, int], int]) -> GpuNode:
    """Eight GPUs on two NUMA nodes, with so many NVLinks between two of them."""
    half = GPUS // 2
    return GpuNode(
        metadata=ObjectMeta(name=host),
        status=GpuNodeStatus(
            summary=Summary(gpus=GPUS, healthy=GPUS, product="P"),
            devices=tuple(
                Device(
                    uuid=f"{host}-{at}",
                    index=at,
                    product="P",
                    memory_mib=81920,
                    pci_bus_id="",
                    numa_node=at // half,
                    offers=OFFERS,
                )
                for at in range(GPUS)
            ),
            links=tuple(
                LinkEntry(a=a, b=b, pcie="PHB" if a // half == b // half else "SYS", nvlinks=nvlinks(a, b))
                for a in range(GPUS)
                for b in range(a + 1, GPUS)
            ),
        ),
    )


def usage(hosts: Sequence[str], gpus: int) -> TopologyUsage:
    domains = tuple(Domain((host,), 1) for host in hosts)
    return TopologyUsage(levels=(HOSTNAME_LABEL,), domains=domains, single_pod={GPU: gpus, ResourceName("cpu"): 8000})


def fill(topologies: Topologies, hosts: Sequence[str], state: str, chance: random.Random) -> None:
    if state == "half full":
        topologies.add(FLAVOR, usage(chance.sample(list(hosts), len(hosts) // 2), GPUS))
    elif state == "fragmented":
        taken: dict[int, list[str]] = {gpus: [] for gpus in range(GPUS + 1)}
        for host in hosts:
            free = chance.choices((0, 1, 2, 4), weights=(72, 20, 4, 4))[0]
            taken[GPUS - free].append(host)
        for gpus, on in taken.items():
            topologies.add(FLAVOR, usage(on, gpus))


def request(pods: int, gpus: int, link: str = "") -> PlacementRequest:
    asked = {"required": LEVEL_OF[pods]}
    template = {"metadata": {"annotations": {REQUIRED_GPU_LINK: link} if link else {}}}
    pod_set = decode({"name": "main", "count": pods, "topologyRequest": asked, "template": template}, PodSet)
    return PlacementRequest(
        pod_set=pod_set,
        asked=topology_request(pod_set),
        count=pods,
        flavor=FLAVOR,
        single_pod={GPU: gpus, ResourceName("cpu"): 8000, ResourceName("memory"): 64 << 30},
    )


def timed(
    topologies: Topologies, wanted: PlacementRequest, hosts: Sequence[str], rounds: int
) -> tuple[float, list[float], bool]:
    """Milliseconds of the first question and of the others, and whether there was a place."""
    chance = random.Random(2)
    spent: list[float] = []
    is_placed = False
    for _ in range(rounds + 1):
        began = time.thread_time()
        answer = topologies.place((wanted,), on_empty=False)
        spent.append((time.thread_time() - began) * 1000)
        is_placed = isinstance(answer, Placed)
        changed = usage(chance.sample(list(hosts), CHURN), 1)
        topologies.add(FLAVOR, changed)
        topologies.remove(FLAVOR, changed)
    return spent[0], spent[1:], is_placed


def with_devices(rounds: int) -> list[Row]:
    rows = []
    for state, link in (("half full", "nvlink"), ("fragmented", "")):
        undo = UndoLog()
        topologies, hosts = cluster(known=True, undo=undo)
        fill(topologies, hosts, state, random.Random(1))
        for pods, goal_ms in GOALS_MS.items():
            wanted = request(pods, GPUS if link else 1, link)
            first_ms, spent_ms, _ = timed(topologies, wanted, hosts, rounds)
            said = "eight linked GPUs each" if link else "one GPU each"
            measured = f"median {statistics.median(spent_ms):.2f} ms, first {first_ms:.0f} ms"
            rows.append(
                Row(f"{state}, devices known, gang of {pods:,}, {said}", measured, f"median under {goal_ms:g} ms")
            )
        if link:
            placed = topologies.place((request(1024, GPUS, link),), on_empty=False)
            assert isinstance(placed, Placed)
            mark = undo.mark()
            first_ms = _charged(topologies, placed.topologies["main"])
            undo.rollback(mark)
            again_ms = _charged(topologies, placed.topologies["main"])
            measured = f"{first_ms:.1f} ms in the cycle, {again_ms:.1f} ms at admission"
            rows.append(Row("the devices of 1,024 pods chosen and charged", measured, ""))
    return rows


def _charged(topologies: Topologies, place: TopologyUsage) -> float:
    """Milliseconds."""
    began = time.thread_time()
    topologies.add(FLAVOR, place)
    return (time.thread_time() - began) * 1000


def full(fans: Sequence[int]) -> tuple[Cluster, Preemption]:
    """Each node is held by a workload of its own that anybody of higher priority may evict."""
    cluster = Cluster()
    preemption = Preemption(cluster, lambda _: 0.0)
    dc, flavor = topology()
    cluster.set_topology(dc)
    cluster.set_flavor(flavor)
    hosts = nodes(cluster.placement, fans)
    quota = {"name": GPU, "nominalQuota": str(GPUS * len(hosts))}
    spec = {
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": FLAVOR, "resources": [quota]}]}],
    }
    cluster.set_cluster_queue(decode({"metadata": {"name": "q"}, "spec": spec}, ClusterQueue))
    random.Random(3).shuffle(hosts)
    for at, host in enumerate(hosts):
        place = TopologyUsage(levels=(HOSTNAME_LABEL,), domains=(Domain((host,), 1),), single_pod={GPU: GPUS})
        pods = PodSetRequests(name="main", count=1, requests={GPU: GPUS}, flavors={GPU: FLAVOR}, topology=place)
        workload = Workload(metadata=ObjectMeta(name=f"w{at}", uid=f"w{at}"))
        cluster.add_holder(
            Holder(
                info=WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName("q"), pod_sets=(pods,)),
                cluster_queue=ClusterQueueName("q"),
                local_queue=LocalQueueKey("/l"),
                usage={FlavorResource(FLAVOR, GPU): GPUS},
                priority=0,
                reserved_at_s=float(at),
                queued_at_s=0.0,
            )
        )
    return cluster, preemption


def victims(rounds: int) -> Row:
    cluster, preemption = full(FULL_FANS)
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: str(GPUS)}}}]}}
    asked = {"name": "main", "count": VICTIMS, "topologyRequest": {"required": "dc/zone"}, "template": template}
    workload = decode({"metadata": {"name": "in"}, "spec": {"podSets": [asked]}}, Workload)
    incoming = Incoming(
        info=WorkloadInfo.of(workload, rules=cluster.config.request_rules, gates=cluster.config.gates),
        queue=cluster.queue(ClusterQueueName("q")),
        local_queue=LocalQueueKey("/l"),
        priority=10,
        queued_at_s=0.0,
    )
    assigner = FlavorAssigner(cluster, preemption.oracle)
    spent_ms: list[float] = []
    for _ in range(rounds):
        assignment = assigner.assign(incoming)
        began = time.thread_time()
        found = preemption.targets(incoming, assignment, 1_000_000.0)
        spent_ms.append((time.thread_time() - began) * 1000)
    what = f"2,000 full nodes, gang of {VICTIMS}: {len(found)} victims"
    return Row(what, f"median {statistics.median(spent_ms):.0f} ms, best {min(spent_ms):.0f} ms", "under 100 ms")


def taken(rounds: int) -> list[Row]:
    """The words of a refusal: each node is held by a workload of its own, and one has changed since the last look."""
    cluster, _ = full(FANS)
    wanted = request(64, GPUS)
    name = cluster.placement.place((wanted,), on_empty=False)
    assert isinstance(name, PlacementNoFit)
    assert name.unplaced is not None
    looked_ms: list[float] = []
    named_ms: list[float] = []
    for at in range(rounds):
        one = cluster.holders[WorkloadKey(f"/w{at}")]
        cluster.remove_holder(one.key)
        cluster.add_holder(msgspec.structs.replace(one))
        began = time.thread_time()
        full_nodes = cluster.placement.full_nodes(name.unplaced, 10.0 * at)
        looked_ms.append((time.thread_time() - began) * 1000)
        assert full_nodes is not None
        began = time.thread_time()
        by = ranked(full_nodes, cluster.holders, "other").by
        named_ms.append((time.thread_time() - began) * 1000)
        assert by == (("workloads of queue q", 10_000),)
    return [
        Row("10,000 full nodes: who has them", f"median {statistics.median(looked_ms):.0f} ms", "under 20 ms"),
        Row("  and their names, for a condition", f"median {statistics.median(named_ms):.0f} ms", ""),
    ]


def main(words: Sequence[str]) -> None:
    rounds = int(words[words.index("--rounds") + 1]) if "--rounds" in words else 50
    tracemalloc.start()
    topologies, hosts = cluster()
    fill(topologies, hosts, "half full", random.Random(1))
    for pods in GOALS_MS:
        topologies.place((request(pods, GPUS),), on_empty=False)
    gc.collect()
    mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    del topologies
    rows = []
    for state in ("empty", "half full", "fragmented"):
        topologies, hosts = cluster()
        fill(topologies, hosts, state, random.Random(1))
        for pods, goal_ms in GOALS_MS.items():
            wanted = request(pods, 1 if state == "fragmented" else GPUS)
            first_ms, spent_ms, is_placed = timed(topologies, wanted, hosts, rounds)
            median_ms = statistics.median(spent_ms)
            p95_ms = sorted(spent_ms)[int(0.95 * len(spent_ms))]
            measured = f"median {median_ms:.2f} ms, p95 {p95_ms:.2f} ms, first {first_ms:.0f} ms"
            what = f"{state}, gang of {pods:,}: {'placed' if is_placed else 'no room'}"
            rows.append(Row(what, measured, f"median under {goal_ms:g} ms"))
    rows += with_devices(rounds)
    rows.append(victims(max(3, rounds // 5)))
    rows += taken(max(3, rounds // 5))
    rows.append(Row("nodes, tree, usage and counts of three shapes", f"{mib:.0f} MiB", "under 200 MiB"))
    show("placing gangs on 10,000 nodes", rows)
