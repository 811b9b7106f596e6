"""What a cycle of gangs decides: who starts, who moves, who leaves."""

import pytest

from controller.scheduler.kai.gangs.actions import consolidation
from controller.scheduler.kai.gangs.gang import CPU, GPU, PODS, NodeName, Phase, TaskRequest
from controller.scheduler.kai.gangs.kainode import FreeCapacity, KaiNode, When
from controller.scheduler.kai.gangs.session import CycleLimits
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.model.resources import ResourceName
from inventory.api.names import GPU_PERCENT
from tests.support.engine.gangworld import act, gang, node, phases, places, queue, session


def test_a_gang_starts_as_a_whole_or_not_at_all() -> None:
    world = session([node("n", 4)], [queue("q", 4)], [gang("big", "q", 5), gang("small", "q", 3, created=1.0)])
    act(world, "allocate")
    found = phases(world)
    assert {found[f"big-{index}"] for index in range(5)} == {"Pending"}
    assert {found[f"small-{index}"] for index in range(3)} == {"Allocated"}


def test_nothing_of_a_gang_starts_while_fewer_wait_than_its_minimum_lacks() -> None:
    """Of three with a minimum of two, two leave for another queue in this very cycle: the third would start alone."""
    grown = gang("grown", "a", 3, minimum=2, request=TaskRequest(gpus=4), on=["n1", "n2"])
    world = session([node("n1", 4), node("n2", 4)], [queue("a"), queue("b", 1)], [grown, gang("other", "b", created=1)])
    act(world)
    assert phases(world) == {
        "grown-0": "Releasing",
        "grown-1": "Releasing",
        "grown-2": "Pending",
        "other-0": "Pipelined",
    }


def test_tasks_above_the_minimum_join_one_by_one_as_far_as_there_is_room() -> None:
    world = session([node("n", 4)], [queue("q", 4)], [gang("elastic", "q", 6, minimum=2)])
    act(world, "allocate")
    assert list(phases(world).values()).count("Allocated") == 4


def test_queues_of_weights_one_and_three_end_with_two_and_six() -> None:
    gangs = [gang(f"a{index}", "a", on=["n"], created=float(index)) for index in range(8)]
    gangs += [gang(f"b{index}", "b", created=10.0 + index) for index in range(8)]
    world = session([node("n", 8)], [queue("a", weight=1.0), queue("b", weight=3.0)], gangs)
    act(world)
    found = phases(world)
    assert [found[f"a{index}-0"] for index in range(8)] == ["Running"] * 2 + ["Releasing"] * 6
    assert sum(found[f"b{index}-0"] == "Pipelined" for index in range(8)) == 6


def test_the_youngest_of_the_lowest_priority_is_preempted_and_in_its_own_queue_alone() -> None:
    world = session(
        [node("n", 3)],
        [queue("q", 3), queue("other", 3)],
        [
            gang("old", "q", on=["n"], created=1.0),
            gang("young", "q", on=["n"], created=2.0),
            gang("elsewhere", "other", on=["n"], created=3.0),
            gang("urgent", "q", priority=75, created=4.0),
        ],
    )
    act(world, "preempt")
    assert phases(world) == {
        "old-0": "Running",
        "young-0": "Releasing",
        "elsewhere-0": "Running",
        "urgent-0": "Pipelined",
    }


def test_parts_of_gpus_are_charged_as_gpus_and_there_are_as_many_as_nodes_give() -> None:
    slices, percents = ResourceName("nvidia.com/mig-3g.40gb"), ResourceName(GPU_PERCENT)
    offers = KaiNode(NodeName("n"), {CPU: 8.0, PODS: 110.0, GPU: 2.0, slices: 2.0, percents: 150.0})
    gangs = [
        gang("part", "q", request=TaskRequest(counted={slices: 1, percents: 50})),
        gang("more", "q", request=TaskRequest(counted={percents: 50}), created=1.0),
    ]
    world = session([offers], [queue("q", quota=3.6, limit=3.6)], gangs)
    assert world.total[GPU] == 2.0 + 2 * 3 + 1.5
    act(world, "allocate")
    assert phases(world) == {"part-0": "Allocated", "more-0": "Pending"}
    assert world.tree[QueueName("q")].allocated[GPU] == 3.5


def test_percents_of_gpus_that_are_free_are_enough_for_something_to_move() -> None:
    percents = ResourceName(GPU_PERCENT)
    nodes = [KaiNode(NodeName(name), {PODS: 110.0, percents: 100.0}) for name in ("n1", "n2")]
    part, whole = TaskRequest(counted={percents: 50}), TaskRequest(counted={percents: 100})
    gangs = [gang("one", "q", request=part, on=["n1"]), gang("two", "q", request=part, on=["n2"], created=1.0)]
    world = session(nodes, [queue("q", 2)], [*gangs, gang("wide", "q", request=whole, created=2.0)])
    act(world)
    assert phases(world) == {"one-0": "Running", "two-0": "Pipelined", "wide-0": "Pipelined"}


def test_a_gang_that_is_not_preemptible_stays_within_quota() -> None:
    guaranteed = gang("guaranteed", "q", 2, preemptible=False, priority=100)
    world = session([node("n", 8)], [queue("q", 1)], [guaranteed, gang("other", "q", 2)])
    act(world, "allocate")
    assert {task.phase for task in guaranteed.tasks()} == {Phase.PENDING}
    assert phases(world)["other-0"] == "Allocated"


def test_running_gangs_move_together_so_that_another_fits_and_none_is_lost() -> None:
    world = session(
        [node("n1", 4), node("n2", 4)],
        [queue("q", 8)],
        [
            gang("one", "q", request=TaskRequest(gpus=2), on=["n1"], created=1.0),
            gang("two", "q", request=TaskRequest(gpus=2), on=["n2"], created=2.0),
            gang("wide", "q", request=TaskRequest(gpus=4), created=3.0),
        ],
    )
    act(world)
    assert phases(world) == {"one-0": "Running", "two-0": "Pipelined", "wide-0": "Pipelined"}
    assert places(world) == {"one-0": "n1", "two-0": "n1", "wide-0": "n2"}


def test_nothing_moves_where_one_of_those_that_move_would_have_no_place() -> None:
    world = session(
        [node("n1", 4), node("n2", 4)],
        [queue("q", 8)],
        [
            gang("one", "q", request=TaskRequest(gpus=3), on=["n1"]),
            gang("two", "q", request=TaskRequest(gpus=2), on=["n2"]),
            gang("wide", "q", request=TaskRequest(gpus=3), created=1.0),
        ],
    )
    act(world, "consolidation")
    assert phases(world) == {"one-0": "Running", "two-0": "Running", "wide-0": "Pending"}


def test_no_more_gangs_move_for_one_than_are_allowed_to() -> None:
    gangs = [gang(f"g{index}", "q", on=[f"n{index}"], created=float(index)) for index in range(3)]
    wide = gang("wide", "q", 2, request=TaskRequest(gpus=2), created=9.0)
    nodes = [node(f"n{index}", 2) for index in range(3)]
    limits = CycleLimits(consolidation_victims=0)
    world = session([*nodes, node("n3", 1)], [queue("q", 9)], [*gangs, wide], limits)
    act(world, "consolidation")
    assert {task.phase for task in wide.tasks()} == {Phase.PENDING}


@pytest.mark.parametrize(("moves", "placed"), [(0, 0), (1, 1), (2, 2), (None, 2)])
def test_no_more_gangs_move_for_all_than_are_allowed_to(moves: int | None, placed: int) -> None:
    nodes = [node(f"n{index}", 2) for index in range(4)]
    gangs = [gang(f"g{index}", "q", on=[f"n{index}"], created=float(index)) for index in range(4)]
    wide = [gang(f"wide{index}", "q", request=TaskRequest(gpus=2), created=9.0 + index) for index in range(2)]
    world = session(nodes, [queue("q", 9)], [*gangs, *wide], CycleLimits(moves=moves))
    act(world, "consolidation")
    assert sum(task.phase is Phase.PIPELINED for each in wide for task in each.tasks()) == placed
    assert sum(len(solution.victims) for solution in world.solutions) == placed


def test_a_share_of_a_gpu_joins_the_fullest_gpu_that_has_room() -> None:
    shared = TaskRequest(shared_gpus=1, portion=0.5)
    world = session(
        [node("n1", 1), node("n2", 1)],
        [queue("q", 2)],
        [gang("first", "q", request=shared), gang("second", "q", request=shared, created=1.0)],
    )
    act(world, "allocate")
    first, second = (next(iter(one.tasks())) for one in world.gangs.values())
    assert (first.node, first.groups) == (second.node, second.groups)


def test_a_gang_below_its_minimum_for_too_long_is_evicted_as_a_whole() -> None:
    broken = gang("broken", "q", 3, on=["n", "n"])
    broken.stale_s = 61.0
    fresh = gang("fresh", "q", 3, on=["n", "n"])
    world = session([node("n", 8)], [queue("q", 8)], [broken, fresh])
    act(world, "stalegangeviction")
    assert {task.phase for task in broken.tasks()} == {Phase.RELEASING, Phase.PENDING}
    assert {task.phase for task in fresh.tasks()} == {Phase.RUNNING, Phase.PENDING}


@pytest.mark.parametrize(("moves", "looked_at"), [(0, 0), (1, 2), (None, 2)])
def test_what_is_free_is_counted_once_while_nothing_moves(
    monkeypatch: pytest.MonkeyPatch, moves: int | None, looked_at: int
) -> None:
    looks: list[str] = []
    free = KaiNode.free

    def counted(node: KaiNode, when: When) -> FreeCapacity:
        looks.append(node.name)
        return free(node, when)

    large = [gang(f"large{index}", "q", request=TaskRequest(gpus=9)) for index in range(5)]
    world = session([node("n1", 4), node("n2", 4)], [queue("q", 8)], large, CycleLimits(moves=moves))
    monkeypatch.setattr(KaiNode, "free", counted)
    consolidation(world)
    assert len(looks) == looked_at
