"""What a move costs, and how many there may be."""

import msgspec
import pytest

from controller.scheduler.model.config import MAX_GRACE_S, Consolidation
from controller.scheduler.model.resources import FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.preemption.moves import Moves, lost_gpu_seconds
from tests.support.engine.foreignqueues import asks, kai_queue, node, rest
from tests.support.engine.world import World

A, B, WIDE = WorkloadKey("ns/a"), WorkloadKey("ns/b"), WorkloadKey("ns/wide")


def moves(most: int = 2) -> Moves:
    return Moves(Consolidation(moves_per_hour=most))


def test_an_hour_has_so_many_moves_and_no_more() -> None:
    found = moves(2)
    assert (found.left(0.0), found.next_s(0.0)) == (2, None)
    found.moved(A, WIDE, 100.5)
    found.moved(B, WIDE, 200.0)
    assert (found.left(300.0), found.next_s(300.0)) == (0, 3700.0)
    assert (found.left(3699.9), found.left(3700.0)) == (0, 1)
    assert (found.next_s(3700.0), found.left(3800.0), found.next_s(3800.0)) == (3800.0, 2, None)


def test_a_workload_that_moves_twice_counts_twice_and_the_condition_of_a_move_does_not() -> None:
    found = moves(3)
    found.moved(A, WIDE, 100.7)
    found.seen(A, 100.0)
    assert found.left(101.0) == 2
    found.moved(A, B, 800.0)
    assert found.left(801.0) == 1


def test_more_moves_than_the_budget_leave_none_rather_than_less_than_none() -> None:
    found = moves(1)
    found.seen(A, 10.0)
    found.seen(B, 10.0)
    assert found.left(20.0) == 0


def test_where_nothing_may_move_there_is_no_budget() -> None:
    assert Moves(None).left(0.0) == 0


def test_what_was_not_written_did_not_move() -> None:
    found = moves(2)
    found.moved(A, WIDE, 100.5)
    found.taken_back(A, WIDE, 100.5)
    assert found.left(101.0) == 2
    assert not found.moved_for(A, WIDE)


def test_a_workload_has_moved_for_another_until_that_one_is_served() -> None:
    found = moves()
    found.moved(A, WIDE, 0.0)
    assert found.moved_for(A, WIDE)
    assert not found.moved_for(A, B)
    assert not found.moved_for(B, WIDE)
    found.served(WIDE)
    assert not found.moved_for(A, WIDE)


@pytest.mark.parametrize(
    ("resource", "amount", "lost"), [("nvidia.com/gpu", 2, 1200.0), ("tessera.dev/gpu-percent", 50, 300.0)]
)
def test_gpus_and_parts_of_gpus_are_lost_for_the_time_since_the_admission(
    resource: str, amount: int, lost: float
) -> None:
    lab = World()
    lab.put(node("n1", 4), kai_queue("q", quota=4), asks("a", "q", 2))
    rest(lab)
    (found,) = lab.engine.state.cluster.holders.values()
    holder = msgspec.structs.replace(found, usage={FlavorResource(FlavorName("f"), ResourceName(resource)): amount})
    assert lost_gpu_seconds(holder, lab.now_s + 600.0, MAX_GRACE_S) == lost
    assert lost_gpu_seconds(holder, lab.now_s - 5.0, MAX_GRACE_S) == 0.0
