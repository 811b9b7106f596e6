"""Times of starts, in words. The command line imports this without the engine."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0
LATEST_S: Final = 253_402_300_740
"""The last minute of the year 9999: no time after it can be written."""
_SHORT: Final = 10
"""The number of hours below which minutes are shown too, rounded to as many."""
_MOMENT: Final = "%Y-%m-%d %H:%M UTC"
_SECOND: Final = "%Y-%m-%d %H:%M:%S UTC"
_SAID: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC")


def starts(forecast: Mapping[str, Any] | None) -> str:
    """The range of a forecast from ``brief``: ``in 12min to 1h40m``; ``-`` if there is no forecast."""
    if forecast is None:
        return "-"
    low_s, high_s = forecast["fromSeconds"], forecast["toSeconds"]
    if low_s is None and forecast.get("notBefore") is not None:
        return f"not before {forecast['notBefore']}"
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


def exact(seconds: float) -> str:
    """Not rounded, as for what was configured: ``1m30s``, ``30m``, ``1h``, ``2.5s``, ``0s``."""
    minutes, rest_s = divmod(seconds, _MINUTE_S)
    hours, minutes = divmod(int(minutes), 60)
    parts = [f"{amount:g}{unit}" for amount, unit in ((hours, "h"), (minutes, "m"), (rest_s, "s")) if amount]
    return "".join(parts) or "0s"


def moment(at_s: float) -> str:
    """``2026-01-31 12:34 UTC`` of seconds since 1970, the minute that begins next. A message that is kept says a moment
    and no span: a span is wrong a second later. Less than half a second after a minute is that minute.
    """
    return datetime.fromtimestamp(min(math.ceil(round(at_s) / _MINUTE_S) * _MINUTE_S, LATEST_S), UTC).strftime(_MOMENT)


def second(at_s: float) -> str:
    """``moment``, with the second where it is not a whole minute: for waits of a few minutes."""
    at_s = min(math.ceil(at_s), LATEST_S)
    return moment(at_s) if at_s % _MINUTE_S == 0 else datetime.fromtimestamp(at_s, UTC).strftime(_SECOND)


def with_moments(text: str, told: Callable[[float], str]) -> str:
    """The message with what ``told`` makes of the seconds since 1970 in place of each ``moment`` and ``second``."""

    def replaced(found: re.Match[str]) -> str:
        written = _SECOND if found[1] else _MOMENT
        return told(datetime.strptime(found[0], written).replace(tzinfo=UTC).timestamp())

    return _SAID.sub(replaced, text)
