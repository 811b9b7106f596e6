"""Times at which workloads are due."""

from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.lifecycle.duetimes import DueTimes
from controller.scheduler.model.resources import WorkloadKey

A, B, C = (WorkloadKey(f"ns/{name}") for name in "abc")
SETTINGS = st.lists(st.tuples(st.sampled_from((A, B, C)), st.none() | st.integers(0, 3), st.integers(0, 2)))


def test_of_one_time_the_lower_rank_comes_first_then_the_lower_key() -> None:
    times = DueTimes()
    for key, rank in ((B, 0), (A, 0), (C, -1)):
        times.set(key, 5.0, rank)
    assert list(times.due(5.0)) == [C, A, B]
    assert times.next_s() is None


def test_times_that_are_set_meanwhile_are_due_in_the_same_pass() -> None:
    times = DueTimes()
    times.set(A, 1.0)
    found = []
    for key in times.due(2.0):
        found.append(key)
        if len(found) < 3:
            times.set(key, 1.5)
    assert found == [A, A, A]


@given(SETTINGS, st.integers(0, 3))
def test_the_last_time_that_was_set_counts(settings: list[tuple[WorkloadKey, int | None, int]], now_s: int) -> None:
    times, model = DueTimes(), dict[WorkloadKey, tuple[int, int]]()
    for key, due_s, rank in settings:
        times.set(key, due_s, rank)
        model.pop(key, None)
        if due_s is not None:
            model[key] = (due_s, rank)
    assert times.next_s() == min((due_s for due_s, _ in model.values()), default=None)
    wanted = sorted((due_s, rank, key) for key, (due_s, rank) in model.items() if due_s <= now_s)
    assert list(times.due(now_s)) == [key for _, _, key in wanted]
    assert times.next_s() == min((due_s for due_s, _ in model.values() if due_s > now_s), default=None)
