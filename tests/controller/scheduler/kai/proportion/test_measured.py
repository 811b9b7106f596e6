"""What others measured counts while it is fresh."""

import pytest

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.measured import MeasuredUsage
from controller.scheduler.mirror.specs import GPU

USE = {QueueName("a"): {GPU: 0.5}}


def test_an_answer_counts_until_it_is_stale() -> None:
    measured = MeasuredUsage(300.0)
    assert measured.usage(0.0) is None
    assert measured.counts_until_s is None
    assert measured.take(USE, 100.0) is False
    assert measured.usage(399.9) == USE
    assert measured.usage(400.0) is None
    assert measured.counts_until_s == 400.0


def test_the_first_question_that_fails_is_told_from_the_next() -> None:
    measured = MeasuredUsage(300.0)
    assert measured.lost(10.0) is True
    assert measured.lost(70.0) is False
    assert measured.away_since_s == 10.0
    assert measured.take(USE, 100.0) is True
    assert measured.away_since_s is None
    assert measured.take(USE, 160.0) is False
    assert measured.lost(200.0) is True


def test_a_failed_question_takes_nothing_away() -> None:
    measured = MeasuredUsage(300.0)
    measured.take(USE, 100.0)
    measured.lost(200.0)
    assert measured.usage(200.0) == USE


@pytest.mark.parametrize("part", [-0.1, 1.1, float("nan")])
def test_a_use_that_is_no_part_is_a_drift(part: float) -> None:
    measured = MeasuredUsage(300.0)
    measured.take({QueueName("a"): {GPU: part}}, 0.0)
    with pytest.raises(AssertionError):
        measured.validate()
