"""When cron fired last."""

from datetime import UTC, datetime, timedelta
from math import inf
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.model.cron import CronError, Window, cron

SUNDAY = datetime(2026, 1, 4, 12, 30, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "fired"),
    [
        ("* * * * *", "2026-01-04T12:30"),
        ("30 12 * * *", "2026-01-04T12:30"),
        ("31 12 * * *", "2026-01-03T12:31"),
        ("0 0 * * mon", "2025-12-29T00:00"),
        ("0 0 * * 7", "2026-01-04T00:00"),
        ("0 0 * * sun,tue", "2026-01-04T00:00"),
        ("0 0 1 * *", "2026-01-01T00:00"),
        ("0 0 1 * fri", "2026-01-02T00:00"),
        ("0 0 */2 * fri", "2025-12-19T00:00"),
        ("0 0 31 * *", "2025-12-31T00:00"),
        ("0 0 29 2 *", "2024-02-29T00:00"),
        ("*/20 * * * *", "2026-01-04T12:20"),
        ("10-50/15 8-17 * * *", "2026-01-04T12:25"),
        ("5/20 * * * *", "2026-01-04T12:25"),
        ("10-20/5 * * * *", "2026-01-04T12:20"),
        ("0 0 5 * */2", "2025-10-05T00:00"),
        ("0 0 * jan-mar *", "2026-01-04T00:00"),
        ("0 23,1 * * *", "2026-01-04T01:00"),
    ],
)
def test_it_fired_last_at(text: str, fired: str) -> None:
    at = datetime.fromtimestamp(cron(text).last_s(SUNDAY.timestamp()), UTC)
    assert at.isoformat(timespec="minutes").removesuffix("+00:00") == fired


def test_the_moment_itself_counts() -> None:
    moment = datetime(2026, 1, 4, tzinfo=UTC)
    assert cron("0 0 * * *").last_s(moment.timestamp()) == moment.timestamp()
    assert cron("0 0 * * *").last_s(moment.timestamp() - 1) == (moment - timedelta(days=1)).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "x * * * *",
        "@daily",
        "0 0 30 feb *",
        "0 0 31 4,6 *",
        "1, * * * *",
        "٣ * * * *",
        "* " * 3000,
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(CronError):
        cron(text)


@settings(max_examples=30)
@given(
    st.sampled_from(["* * * * *", "7 3 * * *", "0 */6 * * 1-5", "0 0 1,15 * sun", "59 23 28-31 * *"]),
    st.datetimes(min_value=datetime(2001, 1, 1), max_value=datetime(2099, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_it_never_fires_after_now_and_again_only_after_it_fired(text: str, now: datetime) -> None:
    found = cron(text)
    fired_s = found.last_s(now.timestamp())
    assert fired_s <= now.timestamp()
    assert found.last_s(fired_s) == fired_s
    assert found.last_s(fired_s - 1) < fired_s


def test_a_window_is_open_for_its_length_by_the_clock_of_its_zone() -> None:
    window = Window(cron("0 2 * * *"), 4 * 3600.0, "Europe/Berlin")

    def at(text: str) -> tuple[str, ...] | None:
        found = window.open_at(datetime.fromisoformat(text).timestamp())
        return found and tuple(datetime.fromtimestamp(each, UTC).strftime("%d %H:%M") for each in found)

    assert at("2026-01-04T00:59:59Z") is None
    assert at("2026-01-04T01:00:00Z") == ("04 01:00", "04 05:00")
    assert at("2026-07-04T00:00:00Z") == ("04 00:00", "04 04:00")
    assert at("2026-07-04T04:00:00Z") is None
    assert at("2026-03-29T03:00:00Z") == ("29 01:00", "29 05:00"), "two o'clock is left out that night"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("day", [28, 29, 30, 31])
def test_the_calendar_ends_with_year_9999(day: int, zone: str) -> None:
    at_s = datetime(9999, 12, day, 20, 30, tzinfo=UTC).timestamp()
    assert cron("0 20 * * *").last_s(at_s, ZoneInfo(zone)) <= at_s
    assert cron("0 20 * * *").next_s(at_s, ZoneInfo(zone)) > at_s
    assert cron("0 20 1 * *").next_s(at_s, ZoneInfo(zone)) == inf
