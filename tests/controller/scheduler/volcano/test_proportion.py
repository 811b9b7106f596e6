"""Volcano's division by weight: never more than there is or is asked for, monotone in weight, whatever the order."""

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.model.resources import ResourceName
from controller.scheduler.volcano.proportion import VolcanoQueueRequest, by_weight, is_victim, real_limit

GPU, CPU = ResourceName("nvidia.com/gpu"), ResourceName("cpu")


def asker(
    name: str, weight: float, request: float, limit: float = math.inf, guarantee: float = 0.0
) -> VolcanoQueueRequest:
    return VolcanoQueueRequest(QueueName(name), weight, request, limit, guarantee)


def test_weights_divide_what_is_asked_for_and_what_is_left_goes_round() -> None:
    assert by_weight(8, [asker("a", 1, 8), asker("b", 3, 8)]) == {"a": 2, "b": 6}
    assert by_weight(8, [asker("a", 1, 8), asker("b", 3, 2)]) == {"a": 6, "b": 2}
    assert by_weight(8, [asker("a", 1, 1), asker("b", 3, 2)]) == {"a": 1, "b": 2}
    assert by_weight(8, [asker("a", 1, 8, limit=1), asker("b", 1, 8)]) == {"a": 1, "b": 7}
    assert by_weight(8, [asker("a", 1, 0, guarantee=4), asker("b", 1, 8)]) == {"a": 4, "b": 4}


ASKERS = st.lists(
    st.builds(
        lambda weight, request, limit, guarantee: (weight, request, limit, min(guarantee, limit)),
        st.integers(1, 9),
        st.integers(0, 40),
        st.one_of(st.just(math.inf), st.integers(0, 20)),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=6,
).map(lambda made: [asker(f"q{at}", *each) for at, each in enumerate(made)])


@settings(max_examples=60)
@given(st.integers(0, 60), ASKERS, st.randoms(use_true_random=False))
def test_a_division_gives_no_more_than_there_is_or_is_asked_for(
    total: int, askers: list[VolcanoQueueRequest], rng: random.Random
) -> None:
    parts = by_weight(total, askers)
    guarantees = sum(min(each.guarantee, each.limit) for each in askers)
    assert sum(parts.values()) <= max(total, guarantees) + 1e-6
    for each in askers:
        assert parts[each.queue] <= max(min(each.request, each.limit), each.guarantee) + 1e-9
        assert parts[each.queue] >= min(each.guarantee, each.limit)
    mixed = by_weight(total, rng.sample(askers, len(askers)))
    assert all(abs(mixed[name] - part) < 1e-6 for name, part in parts.items())
    first = askers[0]
    heavier = [asker(first.queue, first.weight + 1, first.request, first.limit, first.guarantee), *askers[1:]]
    assert by_weight(total, heavier)[first.queue] >= parts[first.queue] - 1e-6
    wanted = sum(max(min(each.request, each.limit), each.guarantee) for each in askers)
    assert sum(parts.values()) >= min(total, wanted) - 1e-6


def test_a_guarantee_of_one_is_kept_from_the_others() -> None:
    limit = real_limit({GPU: 8.0, CPU: 4.0}, {GPU: 7.0}, {GPU: 1.0}, {GPU: 3.0})
    assert limit == {GPU: 6.0, CPU: 4.0}


def test_a_victims_queue_has_more_than_its_share_of_what_is_needed_and_keeps_its_guarantee() -> None:
    assert is_victim({GPU: 3}, {GPU: 1}, {GPU: 1}, {GPU: 2}, {})
    assert not is_victim({GPU: 2}, {GPU: 1}, {GPU: 1}, {GPU: 2}, {})
    assert not is_victim({GPU: 3, CPU: 9}, {GPU: 1}, {GPU: 1}, {GPU: 3, CPU: 1}, {})
    assert not is_victim({GPU: 3}, {GPU: 2}, {GPU: 1}, {GPU: 0}, {GPU: 2})
