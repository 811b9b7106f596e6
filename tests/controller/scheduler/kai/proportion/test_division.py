"""The division of a resource: nobody gets more than it asks, quota comes first, weight never hurts."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.kai.proportion.division import KaiQueueRequest, QueueName, divide, divide_quota

TOTAL = 16.0


@st.composite
def siblings(draw: st.DrawFn, *, whole: bool = True) -> list[KaiQueueRequest]:
    amount = st.integers(0, 12).map(float) if whole else st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.7, 3.0, 9.5])
    return [
        KaiQueueRequest(
            queue=QueueName(f"q{index}"),
            quota=draw(st.one_of(amount, st.just(math.inf))),
            limit=draw(st.one_of(amount, st.just(math.inf))),
            weight=float(draw(st.integers(0, 5))),
            request=draw(amount),
            usage=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
            priority=draw(st.sampled_from([50, 100])),
            created=float(index),
            uid=str(index),
        )
        for index in range(draw(st.integers(1, 6)))
    ]


usage_weights = st.sampled_from([0.0, 0.5, 1.0, 10.0])


@given(siblings(whole=False), usage_weights)
def test_a_share_exceeds_what_is_asked_by_less_than_a_unit(demands: list[KaiQueueRequest], k: float) -> None:
    shares = divide(TOTAL, demands, k).shares
    assert all(0.0 <= shares[c.queue] < c.asked + 1.0 for c in demands)


@given(siblings(), usage_weights)
def test_nobody_gets_more_than_it_asks_in_whole_units(demands: list[KaiQueueRequest], k: float) -> None:
    shares = divide(TOTAL, demands, k).shares
    assert all(shares[c.queue] <= c.asked + 1e-9 for c in demands)


@given(siblings(whole=False), usage_weights)
def test_shares_and_rest_are_what_there_is_unless_quotas_are_more(demands: list[KaiQueueRequest], k: float) -> None:
    found = divide(TOTAL, demands, k)
    quotas = sum(divide_quota(TOTAL, demands).shares.values())
    assert sum(found.shares.values()) + found.rest == pytest.approx(max(TOTAL, quotas))
    assert found.rest >= 0.0


@given(siblings(whole=False), usage_weights)
def test_everybody_has_its_quota_first(demands: list[KaiQueueRequest], k: float) -> None:
    shares = divide(TOTAL, demands, k).shares
    assert all(shares[c.queue] >= min(c.quota, c.asked, TOTAL) for c in demands)


@given(siblings(whole=False), usage_weights)
def test_without_weight_there_is_nothing_over_quota(demands: list[KaiQueueRequest], k: float) -> None:
    shares = divide(TOTAL, demands, k).shares
    quotas = divide_quota(TOTAL, demands).shares
    assert all(shares[c.queue] == quotas[c.queue] for c in demands if c.weight == 0.0)


@given(siblings(whole=False), usage_weights, st.randoms(use_true_random=False))
def test_the_order_of_queues_does_not_matter(demands: list[KaiQueueRequest], k: float, random: Random) -> None:
    shuffled = list(demands)
    random.shuffle(shuffled)
    assert divide(TOTAL, shuffled, k).shares == pytest.approx(divide(TOTAL, demands, k).shares)


@given(siblings(), usage_weights)
def test_more_weight_never_costs_more_than_a_rounded_unit(demands: list[KaiQueueRequest], k: float) -> None:
    first = demands[0]
    heavier = replace(first, weight=first.weight + 1.0)
    before = divide(TOTAL, demands, k).shares[first.queue]
    after = divide(TOTAL, [heavier, *demands[1:]], k).shares[first.queue]
    assert after >= before - 1.0


def queue(name: str, *, weight: float = 1.0, usage: float = 0.0, priority: int = 0) -> KaiQueueRequest:
    return KaiQueueRequest(
        queue=QueueName(name),
        quota=0.0,
        weight=weight,
        request=100.0,
        usage=usage,
        priority=priority,
        created=float(ord(name)),
        uid=name,
    )


def test_two_queues_with_weights_one_and_three_divide_eight_gpus() -> None:
    assert divide(8.0, [queue("a", weight=1.0), queue("b", weight=3.0)]).shares == {"a": 2.0, "b": 6.0}


def test_a_higher_priority_takes_all_that_it_asks_over_quota() -> None:
    assert divide(8.0, [queue("a"), queue("b", priority=1)]).shares == {"a": 0.0, "b": 8.0}


def test_past_use_counts_against_a_queue() -> None:
    shares = divide(8.0, [queue("a", usage=0.5), queue("b")], usage_weight=1.0).shares
    assert shares == {"a": 3.0, "b": 5.0}


def test_the_oldest_gets_the_unit_that_cannot_be_divided() -> None:
    assert divide(3.0, [queue("b"), queue("a")]).shares == {"a": 2.0, "b": 1.0}
