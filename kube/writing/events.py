"""Events of events.k8s.io/v1, without flooding the API server.

    record(occurrence) -> EventLog (counts) -> one Event object a key, its ``series`` updated as it repeats

An occurrence is a repeat when an equal one (same object, type, reason, action and note) was seen within the window. The
first is written at once, repeats at most once a minute. Memory is bounded: when too many different ones wait, the
oldest are dropped and counted.
"""

import asyncio
import datetime as dt
import logging
from typing import Literal

import msgspec
from msgspec import Struct

from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Backoff, Clock, pause_s, sleep
from kube.errors import ConflictError, ForbiddenError, InvalidError, KubeError, NotFoundError
from kube.objects import Metadata, ObjectMeta, ObjectReference
from kube.resources import EVENTS

log = logging.getLogger(__name__)

_MAX_NOTE = 1024
_MAX_WORD = 128  # the API's limits


class Occurrence(Struct, frozen=True):
    """Something that happened. ``reason`` and ``action`` are CamelCase words, ``note`` one sentence for people."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


class Pending(Struct):
    """One Event object, with the occurrences that the server has not seen yet. Times are wall seconds; ``name`` is the
    Event's.
    """

    occurrence: Occurrence
    name: str
    first_s: float
    last_s: float
    count: int = 1
    written_count: int = 0
    written_s: float = 0.0


class EventLog:
    """Counts occurrences and decides when each is written. Pure: times are handed in.

    ``_entries`` is ordered by first occurrence and holds at most ``capacity`` entries; an entry's ``written_count``
    never exceeds its ``count``, and they are equal exactly while no occurrence of it is to be written.
    """

    def __init__(self, *, window_s: float = 600.0, repeat_s: float = 60.0, capacity: int = 256) -> None:
        self._window_s = window_s
        self._repeat_s = repeat_s
        self._capacity = capacity
        self._entries: dict[Occurrence, Pending] = {}
        self.dropped = 0
        """The number of occurrences that nobody will read: they waited, and newer ones needed the place."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, occurrence: Occurrence, now: float) -> None:
        """Count one occurrence at ``now``."""
        entry = self._entries.get(occurrence)
        if entry is not None and now - entry.last_s <= self._window_s:
            entry.count += 1
            entry.last_s = now
            return
        self._entries.pop(occurrence, None)  # so that the new entry is last: entries are dropped oldest first
        self._entries[occurrence] = Pending(
            occurrence=occurrence, name=_name(occurrence.regarding.name, now, occurrence), first_s=now, last_s=now
        )
        self._prune(now)

    def due(self, now: float) -> list[Pending]:
        """The entries to be written now, oldest first."""
        return [entry for entry in self._entries.values() if self._due_s(entry) <= now]

    def next_due_s(self) -> float | None:
        """The time at which the next entry is to be written, None if all are."""
        times = [self._due_s(entry) for entry in self._entries.values()]
        soonest = min(times, default=float("inf"))
        return None if soonest == float("inf") else soonest

    def written(self, entry: Pending, count: int, now: float) -> None:
        """Record that the server has ``entry`` with ``count`` occurrences."""
        entry.written_count = count
        entry.written_s = now

    def give_up(self, entry: Pending) -> None:
        """Drop ``entry``, which the server will never take."""
        self.dropped += entry.count - entry.written_count
        self._entries.pop(entry.occurrence, None)

    def _due_s(self, entry: Pending) -> float:
        if entry.count == entry.written_count:
            return float("inf")
        return entry.first_s if entry.written_count == 0 else entry.written_s + self._repeat_s

    def _prune(self, now: float) -> None:
        past = [
            entry
            for entry in self._entries.values()
            if entry.count == entry.written_count and now - entry.last_s > self._window_s
        ]
        for entry in past:
            del self._entries[entry.occurrence]
        while len(self._entries) > self._capacity:
            self.give_up(next(iter(self._entries.values())))


def _name(regarding: str, now: float, occurrence: Occurrence) -> str:
    """A name for an Event from the object, the time and a hash of the occurrence (two may happen in one instant)."""
    return f"{regarding[:200]}.{int(now * 1e6):x}{hash(occurrence) & 0xFFFF:04x}"


class _Series(Struct, rename="camel"):
    count: int
    last_observed_time: str


class _Event(Struct, rename="camel", omit_defaults=True):
    metadata: ObjectMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    note: str
    type: str
    series: _Series | None = None
    api_version: str = msgspec.field(default="")
    kind: str = msgspec.field(default="")


class EventRecorder:
    """Writes recorded occurrences. ``record`` returns at once; ``run`` does the writing until cancelled.

    Events go to the namespace of the object that they regard, ``default`` for cluster-scoped objects.
    """

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        clock: Clock,
        backoff: Backoff,
        events: EventLog | None = None,
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance[:_MAX_WORD]
        self._clock = clock
        self._backoff = backoff
        self._log = events or EventLog()
        self._wake = asyncio.Event()
        self._failing = False

    @property
    def dropped(self) -> int:
        """The number of occurrences given up so far."""
        return self._log.dropped

    @property
    def settled(self) -> bool:
        """Whether no occurrence waits to be written."""
        return self._log.next_due_s() is None

    def record(self, occurrence: Occurrence) -> None:
        """Count an occurrence to be written; never blocks, never fails."""
        self._log.add(occurrence, self._clock.wall())
        self._wake.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            now = self._clock.wall()
            due = self._log.due(now)
            if not due:
                soonest = self._log.next_due_s()
                self._wake.clear()
                await self._clock.wait(self._wake, None if soonest is None else soonest - now)
                continue
            for entry in due:
                if not await self._attempt(entry):
                    break

    async def _attempt(self, entry: Pending) -> bool:
        """Write one entry; False if the server is away and the rest should wait."""
        count = entry.count
        try:
            await self._write(entry, count)
        except (ForbiddenError, InvalidError, NotFoundError) as error:
            self._log.give_up(entry)
            self._complain(error)
        except KubeError as error:
            self._complain(error)
            await sleep(self._clock, pause_s(error, self._backoff))
            return False
        else:
            self._log.written(entry, count, self._clock.wall())
            self._backoff.reset()
            self._failing = False
        return True

    async def _write(self, entry: Pending, count: int) -> None:
        namespace = entry.occurrence.regarding.namespace or "default"
        if entry.written_count > 0:
            series = {"series": _Series(count=count, last_observed_time=_micro_time(entry.last_s))}
            try:
                points.before(Failpoint.EVENT_COUNTED)
                await self._client.merge_patch(EVENTS, entry.name, series, Metadata, namespace=namespace)
                points.after(Failpoint.EVENT_COUNTED)
            except NotFoundError:
                pass  # the server deletes Events after an hour: the Event is created again
            else:
                return
        try:
            points.before(Failpoint.EVENT)
            await self._client.create(EVENTS, self._event(entry, count, namespace), Metadata, namespace=namespace)
            points.after(Failpoint.EVENT)
        except ConflictError as error:
            # The first attempt arrived and its answer did not.
            if error.reason != "AlreadyExists":
                raise

    def _event(self, entry: Pending, count: int, namespace: str) -> _Event:
        occurrence = entry.occurrence
        # The API takes a series of two or more only.
        series = _Series(count=count, last_observed_time=_micro_time(entry.last_s)) if count > 1 else None
        return _Event(
            api_version=EVENTS.api_version,
            kind=EVENTS.kind,
            metadata=ObjectMeta(name=entry.name, namespace=namespace),
            event_time=_micro_time(entry.first_s),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=occurrence.action[:_MAX_WORD],
            reason=occurrence.reason[:_MAX_WORD],
            regarding=occurrence.regarding,
            note=occurrence.note[:_MAX_NOTE],
            type=occurrence.type,
            series=series,
        )

    def _complain(self, error: KubeError) -> None:
        """Log a failure once for each run of failures."""
        if not self._failing:
            log.warning("an Event could not be written: %s", error)
        self._failing = True


def _micro_time(wall_s: float) -> str:
    """MicroTime of the API: RFC 3339 with microseconds, in UTC."""
    return dt.datetime.fromtimestamp(wall_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
