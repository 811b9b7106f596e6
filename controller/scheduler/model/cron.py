"""Cron schedules: five fields of minute, hour, day of the month, month and day of the week, in UTC."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 7, _DAYS))
"""The lowest and the highest value of each field, and names that stand for values from the lowest on."""
_PART: Final = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d{1,2}))?", re.ASCII)
_SUNDAY: Final = 7
_LONGEST_DAYS: Final = 9 * 366
"""Days to look back at most: even February 29th comes within 9 years."""
_LONGEST: Final = 200


class CronError(ValueError):
    """The text is no schedule, or one that never fires."""


class Cron(msgspec.Struct, frozen=True):
    """A schedule. ``hours`` and ``minutes`` are sorted. ``either``: a match of the day of the month or of the week is
    enough, as cron has it where both are named.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def last_s(self, now_s: float) -> float:
        """The time at which the schedule fired last, now included. Raises CronError."""
        now = datetime.fromtimestamp(now_s, UTC)
        for back in range(_LONGEST_DAYS):
            day = now.date() - timedelta(days=back)
            if self._fires_on(day):
                for hour in reversed(self.hours):
                    for minute in reversed(self.minutes):
                        fired = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                        if fired <= now:
                            return fired.timestamp()
        raise CronError

    def _fires_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        return by_month or by_week if self.either else by_month and by_week


def cron(text: str) -> Cron:
    """Parse a schedule. Raises CronError."""
    fields = text[:_LONGEST].split()
    if len(fields) != len(_FIELDS):
        raise CronError
    minutes, hours, days, months, weekdays = (
        _values(field, low, high, names) for field, (low, high, names) in zip(fields, _FIELDS, strict=True)
    )
    found = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % _SUNDAY for day in weekdays),
        either="*" not in (fields[2][:1], fields[4][:1]),
    )
    found.last_s(datetime(2024, 12, 31, 23, 59, tzinfo=UTC).timestamp())
    return found


def _values(field: str, low: int, high: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in field.lower().split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise CronError
        whole, first, last, step = match.groups()
        begin, end = (low, high) if whole == "*" else (_value(first, low, names), _value(last or first, low, names))
        if first is not None and last is None and step:
            end = high
        if not low <= begin <= end <= high or step == "0":
            raise CronError
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _value(text: str, low: int, names: tuple[str, ...]) -> int:
    if text in names:
        return low + names.index(text)
    if not text.isdigit():
        raise CronError
    return int(text)
