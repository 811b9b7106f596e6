"""Times of starts, in words. The command line imports this without the engine."""

from collections.abc import Mapping
from typing import Any, Final

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0
_SHORT: Final = 10
"""The number of hours below which minutes are shown too, rounded to as many."""


def starts(forecast: Mapping[str, Any] | None) -> str:
    """The range of a forecast from ``brief``: ``in 12min to 1h40m``; ``-`` if there is no forecast."""
    if forecast is None:
        return "-"
    low_s, high_s = forecast["fromSeconds"], forecast["toSeconds"]
    if low_s is None:
        return "unknown" if forecast.get("never") is None else "never"
    if high_s is None:
        return f"in {duration(low_s)} or later" if low_s >= _MINUTE_S else "now or never"
    if high_s < _MINUTE_S:
        return "within a minute"
    if low_s < _MINUTE_S:
        return f"within {duration(high_s)}"
    low, high = duration(low_s), duration(high_s)
    return f"in {low}" if low == high else f"in {low} to {high}"


def duration(seconds: float) -> str:
    """A duration, rounded: ``40s``, ``12m``, ``1h40m``, ``15h``, ``3d``."""
    if seconds < _MINUTE_S:
        return f"{round(seconds)}s"
    if seconds < _HOUR_S - _MINUTE_S / 2:
        return f"{round(seconds / _MINUTE_S)}m"
    if seconds < _SHORT * _HOUR_S:
        hours, minutes = divmod(round(seconds / (_SHORT * _MINUTE_S)) * _SHORT, 60)
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    if seconds < 2 * _DAY_S:
        return f"{round(seconds / _HOUR_S)}h"
    return f"{round(seconds / _DAY_S)}d"
