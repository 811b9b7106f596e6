"""A forecast for people."""

import datetime as dt
from typing import Any

from rich.text import Text

from cli.forecasts import parts

FORECAST: dict[str, Any] = {
    "at": 0.0,
    "fromSeconds": None,
    "toSeconds": None,
    "never": None,
    "starts": "not known",
    "ahead": 7,
    "before": [{"workload": "team/a"}, {"workload": "team/b"}],
    "assumes": [],
    "changes": [],
}


def told(**given: Any) -> list[str]:
    return [part.plain for part in parts({**FORECAST, **given}) if isinstance(part, Text)][1:]


def test_it_says_who_is_tried_before() -> None:
    assert told() == ["Likely start: not known", "  behind team/a, team/b and 5 more"]
    assert told(ahead=1, before=[]) == ["Likely start: not known", "  behind 1 other in its queue"]


def test_of_one_that_never_starts_nobody_is_said_to_be_before_it() -> None:
    never = "unless it asks for at most 4 gpu"
    assert told(never=never, starts=f"never, {never}") == [f"Likely start: never, {never}"]


def test_a_start_with_a_window_is_told_in_the_windows_minute_and_not_in_the_one_before() -> None:
    begins_s = dt.datetime(2026, 1, 5, 3, 23).astimezone().timestamp()
    for fraction_s in (0.0, 0.04, 0.27, 0.46):
        at_s = begins_s - 1800.0 + fraction_s
        low_s = round(begins_s - at_s, 1) - 0.01
        told_in = told(at=at_s, fromSeconds=low_s, toSeconds=low_s + 3600.0, starts="in 30m", ahead=0, before=[])
        assert told_in == ["Likely start: in 30m (2026-01-05 03:23 to 2026-01-05 04:23, in four of five cases)"]
