"""Calls pass at the rate that was set, in order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.clock import RateLimit
from kube.testing import VirtualClock


@given(
    qps=st.floats(0.5, 500),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 0.5), min_size=1, max_size=100),
)
def test_no_window_holds_more_calls_than_burst_and_rate_allow(qps: float, burst: int, gaps: list[float]) -> None:
    limit = RateLimit(qps=qps, burst=burst, clock=VirtualClock())
    now_s, passed_s = 1000.0, []
    for gap_s in gaps:
        now_s += gap_s
        passed_s.append(now_s + limit.reserve(now_s))
    assert passed_s == sorted(passed_s)
    for first, start_s in enumerate(passed_s):
        for last in range(first, len(passed_s)):
            assert last - first + 1 <= burst + qps * (passed_s[last] - start_s) + 1e-6


async def test_a_call_beyond_the_burst_waits_for_its_token() -> None:
    clock = VirtualClock()
    limit = RateLimit(qps=10, burst=2, clock=clock)
    await limit.take()
    await limit.take()
    third = asyncio.create_task(limit.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not third.done()
    assert clock.next_wake_s == pytest.approx(0.1)
    clock.advance(0.11)
    await third


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="found 0 and 1"):
        RateLimit(qps=0, burst=1, clock=VirtualClock())
