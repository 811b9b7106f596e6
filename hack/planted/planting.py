"""Where a fault goes, and the module with it: by the function's qualified name and the syntax of what is replaced."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from hack.mutants.planting import functions

PRODUCT: Final = ("agent", "controller", "deviceplugin", "inventory", "kube")
"""Folders of the product; the simulator and the judge are the nets' own ground."""


class Fault(Struct, frozen=True):
    """One rewrite of one function. ``before`` and ``after`` are source; which layout they have does not matter.

    ``before``: a statement, several in a row, or an expression, that is there exactly once in all functions of this
    qualified name in the product; ``after``: what stands there instead, empty for a statement that is left out.
    ``nets``: those that find it from outside, as in ``hack.planted.nets``; ``program``: which of its programs runs
    them.
    """

    name: str
    function: str
    before: str
    after: str
    program: str
    nets: tuple[str, ...]
    says: str
    """In a sentence: what a user would suffer."""


class UnplantableError(Exception):
    """The code has no single place for the fault: it was renamed or rewritten, and the fault has to follow it."""


class Place(NamedTuple):
    """``start`` and ``end``: lines of ``module``, from 1, both inclusive, that ``text`` stands for."""

    module: str
    start: int
    end: int
    text: str


def is_product(path: str) -> bool:
    return path.endswith(".py") and path.partition("/")[0] in PRODUCT


def place_of(fault: Fault, sources: Mapping[str, str]) -> Place:
    """The fault's one place. ``sources``: text of the product's modules by path. Raises UnplantableError."""
    places = [place for module, text in sources.items() for place in _places(fault, module, text)]
    if len(places) != 1:
        raise UnplantableError(
            f"{fault.name}: found {len(places)} places in {fault.function} for {fault.before!r}, expected 1"
        )
    return places[0]


def planted(source: str, place: Place) -> str:
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: place.start - 1], place.text, *lines[place.end :]])


def _places(fault: Fault, module: str, text: str) -> Iterator[Place]:
    if fault.function.rpartition(".")[2] not in text:
        return
    before, after = ast.parse(fault.before).body, ast.parse(fault.after).body
    for path, function in functions(ast.parse(text).body):
        if path != fault.function:
            continue
        yield from _statements(module, function, before, after)
        if len(before) == len(after) == 1 and isinstance(before[0], ast.Expr) and isinstance(after[0], ast.Expr):
            yield from _expressions(module, function, before[0].value, after[0].value)


def _expressions(module: str, function: ast.AST, before: ast.expr, after: ast.expr) -> Iterator[Place]:
    wanted = ast.dump(before)
    for statement in _all_statements(function):
        for node in _own(statement):
            whole = isinstance(statement, ast.Expr) and statement.value is node
            if not whole and ast.dump(node) == wanted:
                exchanged = _Exchanged(node, after).visit(statement)
                assert isinstance(exchanged, ast.stmt)
                yield _place(module, statement, [exchanged])


def _statements(module: str, function: ast.AST, before: list[ast.stmt], after: list[ast.stmt]) -> Iterator[Place]:
    wanted = [ast.dump(each) for each in before]
    for body in _bodies(function):
        dumped = [ast.dump(each) for each in body]
        for at in range(len(body) - len(wanted) + 1):
            if dumped[at : at + len(wanted)] == wanted:
                first, last = body[at], body[at + len(wanted) - 1]
                place = _place(module, first, after or [ast.Pass()])
                yield place._replace(end=last.end_lineno or last.lineno)


def _place(module: str, statement: ast.stmt, after: Iterable[ast.stmt]) -> Place:
    indent = " " * statement.col_offset
    text = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in after)
    written = "".join(f"{indent}{line}\n" for line in text.splitlines())
    return Place(module, statement.lineno, statement.end_lineno or statement.lineno, written)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for each in ast.walk(node):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(each, name, None)
            if isinstance(body, list):
                yield body


def _all_statements(function: ast.AST) -> Iterator[ast.stmt]:
    for body in _bodies(function):
        yield from body


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Its expressions, without those of the statements in it."""
    waiting: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


class _Exchanged(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)
