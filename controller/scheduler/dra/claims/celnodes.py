"""Compiled parts of a selector: each node is a function of the variables in scope, and counts its steps. Errors spread
by the rules of CEL: ``false && error`` is false and ``true || error`` is true, in either order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from controller.scheduler.dra.claims.celvalues import CelError, bounded, contains, order, same

Scope = dict[str, Any]
Node = Callable[[Scope], Any]

STEPS: Final = "%steps"
"""A key that is no CEL name: the number of steps left, in a list of one that many devices share."""

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1),
    "%": lambda left, right: abs(left) % abs(right) * (-1 if left < 0 else 1),
}
_ORDERS: Final[Mapping[str, Callable[[int], bool]]] = {
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


class UnknownCelError(Exception):
    """The CEL is not supported here, or takes too long."""


def _counted(scope: Scope, steps: int = 1) -> None:
    left = scope[STEPS]
    left[0] -= steps
    if left[0] < 0:
        raise UnknownCelError


def unknown(_: Scope) -> Any:
    raise UnknownCelError


def constant(value: Any) -> Node:
    return lambda _: value


def variable(name: str) -> Node:
    def node(scope: Scope) -> Any:
        if name not in scope:
            raise CelError(f"no variable {name}")
        return scope[name]

    return node


def listing(parts: Sequence[Node]) -> Node:
    def node(scope: Scope) -> list[Any]:
        _counted(scope, len(parts))
        return [part(scope) for part in parts]

    return node


def index(of: Node, at: Node) -> Node:
    def node(scope: Scope) -> Any:
        _counted(scope)
        whole, key = of(scope), at(scope)
        try:
            if isinstance(whole, Mapping) and isinstance(key, str):
                return whole[key]
            if isinstance(whole, list) and type(key) is int and key >= 0:
                return whole[key]
        except LookupError:
            pass
        raise CelError("nothing there")

    return node


def call(function: Callable[..., Any], arguments: Sequence[Node]) -> Node:
    def node(scope: Scope) -> Any:
        _counted(scope)
        return bounded(function(*(argument(scope) for argument in arguments)))

    return node


def negation(of: Node) -> Node:
    return lambda scope: not _truth(of(scope))


def choice(test: Node, then: Node, otherwise: Node) -> Node:
    return lambda scope: then(scope) if _truth(test(scope)) else otherwise(scope)


def bound(name: str, value: Node, within: Node) -> Node:
    return lambda scope: within({**scope, name: value(scope)})


def has(of: Node) -> Node:
    """A node that says whether there is a value; unsupported CEL inside it stays unknown."""

    def node(scope: Scope) -> bool:
        try:
            of(scope)
        except CelError:
            return False
        return True

    return node


def each(of: Node, name: str, test: Node, *, decisive: bool) -> Node:
    """A node for ``exists`` where ``decisive`` is True, else for ``all``."""

    def node(scope: Scope) -> bool:
        whole = of(scope)
        _counted(scope, len(whole) if isinstance(whole, list | Mapping) else 1)
        if not isinstance(whole, list | Mapping):
            raise CelError("expected a list or a map")
        return _decided((partial(test, {**scope, name: value}) for value in whole), decisive=decisive)

    return node


def operation(sign: str, left: Node, right: Node) -> Node:
    if sign in ("&&", "||"):
        return _junction(left, right, decisive=sign == "||")

    def node(scope: Scope) -> Any:
        _counted(scope)
        first, second = left(scope), right(scope)
        if sign in ("==", "!="):
            return same(first, second, partial(_counted, scope)) is (sign == "==")
        if sign == "in":
            return contains(second, first, partial(_counted, scope))
        return _ORDERS[sign](order(first, second)) if sign in _ORDERS else _computed(sign, first, second)

    return node


def _computed(sign: str, first: Any, second: Any) -> Any:
    texts = sign == "+" and isinstance(first, str) and isinstance(second, str)
    if not texts and not (type(first) is int and type(second) is int):
        raise CelError(f"{sign} takes integers")
    try:
        return bounded(_ARITHMETIC[sign](first, second))
    except ZeroDivisionError:
        raise CelError("division by zero") from None


def _junction(left: Node, right: Node, *, decisive: bool) -> Node:
    def node(scope: Scope) -> bool:
        _counted(scope)
        return _decided((partial(side, scope) for side in (left, right)), decisive=decisive)

    return node


def _decided(parts: Iterable[Callable[[], Any]], *, decisive: bool) -> bool:
    """The result of ``||`` (decisive True) or ``&&`` (False) over the parts: one decisive part decides, whatever the
    others are, errors included.
    """
    failed: Exception | None = None
    for part in parts:
        try:
            if _truth(part()) is decisive:
                return decisive
        except (CelError, UnknownCelError) as error:
            failed = error if failed is None or isinstance(error, UnknownCelError) else failed
    if failed is not None:
        raise failed
    return not decisive


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("expected true or false")
    return value
