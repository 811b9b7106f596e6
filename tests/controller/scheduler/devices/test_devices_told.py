"""Plans and the truth: what pods were told and agents report, after a restart, after swaps, and of strangers."""

import pytest
from msgspec import structs

from controller.objects.core import Node, PodStatus
from controller.objects.placeencoding import Domain
from controller.scheduler.devices import granting
from controller.scheduler.devices.grants import GrantOwner, NodeDevices
from controller.scheduler.devices.pods import KnownPods
from controller.scheduler.model.resources import FlavorName, ResourceName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.port import PlacementRequest
from controller.scheduler.topology.requests import topology_request
from tests.support.engine.boards import device_cache, full, gpu_node, job, mesh, pairs, plan, pod_of, settled, world_of
from tests.support.engine.topologylab import HOST, node
from tests.support.engine.world import World


def test_what_others_hold_is_taken_whoever_they_are() -> None:
    world = world_of([gpu_node("a", 4, full, holders={"someone": (1, 2)})])
    world.put(job("w", 1, 2, link="numa"))
    settled(world)
    assert plan(world, "w", "a") == [("a-0",), ("a-3",)]


def test_after_a_restart_devices_are_those_that_pods_were_told() -> None:
    first = world_of([gpu_node("a", 4, full)])
    first.put(job("w", 1, 2))
    settled(first)
    again = world_of([gpu_node("a", 4, full, holders={"w-0": (3,)})])
    again.put(pod_of("w-1", "w", "a", "a-2"), pod_of("w-0", "w", "a", "a-3"))
    again.put(first.workloads[WorkloadKey("ns/w")])
    settled(again)
    assert plan(again, "w", "a") == [("a-2",), ("a-3",)]


def test_a_pod_is_known_by_the_label_of_its_node_though_the_node_is_told_of_last() -> None:
    """A pod that is not bound yet names the hostname label, and this node is not called so."""
    first = world_of([])
    host = called("b", "host-b", 4)
    first.put(host, gpu_node("b", 4, full), job("w", 1, 2))
    settled(first)
    again = world_of([])
    again.put(gpu_node("b", 4, full, holders={"w-0": (3,)}))
    again.put(pod_of("w-1", "w", "host-b", "b-2"), pod_of("w-0", "w", "host-b", "b-3"))
    again.put(first.workloads[WorkloadKey("ns/w")], host)
    settled(again)
    assert plan(again, "w", "b") == [("b-2",), ("b-3",)]
    again.engine.drop(Node, "", "b", again.now_s)
    again.engine.validate()
    again.put(called("b", "other", 4))
    settled(again)
    again.put(host)
    settled(again)
    assert plan(again, "w", "b") == [("b-2",), ("b-3",)]


def started(first: World, **holders: tuple[int, ...]) -> World:
    """A controller that is told of what ``first`` has placed, and has decided nothing. ``holders``: other pods."""
    again = world_of([gpu_node("a", 4, full, holders={"w-0": (3,), **holders})])
    again.put(first.workloads[WorkloadKey("ns/w")])
    again.put(pod_of("w-1", "w", "a", "a-2"), pod_of("w-0", "w", "a", "a-3"))
    return again


def test_at_a_start_a_node_is_settled_once_and_not_with_each_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    first = world_of([gpu_node("a", 4, full)])
    first.put(job("w", 1, 2))
    settled(first)
    seen: list[str] = []

    def counted(state: NodeDevices, pods: KnownPods) -> None:
        seen.append(state.name)
        settle(state, pods)

    settle = granting.settle
    monkeypatch.setattr(granting, "settle", counted)
    again = started(first)
    assert seen == []
    settled(again)
    assert seen == ["a"]
    assert plan(again, "w", "a") == [("a-2",), ("a-3",)]


def test_an_engine_that_follows_settles_nodes_once_no_more_come() -> None:
    first = world_of([gpu_node("a", 4, full)])
    first.put(job("w", 1, 2))
    settled(first)
    again = started(first)
    for later_s, is_behind in ((0.0, True), (29.0, True), (31.0, False)):
        again.engine.follow(again.now_s + later_s)
        again.engine.validate()
        assert again.engine.state.cluster.placement.is_behind is is_behind
    again.put(gpu_node("b", 4, full))
    again.engine.follow(again.now_s + 40.0)
    again.engine.follow(again.now_s)  # the clock was put back
    again.engine.follow(again.now_s + 31.0)
    again.engine.validate()
    assert plan(again, "w", "a") == [("a-2",), ("a-3",)]


def test_a_pod_that_ended_before_its_node_is_settled_holds_nothing() -> None:
    first = world_of([gpu_node("a", 4, full)])
    first.put(job("w", 1, 2))
    settled(first)
    again = started(first, old=(0,))
    again.put(structs.replace(pod_of("old", "gone", "a", "a-0"), status=PodStatus(phase="Failed")))
    again.put(job("next", 1, 2))
    settled(again)
    assert {*plan(again, "w", "a"), *plan(again, "next", "a")} == {("a-0",), ("a-1",), ("a-2",), ("a-3",)}


def called(name: str, label: str, gpus: int) -> Node:
    """A node whose hostname label is another word than its name."""
    made = node(f"b/r/{label}", gpus)
    return structs.replace(made, metadata=structs.replace(made.metadata, name=name))


def test_in_whatever_order_a_restart_is_told_of_it_comes_to_the_same() -> None:
    first = world_of([gpu_node("a", 4, full)])
    first.put(job("w", 1, 2))
    settled(first)
    admitted = first.workloads[WorkloadKey("ns/w")]
    objects = [
        admitted,
        pod_of("w-1", "w", "a", "a-2"),
        pod_of("w-0", "w", "a", "a-3"),
        gpu_node("a", 4, full, holders={"w-0": (3,)}),
    ]
    for turn in range(4):
        again = world_of([], nodes={"a": 4})
        again.put(*objects[turn:], *objects[:turn])
        settled(again)
        assert plan(again, "w", "a") == [("a-2",), ("a-3",)], turn
        cluster = again.engine.state.cluster
        with cluster.trial():
            cluster.release(cluster.holders[WorkloadKey("ns/w")])
            assert [free for _, _, free in device_cache(again).free("a")] == [(1, 1, 1, 1)], turn


def test_after_a_restart_everybody_whose_pods_were_told_nothing_yet_has_devices_again() -> None:
    """On a mesh of which five GPUs are free, two linked ones can be chosen so that no linked three are left."""
    hardware = gpu_node("a", 8, mesh, holders={"x": (5, 6, 7)})
    first = world_of([hardware])
    for name, gpus in (("w", 3), ("v", 2)):
        first.put(job(name, gpus, link="nvlink"))
        settled(first)
    admitted = [first.workloads[WorkloadKey(f"ns/{name}")] for name in ("w", "v")]
    for objects in (admitted, admitted[::-1]):
        again = world_of([hardware])
        again.put(*objects)
        settled(again)
        assert [len(plan(again, name, "a")) for name in ("w", "v")] == [1, 1]


def test_after_a_restart_nobody_is_given_what_the_pod_of_a_workload_told_of_later_was_told() -> None:
    first = world_of([gpu_node("a", 4, full)])
    for name in ("w", "v"):
        first.put(job(name, 1))
        settled(first)
    again = world_of([gpu_node("a", 4, full)])
    again.put(pod_of("v-0", "v", "a", "a-0"))
    again.put(*(first.workloads[WorkloadKey(f"ns/{name}")] for name in ("w", "v")))
    assert (plan(again, "v", "a"), len(plan(again, "w", "a"))) == ([("a-0",)], 1)


def test_what_somebody_holds_is_no_longer_promised_to_a_pod_on_its_way() -> None:
    for names in (("w", "v"), ("v", "w")):
        world = world_of([gpu_node("a", 4, full)])
        for name in names:
            world.put(job(name, 2))
            settled(world)
        first, second = (",".join(*plan(world, name, "a")) for name in names)
        world.put(pod_of("one", names[0], "a", first, 2), pod_of("two", names[1], "a", second, 2))
        world.put(gpu_node("a", 4, full, holders={"two": (0, 1)}))
        assert [plan(world, name, "a") for name in names] == [[("a-2", "a-3")], [("a-0", "a-1")]]


def tried(world: World, name: str) -> tuple[tuple[str, ...], ...]:
    """The device that a workload of one pod would have on node ``a``."""
    place = TopologyUsage(levels=(HOST,), domains=(Domain(("a",), 1),), single_pod={ResourceName("gpu"): 1})
    owner = GrantOwner(WorkloadKey(f"ns/{name}"), "main")
    with world.engine.state.cluster.trial():
        device_cache(world).add(place, owner)
        return device_cache(world).plan(owner, "a")


def test_what_was_chosen_before_a_pod_or_an_agent_said_more_is_chosen_anew() -> None:
    world = world_of([gpu_node("a", 2, full)])
    world.put(job("w", 1))
    settled(world)
    world.put(pod_of("w-0", "w", "a", "a-0"), gpu_node("a", 2, full, holders={"w-0": (0,), "w-1": (1,)}))
    assert tried(world, "in") == (), "nobody knows w-1"
    world.put(pod_of("w-1", "w", "a"))
    assert tried(world, "in") == (("a-1",),), "it is one too many, and on its way out"
    world.put(gpu_node("a", 2, full, holders={"w-0": (0,), "stranger": (1,)}))
    assert tried(world, "in") == ()


def test_what_was_chosen_for_another_is_not_for_who_was_told_its_devices() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(pod_of("w-0", "w", "a", "a-2"))
    assert tried(world, "v") == (("a-0",),)
    assert tried(world, "w") == (("a-2",),)
    assert tried(world, "v") == (("a-0",),)


def test_what_nobody_was_told_yet_moves_where_that_gives_somebody_else_devices() -> None:
    world = world_of([gpu_node("a", 4, pairs)])
    for name in ("w", "v"):
        world.put(job(name, 1))
        settled(world)
    world.put(job("pair", 2, link="nvlink"))
    settled(world)
    assert [plan(world, name, "a") for name in ("w", "v", "pair")] == [[("a-0",)], [("a-1",)], [("a-2", "a-3")]]
    world.put(pod_of("w-0", "w", "a", "a-0"), gpu_node("a", 4, pairs, holders={"w-0": (3,)}))
    settled(world)
    assert [plan(world, name, "a") for name in ("w", "v", "pair")] == [[("a-3",)], [("a-2",)], [("a-0", "a-1")]]


def test_other_devices_than_planned_are_the_truth_and_told() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 1, 2))
    settled(world)
    assert plan(world, "w", "a") == [("a-0",), ("a-1",)]
    world.put(pod_of("w-0", "w", "a", "a-0"), pod_of("w-1", "w", "a", "a-1"))
    world.put(gpu_node("a", 4, full, holders={"w-0": (3,)}))
    settled(world)
    assert plan(world, "w", "a") == [("a-1",), ("a-3",)]
    assert [(one.pod, one.planned, one.held) for one in device_cache(world).drifts("ns/w")] == [
        ("ns/w-0", ("a-0",), ("a-3",))
    ]


def test_two_pods_of_one_workload_may_swap() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 1, 2))
    settled(world)
    world.put(pod_of("w-0", "w", "a", "a-0"), pod_of("w-1", "w", "a", "a-1"))
    world.put(gpu_node("a", 4, full, holders={"w-0": (1,), "w-1": (0,)}))
    settled(world)
    assert not list(device_cache(world).drifts("ns/w"))


def test_the_plan_of_another_gives_way_to_what_somebody_got() -> None:
    world = world_of([gpu_node("a", 2, full)])
    world.put(job("one", 1), job("two", 1, created_s=1))
    settled(world)
    assert plan(world, "two", "a") == [("a-1",)]
    world.put(pod_of("one-0", "one", "a", "a-0"))
    world.put(gpu_node("a", 2, full, holders={"one-0": (1,)}))
    settled(world)
    assert plan(world, "one", "a") == [("a-1",)]
    assert plan(world, "two", "a") == [("a-0",)]


def test_devices_of_pods_that_are_on_their_way_out_are_planned_for_others() -> None:
    world = world_of([gpu_node("a", 2, full)])
    world.put(job("one", 2))
    settled(world)
    world.put(pod_of("one-0", "one", "a", "a-0,a-1", 2), gpu_node("a", 2, full, holders={"one-0": (0, 1)}))
    world.finish("one")
    world.put(job("two", 2, link="nvlink"))
    settled(world)
    assert plan(world, "two", "a") == [("a-0", "a-1")]


def test_a_plan_gives_way_to_a_stranger_who_got_the_gpu() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 1))
    settled(world)
    assert plan(world, "w", "a") == [("a-0",)]
    world.put(gpu_node("a", 4, full, holders={"stranger": (0,)}))
    settled(world)
    assert plan(world, "w", "a") == [("a-1",)]


def test_devices_that_become_known_late_are_those_of_who_runs_there() -> None:
    """Counts that were made meanwhile are made anew."""
    world = world_of([], nodes={"a": 4})
    world.put(job("w", 1, 2))
    settled(world)
    world.put(job("four", 4, link="nvlink", created_s=1), gpu_node("a", 4, full))
    world.engine.validate()
    settled(world)
    assert plan(world, "w", "a") == [("a-0",), ("a-1",)]
    world.finish("w")
    settled(world)
    assert plan(world, "four", "a") == [("a-0", "a-1", "a-2", "a-3")]


def test_pods_of_a_queue_without_places_keep_what_they_hold() -> None:
    world = world_of([gpu_node("a", 4, full, holders={"x-0": (0, 1)})])
    world.put(pod_of("x-0", "x", "a"), job("w", 1, 2))
    settled(world)
    assert plan(world, "w", "a") == [("a-2",), ("a-3",)]


def test_what_a_pod_held_that_had_ended_before_a_restart_is_free_though_it_is_reported_still() -> None:
    ended, reported = pod_of("x-0", "x", "a", phase="Succeeded"), gpu_node("a", 4, full, holders={"x-0": (0, 1, 2)})
    for objects in ((ended, reported), (reported, ended)):
        world = world_of([], nodes={"a": 4})
        world.put(*objects)
        world.put(job("w", 1, 4))
        settled(world)
        assert len(plan(world, "w", "a")) == 4
        world.put(gpu_node("a", 4, full), gpu_node("a", 4, full, holders={"x-0": (0,)}))
        assert len(plan(world, "w", "a")) == 3, "a stranger of that name has come"


def test_what_nobody_holds_is_planned_before_what_is_on_its_way_out() -> None:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("one", 1))
    settled(world)
    world.put(pod_of("one-0", "one", "a", "a-0"), gpu_node("a", 4, full, holders={"one-0": (0,)}))
    world.finish("one")
    world.put(job("two", 1, created_s=1), job("four", 1, 3, created_s=2))
    settled(world)
    assert ("a-0",) not in plan(world, "two", "a")
    assert ("a-0",) in plan(world, "four", "a")


def test_what_was_counted_before_devices_were_given_to_those_who_run_is_counted_anew() -> None:
    world = world_of([], nodes={"a": 4})
    world.put(job("w", 1, 2), pod_of("w-0", "w", "a", "a-0"), pod_of("w-1", "w", "a", "a-2"))
    settled(world)
    placement = world.engine.state.cluster.placement
    two = job("two", 2, link="nvlink").spec.pod_sets[0]
    wanted = PlacementRequest(
        pod_set=two,
        asked=topology_request(two),
        count=1,
        flavor=FlavorName("default"),
        single_pod={ResourceName("gpu"): 2},
    )
    placement.set_gpu_node(gpu_node("a", 4, pairs))
    placement.can_place((wanted,))
    placement.begin(world.now_s)
    assert not placement.can_place((wanted,))


def test_who_comes_again_does_not_get_what_others_have_by_now_though_an_old_pod_of_its_holds_it() -> None:
    """A workload that was evicted and is let in again is known before its old pods are known to go."""
    world = world_of([gpu_node("a", 4, full, holders={"w-0": (0,)})])
    world.put(pod_of("w-0", "w", "a", "a-0"), job("w", 1))
    settled(world)
    assert plan(world, "w", "a") == [("a-0",)]
    world.finish("w")
    for name, gpus in (("v", 3), ("x", 1)):
        world.put(job(name, gpus))
        settled(world)
    assert plan(world, "x", "a") == [("a-0",)]
    world.finish("v")
    world.put(job("w", 1))
    settled(world)
    assert (plan(world, "x", "a"), plan(world, "w", "a")) == ([("a-0",)], [("a-1",)])
    world.put(pod_of("w-0", "w", "a", "a-0", leaving=True))
    settled(world)
    assert (plan(world, "x", "a"), plan(world, "w", "a")) == ([("a-0",)], [("a-1",)])
    world.put(pod_of("w-0", "w", "a", "a-0"), gpu_node("a", 4, full, holders={"w-0": (0,), "y": (3,)}))
    settled(world)
    assert (plan(world, "w", "a"), plan(world, "x", "a")) == ([("a-0",)], [("a-1",)]), "it stayed: that is the truth"


def test_a_pod_that_is_being_deleted_leaves_its_place_to_the_next_on_other_devices_where_there_are_any() -> None:
    world = world_of([gpu_node("a", 2, full, holders={"w-0": (0,)})])
    world.put(pod_of("w-0", "w", "a", "a-0"), job("w", 1))
    settled(world)
    world.put(pod_of("w-0", "w", "a", "a-0", leaving=True))
    settled(world)
    assert plan(world, "w", "a") == [("a-1",)]
    world.put(job("v", 1))
    settled(world)
    assert plan(world, "v", "a") == [("a-0",)], "it is free once the pod is gone"


def test_a_pod_that_is_reported_to_hold_a_part_of_what_it_was_told_keeps_all_of_it() -> None:
    """Containers are given theirs one by one, and of what an init container had the kubelet tells nobody."""
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 2))
    settled(world)
    assert plan(world, "w", "a") == [("a-0", "a-1")]
    world.put(pod_of("w-0", "w", "a", "a-0,a-1", 2), gpu_node("a", 4, full, holders={"w-0": (1,)}))
    for name, gpus in (("v", 2), ("u", 1)):
        world.put(job(name, gpus))
        settled(world)
    assert plan(world, "w", "a") == [("a-0", "a-1")]
    assert plan(world, "v", "a") == [("a-2", "a-3")]
    assert plan(world, "u", "a") == []
    world.put(gpu_node("a", 4, full, holders={"w-0": (1,), "x": (0,)}))
    world.engine.validate()
    assert ("a-0", "a-1") not in plan(world, "w", "a"), "somebody else has it: that is the truth"
