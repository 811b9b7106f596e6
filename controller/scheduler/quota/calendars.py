"""Keeps the quotas of ClusterQueues and Cohorts at what their calendars say for the present time.

Objects pass through here on their way in, after ``quotashares``; when a window begins or ends, the objects are returned
that the engine must take in again.
"""

import heapq
from typing import NamedTuple

from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.quota.calendar import Calendar, calendar_of, in_force, next_change_s, overlaid
from controller.scheduler.quota.quotaspec import QuotaOwner
from inventory.api.names import QUOTA_CALENDAR

Owner = ClusterQueue | Cohort
_OwnerKey = tuple[str, str]
OpenEntries = frozenset[tuple[str, str, int]]
"""Open windows: kind and name of the object, and the number of the entry."""


class _Kept(NamedTuple):
    """``given`` as it came, without what its calendar changes."""

    given: Owner
    calendar: Calendar
    changes_s: float | None


class Calendars:
    """``_kept`` has each object with a calendar. ``_due`` is a heap that has the next change of each of them, and maybe
    changes that are no longer any object's next one: these are passed over.
    """

    def __init__(self) -> None:
        self._kept: dict[_OwnerKey, _Kept] = {}
        self._due: list[tuple[float, _OwnerKey]] = []

    def through(self, given: QuotaOwner, now_s: float) -> QuotaOwner:
        """The object with the quotas that hold now."""
        key = _key(given)
        if QUOTA_CALENDAR not in given.metadata.annotations:
            self._kept.pop(key, None)
            return given
        return self._keep(key, given, calendar_of(given), now_s)

    def gone(self, kind: type, name: str) -> None:
        """Forget an object of any kind."""
        self._kept.pop((kind.__name__, name), None)

    def due(self, now_s: float) -> list[Owner]:
        """The objects whose quotas may have changed since they were taken in, as they are to be taken in again."""
        owners = dict[_OwnerKey, Owner]()
        while self._due and self._due[0][0] <= now_s:
            at_s, key = heapq.heappop(self._due)
            kept = self._kept.get(key)
            if kept is not None and kept.changes_s == at_s:
                self._kept[key] = kept._replace(changes_s=None)
                owners[key] = kept.given
        return list(owners.values())

    def next_due_s(self) -> float | None:
        """The next time at which a window begins or ends."""
        while self._due:
            at_s, key = self._due[0]
            kept = self._kept.get(key)
            if kept is not None and kept.changes_s == at_s:
                return at_s
            heapq.heappop(self._due)
        return None

    def of(self, kind: type, name: str) -> Calendar:
        """The calendar of an object; empty if it has none."""
        kept = self._kept.get((kind.__name__, name))
        return Calendar() if kept is None else kept.calendar

    def owners(self) -> list[Owner]:
        """The objects that have a calendar, without what it changes."""
        return [kept.given for kept in self._kept.values()]

    def open_at(self, at_s: float) -> OpenEntries:
        """The entries whose window is open then."""
        kept = self._kept.items()
        return frozenset((*key, entry.number) for key, one in kept for entry, _ in in_force(one.calendar.entries, at_s))

    def next_change_s(self, at_s: float) -> float | None:
        """The next time after ``at_s`` at which a window begins or ends."""
        found = (next_change_s(kept.calendar.entries, at_s) for kept in self._kept.values())
        return min((each for each in found if each is not None), default=None)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def validate(self) -> None:
        """AssertionError if the next change of an object is not among those that are due."""
        due = set(self._due)
        for key, kept in self._kept.items():
            if kept.changes_s is not None and (kept.changes_s, key) not in due:
                raise AssertionError(f"{key} changes at {kept.changes_s}, which is not noted")
            if kept.calendar != calendar_of(kept.given):
                raise AssertionError(f"the calendar of {key} is not that of its annotation")

    def _keep(self, key: _OwnerKey, given: QuotaOwner, calendar: Calendar, now_s: float) -> QuotaOwner:
        before, changes_s = self._kept.get(key), next_change_s(calendar.entries, now_s)
        self._kept[key] = _Kept(given, calendar, changes_s)
        if changes_s is not None and (before is None or before.changes_s != changes_s):
            heapq.heappush(self._due, (changes_s, key))
        return overlaid(given, calendar.entries, now_s)


def _key(given: Owner) -> _OwnerKey:
    return type(given).__name__, given.metadata.name
