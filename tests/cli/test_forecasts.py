"""A forecast for people."""

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
