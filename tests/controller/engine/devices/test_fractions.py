"""Percents of GPUs in the queue: only what one GPU has free counts, however much its node has in all."""

from typing import Any

from msgspec import structs

from controller.engine.config import EngineConfig
from controller.engine.devices.board import Board
from controller.engine.resources import ResourceName, WorkloadKey
from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode, decode_object
from controller.objects.gpunode import GpuNode, read_gpu_node
from tests.controller.engine.devices.boards import hosts
from tests.controller.engine.topology.lab import node
from tests.controller.engine.topology.test_topology_in_cycles import topology
from tests.controller.engine.world import World, flavor, local_queue

PERCENT = "tessera.dev/gpu-percent"


def fractional(name: str, gpus: int = 2, holders: dict[str, tuple[int, int]] | None = None) -> GpuNode:
    """``holders``: by pod, the GPU and how many percents of it."""
    devices = [
        {
            "uuid": f"{name}-{index}",
            "index": index,
            "product": "x",
            "memoryMiB": 81920,
            "pciBusId": "x",
            "offers": [{"resource": PERCENT, "replicas": 100, "granularity": 10}],
        }
        for index in range(gpus)
    ]
    held = [
        {"device": f"{name}-{gpu}::{n}", "namespace": "ns", "pod": pod, "container": "c"}
        for pod, (gpu, count) in (holders or {}).items()
        for n in range(count)
    ]
    return read_gpu_node({"metadata": {"name": name}, "status": {"devices": devices, "holders": held}})


def test_two_halves_of_two_gpus_are_no_room_for_sixty() -> None:
    pool = Board(fractional("a")).pools[ResourceName(PERCENT)]
    free = pool.free({"a-0": 50, "a-1": 50})
    assert [pool.kind.room(free, size, None) for size in (60, 50, 20)] == [0, 2, 4]
    assert pool.kind.choose(free, 60, None) == ()
    assert pool.kind.choose(pool.free({"a-0": 50}), 40, None) == (0,) * 40, "the fullest that has room"
    assert pool.kind.choose(pool.free({"a-0": 50}), 60, None) == (1,) * 60


def percents_of(name: str) -> Node:
    """The Node of two fractional GPUs."""
    plain = node(f"b/r/{name}", 0)
    allocatable = decode({"allocatable": {PERCENT: "200", "cpu": "100", "pods": "110"}}, type(plain.status)).allocatable
    return structs.replace(plain, status=structs.replace(plain.status, allocatable=allocatable))


def asking(name: str, percent: int) -> Any:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {PERCENT: str(percent)}}}]}}
    pod_set = {"name": "main", "count": 1, "template": template, "topologyRequest": {"unconstrained": True}}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    spec = {"queueName": "q", "podSets": [pod_set]}
    return decode_object({"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec})


def test_admission_counts_placeable_fractions_only() -> None:
    quota = {"name": PERCENT, "nominalQuota": "1000"}
    group = {"coveredResources": [PERCENT], "flavors": [{"name": "default", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    queue = decode_object({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec})
    world = World(EngineConfig())
    world.put(topology(), flavor("default", topologyName="dc"), queue, local_queue("q"))
    world.put(percents_of("a"), fractional("a"))
    for name, percent in (("one", 60), ("two", 60), ("three", 60), ("four", 40)):
        world.put(asking(name, percent))
        world.settle()
    assert hosts(world, "one") == hosts(world, "two") == hosts(world, "four") == {"a": 1}
    assert hosts(world, "three") == {}, "80 percent are free, and no GPU has 60 of them"
    planned = [world.engine.device_plan(WorkloadKey(f"ns/{name}"), "main", "a") for name in ("one", "two", "four")]
    assert [len(set(one)) for sets in planned for one in sets] == [1, 1, 1]
    world.finish("one")
    world.settle()
    assert hosts(world, "three") == {"a": 1}
