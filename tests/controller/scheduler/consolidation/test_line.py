"""Of those that wait for moves each is tried in its turn, whoever comes, goes and comes back."""

import random

import pytest

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.consolidation.line import Alike, Line, Order
from controller.scheduler.consolidation.turn import MOST_TRIED
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from tests.support.seeds import histories


def shape(at: int) -> Alike:
    return ClusterQueueName("q"), f"s{at}"


def key(at: int, number: int = 0) -> WorkloadKey:
    return WorkloadKey(f"ns/w{at}-{number}")


def order(at: int, priority: int = 0) -> Order:
    return -priority, float(at), key(at)


def line(*given: int) -> Line:
    made = Line()
    for at in given:
        made.join(key(at), shape(at), order(at))
    return made


def turn(of: Line, most: int = MOST_TRIED) -> list[Alike]:
    tried = list(of.shapes())[:most]
    of.turn(tried)
    of.validate()
    return tried


def test_a_ninth_shape_is_tried_in_the_second_turn() -> None:
    waiting = line(*range(9))
    assert turn(waiting) == [shape(at) for at in range(8)]
    assert turn(waiting)[0] == shape(8)


def test_a_change_of_the_cluster_does_not_bring_the_first_eight_back() -> None:
    waiting = line(*range(20))
    tried = []
    for _ in range(3):
        waiting.begin_round()
        tried += turn(waiting)
    assert set(tried) == {shape(at) for at in range(20)}


def test_a_round_ends_once_each_shape_was_tried() -> None:
    waiting = line(*range(9))
    turn(waiting)
    assert waiting.left
    turn(waiting)
    assert not waiting.left
    waiting.begin_round()
    assert waiting.left


def test_among_those_that_were_tried_together_priority_goes_first() -> None:
    waiting = Line()
    for at, priority in enumerate((1, 9, 5)):
        waiting.join(key(at), shape(at), order(at, priority))
    assert turn(waiting) == turn(waiting) == [shape(1), shape(2), shape(0)]


def test_a_newcomer_of_high_priority_goes_beside_those_that_were_tried_last() -> None:
    waiting = line(0, 1)
    turn(waiting, 1)
    waiting.join(key(7), shape(7), order(7, priority=9))
    assert turn(waiting) == [shape(1), shape(7), shape(0)]


def test_a_shape_is_tried_by_the_first_of_its_workloads() -> None:
    waiting = line(0)
    waiting.join(key(0, 1), shape(0), order(0, priority=1))
    assert list(waiting.of(shape(0))) == [key(0, 1), key(0)]
    waiting.keep(lambda found: found == key(0))
    assert list(waiting.of(shape(0))) == [key(0)]
    waiting.keep(lambda _: False)
    assert not waiting
    assert not waiting.left


def test_one_that_comes_back_has_not_lost_its_place() -> None:
    waiting = line(*range(12))
    waiting.leave(key(11))
    turn(waiting)
    waiting.join(key(11), shape(11), order(11))
    assert shape(11) in turn(waiting, 4)


def test_a_workload_that_changed_its_shape_waits_once() -> None:
    waiting = line(0)
    waiting.join(key(0), shape(1), order(0))
    assert list(waiting.shapes()) == [shape(1)]
    waiting.validate()


def test_of_shapes_that_do_not_wait_the_older_half_is_forgotten_when_there_are_too_many() -> None:
    waiting = line(0)
    for at in range(1, 1026):
        waiting.join(key(at), shape(at), order(at))
        turn(waiting)
        waiting.leave(key(at))
    assert list(waiting.shapes()) == [shape(0)]
    assert waiting._tried.keys() == {shape(0), *(shape(at) for at in range(513, 1026))}


def test_the_best_workload_of_a_shape_says_where_it_stands() -> None:
    waiting = line(0, 1)
    waiting.join(key(1, 1), shape(1), order(1, priority=5))
    assert list(waiting.shapes()) == [shape(1), shape(0)]
    waiting.join(key(0, 1), shape(0), order(9, priority=-5))
    assert list(waiting.shapes()) == [shape(1), shape(0)]
    waiting.leave(key(1, 1))
    assert list(waiting.shapes()) == [shape(0), shape(1)]


def test_a_shape_that_was_passed_over_is_a_drift() -> None:
    waiting = line(0, 1, 2)
    waiting.turn([shape(0), shape(1)])
    waiting.turn([shape(0)])
    with pytest.raises(DriftError, match="s2"):
        waiting.validate()


SHAPES = 15


@histories(1, 2, 3, 4, 5, 6, 7, 8)
def test_no_shape_waits_for_more_turns_than_there_are_shapes(seed: int) -> None:
    """Shapes come, go and come back, a turn may end after the first try, and what is younger has a higher priority."""
    rng = random.Random(seed)
    waiting, waited = Line(), dict.fromkeys(range(SHAPES), 0)
    for at in range(120):
        for number in rng.sample(range(SHAPES), rng.randint(0, 4)):
            waiting.leave(key(number))
        for number in rng.sample(range(SHAPES), rng.randint(0, 4)):
            waiting.join(key(number), shape(number), order(number, priority=number))
        waiting.validate()
        if rng.random() < 0.5:
            waiting.begin_round()
        tried = turn(waiting, rng.randint(1, 3))
        for number in range(SHAPES):
            passed = waiting.of(shape(number)) and shape(number) not in tried
            waited[number] = waited[number] + 1 if passed else 0
            assert waited[number] <= SHAPES, f"{number} waits for {waited[number]} turns at {at}"
