"""The rows of one topic as JSON, each with the revision at which it last changed. Pure.

The rows that a reader lacks follow from one number, the revision that it has: nothing is kept for a reader, however
slow.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from controller.people.visibility.redaction import Named, named

Json = dict[str, Any]
MOST_ROWS: Final = 20_000
"""Rows of one topic. Further rows are counted only."""
_GONE: Final = 20_000
"""Keys of removed rows that are remembered."""


class Row(NamedTuple):
    """One row. ``raw``: JSON. ``of``: what it was made from. ``named``: namespaces that it names."""

    raw: bytes
    of: object
    named: Named
    revision: int


class Changes(NamedTuple):
    """The changes that a reader lacks. ``whole``: the reader has to forget all rows that it has."""

    whole: bool
    rows: tuple[tuple[str, Row], ...]
    gone: tuple[str, ...]
    revision: int
    cut: int


class Table:
    """The rows of a topic. A round calls ``take`` for every row, then ``finish``. ``rows`` and ``gone`` have no key in
    common; no revision in them is above ``revision``; keys removed at ``_forgotten`` or before are not remembered.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.rows: dict[str, Row] = {}
        self.revision = 0
        self.cut = 0
        self._most = most
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        self._seen: set[str] = set()
        self._over = 0

    def take(self, key: str, of: object, make: Callable[[], Json]) -> None:
        """Adds a row to the round. ``make`` is called only if ``of`` differs from what the row was made from."""
        known = self.rows.get(key)
        if known is None and len(self._seen) >= self._most:
            self._over += 1
            return
        self._seen.add(key)
        if known is not None and known.of == of:
            return
        row = make()
        raw = msgspec.json.encode(row)
        if known is not None and known.raw == raw:
            self.rows[key] = known._replace(of=of)
            return
        self._gone.pop(key, None)
        self.rows[key] = Row(raw, of, named(row), self.revision + 1)

    def finish(self) -> bool:
        """Ends the round: rows that were not taken are removed. Returns whether anything changed in it."""
        following = self.revision + 1
        lost = [key for key in self.rows if key not in self._seen]
        for key in lost:
            del self.rows[key]
            self._gone[key] = following
        while len(self._gone) > _GONE:
            _, self._forgotten = self._gone.popitem(last=False)
        changed = bool(lost) or self._over != self.cut or any(row.revision == following for row in self.rows.values())
        self._seen, self.cut, self._over = set(), self._over, 0
        if changed:
            self.revision = following
        return changed

    def since(self, revision: int | None) -> Changes | None:
        """The changes that a reader at ``revision`` lacks; None if there are none. A reader without a revision gets all
        rows.
        """
        if revision == self.revision:
            return None
        if revision is None or not self._forgotten <= revision <= self.revision:
            return Changes(True, tuple(self.rows.items()), (), self.revision, self.cut)
        rows = tuple((key, row) for key, row in self.rows.items() if row.revision > revision)
        gone = tuple(key for key, at in self._gone.items() if at > revision)
        return Changes(False, rows, gone, self.revision, self.cut)

    def validate(self) -> None:
        """Recomputes the invariants. Raises AssertionError."""
        assert not self._gone.keys() & self.rows.keys(), "a row is there and gone"
        assert all(row.revision <= self.revision for row in self.rows.values()), "a row is of a later revision"
        assert all(self._forgotten <= at <= self.revision for at in self._gone.values()), "a removal is forgotten"
        assert len(self.rows) <= self._most, "too many rows"


def framed(topic: str, changes: Changes, raws: Iterator[tuple[str, bytes]]) -> bytes:
    """The JSON of an event. ``raws``: the rows of ``changes`` as its reader may see them."""
    rows = b",".join(msgspec.json.encode(key) + b":" + raw for key, raw in raws)
    return b'{"topic":%b,"revision":%d,"set":{%b},"gone":%b,"cut":%d}' % (
        msgspec.json.encode(topic),
        changes.revision,
        rows,
        msgspec.json.encode(changes.gone),
        changes.cut,
    )
