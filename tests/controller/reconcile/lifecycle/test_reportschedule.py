"""When a pending condition is written, and when not."""

from controller.cluster.config.settings import PendingReports
from controller.reconcile.lifecycle.reportschedule import ReportSchedule
from controller.scheduler.model.resources import WorkloadKey

A = WorkloadKey("ns/a")


def schedule() -> ReportSchedule:
    return ReportSchedule(PendingReports(after_s=5.0, every_s=60.0))


def test_the_first_is_due_after_five_seconds_of_waiting() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=100.0, said=None, now_s=101.0)
    assert kept.due(104.9) == []
    assert kept.next_due_s() == 105.0
    assert kept.due(105.0) == [A]


def test_what_is_admitted_meanwhile_is_never_told() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=100.0, said=None, now_s=101.0)
    kept.forget(A)
    assert kept.due(1000.0) == []
    assert kept.next_due_s() is None


def test_the_same_reason_is_told_again_after_a_minute_and_only_if_it_was_tried() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=0.0, said=None, now_s=10.0)
    assert kept.due(10.0) == [A]
    kept.written(A, "WaitingForQuota", 10.0)
    assert kept.next_due_s() is None, "nobody tried it since"
    kept.decided(A, "WaitingForQuota", since_s=0.0, said="WaitingForQuota", now_s=20.0)
    assert kept.due(69.9) == []
    assert kept.due(70.0) == [A]


def test_another_reason_is_told_five_seconds_after_the_last() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=0.0, said=None, now_s=10.0)
    kept.due(10.0)
    kept.written(A, "WaitingForQuota", 10.0)
    kept.decided(A, "NoMatchingFlavor", since_s=0.0, said="WaitingForQuota", now_s=11.0)
    assert kept.due(14.9) == []
    assert kept.due(15.0) == [A]


def test_what_its_condition_says_already_is_not_told_after_a_restart() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=0.0, said="WaitingForQuota", now_s=1000.0)
    assert kept.due(1059.0) == []


def test_a_write_that_failed_comes_again() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=0.0, said=None, now_s=10.0)
    assert kept.due(10.0) == [A]
    kept.failed(A, 10.0)
    assert kept.due(15.0) == [A]


def test_what_is_due_is_so_at_whole_seconds() -> None:
    kept = schedule()
    kept.decided(A, "WaitingForQuota", since_s=99.2, said=None, now_s=100.0)
    assert kept.next_due_s() == 105.0
    assert kept.due(105.0) == [A]
    kept.written(A, "NoMatchingFlavor", 105.3)
    assert kept.next_due_s() == 111.0
