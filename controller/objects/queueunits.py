"""Shapes of work that a LocalQueue names, ``tessera.dev/units``: how many units of each would be admitted is told to
autoscalers.

    tessera.dev/units: '{"server": {"nvidia.com/gpu": 4, "cpu": "8"}}'
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from controller.objects.quantity import NANO, Quantity, QuantityError, parse_quantity
from inventory.api.names import UNITS

MOST_SHAPES: Final = 8
_MOST_RESOURCES: Final = 16
_MOST_TEXT: Final = 16_384
_DIVIDED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that pods may request a part of."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EXAMPLE: Final = '{"server": {"nvidia.com/gpu": 4}}'


class UnitsError(ValueError):
    """The annotation is not right: one sentence with what was found and what is expected."""


class UnitShape(NamedTuple):
    """One unit by its name: what it requests."""

    name: str
    requests: Mapping[str, Quantity]


def unit_shapes(annotations: Mapping[str, str]) -> tuple[UnitShape, ...]:
    """The shapes of the annotation, in order of their names; none without it. Raises UnitsError."""
    text = annotations.get(UNITS)
    if text is None:
        return ()
    try:
        units = msgspec.json.decode(text) if len(text) <= _MOST_TEXT else None
    except (msgspec.MsgspecError, RecursionError):
        units = None
    if not isinstance(units, dict):
        raise _wrong(f'"{text[:63]}"', f"JSON such as {_EXAMPLE}")
    if len(units) > MOST_SHAPES:
        raise _wrong(f"{len(units)} units", f"at most {MOST_SHAPES}")
    return tuple(UnitShape(name, _requests(name, units[name])) for name in sorted(units))


def _requests(name: str, given: object) -> dict[str, Quantity]:
    if _NAME.fullmatch(name) is None:
        raise _wrong(f'a unit "{name[:63]}"', "a name of small letters, digits and -, at most 63")
    if not isinstance(given, dict) or not 0 < len(given) <= _MOST_RESOURCES:
        raise _wrong(f"no requests of unit {name}", f"JSON such as {_EXAMPLE}")
    requests: dict[str, Quantity] = {}
    for resource, amount in given.items():
        try:
            requests[resource] = parse_quantity(amount)
        except QuantityError:
            raise _wrong(f"{resource} of unit {name}: {str(amount)[:63]}", "a quantity such as 4") from None
        if requests[resource].nanos <= 0:
            raise _wrong(f"{resource} of unit {name}: {requests[resource]}", "more than 0")
        if resource not in _DIVIDED and requests[resource].nanos % NANO:
            raise _wrong(f"{resource} of unit {name}: {requests[resource]}", "a whole number")
    return requests


def _wrong(found: str, expected: str) -> UnitsError:
    return UnitsError(f"metadata.annotations[{UNITS}]: found {found}, expected {expected}")
