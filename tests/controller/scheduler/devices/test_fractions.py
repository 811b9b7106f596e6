"""Percents of GPUs in the queue: only what one GPU has free counts, however much its node has in all."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from controller.objects.core import Node
from controller.objects.decode import KUEUE, GpuNode, decode, decode_object
from controller.objects.quantity import parse_quantity
from controller.scheduler.decisions.sentences import details
from controller.scheduler.devices.board import Board
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.devicerequest import device_problems
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import ResourceName, WorkloadKey
from inventory.api.deviceplan import written
from tests.controller.scheduler.topology.test_topology_in_cycles import topology
from tests.support.controller.gpunodes import observed
from tests.support.engine.boards import hosts, plan, pod_of, settled
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, flavor, local_queue

SPLIT = "tessera.dev/gpu-percent-devices"
PERCENT, GPU = "tessera.dev/gpu-percent", "nvidia.com/gpu"


def fractional(
    name: str,
    gpus: int = 2,
    holders: dict[str, tuple[int, int]] | None = None,
    *,
    held: Mapping[str, Mapping[str, int]] | None = None,
    apart: int = 0,
) -> GpuNode:
    """``holders``: by pod, the GPU and how many percents of it; ``held``: likewise, of several GPUs by UUID. ``apart``:
    so many GPUs have an MPS daemon each and the others one; 0: each has its own.
    """
    devices = [
        {
            "uuid": f"{name}-{index}",
            "index": index,
            "product": "x",
            "memoryMiB": 81920,
            "pciBusId": "x",
            "offers": [
                {
                    "resource": PERCENT,
                    "replicas": 100,
                    "granularity": 10,
                    "daemon": f"{name}-{apart}" if apart and index >= apart else "",
                }
            ],
        }
        for index in range(gpus)
    ]
    entries = [
        {"device": f"{name}-{gpu}::{n}", "namespace": "ns", "pod": pod, "container": "c"}
        for pod, (gpu, count) in (holders or {}).items()
        for n in range(count)
    ]
    entries += [
        {"device": f"{uuid}::{n}", "namespace": "ns", "pod": pod, "container": "c"}
        for pod, percents in (held or {}).items()
        for uuid, count in percents.items()
        for n in range(count)
    ]
    return observed(name, devices=devices, holders=entries)


def test_two_halves_of_two_gpus_are_no_room_for_sixty() -> None:
    pool = Board(fractional("a")).pools[ResourceName(PERCENT)]
    free = pool.free({"a-0": 50, "a-1": 50})
    assert [pool.kind.fitting_pods(free, size, None) for size in (60, 50, 20)] == [0, 2, 4]
    assert pool.kind.choose(free, 60, None) == ()
    assert pool.kind.choose(pool.free({"a-0": 50}), 40, None) == (0,) * 40, "the fullest that has room"
    assert pool.kind.choose(pool.free({"a-0": 50}), 60, None) == (1,) * 60


def percents_of(name: str, gpus: int = 2) -> Node:
    """The Node of fractional GPUs."""
    plain = node(f"b/r/{name}", 0)
    allocatable = decode(
        {"allocatable": {PERCENT: str(100 * gpus), "cpu": "100", "pods": "110"}}, type(plain.status)
    ).allocatable
    return structs.replace(plain, status=structs.replace(plain.status, allocatable=allocatable))


def asking(
    name: str, percent: int, *more: int, topology: bool = True, resource: str = PERCENT, gpus: str | None = None
) -> Any:
    """``more``: of further containers; ``gpus``: on how many GPUs the percents are to lie, as the pod says it."""
    containers = [
        {"name": f"c{at}", "resources": {"limits": {resource: str(size)}}} for at, size in enumerate((percent, *more))
    ]
    template: dict[str, Any] = {"spec": {"containers": containers}}
    if gpus is not None:
        template["metadata"] = {"annotations": {SPLIT: gpus}}
    pod_set: dict[str, Any] = {"name": "main", "count": 1, "template": template}
    if topology:
        pod_set["topologyRequest"] = {"unconstrained": True}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    spec = {"queueName": "q", "podSets": [pod_set]}
    return decode_object({"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec})


def queue_of(*flavors: str, covered: str = PERCENT) -> Any:
    quotas = [{"name": covered, "nominalQuota": "1000"}]
    offered = [{"name": name, "resources": quotas} for name in flavors]
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [covered], "flavors": offered}]}
    return decode_object({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec})


def test_admission_counts_placeable_fractions_only() -> None:
    world = World(EngineConfig())
    world.put(topology(), flavor("default", topologyName="dc"), queue_of("default"), local_queue("q"))
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


def test_where_nobody_counts_gpu_by_gpu_no_fraction_is_admitted_and_it_is_said_why() -> None:
    world = World(EngineConfig())
    world.put(flavor("default"), queue_of("default"), local_queue("q"), percents_of("a"), fractional("a"))
    world.put(asking("w", 60, topology=False))
    world.settle()
    assert world.running() == set()
    pending = world.engine.explain(WorkloadKey("ns/w"), world.now_s)
    assert pending is not None
    said = "flavor default names no topology and the pod set asks for parts of GPUs, which are chosen node by node"
    assert any(said in line for line in details(pending.record))


def test_a_fraction_takes_the_flavor_whose_nodes_are_known_without_asking_for_a_topology() -> None:
    world = World(EngineConfig())
    world.put(topology(), flavor("plain"), flavor("known", topologyName="dc"), queue_of("plain", "known"))
    world.put(local_queue("q"), percents_of("a"), fractional("a"))
    for name, percent in (("one", 60), ("two", 60), ("three", 60)):
        world.put(asking(name, percent, topology=False))
        world.settle()
    assert hosts(world, "one") == hosts(world, "two") == {"a": 1}
    assert world.running() == {"one", "two"}


def test_what_is_charged_alike_is_not_placed_alike() -> None:
    """Both are charged in credits and in nothing else, and only one of them must be placed."""
    worth = {"example.com/credits": parse_quantity("1")}
    replaced = tuple(Transformation(input=one, outputs=worth, strategy="Replace") for one in (PERCENT, GPU))
    world = World(EngineConfig(request_rules=RequestRules(transformations=replaced)))
    world.put(flavor("default"), queue_of("default", covered="example.com/credits"), local_queue("q"))
    world.put(asking("whole", 1, topology=False, resource=GPU))
    world.put(asking("part", 1, topology=False), asking("other", 1, topology=False, resource=GPU))
    world.settle()
    assert world.running() == {"whole", "other"}


def containers(name: str, *percents: int, link: str = "") -> Any:
    """One pod whose containers ask for so many percents each."""
    made = asking(name, 1)
    pod_set = made.spec.pod_sets[0]
    template = decode(
        {
            "metadata": {"annotations": {"tessera.dev/required-gpu-link": link} if link else {}},
            "spec": {
                "containers": [
                    {"name": f"c{at}", "resources": {"limits": {PERCENT: str(one)}}} for at, one in enumerate(percents)
                ]
            },
        },
        type(pod_set.template),
    )
    pod_set = structs.replace(pod_set, template=template)
    return structs.replace(made, spec=structs.replace(made.spec, pod_sets=(pod_set,)))


def known(*boards: GpuNode) -> World:
    world = World(EngineConfig())
    world.put(topology(), flavor("default", topologyName="dc"), queue_of("default"), local_queue("q"))
    world.put(*(percents_of(one.metadata.name, len(one.status.devices)) for one in boards), *boards)
    return world


def planned(world: World, name: str) -> list[dict[str, int]]:
    sets = world.engine.device_plan(WorkloadKey(f"ns/{name}"), "main", "a")
    return [dict(Counter(one)) for one in sets]


def test_two_containers_of_one_pod_get_a_gpu_each() -> None:
    world = known(fractional("a"))
    world.put(containers("pair", 60, 60))
    settled(world)
    assert planned(world, "pair") == [{"a-0": 60, "a-1": 60}]
    world.put(containers("next", 60, 20))
    settled(world)
    assert hosts(world, "next") == {}, "no GPU has 60 percent left"
    world.put(containers("small", 40, 20, 20))
    settled(world)
    assert planned(world, "small") == [{"a-0": 40, "a-1": 40}]
    world.finish("small")
    world.finish("pair")
    settled(world)
    assert planned(world, "next") == [{"a-0": 80}]


def test_what_all_containers_ask_for_may_lie_on_one_gpu() -> None:
    world = known(fractional("a", holders={"x": (0, 90)}))
    world.put(containers("w", 60, 40))
    settled(world)
    assert planned(world, "w") == [{"a-1": 100}]


def test_a_link_holds_between_the_gpus_of_containers_too() -> None:
    world = known(fractional("a"))
    world.put(containers("w", 60, 60, link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {}, "nothing joins the two GPUs"
    world.put(containers("v", 60, 40, link="nvlink"))
    settled(world)
    assert planned(world, "v") == [{"a-0": 100}]


def test_a_request_that_is_no_multiple_of_the_granularity_finds_no_room() -> None:
    """The agent would refuse it, and the pod would fail for good."""
    world = known(fractional("a"))
    world.put(containers("w", 25), containers("v", 25, 25), containers("u", 30))
    settled(world)
    assert [hosts(world, name) for name in "wvu"] == [{}, {}, {"a": 1}]
    waits = world.engine.explain(WorkloadKey("ns/w"), world.now_s)
    assert waits is not None
    said = "; what a container asks for lies on one GPU, in multiples of its granularity"
    assert any(line.endswith(said) for line in details(waits.record))


def test_after_a_restart_percents_are_those_that_pods_were_told() -> None:
    """All of a GPU and more: that is many percents to be told."""
    first = known(fractional("a"))
    first.put(containers("w", 100, 60), containers("v", 40))
    settled(first)
    (mine,), (other,) = plan(first, "w", "a"), plan(first, "v", "a")
    swapped = {"a-0": "a-1", "a-1": "a-0"}
    told = [sorted(swapped[one] for one in given) for given in (mine, other)]
    again = known(fractional("a"))
    again.put(pod_of("v-0", "v", "a", written(told[1])), pod_of("w-0", "w", "a", written(told[0])))
    again.put(first.workloads[WorkloadKey("ns/w")], first.workloads[WorkloadKey("ns/v")])
    settled(again)
    assert [planned(again, "w"), planned(again, "v")] == [[dict(Counter(one))] for one in told]


def test_equal_parts_of_several_gpus_are_planned_charged_and_kept_apart() -> None:
    """GPU 0 has an MPS daemon of its own: it is nobody's second GPU. Each pod's parts are of two of the others."""
    world = World(EngineConfig())
    world.put(topology(), flavor("default", topologyName="dc"), queue_of("default"), local_queue("q"))
    world.put(percents_of("a", 4), fractional("a", 4, apart=1))
    for name, percent in (("one", 120), ("two", 60), ("three", 120), ("four", 20)):
        world.put(asking(name, percent, gpus="2"))
        world.settle()
    assert world.running() == {"one", "two", "four"}
    taken = Counter[str]()
    for name, each in (("one", 60), ("two", 30), ("four", 10)):
        (given,) = world.engine.device_plan(WorkloadKey(f"ns/{name}"), "main", "a")
        assert sorted(Counter(given).values()) == [each, each]
        taken.update(given)
    assert "a-0" not in taken
    assert sorted(taken.values()) == [100, 100]
    world.put(asking("whole", 100))
    world.settle()
    assert hosts(world, "whole") == {"a": 1}, "the GPU with a daemon of its own is free still"


def test_more_gpus_than_a_node_has_with_one_daemon_wait_and_it_is_said_what_is_missing() -> None:
    world = World(EngineConfig())
    world.put(topology(), flavor("default", topologyName="dc"), queue_of("default"), local_queue("q"))
    world.put(percents_of("a", 4), fractional("a", 4, apart=2))
    world.put(asking("w", 30, gpus="3"))
    world.settle()
    assert world.running() == set()
    pending = world.engine.explain(WorkloadKey("ns/w"), world.now_s)
    assert pending is not None
    said = "what a container asks for lies on 3 GPUs of one MPS daemon, equal parts on each"
    assert any(said in line for line in details(pending.record))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (asking("w", 60, gpus="0"), f"{SPLIT}: found '0', expected a whole number from 1 to 64"),
        (asking("w", 60, gpus="9" * 100), f"{SPLIT}: found '{'9' * 80}...', expected a whole number from 1 to 64"),
        (asking("w", 60, gpus=""), f"{SPLIT}: found '', expected a whole number from 1 to 64"),
        (asking("w", 40, 40, gpus="2"), f"{SPLIT}: found 2 containers with {PERCENT}, expected one"),
        (asking("w", 0, gpus="2"), f"{SPLIT}: found 0 containers with {PERCENT}, expected one"),
        (asking("w", 50, gpus="4"), f"{PERCENT}: found 50, expected a multiple of 4 up to 400: equal parts of 4 GPUs"),
        (asking("w", 202, gpus="2"), f"{PERCENT}: found 202, expected a multiple of 2 up to 200"),
    ],
)
def test_parts_that_cannot_be_are_refused_with_what_was_found(asked: Any, said: str) -> None:
    (problem,) = device_problems(asked)
    assert str(problem).startswith(f"spec.podSets[0].template.metadata.annotations: {said}")


def test_one_gpu_and_no_annotation_ask_for_the_same() -> None:
    for asked in (
        asking("w", 60),
        asking("w", 60, gpus="1"),
        asking("w", 40, 40, gpus="1"),
        asking("w", 200, gpus="2"),
    ):
        assert device_problems(asked) == []
