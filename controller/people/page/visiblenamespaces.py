"""What a group of users may see of the rows: users who may list workloads of the same namespaces. Pure.

The visible namespaces list what is allowed, not what is hidden: where a key stands for itself, a namespace that was
never seen is hidden. In sentences only ``known`` namespaces can be told from other words.
"""

import hashlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from controller.people.page.table import Changes, Row
from controller.people.visibility.redaction import Named, named, redacted, told

QueueOf = Callable[[str], str | None]
_KEYS: Final = ("workload", "pod")
_VARIANTS: Final = 8
"""Redacted copies cached per row: a node may be held from many namespaces."""
_PLAIN: Final = frozenset({"asks", "clique", "job", "levels", "name", "parent", "product", "resource", "taints"})
"""Fields that name nothing in a namespace, though a slash may stand in them: ``cohort/all`` is no object of a namespace
``cohort``. A field that is not listed is looked at as prose is: a new one hides too much at first, never too little."""


class VisibleNamespaces(NamedTuple):
    """The namespaces that a reader may see. ``allowed`` None: all of them."""

    allowed: frozenset[str] | None

    @property
    def id(self) -> str:
        """The cache key: a hash of the namespaces that the reader may see. It contains no namespace's name."""
        if self.allowed is None:
            return "all"
        return hashlib.sha256("/".join(sorted(self.allowed)).encode()).hexdigest()[:16]

    def hides(self, found: Named, known: AbstractSet[str]) -> frozenset[str]:
        """The named namespaces that are hidden from such a reader."""
        if self.allowed is None:
            return frozenset()
        return (found.keyed - self.allowed) | {
            name for name in found.said if name not in self.allowed and name in known
        }

    def shown(self, row: Any, known: AbstractSet[str], queue_of: QueueOf) -> Any:
        """A row as readers who may see this see it."""
        hidden = self.hides(named(row), known)
        return hide(row, hidden, queue_of) if hidden else row


def hide(row: Any, hidden: AbstractSet[str], queue_of: QueueOf) -> Any:
    """A row without what is in ``hidden`` namespaces: an object with a key gets ``hidden`` true."""
    if isinstance(row, dict):
        if "hidden" in row:
            return _object(row, hidden, queue_of)
        return {redacted(key, hidden, queue_of): _field(key, each, hidden, queue_of) for key, each in row.items()}
    if isinstance(row, list):
        return [hide(each, hidden, queue_of) for each in row]
    return redacted(row, hidden, queue_of)


def _field(name: str, value: Any, hidden: AbstractSet[str], queue_of: QueueOf) -> Any:
    return value if name in _PLAIN else hide(value, hidden, queue_of)


def _object(row: dict[str, Any], hidden: AbstractSet[str], queue_of: QueueOf) -> dict[str, Any]:
    named = (*_KEYS, "localQueue")
    keys = {name: row[name] for name in named if isinstance(row.get(name), str)}
    rest = {name: _field(name, each, hidden, queue_of) for name, each in row.items() if name not in keys}
    if not any(key.partition("/")[0] in hidden for key in keys.values()):
        return {**rest, **keys, "hidden": False}
    workload = keys.get("workload", "")
    words = told(workload, queue_of)
    return {
        **rest,
        **dict.fromkeys(keys, words),
        **({"localQueue": None} if "localQueue" in keys else {}),
        **({"job": None} if "job" in row else {}),
        "hidden": True,
    }


class Variants:
    """Rows with what is hidden from a reader left out. Most rows name one namespace, and are the same for all who may
    not see it: a redacted row is made once, however many kinds of readers there are. All other readers get the table's
    own bytes.

    ``rows`` may run on a thread: it reads nothing but its arguments, and one call runs at a time.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Row, dict[frozenset[str], bytes]]] = {}

    def rows(
        self, visible: VisibleNamespaces, topic: str, changes: Changes, known: AbstractSet[str], queue_of: QueueOf
    ) -> Iterator[tuple[str, bytes]]:
        if changes.whole:
            there = {key for key, _ in changes.rows}
            self._kept = {at: kept for at, kept in self._kept.items() if at[0] != topic or at[1] in there}
        for key in changes.gone:
            self._kept.pop((topic, key), None)
        for key, row in changes.rows:
            hidden = visible.hides(row.named, known)
            yield key, self._seen((topic, key), row, hidden, queue_of) if hidden else row.raw

    def _seen(self, at: tuple[str, str], row: Row, hidden: frozenset[str], queue_of: QueueOf) -> bytes:
        entry = self._kept.get(at)
        if entry is None or entry[0] is not row:
            entry = self._kept[at] = row, {}
        variant = entry[1].get(hidden)
        if variant is None:
            variant = msgspec.json.encode(hide(msgspec.json.decode(row.raw), hidden, queue_of))
            if len(entry[1]) >= _VARIANTS:
                del entry[1][next(iter(entry[1]))]
            entry[1][hidden] = variant
        return variant
