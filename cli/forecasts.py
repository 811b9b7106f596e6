"""A forecast for people: when the job is likely to start, by which assumptions, and what would let it start now."""

import datetime as dt
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from cli.printing.console import Json
from inventory.words.catalog import plural


def parts(forecast: Json | None) -> Iterator[RenderableType]:
    """The lines of ``controller.insight.forecast.shown``; none where there is no forecast."""
    if forecast is None:
        return
    yield Text("")
    yield Text(f"Likely start: {forecast['starts']}{_moments(forecast)}", style="bold")
    if forecast["ahead"] and forecast.get("never") is None:
        first = ", ".join(row["workload"] for row in forecast["before"])
        more = forecast["ahead"] - len(forecast["before"])
        also = f" and {more} more" if first and more > 0 else ""
        yield Text(
            f"  behind {first}{also}" if first else f"  behind {plural(forecast['ahead'], 'other')} in its queue"
        )
    for sentence in forecast["assumes"]:
        yield Text(f"  {sentence}")
    if forecast["changes"]:
        yield Text("What would let it start now", style="bold")
        for change in forecast["changes"]:
            when = f", likely at {_clock(change['at'])}" if change["at"] is not None else ""
            yield Text(f"  {change['sentence']}{when}")


def _moments(forecast: Json) -> str:
    low_s, high_s, at_s = forecast["fromSeconds"], forecast["toSeconds"], forecast["at"]
    if low_s is None or high_s is None:
        return ""
    return f" ({_clock(at_s + low_s)} to {_clock(at_s + high_s)}, in four of five cases)"


def _clock(at_s: float) -> str:
    """The minute. A time is a sum of fractions: one that is short of a minute by a hundredth of a second is meant."""
    return dt.datetime.fromtimestamp(round(at_s), tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M")
