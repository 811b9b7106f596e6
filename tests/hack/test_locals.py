"""Locals that live long say what they hold: a name such as ``found`` is for a line or two."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("agent", "cli", "controller", "deviceplugin", "failpoints", "hack", "history", "inventory", "kube", "simulator"),
    "yamlfile",
)
VAGUE = frozenset({"found", "each", "given", "told", "kept", "said"})
MOST_LINES = 3
"""The lines between first and last use over which a reader still sees the line that says what the name holds."""
Loop = ast.For | ast.AsyncFor


class Life(NamedTuple):
    """The lines between which a function, a comprehension or one of its loops uses a local."""

    function: str
    name: str
    first: int
    last: int


class Scope:
    """What binds names: a module, a class, a function, or a comprehension, which has names of its own."""

    def __init__(self, above: "Scope | None", node: ast.AST, name: str) -> None:
        self.above = above
        self.name = name
        self.holds_locals = not isinstance(node, ast.Module | ast.ClassDef)
        self.is_comprehension = isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        self.bound: set[str] = set()

    def function(self) -> "Scope":
        """The scope that ``:=`` binds a name in: a comprehension leaves it to what is around."""
        return self.above.function() if self.is_comprehension and self.above is not None else self


class Uses(ast.NodeVisitor):
    """The uses of vague names in a module, each with its scope and the loops around it, the innermost last."""

    def __init__(self, tree: ast.Module) -> None:
        self.all: list[tuple[Scope, tuple[Loop, ...], ast.Name]] = []
        self._scope = Scope(None, tree, "")
        self._loops: tuple[Loop, ...] = ()
        self.generic_visit(tree)

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node)
            case ast.ClassDef():
                self._within(node, self._below(node.name), *node.body)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                first, *others = node.generators
                self.visit(first.iter)
                results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                self._within(node, self._scope.name, first.target, *first.ifs, *others, *results)
            case ast.For() | ast.AsyncFor():
                self.visit(node.iter)
                around, self._loops = self._loops, (*self._loops, node)
                for part in (node.target, *node.body, *node.orelse):
                    self.visit(part)
                self._loops = around
            case ast.NamedExpr():
                self._name(node.target, self._scope.function())
                self.visit(node.value)
            case ast.Name():
                self._name(node, self._scope)
            case ast.arg():
                self._scope.bound.add(node.arg)
            case _:
                self.generic_visit(node)

    def _below(self, name: str) -> str:
        return f"{self._scope.name}.{name}".lstrip(".")

    def _within(self, node: ast.AST, name: str, *parts: ast.AST) -> None:
        above = self._scope
        self._scope = Scope(above, node, name)
        for part in parts:
            self.visit(part)
        self._scope = above

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = node.args
        for part in (*arguments.defaults, *filter(None, arguments.kw_defaults), *getattr(node, "decorator_list", ())):
            self.visit(part)
        parameters = [part for part in ast.walk(arguments) if isinstance(part, ast.arg)]
        name = self._scope.name if isinstance(node, ast.Lambda) else self._below(node.name)
        self._within(node, name, *parameters, *(node.body if isinstance(node.body, list) else [node.body]))

    def _name(self, node: ast.Name, scope: Scope) -> None:
        if isinstance(node.ctx, ast.Store):
            scope.bound.add(node.id)
        if node.id in VAGUE:
            self.all.append((scope, self._loops, node))


def names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def lives(source: str) -> Iterator[Life]:
    """The lives of the vague locals. A loop over one is a life of its own: the next loop may give the name anew."""
    uses: defaultdict[tuple[Scope, str, ast.AST | None], list[ast.Name]] = defaultdict(list)
    for innermost, loops, node in Uses(ast.parse(source)).all:
        scope: Scope | None = innermost
        while scope is not None and node.id not in scope.bound:
            scope = scope.above
        if scope is not None and scope.holds_locals:
            own = (loop for loop in reversed(loops) if node.id in names(loop.target))
            uses[scope, node.id, next(own, None)].append(node)
    for (scope, name, _), nodes in uses.items():
        if any(isinstance(node.ctx, ast.Store) for node in nodes):
            lines = [node.lineno for node in nodes]
            yield Life(scope.name, name, min(lines), max(lines))


def long_lives(source: str) -> list[Life]:
    return [life for life in lives(source) if life.last - life.first > MOST_LINES]


def test_locals_that_live_long_say_what_they_hold() -> None:
    """The locals that are left have no better name, or nobody has looked yet. Their number may only fall: lower it."""
    left = [
        f"{path.relative_to(ROOT)}:{life.first}: {life.name} of {life.function}, to line {life.last}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for life in long_lives(path.read_text())
    ]
    assert left == []


@pytest.mark.parametrize(
    ("source", "long"),
    [
        ("def f(x):\n found = x\n\n\n return found", []),
        ("def f(x):\n found = x\n\n\n\n return found", ["found"]),
        ("def f(found):\n\n\n\n\n return found", []),
        ("def f(x):\n found = x\n def g():\n\n\n  return found", ["found"]),
        ("def f(x):\n y = [each for each in x]\n\n\n\n return [each for each in y]", []),
        ("def f(x):\n return [\n  each\n\n\n\n  for each in x\n ]", ["each"]),
        ("def f(x):\n y = [found for z in x if (found := z)]\n\n\n\n return found", ["found"]),
        ("def f(x):\n for each in x:\n  pass\n\n\n\n for each in x:\n  print(each)", []),
        ("def f(x):\n for each in x:\n  pass\n\n\n\n  print(each)", ["each"]),
        ("class C:\n found: int\n\n\n\n\n def f(self):\n  return self.found", []),
        ("def f(x):\n x.found = x\n\n\n\n\n return x.found", []),
    ],
)
def test_a_local_lives_in_its_function_its_loop_or_its_comprehension(source: str, long: list[str]) -> None:
    assert [life.name for life in long_lives(source)] == long
