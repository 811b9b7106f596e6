"""What workloads get when they say which GPUs they can use, through whole cycles of the engine."""

from typing import Any

import msgspec
import pytest

from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.decisions.sentences import details
from controller.scheduler.devices.board import Board
from controller.scheduler.devices.grants import chosen
from controller.scheduler.devices.mix import DeviceShape, Mix
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.model.resources import ResourceName, WorkloadKey
from tests.controller.scheduler.topology.test_topology_in_cycles import lose
from tests.support.engine.boards import (
    PRODUCT,
    full,
    gpu_node,
    hosts,
    job,
    mesh,
    none,
    pairs,
    plan,
    pod_of,
    settled,
    world_of,
)
from tests.support.engine.topologylab import HOST, node, pod
from tests.support.engine.world import Admitted, cluster_queue, flavor, local_queue

LOWER = {"withinClusterQueue": "LowerPriority"}


def in_queue(made: Workload, queue: str) -> Workload:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queue_name=queue))


def test_four_free_gpus_in_two_pairs_are_no_linked_four() -> None:
    world = world_of([gpu_node("a", 8, pairs)])
    world.put(job("four", 4, link="nvlink"), job("twos", 2, 4, link="nvlink"))
    settled(world)
    assert hosts(world, "four") == {}
    assert plan(world, "twos", "a") == [("a-0", "a-1"), ("a-2", "a-3"), ("a-4", "a-5"), ("a-6", "a-7")]


@pytest.mark.parametrize(("link", "first"), [("pcie", ("a-0", "a-1")), ("numa", ("a-0", "a-1"))])
def test_pcie_and_numa_are_kept_to(link: str, first: tuple[str, ...]) -> None:
    world = world_of([gpu_node("a", 6, none, per_numa=3)])
    world.put(job("w", 2, 3, link=link))
    settled(world)
    assert hosts(world, "w") == {}
    world.put(job("w2", 2, 2, link=link))
    settled(world)
    assert plan(world, "w2", "a")[0] == first
    assert {one[0][-1] in "012" for one in plan(world, "w2", "a")} == {True, False}


def test_a_wish_is_met_where_it_can_be_and_keeps_nobody_waiting() -> None:
    world = world_of([gpu_node("a", 4, none), gpu_node("b", 4, full)])
    world.put(job("w", 4, wished="nvlink"))
    settled(world)
    assert hosts(world, "w") == {"b": 1}
    world.put(job("w2", 4, wished="nvlink"))
    settled(world)
    assert hosts(world, "w2") == {"a": 1}


def test_product_and_memory_choose_among_the_gpus_of_a_node() -> None:
    world = world_of([gpu_node("a", 2, product="NVIDIA T4", memory_mib=15360), gpu_node("b", 2)])
    world.put(job("big", 1, 2, memory="40"), job("t4", 1, product="NVIDIA-T4"), job("h100", 1, product="NVIDIA H100"))
    settled(world)
    assert hosts(world, "big") == {"b": 2}
    assert hosts(world, "t4") == {"a": 1}
    assert hosts(world, "h100") == {}


def test_a_node_without_a_gpunode_counts_only() -> None:
    world = world_of([], nodes={"a": 4})
    world.put(job("w", 4, link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {"a": 1}
    assert plan(world, "w", "a") == []


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({}, True),
        ({"nvidia.com/gpu.product": PRODUCT.replace(" ", "-"), "nvidia.com/gpu.memory": "81920"}, True),
        ({"nvidia.com/gpu.product": PRODUCT.replace(" ", "-") + "-SHARED"}, True),
        ({"nvidia.com/gpu.product": PRODUCT.replace(" ", "-") + "-LC"}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-H100"}, False),
        ({"nvidia.com/gpu.memory": "40960"}, False),
        ({"nvidia.com/gpu.memory": "much"}, True),
    ],
)
def test_what_labels_say_against_a_node_without_a_gpunode_counts(labels: dict[str, str], fits: bool) -> None:
    world = world_of([])
    world.put(node("b/r/a", 4, labels=labels))
    world.put(job("w", 1, product=PRODUCT, memory="80"))
    settled(world)
    assert bool(hosts(world, "w")) == fits
    world.put(node("b/r/a", 4, labels={"nvidia.com/gpu.product": "other"}), job("v", 1, product=PRODUCT))
    settled(world)
    assert not hosts(world, "v")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"link": "nvswitch"}, "tessera.dev/required-gpu-link: found 'nvswitch', expected one of nvlink, pcie, numa"),
        ({"wished": ""}, "tessera.dev/preferred-gpu-link: found '', expected one of nvlink, pcie, numa"),
        ({"memory": "80Gi"}, "tessera.dev/min-gpu-memory-gib: found '80Gi', expected a whole number of GiB"),
        ({"product": " "}, "tessera.dev/gpu-product: found ' ', expected a product"),
        ({"link": "pcie", "wished": "numa"}, "preferred-gpu-link: found beside tessera.dev/required-gpu-link"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_name_and_what_is_allowed(given: dict[str, Any], said: str) -> None:
    world = world_of([gpu_node("a")])
    world.put(job("w", 1, **given))
    settled(world)
    pending = world.engine.explain(WorkloadKey("ns/w"), world.now_s)
    assert pending is not None
    assert said in pending.record.detail


def test_who_asks_for_certain_gpus_alone_is_placed_as_if_anywhere_would_do() -> None:
    world = world_of([gpu_node("a", 4, pairs), gpu_node("b", 4, full)])
    world.put(job("w", 4, asked=PodSetTopologyRequest(), link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {"b": 1}


def test_a_gpu_that_fails_lowers_capacity_before_the_node_says_so_and_its_return_wakes_who_waits() -> None:
    world = world_of([gpu_node("a", 4, full, sick=(2,))])
    world.put(job("w", 4))
    settled(world)
    assert hosts(world, "w") == {}
    world.put(gpu_node("a", 4, full))
    settled(world)
    assert hosts(world, "w") == {"a": 1}


def test_the_other_of_a_pair_is_of_no_use_to_a_linked_two() -> None:
    world = world_of([gpu_node("a", 4, pairs, sick=(0,))])
    world.put(job("w", 2, 2, link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {}


def test_who_is_evicted_for_a_linked_set_leaves_one() -> None:
    """By age alone a GPU would be freed in each of two pairs."""
    world = world_of([gpu_node("a", 4, pairs)], preemption=LOWER)
    for at in (3, 1, 2, 0):
        world.put(job(f"low{at}", 1, created_s=at))
        settled(world)
        world.now_s += 1.0
    assert [plan(world, f"low{at}", "a") for at in (3, 1, 2, 0)] == [[("a-0",)], [("a-1",)], [("a-2",)], [("a-3",)]]
    world.put(gpu_node("a", 4, pairs, holders={"low1-0": (2,), "low2-0": (1,)}))
    world.put(pod_of("low1-0", "low1", "a", "a-1"), pod_of("low2-0", "low2", "a", "a-2"))
    settled(world)
    world.put(job("in", 2, link="nvlink", priority=10, created_s=60))
    settled(world)
    assert world.stop_evicted() == 2
    settled(world)
    assert plan(world, "in", "a") == [("a-2", "a-3")]
    assert {name for name in world.running() if name != "in"} == {"low3", "low2"}


def test_nobody_is_evicted_where_it_would_free_no_linked_set() -> None:
    world = world_of([gpu_node("a", 4, pairs, holders={"x": (0,), "y": (2,)})], preemption=LOWER)
    world.put(pod("x", "a", 1, namespace="ns"), pod("y", "a", 1, namespace="ns"))
    world.put(job("low", 1, 2))
    settled(world)
    assert hosts(world, "low") == {"a": 2}
    world.put(job("in", 2, link="nvlink", priority=10))
    settled(world)
    assert world.stop_evicted() == 0
    assert hosts(world, "in") == {}


def test_what_a_cycle_chose_is_charged_and_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 2))
    settled(world)
    choices: list[int] = []

    def counted(board: Any, grant: Any, taken: Any, missing: int) -> Any:
        choices.append(missing)
        return chosen(board, grant, taken, missing)

    monkeypatch.setattr("controller.scheduler.devices.granting.chosen", counted)
    world.engine.put(job("v", 2, link="nvlink"), world.now_s)
    (admitted,) = world.engine.cycle(world.now_s).made
    assert isinstance(admitted, Admitted)
    assert (choices, plan(world, "v", "a")) == ([1], [("a-2", "a-3")])


def test_a_node_is_known_by_its_name_where_its_hostname_label_differs() -> None:
    world = world_of([])
    world.put(node("b/r/a", 2), gpu_node("a", 2))
    host = node("b/r/z", 2, labels={})
    renamed = node("b/r/host-b", 2)
    replaced = type(renamed)(
        metadata=type(renamed.metadata)(name="b", labels=renamed.metadata.labels), status=host.status
    )
    world.put(replaced, gpu_node("b", 2, full))
    world.put(job("w", 2, 2))
    settled(world)
    assert plan(world, "w", "b") == [("b-0", "b-1")]


def test_a_gpunode_that_goes_leaves_a_node_that_is_counted() -> None:
    world = world_of([gpu_node("a", 4, pairs, sick=(0,))])
    world.engine.drop(GpuNode, "", "a", world.now_s)
    world.put(job("w", 4, link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {"a": 1}
    world.engine.drop(Node, "", "a", world.now_s)
    world.engine.validate()


def test_time_sliced_gpus_are_shared_out_as_often_as_they_may_be() -> None:
    world = world_of([])
    world.put(node("b/r/a", 4), gpu_node("a", 2, none, replicas=2))
    world.put(job("w", 1, 3), job("two", 1, created_s=1), job("three", 1, created_s=2))
    settled(world)
    given = sorted(one for name in ("w", "two") for devices in plan(world, name, "a") for one in devices)
    assert given == ["a-0", "a-0", "a-1", "a-1"]
    assert hosts(world, "three") == {}


def test_a_mesh_gives_linked_fours_and_what_is_left_of_it() -> None:
    world = world_of([gpu_node("a", 8, mesh)])
    world.put(job("w", 4, 2, link="nvlink"))
    settled(world)
    assert sorted(map(len, plan(world, "w", "a"))) == [4, 4]


def test_a_single_gpu_goes_where_no_block_is_broken_for_it() -> None:
    """Node a has a pair left and b three GPUs without links: the tightest fit would break the pair."""
    told = [gpu_node("a", 2, full), gpu_node("b", 3, none)]
    world = world_of(told, packs=True)
    world.put(job("w", 1))
    settled(world)
    assert hosts(world, "w") == {"b": 1}
    peer = world_of(told)
    peer.put(job("w", 1))
    settled(peer)
    assert hosts(peer, "w") == {"a": 1}


def test_who_is_spared_after_all_keeps_its_devices() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("one", 1), job("two", 1, created_s=1))
    settled(world)
    world.finish("one")
    cluster = world.engine.state.cluster
    holder = cluster.holders[WorkloadKey("ns/two")]
    with cluster.trial():
        cluster.release(holder)
        cluster.charge(holder)
        assert plan(world, "two", "a") == [("a-1",)]
    assert plan(world, "two", "a") == [("a-1",)]


def test_two_heads_of_one_cycle_do_not_get_the_same_linked_pair() -> None:
    told = gpu_node("a", 4, lambda a, b: int((a, b) == (0, 1)))
    world = world_of([told])
    world.put(cluster_queue("q2", 1000), local_queue("q2"))
    world.put(job("one", 2, link="nvlink"), in_queue(job("two", 2, link="nvlink", created_s=1), "q2"))
    settled(world)
    assert world.running() == {"one"}
    assert plan(world, "one", "a") == [("a-0", "a-1")]


def two_sets(name: str, first: int, second: int, **given: Any) -> Workload:
    """Two pod sets of so many pods, alike but for their number."""
    made = job(name, 2, **given)
    (one,) = made.spec.pod_sets
    sets = (msgspec.structs.replace(one, count=first), msgspec.structs.replace(one, name="more", count=second))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


@pytest.mark.parametrize("policy", [{}, LOWER])
def test_pod_sets_of_one_workload_do_not_count_on_the_same_pair(policy: dict[str, str]) -> None:
    """The other two GPUs of the node are free as well, and not linked."""
    told = gpu_node("a", 4, lambda a, b: int((a, b) == (0, 1)))
    world = world_of([told], preemption=policy)
    world.put(two_sets("w", 1, 1, link="nvlink"))
    settled(world)
    assert hosts(world, "w") == {}
    assert world.condition("w") == "False/TopologyPlacementFailed"
    world = world_of([gpu_node("a", 4, pairs)], preemption=policy)
    world.put(two_sets("w", 1, 1, link="nvlink"))
    settled(world)
    assert plan(world, "w", "a") == [("a-0", "a-1")]
    assert list(world.engine.device_plan(WorkloadKey("ns/w"), "more", "a")) == [("a-2", "a-3")]


def test_who_leads_takes_gpus_from_those_who_are_led() -> None:
    """One pod of two GPUs and workers of two in one group: a node of two pairs holds the leader and one worker."""
    for workers, placed in ((1, True), (2, False)):
        world = world_of([gpu_node("a", 6, lambda a, b: int((a, b) in ((0, 1), (2, 3))))])
        group = PodSetTopologyRequest(required="dc/rack", pod_set_group_name="g")
        world.put(two_sets("w", 1, workers, asked=group, link="nvlink"))
        settled(world)
        assert bool(hosts(world, "w")) == placed
        if not placed:
            assert world.condition("w") == "False/TopologyPlacementFailed"


def test_pods_of_a_lost_node_get_devices_elsewhere_and_the_others_keep_theirs() -> None:
    world = world_of([gpu_node(name, 2, full) for name in ("a", "b", "c")])
    world.put(job("w", 2, 2, link="nvlink"))
    settled(world)
    assert plan(world, "w", "a") == [("a-0", "a-1")]
    lose(world, "w", "b")
    settled(world)
    assert hosts(world, "w") == {"a": 1, "c": 1}
    assert plan(world, "w", "a") == [("a-0", "a-1")]
    assert plan(world, "w", "c") == [("c-0", "c-1")]


def test_free_devices_are_measured_by_what_was_asked_of_late() -> None:
    world = world_of([gpu_node("a", 4, pairs), gpu_node("b", 4, full)])
    placement = world.engine.state.cluster.placement
    world.engine.cycle(world.now_s)
    (before,) = placement.spreads()
    assert (before.free, before.largest) == (8, {"dc/block": 8, "dc/rack": 8, HOST: 4})
    assert before.unusable == pytest.approx((0 + 0 + 4 + 8) / 4)
    for at in range(4):
        world.put(job(f"w{at}", 4, link="nvlink", created_s=at))
    settled(world)
    placement.begin(world.now_s + 100.0)
    (after,) = placement.spreads()
    assert (after.flavor, after.free) == ("default", 4)
    assert after.ratio > before.ratio
    assert after.largest[HOST] == 4
    (empty,) = placement.spreads(empty=True)
    assert empty.free == 8


def test_what_is_asked_for_fades_and_what_is_asked_of_late_counts() -> None:
    mix = Mix()
    pool = Board(gpu_node("a", 4, pairs)).pools[ResourceName("gpu")]
    four = DeviceShape(ResourceName("gpu"), 4, PodDeviceRequest(link=Link.NVLINK))
    mix.note(four, 1000)
    mix.refresh(1.0)
    assert mix.unusable(pool, four.resource, (1, 1, 1, 1)) > 3.9
    mix.note(DeviceShape(ResourceName("gpu"), 1, PodDeviceRequest()), 1)
    mix.refresh(1.0 + 20 * 3600.0)
    assert mix.unusable(pool, four.resource, (1, 1, 1, 1)) < 2.1


def test_a_flavor_without_a_topology_says_why_it_is_passed_over() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(flavor("default"), job("w", 4, asked=PodSetTopologyRequest(), link="nvlink"))
    settled(world)
    pending = world.engine.explain(WorkloadKey("ns/w"), world.now_s)
    assert pending is not None
    said = "flavor default names no topology and the pod set asks for certain GPUs, which are chosen node by node"
    assert any(said in line for line in details(pending.record))


def test_a_victim_whose_pod_is_gone_and_still_reported_costs_nobody_else() -> None:
    """Agents report a moment later: who was evicted for has its room meanwhile, and nobody more has to go."""
    world = world_of([gpu_node("a", 4, pairs)], preemption=LOWER)
    for at in range(2):
        world.put(job(f"low{at}", 2, link="nvlink", created_s=at))
        settled(world)
    for at, held in enumerate(("a-0,a-1", "a-2,a-3")):
        world.put(pod_of(f"low{at}-0", f"low{at}", "a", held, 2))
    world.put(gpu_node("a", 4, pairs, holders={"low0-0": (0, 1), "low1-0": (2, 3)}))
    world.put(job("in", 2, link="nvlink", priority=10, created_s=60))
    settled(world)
    assert world.stop_evicted() == 1
    (stays,) = (name for name in ("low0", "low1") if name in world.running())
    gone = "low0" if stays == "low1" else "low1"
    world.engine.drop(Pod, "ns", f"{gone}-0", world.now_s)
    settled(world)
    assert world.stop_evicted() == 0
    assert stays in world.running()
    (got,) = plan(world, "in", "a")
    world.put(gpu_node("a", 4, pairs, holders={f"{stays}-0": (2, 3) if stays == "low1" else (0, 1)}))
    settled(world)
    assert plan(world, "in", "a") == [got]
