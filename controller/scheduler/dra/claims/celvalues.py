"""Values that selectors of devices compare, and the functions that they may call on them.

Supported is the part of Kubernetes' CEL library that selectors use: quantities, semantic versions, strings. Every
function is total: an argument that it cannot take raises ``CelError``, as it would fail an allocation.
"""

import re
from collections.abc import Callable, Mapping
from functools import total_ordering
from typing import Any, Final

from controller.objects.quantity import Quantity, QuantityError, parse_quantity

_LONGEST: Final = 10_240
_INT64: Final = 2**63
_NUMBER: Final = r"(0|[1-9][0-9]{0,17})"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
Take = Callable[[int], None]
"""Called with a number of steps before they are taken."""


class CelError(ValueError):
    """The expression has no value for this device: an attribute does not exist, or types do not go together."""


@total_ordering
class Semver:
    """A version by semver 2.0.0: a pre-release is less than its release."""

    def __init__(self, text: str) -> None:
        version = _SEMVER.fullmatch(text) if len(text) <= _LONGEST else None
        if version is None:
            raise CelError(f"no semantic version: {text[:64]!r}")
        parts = [] if version[4] is None else version[4].split(".")
        before = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
        self._key = (int(version[1]), int(version[2]), int(version[3]), not before, before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: "Semver") -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def part(self, index: int) -> int:
        """The major (0), minor (1) or patch (2) number."""
        return (self._key[0], self._key[1], self._key[2])[index]


def bounded(value: Any) -> Any:
    """The value. Raises CelError where it is larger than CEL allows."""
    if type(value) is int and not -_INT64 <= value < _INT64:
        raise CelError("integer overflow")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise CelError("the string is too long")
    return value


def quantity(value: Any) -> Quantity:
    try:
        return parse_quantity(text(value))
    except QuantityError as error:
        raise CelError(str(error)) from None


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError("expected a string")
    return value


def same(left: Any, right: Any, take: Take) -> bool:
    """Whether the values are equal; booleans never equal numbers, also inside lists and maps. Python's own equality
    would not do for lists: a list of names for lists of names is of exponential size in the length of its text.
    """
    if isinstance(left, list) and isinstance(right, list):
        take(len(left))
        return len(left) == len(right) and all(same(*pair, take) for pair in zip(left, right, strict=True))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        take(len(left))
        return left.keys() == right.keys() and all(same(value, right[key], take) for key, value in left.items())
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)


def order(left: Any, right: Any) -> int:
    """The order of two values: -1, 0 or 1. Raises CelError for values without an order."""
    alike = type(left) is type(right) or (_is_number(left) and _is_number(right))
    if not alike or not isinstance(left, int | float | str | Quantity | Semver):
        raise CelError("values that have no order")
    return int(left > right) - int(left < right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def contains(whole: Any, part: Any, take: Take) -> bool:
    """The value of ``part in whole``. Raises CelError."""
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list):
        take(len(whole))
        return any(same(part, each, take) for each in whole)
    raise CelError("expected a map or a list after in")


def size(value: Any) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise CelError("expected a string, a list or a map")


def _is_made_by(make: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def made(value: Any) -> bool:
        try:
            make(value)
        except CelError:
            return False
        return True

    return made


def _semver(value: Any) -> Semver:
    return Semver(text(value))


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise CelError("expected an integer")
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]{1,19}", value, re.ASCII):
        raise CelError("no integer")
    return int(value)


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str | Quantity):
        return str(value)
    raise CelError("no string form")


def _version(value: Any) -> Semver:
    if not isinstance(value, Semver):
        raise CelError("expected a version")
    return value


FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("quantity", 1): quantity,
    ("isQuantity", 1): _is_made_by(quantity),
    ("semver", 1): _semver,
    ("isSemver", 1): _is_made_by(_semver),
    ("size", 1): size,
    ("int", 1): _integer,
    ("string", 1): _string,
}
"""Functions by name and number of arguments."""

METHODS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("compareTo", 1): order,
    ("isGreaterThan", 1): lambda left, right: order(left, right) > 0,
    ("isLessThan", 1): lambda left, right: order(left, right) < 0,
    ("size", 0): size,
    ("startsWith", 1): lambda whole, part: text(whole).startswith(text(part)),
    ("endsWith", 1): lambda whole, part: text(whole).endswith(text(part)),
    ("contains", 1): lambda whole, part: text(part) in text(whole),
    ("lowerAscii", 0): lambda whole: text(whole).lower(),
    ("upperAscii", 0): lambda whole: text(whole).upper(),
    ("major", 0): lambda version: _version(version).part(0),
    ("minor", 0): lambda version: _version(version).part(1),
    ("patch", 0): lambda version: _version(version).part(2),
}
