"""Types as far as annotations tell them: a class of the product, or a collection with the type of its items."""

from collections.abc import Iterator
from typing import NamedTuple

ROWS = ("list", "set", "frozenset", "deque", "tuple", "Iterable", "Iterator", "Sequence", "Collection", "AbstractSet")
"""Collections of one type of item; a ``tuple`` may have several."""
TABLES = ("dict", "defaultdict", "OrderedDict", "Counter", "Mapping", "MutableMapping")
_SAME = {"MutableSequence": "list", "MutableSet": "set", "Set": "set", "Generator": "Iterator"}


class Kind(NamedTuple):
    """``name``: the dotted name of a class, or the plain name of a collection, whose items are of ``items``.

    The name ``|`` is a union of ``items``.
    """

    name: str
    items: tuple["Kind", ...] = ()

    def members(self) -> Iterator["Kind"]:
        if self.name != "|":
            yield self
        for each in self.items if self.name == "|" else ():
            yield from each.members()


UNKNOWN = Kind("?")


def collection(name: str, items: tuple[Kind, ...] = ()) -> Kind:
    """``UNKNOWN`` for what is no collection."""
    name = _SAME.get(name, name)
    return Kind(name, items) if name in (*ROWS, *TABLES) else UNKNOWN


def union(*kinds: Kind) -> Kind:
    known = tuple(dict.fromkeys(each for kind in kinds for each in kind.members() if each != UNKNOWN))
    return UNKNOWN if not known else known[0] if len(known) == 1 else Kind("|", known)


def item(kind: Kind) -> Kind:
    """What iteration yields: the keys of a table."""
    if kind.name in ("|", "tuple"):
        return union(*(kind.items if kind.name == "tuple" else map(item, kind.items)))
    return kind.items[0] if kind.items and kind.name in (*ROWS, *TABLES) else UNKNOWN


def value(kind: Kind, index: int | None = None) -> Kind:
    """What a subscript gives, the constant ``index`` or any."""
    if kind.name == "|":
        return union(*(value(each, index) for each in kind.items))
    if kind.name == "tuple" and index is not None and -len(kind.items) <= index < len(kind.items):
        return kind.items[index]
    return kind.items[-1] if kind.items and kind.name in TABLES else item(kind)


def called(kind: Kind, method: str) -> Kind:
    """What a method of a collection returns."""
    match kind.name, method:
        case "|", _:
            return union(*(called(each, method) for each in kind.items))
        case _, "items" if kind.name in TABLES:
            return Kind("list", (Kind("tuple", kind.items),))
        case _, "values" if kind.name in TABLES:
            return Kind("list", (value(kind),))
        case _, "get" | "pop" | "popleft" | "setdefault" | "__getitem__":
            return value(kind)
        case _, "copy" | "union" | "difference" | "intersection":
            return kind
    return UNKNOWN
