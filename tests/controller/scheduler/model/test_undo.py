"""The undo log."""

import contextlib

import pytest

from controller.scheduler.model.undo import UndoLog


class Counter:
    """Something that changes and notes how to change back."""

    def __init__(self, log: UndoLog) -> None:
        self.log = log
        self.value = 0

    def add(self, amount: int) -> None:
        self.value += amount
        self.log.record(self.add, -amount)


def test_a_trial_undoes_newest_first() -> None:
    log, order = UndoLog(), list[int]()
    with log.trial():
        for index in range(3):
            log.record(order.append, index)
    assert order == [2, 1, 0]


def test_what_is_kept_stands() -> None:
    log = UndoLog()
    counter = Counter(log)
    with log.trial() as trial:
        counter.add(3)
        trial.keep()
    assert counter.value == 3


def test_an_exception_undoes_what_was_to_be_kept() -> None:
    log = UndoLog()
    counter = Counter(log)
    with contextlib.suppress(ZeroDivisionError), log.trial() as trial:
        counter.add(3)
        trial.keep()
        raise ZeroDivisionError
    assert counter.value == 0


def test_marks_nest() -> None:
    log = UndoLog()
    counter = Counter(log)
    outer = log.mark()
    counter.add(1)
    inner = log.mark()
    counter.add(10)
    log.rollback(inner)
    assert counter.value == 1
    kept = log.mark()
    counter.add(100)
    log.keep(kept)
    log.rollback(outer)
    assert counter.value == 0


def test_an_outer_mark_cannot_be_closed_before_an_inner_one() -> None:
    log = UndoLog()
    outer = log.mark()
    log.record(lambda: None)
    log.mark()
    with pytest.raises(ValueError, match="trials nest"):
        log.rollback(outer)


def test_live_changes_leave_nothing_behind() -> None:
    log = UndoLog()
    counter = Counter(log)
    counter.add(1)
    with log.trial() as trial:
        counter.add(2)
        trial.keep()
    counter.add(4)
    with log.trial():
        pass
    assert counter.value == 7
