"""Cron schedules: five fields of minute, hour, day of the month, month and day of the week, in a time zone.

``cronsim`` reads them as Debian's cron does. A time that a change of clocks leaves out fires at the change, and one
that it repeats fires once.
"""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice
from math import inf
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

_FIELDS: Final = 5
_LONGEST: Final = 200
_END_OF_2024_S: Final = 1_735_689_540.0
"""31 December 2024, 23:59 UTC: a schedule that fires at all, on 29 February too, has fired within the years before."""
_LAST_S: Final = 253_402_128_000.0
"""30 December 9999: of the day after some zones know no date."""


class CronError(ValueError):
    """The text is no schedule, or one that never fires."""


class Cron(msgspec.Struct, frozen=True):
    """A schedule, as it was written. Made by ``cron``, which checks it."""

    text: str

    def last_s(self, now_s: float, zone: tzinfo = UTC) -> float:
        """The time at which the schedule fired last, now included. Raises CronError."""
        # The iterator gives times before the one it begins at, which has whole seconds.
        return _first(self.text, float(int(min(now_s, _LAST_S)) + 1), zone, reverse=True)

    def next_s(self, now_s: float, zone: tzinfo = UTC) -> float:
        """The time after ``now_s`` at which the schedule fires next; infinite if not before the end of year 9999."""
        try:
            return _first(self.text, now_s, zone, reverse=False)
        except CronError:
            return inf


class Window(msgspec.Struct, frozen=True):
    """Times of ``for_s`` seconds from each at which the schedule fires, in the time zone ``zone``."""

    begins: Cron
    for_s: float
    zone: str = "UTC"

    def open_at(self, now_s: float) -> tuple[float, float] | None:
        """Begin and end of the window that is open now, in seconds since 1970; None if none is. A window that begins
        again before its end goes on.
        """
        begin_s = self.begins.last_s(now_s, ZoneInfo(self.zone))
        return (begin_s, begin_s + self.for_s) if now_s < begin_s + self.for_s else None

    def changes_s(self, now_s: float) -> float:
        """The next time at which a window may begin or end."""
        window, next_s = self.open_at(now_s), self.begins.next_s(now_s, ZoneInfo(self.zone))
        return next_s if window is None else min(window[1], next_s)


@lru_cache(maxsize=1_024)
def _first(text: str, from_s: float, zone: tzinfo, *, reverse: bool) -> float:
    """The next time of a schedule, or the last one before. One answer takes 0.1 ms, and is asked for more than once."""
    try:
        moment = next(islice(CronSim(text, datetime.fromtimestamp(from_s, zone), reverse), 1), None)
    except (CronSimError, OverflowError, OSError, ValueError):
        raise CronError from None
    if moment is None:
        raise CronError
    return moment.timestamp()


def cron(text: str) -> Cron:
    """Parse a schedule. Raises CronError."""
    if len(text) > _LONGEST or len(text.split()) != _FIELDS:
        raise CronError
    found = Cron(" ".join(text.split()))
    found.last_s(_END_OF_2024_S)
    return found


def zone_named(given: object) -> str:
    """The name of a time zone. Raises ValueError for what names none."""
    try:
        return ZoneInfo(given if isinstance(given, str) else "").key
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError from None
