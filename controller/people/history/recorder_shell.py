"""The record of this replica: SQLite on a volume of its own, written once a minute in one transaction, in a thread.

A file that cannot be read as a record is set aside under another name, and a new one is begun. A volume without room
costs the samples that do not fit in memory, and nothing else: whoever asks is answered from what there is.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from controller.people.history.asked import Asked
from controller.people.history.queries import span
from controller.people.history.record import (
    KEPT_HOURS,
    STEP_S,
    THINNED,
    HourRow,
    Of,
    Pending,
    Sample,
    bucket,
    hour_of,
    lines,
)
from kube.clock import Clock, sleep

log = logging.getLogger(__name__)

Json = dict[str, Any]
EVERY_S: Final = 60.0
_SOON_S: Final = 1.0
"""The pause while this replica has not taken in all that is known."""
FILE: Final = "history.db"
ASIDE: Final = "history.db.damaged"
MOST_BYTES: Final = 200 * 1024 * 1024
_VERSION: Final = 1
_MOST_PENDING: Final = 100_000
"""Sums that wait in memory while nothing can be written: about 20 MiB."""
_PAGE_HOURS: Final = 6
_MOST_PAGES: Final = 2 * KEPT_HOURS // _PAGE_HOURS
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS hours (
  hour INTEGER NOT NULL, what TEXT NOT NULL, name TEXT NOT NULL, series TEXT NOT NULL, resource TEXT NOT NULL,
  total REAL NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (what, name, series, resource, hour)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_hour ON hours (hour);
CREATE TABLE IF NOT EXISTS thinned (step INTEGER PRIMARY KEY, before INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (what TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
"""
_COLUMNS: Final = {
    "hours": ("hour", "what", "name", "series", "resource", "total", "count"),
    "thinned": ("step", "before"),
    "done": ("what", "number"),
}
"""The columns of ``_TABLES``: a file in which one of them has others is no record."""
_ADD: Final = """
INSERT INTO hours VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET total = total + excluded.total, count = count + excluded.count
"""
_FILL: Final = "INSERT OR IGNORE INTO hours VALUES (?, ?, ?, ?, ?, ?, ?)"
_ALL: Final = "SELECT hour, what, name, series, resource, total, count FROM hours"

Peer = Callable[[int], Awaitable[bytes | None]]
"""Rows of another replica before an hour, as ``Record.before`` writes them; None where none could be asked."""


class Record:
    """The file. Every call blocks, and one at a time is let in: they are made on threads."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._turn = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._bounded = 0
        """The newest hour at which the record was last bounded: it costs a look at every hour."""

    def add(self, rows: Sequence[HourRow]) -> None:
        """Adds sums to those of their hours, in one transaction. Raises OSError, sqlite3.Error."""
        with self._turn:
            file = self._connected()
            with file:
                file.executemany(_ADD, [_columns(row) for row in rows])
                self._bound(file)

    def fill(self, rows: Sequence[HourRow]) -> int:
        """Adds hours of which nothing is recorded here. Returns how many rows there were."""
        with self._turn:
            file = self._connected()
            with file:
                there = {hour for (hour,) in file.execute("SELECT DISTINCT hour FROM hours")}
                missing = [row for row in rows if row.hour not in there]
                file.executemany(_FILL, [_columns(row) for row in missing])
                self._bound(file)
                return len(missing)

    def read(self, asked: Asked) -> tuple[list[HourRow], dict[int, int], int | None]:
        """The rows of one question, what was thinned, and the first hour of the record."""
        with self._turn:
            file = self._connected()
            found = file.execute(f"{_ALL} WHERE what = ? AND name = ?", (asked.what, asked.name)).fetchall()
            before = dict(file.execute("SELECT step, before FROM thinned").fetchall())
            (first,) = file.execute("SELECT min(hour) FROM hours").fetchone()
            return [_row(each) for each in found], before, first

    def before(self, hour: int) -> bytes:
        """The rows of the last hours before one, for another replica: a quarter of a day, as all would not fit."""
        with self._turn:
            file = self._connected()
            newest = "SELECT DISTINCT hour FROM hours WHERE hour < ? ORDER BY hour DESC LIMIT ?"
            hours = [found for (found,) in file.execute(newest, (hour, _PAGE_HOURS))]
            first = min(hours, default=hour)
            found = file.execute(f"{_ALL} WHERE hour >= ? AND hour < ?", (first, hour)).fetchall()
        return msgspec.json.encode(found)

    def size(self) -> int:
        with self._turn:
            return _size(self._connected())

    def close(self) -> None:
        with self._turn:
            if self._open is not None:
                self._open.close()
                self._open = None

    def _bound(self, file: sqlite3.Connection) -> None:
        """Forgets the oldest hours, and thins what is left while there is too much of it; once an hour."""
        (newest,) = file.execute("SELECT max(hour) FROM hours").fetchone()
        if newest is None or newest == self._bounded:
            return
        self._bounded = newest
        kept = file.execute("SELECT DISTINCT hour FROM hours ORDER BY hour DESC LIMIT 1 OFFSET ?", (KEPT_HOURS,))
        if (oldest := kept.fetchone()) is not None:
            file.execute("DELETE FROM hours WHERE hour <= ?", oldest)
        if _size(file) <= self._most_bytes:
            return
        found = file.execute("SELECT number FROM done WHERE what = 'thinned'").fetchone()
        at = found[0] if found is not None else 0
        age, step = THINNED[at % len(THINNED)]
        _thin(file, bucket(newest - age, step), step)
        file.execute("INSERT OR REPLACE INTO done VALUES ('thinned', ?)", (at + 1,))
        if at + 1 >= len(THINNED) and _size(file) > self._most_bytes:
            # All that may be thinned is: the oldest day goes.
            (first,) = file.execute("SELECT min(hour) FROM hours").fetchone()
            file.execute("DELETE FROM hours WHERE hour < ?", (first + 24,))

    def _connected(self) -> sqlite3.Connection:
        """The open file. One that is no record, or a damaged one, is set aside first. Raises OSError, sqlite3.Error."""
        if self._open is None:
            path = self._folder / FILE
            try:
                self._open = _opened(path)
            except sqlite3.DatabaseError as damage:
                if isinstance(damage, sqlite3.OperationalError):
                    raise  # no room, or no right: the file may be well
                log.warning("the record of history is damaged (%s): %s is set aside, a new one begins", damage, path)
                self._set_aside()
                self._open = _opened(path)
        return self._open

    def damaged(self) -> None:
        """Sets the file aside that turned out to be damaged while it was open."""
        with self._turn:
            if self._open is not None:
                with suppress(sqlite3.Error):
                    self._open.close()
                self._open = None
            self._set_aside()

    def _set_aside(self) -> None:
        """One damaged file is kept, so that a disk that damages each one is not filled with them."""
        (self._folder / FILE).replace(self._folder / ASIDE)
        for rest in ("-journal", "-wal", "-shm"):
            (self._folder / f"{FILE}{rest}").unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    try:
        (said,) = file.execute("PRAGMA quick_check(1)").fetchone()
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if said != "ok" or version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"quick_check: {said}, version {version}")
        for table, columns in _COLUMNS.items():
            names = tuple(name for (name,) in file.execute("SELECT name FROM pragma_table_info(?)", (table,)))
            if names not in ((), columns):
                raise sqlite3.DatabaseError(f"table {table}: columns {', '.join(names)}")
        file.execute("PRAGMA cache_size = -2048")
        with file:
            file.executescript(_TABLES)
            file.execute(f"PRAGMA user_version = {_VERSION}")
    except sqlite3.Error:
        file.close()
        raise
    return file


def _thin(file: sqlite3.Connection, before: int, step: int) -> None:
    """Adds up ``step`` hours each of all before ``before``."""
    grouped = (
        "SELECT hour - hour % ? AS first, what, name, series, resource, sum(total), sum(count) FROM hours"
        " WHERE hour < ? GROUP BY first, what, name, series, resource"
    )
    with closing(file.execute(grouped, (step, before))) as found:
        rows = found.fetchall()
    file.execute("DELETE FROM hours WHERE hour < ?", (before,))
    file.executemany(_FILL, rows)
    file.execute("INSERT OR REPLACE INTO thinned VALUES (?, ?)", (step, before))


def _size(file: sqlite3.Connection) -> int:
    """The bytes in use: pages that were freed are used again before the file grows."""
    (pages,), (free,), (size,) = (
        file.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _columns(row: HourRow) -> tuple[Any, ...]:
    return (row.hour, *row.of, row.total, row.samples)


def _row(found: Sequence[Any]) -> HourRow:
    hour, what, name, series, resource, total, count = found
    return HourRow(hour, Of(what, name, series, resource), total, count)


class Recorder:
    """The record in the process: ``run`` until cancelled. ``sample``: the amounts of now; None while nothing is known.
    ``peer``: asked once, after the start, for the hours that this replica missed.
    """

    def __init__(self, record: Record, sample: Callable[[], Sample | None], clock: Clock, peer: Peer) -> None:
        self._record = record
        self._sample = sample
        self._clock = clock
        self._peer = peer
        self._pending = Pending(_MOST_PENDING)
        self._filled = False
        self._failed = ""

    async def run(self) -> None:
        while True:
            await sleep(self._clock, EVERY_S if await self.look() else _SOON_S)

    async def look(self) -> bool:
        """One sample, and one transaction with all that is not written yet. Returns whether there was a sample."""
        now_s = self._clock.wall()
        sample = self._sample()
        if sample is None:
            return False
        self._pending.add(sample, now_s)
        rows = self._pending.taken()
        try:
            await asyncio.to_thread(self._record.add, rows)
            if not self._filled:
                await self._fill(hour_of(now_s))
        except (OSError, sqlite3.Error) as failed:
            self._pending.put_back(rows)
            await self._told(failed)
        else:
            self._failed = ""
        return True

    async def _fill(self, now_hour: int) -> None:
        """Takes the hours that this replica missed from another, a quarter of a day at a time."""
        count, before = 0, now_hour
        for page in range(_MOST_PAGES):
            answer = await self._peer(before)
            if answer is None:
                # At the start it may not be reached yet; what came in between is asked for again.
                self._filled = page > 0
                return
            try:
                rows = [_row(each) for each in msgspec.json.decode(answer, type=list[_WIRE])]
            except msgspec.MsgspecError as wrong:
                log.warning("another replica's record cannot be read: %s", wrong)
                break
            older = [row for row in rows if row.hour < before]
            if not older:
                break
            count += await asyncio.to_thread(self._record.fill, older)
            before = min(row.hour for row in older)
        self._filled = True
        log.info("history: %d rows of another replica", count)

    async def _told(self, failed: Exception) -> None:
        """Logs a failure once, and sets a damaged file aside."""
        if str(failed) != self._failed:
            self._failed = str(failed)
            log.warning("history is not written: %s", failed)
        if isinstance(failed, sqlite3.DatabaseError) and not isinstance(failed, sqlite3.OperationalError):
            with suppress(OSError):
                await asyncio.to_thread(self._record.damaged)

    async def of(self, asked: Asked, _pods: Sequence[str]) -> Json:
        """Series by hour, as ``History.of`` has them, and since when there is a record."""
        if asked.of_pods:
            # Workloads are too many to be recorded one by one.
            return {"configured": False, "why": "the use of a single workload is not recorded: it takes Prometheus"}
        hours = span(self._clock.wall(), asked.back)
        try:
            rows, before, first = await asyncio.to_thread(self._record.read, asked)
        except (OSError, sqlite3.Error) as failed:
            await self._told(failed)
            return {"configured": False, "why": f"the record of this replica cannot be read: {failed}"}
        ends = range(hours.start_s, hours.end_s + 1, STEP_S)
        series = await asyncio.to_thread(lines, rows, ends, before)
        since = None if first is None else first * STEP_S
        return {"configured": True, "since": since, "step": STEP_S, "start": hours.start_s, "series": series}

    async def before(self, hour: int) -> bytes | None:
        """Rows of the record, for another replica; None where it cannot be read."""
        try:
            return await asyncio.to_thread(self._record.before, hour)
        except (OSError, sqlite3.Error) as failed:
            await self._told(failed)
            return None

    async def close(self) -> None:
        await asyncio.to_thread(self._record.close)


_WIRE = tuple[int, str, str, str, str, float, int]
