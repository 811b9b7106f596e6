"""The places of a module where a mistake can be planted, and the module with one planted.

Mistakes are planted in what functions do, and nowhere else: text, annotations, decorators and the constants of a module
decide little, and a test that repeated them would show nothing. What the code says of itself is left alone too:
assertions, ``validate``, log lines, the arguments of what is raised.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from msgspec import Struct

from hack.mutants import operators

_UNTOUCHED: Final = frozenset({"__repr__", "__str__"})
_SKIPPED: Final = (ast.Assert, ast.JoinedStr, ast.Raise, ast.pattern, ast.Global, ast.Nonlocal)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_MADE: Final = frozenset({"__init__", "__post_init__", "__new__"})
_TYPED: Final = {"cast": 0, "isinstance": 1, "issubclass": 1}
"""Functions with an argument that is a type, and which."""


class Mutant(Struct, frozen=True):
    """One mistake. All but ``line``, ``start`` and ``end`` name it: they stay when code moves within its module."""

    module: str
    """Path from the root, with ``/``."""
    function: str
    """Qualified name; functions inside of functions belong to the outermost."""
    text: str
    """The source line where it starts, stripped."""
    before: str
    after: str
    nth: int
    """From 0: which, of those of a function that are alike."""
    line: int
    start: int
    """Offset in the source, in bytes, of what ``after`` replaces."""
    end: int

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        return self.module, self.function, self.text, self.mutation, self.nth

    @property
    def mutation(self) -> str:
        return f"{self.before} -> {self.after}"


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """Every mistake that can be planted in ``source``, in its order."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    seen: Counter[tuple[str, str, str, str]] = Counter()
    mutants = []
    for function, (node, after) in _places(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = lines[node.lineno - 1].decode().strip()
        alike = (function, text, ast.unparse(node), after)
        mutants.append(Mutant(module, *alike, seen[alike], node.lineno, start, end))
        seen[alike] += 1
    return mutants


def planted(source: bytes, mutant: Mutant) -> bytes:
    """``mutant`` is one of ``source``."""
    return source[: mutant.start] + mutant.after.encode() + source[mutant.end :]


def _places(tree: ast.Module) -> Iterator[tuple[str, operators.Change]]:
    for path, function in functions(tree.body):
        for node in (*_defaults(function), *function.body):
            yield from ((path, change) for change in _below(node, function))


def functions(
    body: Iterable[ast.stmt], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each with its qualified name, of a module or class; those inside of functions are parts of the outermost."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, (*path, node.name))
        elif isinstance(node, _FUNCTIONS) and not _is_untouched(node.name):
            yield ".".join((*path, node.name)), node


def _is_untouched(name: str) -> bool:
    """``validate`` recomputes invariants for the tests: what is broken there breaks no product."""
    return name in _UNTOUCHED or name.lstrip("_").startswith("validate")


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    return [*function.args.defaults, *(default for default in function.args.kw_defaults if default is not None)]


def _below(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[operators.Change]:
    if isinstance(node, _SKIPPED) or operators.is_logging(node):
        return
    # What a constructor assigns is read by everything: its absence is an error at the first look, not a mistake.
    if not (function.name in _MADE and isinstance(node, ast.Assign)):
        yield from operators.changes(node)
    for child in _parts(node):
        yield from _below(child, function)


def _parts(node: ast.AST) -> Iterable[ast.AST]:
    """Without types, decorators and the keyword ``strict``, with which a program only watches itself."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*_defaults(node), *node.body]
        case ast.Lambda():
            return [*_defaults(node), node.body]
        case ast.ClassDef():
            return []
        case ast.AnnAssign():
            return [node.value] if node.value else []
        case ast.Call(func=ast.Name(id=name)) if name in _TYPED:
            typed = _TYPED[name]
            return [part for number, part in enumerate(node.args) if number != typed]
        case ast.Call():
            kept = [keyword.value for keyword in node.keywords if keyword.arg != "strict"]
            return [node.func, *node.args, *kept]
    return ast.iter_child_nodes(node)
