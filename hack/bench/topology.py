"""Placing gangs on 10,000 nodes of 8 GPUs in five levels: ``python -m hack.bench topology``.

The cluster is empty, half full, or fragmented: some 95 % of all GPUs are in use, and what is free is strewn over a
quarter of the nodes. A gang is of 1, 64 or 1,024 pods that take a node each (one GPU each on the fragmented cluster),
required in one domain of the lowest level that can hold it. Each question is asked after a few nodes have changed; the
first one of a shape, which counts all nodes, is told apart.
"""

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from typing import Final

from controller.engine.gates import FeatureGates
from controller.engine.placement import Placed, PlacementRequest
from controller.engine.resources import FlavorName, ResourceName
from controller.engine.topology.placement import Topologies
from controller.engine.topologyencoding import HOSTNAME_LABEL, Domain
from controller.engine.undo import UndoLog
from controller.engine.workload import TopologyUsage
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor, Topology
from controller.objects.workload import PodSet
from hack.bench.table import Row, show

LEVELS: Final = ("dc/zone", "dc/block", "dc/rack", "dc/switch", HOSTNAME_LABEL)
FANS: Final = (2, 5, 10, 4, 25)
"""2 zones of 5 blocks of 10 racks of 4 switches of 25 hosts: 10,000 nodes."""
GPUS: Final = 8
FLAVOR: Final = FlavorName("gpu")
GPU: Final = ResourceName("nvidia.com/gpu")
GOALS_MS: Final = {1: 1.0, 64: 5.0, 1024: 25.0}
LEVEL_OF: Final = {1: HOSTNAME_LABEL, 64: "dc/block", 1024: "dc/zone"}
CHURN: Final = 8
"""Nodes that change between two questions."""


def cluster() -> tuple[Topologies, list[str]]:
    topologies = Topologies(UndoLog(), FeatureGates())
    levels = [{"nodeLabel": level} for level in LEVELS]
    topologies.set_topology(decode({"metadata": {"name": "dc"}, "spec": {"levels": levels}}, Topology))
    spec = {"topologyName": "dc", "nodeLabels": {"gpu": "yes"}}
    topologies.set_flavor(decode({"metadata": {"name": FLAVOR}, "spec": spec}, ResourceFlavor))
    hosts: list[str] = []
    paths: list[tuple[str, ...]] = [()]
    for level, fan in enumerate(FANS):
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
    return topologies, hosts


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


def request(pods: int, gpus: int) -> PlacementRequest:
    asked = {"required": LEVEL_OF[pods]}
    return PlacementRequest(
        pod_set=decode({"name": "main", "count": pods, "topologyRequest": asked}, PodSet),
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
    found = False
    for _ in range(rounds + 1):
        began = time.perf_counter()
        answer = topologies.place((wanted,), on_empty=False)
        spent.append((time.perf_counter() - began) * 1000)
        found = isinstance(answer, Placed)
        changed = usage(chance.sample(list(hosts), CHURN), 1)
        topologies.add(FLAVOR, changed)
        topologies.remove(FLAVOR, changed)
    return spent[0], spent[1:], found


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
            first_ms, spent_ms, found = timed(topologies, wanted, hosts, rounds)
            median_ms = statistics.median(spent_ms)
            p95_ms = sorted(spent_ms)[int(0.95 * len(spent_ms))]
            measured = f"median {median_ms:.2f} ms, p95 {p95_ms:.2f} ms, first {first_ms:.0f} ms"
            what = f"{state}, gang of {pods:,}: {'placed' if found else 'no room'}"
            rows.append(Row(what, measured, f"median under {goal_ms:g} ms"))
    rows.append(Row("nodes, tree, usage and counts of three shapes", f"{mib:.0f} MiB", "under 200 MiB"))
    show("placing gangs on 10,000 nodes", rows)
