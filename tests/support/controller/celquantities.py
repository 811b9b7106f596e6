"""Kubernetes' functions of CEL for quantities, and of lists: what Google's runtime does not bring along.

A quantity is a map of its one text here: the runtime passes no types of ours on.
"""

from fractions import Fraction
from typing import Any, Final

from cel_expr_python import cel

from controller.objects.quantity import QuantityError, parse_quantity

_TEXT: Final = "quantity"


def _amount(given: dict[str, str]) -> Fraction:
    return parse_quantity(given[_TEXT]).fraction


def _made(text: str) -> dict[str, str]:
    parse_quantity(text)
    return {_TEXT: text}


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _sign(given: dict[str, str]) -> int:
    amount = _amount(given)
    return (amount > 0) - (amount < 0)


def _declared(name: str, gives: Any, takes: list[Any], run: Any, *, of: bool = False) -> Any:
    """A function; ``of``: a method of its first parameter."""
    found = cel.Overload(f"{name}_declared", return_type=gives, parameters=takes, is_member=of, impl=run)
    return cel.FunctionDecl(name, [found])


_QUANTITY: Final = cel.Type.MAP

FUNCTIONS: Final = (
    _declared("quantity", _QUANTITY, [cel.Type.STRING], _made),
    _declared("isQuantity", cel.Type.BOOL, [cel.Type.STRING], _is_quantity),
    _declared("sign", cel.Type.INT, [_QUANTITY], _sign),
    _declared("isInteger", cel.Type.BOOL, [_QUANTITY], lambda q: _amount(q).denominator == 1, of=True),
    _declared("asInteger", cel.Type.INT, [_QUANTITY], lambda q: int(_amount(q)), of=True),
    _declared("asApproximateFloat", cel.Type.DOUBLE, [_QUANTITY], lambda q: float(_amount(q)), of=True),
    _declared(
        "isGreaterThan", cel.Type.BOOL, [_QUANTITY, _QUANTITY], lambda q, other: _amount(q) > _amount(other), of=True
    ),
    _declared("isLessThan", cel.Type.BOOL, [_QUANTITY, _QUANTITY], lambda q, r: _amount(q) < _amount(r), of=True),
    _declared(
        "flatten", cel.Type.LIST, [cel.Type.LIST], lambda lists: [each for found in lists for each in found], of=True
    ),
    _declared("sum", cel.Type.INT, [cel.Type.LIST], sum, of=True),
    _declared("max", cel.Type.INT, [cel.Type.LIST], max, of=True),
)
