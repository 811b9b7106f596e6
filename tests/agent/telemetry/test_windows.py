"""The last XID is forgotten in time, and counts are those of the window, however many events there were."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.telemetry.windows import MOST_KINDS, SlidingCounts, XidMemory
from inventory.devices import GpuUuid

GPU = GpuUuid("GPU-0")


def test_the_last_xid_is_the_last_until_its_time_is_over() -> None:
    memory = XidMemory(600)
    memory.add(GPU, 79, 10.0)
    memory.add(GPU, 31, 20.0)
    assert [memory.last(GPU, now_s) for now_s in (20.0, 619.9, 620.0)] == [31, 31, 0]
    assert memory.last(GpuUuid("GPU-1"), 20.0) == 0
    memory.keep(())
    assert memory.last(GPU, 20.0) == 0


@given(events=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 3)), max_size=60), now=st.integers(0, 1200))
def test_a_count_is_of_the_events_within_the_window(events: list[tuple[int, int]], now: int) -> None:
    counts: SlidingCounts[int] = SlidingCounts(300)
    past = sorted((second, kind) for second, kind in events if second <= now)
    for second, kind in past:
        counts.add(GPU, kind, float(second))
        counts.validate()
    expected = Counter(kind for second, kind in past if second + 1 > now - 300)
    assert counts.counts(GPU, float(now)) == dict(expected)


def test_what_is_kept_is_bounded_whatever_a_gpu_says() -> None:
    counts: SlidingCounts[int] = SlidingCounts(10)
    for event in range(100_000):
        counts.add(GPU, event % 1000, event / 1000)
    counts.validate()
    assert len(counts.counts(GPU, 100.0)) == MOST_KINDS
    assert sum(len(kinds) for _, kinds in counts._seen[GPU]) <= 12 * MOST_KINDS
    counts.keep(())
    assert counts.counts(GPU, 100.0) == {}
