"""Which small mistakes an expression or a statement can hold: the node, and the text that takes its place."""

import ast
import copy
from collections.abc import Iterator
from typing import Final

Change = tuple[ast.expr | ast.stmt, str]
"""What is replaced, and the source text in its place."""

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_EXITS: Final = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_ATOMS: Final = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript)


def changes(node: ast.AST) -> Iterator[Change]:
    """The mistakes of this node alone, not of those below it."""
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
        case ast.BinOp() if type(node.op) in _COMPUTED and not (_is_text(node.left) or _is_text(node.right)):
            yield _with(node, op=_COMPUTED[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node, _expression(node.operand)
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield node, repr(number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            yield node.func, _SWAPPED[name]
        case ast.stmt():
            yield from _stated(node)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield from _negated(node.test)
    if isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield from _negated(condition)


def is_logging(node: ast.AST) -> bool:
    """A call of a logger, the statement of one."""
    match node:
        case ast.Expr(value=value):
            return is_logging(value)
        case ast.Call(func=ast.Attribute(value=logger, attr=level)):
            return level in _LEVELS and ast.unparse(logger).endswith("log")
    return False


def _compared(node: ast.Compare) -> Iterator[Change]:
    for number, op in enumerate(node.ops):
        ops = [*node.ops[:number], _COMPARED[type(op)](), *node.ops[number + 1 :]]
        yield _with(node, ops=ops)


def _negated(test: ast.expr) -> Iterator[Change]:
    """Comparisons and ``not`` have the same mistake already."""
    if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.BoolOp | ast.Await):
        yield test, f"(not ({ast.unparse(test)}))"


def _stated(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) | ast.Delete():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.AugAssign() if type(node.op) in _COMPUTED and not _is_text(node.value):
            changed = copy.copy(node)
            changed.op = _COMPUTED[type(node.op)]()
            yield node, ast.unparse(changed)
        case ast.If(body=[only], orelse=[]) if isinstance(only, _EXITS):
            yield only, "pass"


def _is_text(node: ast.expr) -> bool:
    """Text and displays: another operator on them is a type error, which says nothing about the tests."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _with(node: ast.expr, **fields: object) -> Change:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return node, _expression(changed)


def _expression(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, _ATOMS) else f"({text})"
