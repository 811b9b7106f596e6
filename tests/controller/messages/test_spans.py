"""Ranges in words."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.messages.spans import duration, exact, moment, starts, with_moments


def told(low_s: float | None, high_s: float | None) -> dict[str, Any]:
    return {"at": 0.0, "fromSeconds": low_s, "likelySeconds": low_s, "toSeconds": high_s}


@pytest.mark.parametrize(
    ("forecast", "said"),
    [
        (None, "-"),
        (told(None, None), "unknown"),
        (told(0.0, 20.0), "within a minute"),
        (told(10.0, 3000.0), "within 50m"),
        (told(600.0, 6000.0), "in 10m to 1h40m"),
        (told(600.0, 610.0), "in 10m"),
        (told(7200.0, 90_000.0), "in 2h to 25h"),
        (told(7200.0, None), "in 2h or later"),
        (told(0.0, None), "now or never"),
    ],
)
def test_a_range_is_said_as_people_say_it(forecast: dict[str, Any] | None, said: str) -> None:
    assert starts(forecast) == said


@given(st.floats(0.0, 1e7), st.floats(0.0, 1e7))
def test_a_longer_time_is_never_said_as_a_shorter_one(one_s: float, other_s: float) -> None:
    low_s, high_s = sorted((one_s, other_s))
    assert seconds(duration(low_s)) <= seconds(duration(high_s))


def seconds(text: str) -> float:
    """What ``duration`` said."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    assert parts is not None
    return sum(int(part or 0) * unit for part, unit in zip(parts.groups(), (86_400, 3_600, 60, 1), strict=True))


@given(st.floats(0.0, 1e8))
@example(89.9)
def test_what_is_said_is_near(given_s: float) -> None:
    """A minute and a half, said as one, is the furthest off."""
    assert seconds(duration(given_s)) == pytest.approx(given_s, rel=1 / 3, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.5, "0.5s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (1536, "25m36s"),
        (3600, "1h"),
        (90061, "25h1m1s"),
    ],
)
def test_what_was_configured_is_not_rounded(seconds: float, told: str) -> None:
    assert exact(seconds) == told


def test_a_moment_is_the_end_of_its_minute_and_says_its_zone() -> None:
    at_s = datetime(2026, 1, 31, 12, 33, 7, tzinfo=UTC).timestamp()
    assert moment(at_s) == moment(at_s + 40) == "2026-01-31 12:34 UTC"
    assert moment(at_s + 53) == "2026-01-31 12:34 UTC", "a whole minute is itself"
    assert moment(at_s + 53.04) == moment(at_s + 52.96) == "2026-01-31 12:34 UTC", "and so is a sum of fractions"
    assert moment(at_s + 54) == "2026-01-31 12:35 UTC"


def test_a_simulation_tells_moments_by_its_own_clock() -> None:
    at_s = datetime(2026, 1, 31, 12, 34, tzinfo=UTC).timestamp()
    assert with_moments(f"by {moment(at_s)}, not 2026", lambda s: exact(s - at_s + 120)) == "by 2m, not 2026"
