"""A clique whose pods were evicted for a gang is that gang's, until it runs: no other takes a piece of it."""

from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload
from controller.scheduler.decisions import status
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservation import kept_places
from controller.scheduler.topology.nodes import PODS
from tests.controller.scheduler.topology.test_topology_in_cycles import LOWER, gang, lose, places, topology
from tests.support.engine.topologylab import FLAVOR, GPU, RACK, node, usage
from tests.support.engine.world import World, cluster_queue, flavor, local_queue


def world_of(hosts: Mapping[str, int], *, reserve: bool) -> World:
    """Two queues without a cohort over the same nodes: quota is never short."""
    world = World(EngineConfig(extensions=Extensions(reserve_for_preemptor=reserve)))
    world.put(topology(), flavor("default", topologyName="dc"))
    for name in ("q", "other"):
        world.put(cluster_queue(name, 100, preemption=LOWER), local_queue(name))
    world.put(*(node(path, gpus) for path, gpus in hosts.items()))
    return world


def beside(workload: Workload) -> Workload:
    """The same in the other queue."""
    return msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, queue_name="other"))


def stop(world: World, name: str) -> None:
    """One of the evicted workloads has stopped; it is pending again."""
    one = world.workloads[WorkloadKey(f"ns/{name}")]
    gates = world.engine.state.config.gates
    freed = status.unreserved(one, PendingReason.PENDING_EVALUATION, "stopped", now_s=world.now_s, gates=gates)
    after = status.requeued(freed, "Preempted", "again", world.now_s)
    world.put(msgspec.structs.replace(one, status=after.status))


def evicting(*, reserve: bool) -> World:
    """One rack of two nodes: both workloads on it were evicted for a gang of the whole rack; one has stopped."""
    world = world_of({"b/r1/a": 2, "b/r1/b": 2, "b/r2/z": 1}, reserve=reserve)
    for at, name in enumerate(("low1", "low2")):
        world.put(gang(name, 2, created_s=at))
        world.settle()
    world.put(gang("high", 4, level=RACK, priority=9, created_s=20))
    world.settle()
    assert [key for kind, key in world.log if kind == "Evicted"] == ["ns/low1", "ns/low2"]
    stop(world, "low1")
    return world


@pytest.mark.parametrize(("reserve", "starts"), [(True, "high"), (False, "small")])
def test_half_a_clique_that_has_been_made_free_is_not_given_to_another(reserve: bool, starts: str) -> None:
    world = evicting(reserve=reserve)
    # Older, of the same priority, and within its own queue's quota: it is decided on first.
    world.put(beside(gang("small", 2, priority=9, created_s=3)))
    world.now_s += 1.0
    world.settle()
    world.stop_evicted()
    world.settle()
    assert starts in world.running()
    assert {"high", "small"} - world.running() == {"high", "small"} - {starts}
    if reserve:
        assert places(world, "high") == {"a": 2, "b": 2}
        assert [kind for kind, _ in world.log].count("Evicted") == 2


def hold_queue(world: World) -> None:
    world.put(cluster_queue("q", 100, preemption=LOWER, stopPolicy="Hold"))


def hold_local_queue(world: World) -> None:
    world.put(local_queue("q", stopPolicy="Hold"))


def deactivate(world: World) -> None:
    high = world.workloads[WorkloadKey("ns/high")]
    world.put(msgspec.structs.replace(high, spec=msgspec.structs.replace(high.spec, active=False)))


def drop_queue(world: World) -> None:
    world.engine.drop(ClusterQueue, "", "q", world.now_s)


def delete(world: World) -> None:
    world.delete("high")


@pytest.mark.parametrize("end", [hold_queue, hold_local_queue, deactivate, drop_queue, delete])
def test_who_is_not_tried_any_more_has_no_reservation_and_who_waited_for_it_is_told(
    end: Callable[[World], None],
) -> None:
    world = evicting(reserve=True)
    world.put(beside(gang("small", 2, created_s=30)))
    world.settle()
    assert world.running() == {"low2"}
    end(world)
    world.settle()
    # Where its queue still runs, the one who was evicted for it is the next.
    assert len(world.running() & {"small", "low1"}) == 1


def test_what_is_not_reserved_of_a_node_is_free_to_others() -> None:
    world = evicting(reserve=True)
    world.put(node("b/r1/a", 4), node("b/r1/b", 4), beside(gang("small", 2, priority=9, created_s=3)))
    world.settle()
    assert "small" in world.running()


def test_pods_that_lost_their_node_may_go_where_another_has_a_reservation() -> None:
    world = evicting(reserve=True)
    world.put(beside(gang("runs", 1, created_s=30)))
    world.settle()
    assert places(world, "runs") == {"z": 1}
    lose(world, "runs", "z")
    world.settle()
    assert places(world, "runs") == {"a": 1}, "else all of it would have been evicted"
    world.stop_evicted()
    world.settle()
    assert world.condition("high", "Evicted") == ""


def holder(name: str, places_: Mapping[str, int], gpus: int) -> Holder:
    requests = PodSetRequests(name="main", count=1, requests={}, flavors={}, topology=usage(places_, gpus))
    workload = gang(name, 1)
    info = WorkloadInfo(workload=workload, pod_sets=(requests,), cluster_queue=ClusterQueueName("q"))
    return Holder(
        info=info,
        cluster_queue=ClusterQueueName("q"),
        local_queue=LocalQueueKey("ns/q"),
        usage={},
        priority=0,
        reserved_at_s=0.0,
        queued_at_s=0.0,
    )


PLACES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1)


@given(st.lists(st.tuples(PLACES, st.integers(1, 3)), max_size=3), PLACES, st.integers(1, 3))
def test_with_what_the_victims_hold_just_what_was_reserved_is_kept(
    held: list[tuple[dict[str, int], int]], wanted: dict[str, int], gpus: int
) -> None:
    victims = [holder(f"v{at}", where, each) for at, (where, each) in enumerate(held)]
    kept = kept_places(((FLAVOR, usage(wanted, gpus)),), victims)
    for host in "abc":
        for name, each in ((GPU, gpus), (PODS, 1)):
            there = sum(where.get(host, 0) * (one if name == GPU else 1) for where, one in held)
            found = sum(
                one.single_pod[name] + (name == PODS)
                for _, one in kept
                for values, pods in one.domains
                if values == (host,) and pods == 1
            )
            assert found == max(0, wanted.get(host, 0) * each - there)
