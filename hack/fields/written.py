"""The fields of classes that another module than the class's own writes, and who writes them.

``python -m hack.fields.written`` lists them, those without a sentence first; ``tests/hack/fields`` fails on these. A
field is written by an assignment, ``del``, or a call that changes the collection it holds (under the field's own name:
a local that stands for the collection is not followed). Its sentence stands below the field or in the class's
docstring, which names the field in double backticks, and names each writer: its class, its function, its module or a
folder above it.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hack.fields.kinds import ROWS, TABLES, UNKNOWN, Kind
from hack.fields.sources import Declaration, Env, Function, Sources, declared

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "cli", "controller", "deviceplugin", "history", "inventory", "kube", "simulator")
CHANGES = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
        "__setitem__",
    }
)
_THROUGH = ("get", "setdefault", "pop", "values")
"""Calls that give an item of a collection: to change the item changes the field."""
_BINDING = (
    *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.MatchAs),
)


class Write(NamedTuple):
    """``place``: the classes and functions around the statement, outermost first."""

    owner: str
    field: str
    module: str
    place: tuple[str, ...]
    line: int


class Field(NamedTuple):
    """``sentences``: what is said of it. ``writes``: those outside of the module that defines the class ``owner``."""

    owner: str
    name: str
    sentences: str
    writes: tuple[Write, ...]

    def unnamed(self) -> list[Write]:
        """The writes whose writer no sentence names; all of them where nothing is said."""
        return [write for write in self.writes if not _names(self.sentences, write)]

    def __str__(self) -> str:
        writers = dict.fromkeys(f"{write.module}:{'.'.join(write.place)}" for write in self.writes)
        return f"{self.owner}.{self.name}: {', '.join(writers)}"


class _Writes(ast.NodeVisitor):
    """All writes of a module, once the names of each function are known."""

    def __init__(self, sources: Sources, module: str) -> None:
        self.found: list[Write] = []
        self._sources, self._module = sources, module
        self._env: Env = {}
        self._own: Kind = UNKNOWN
        self._place: tuple[str, ...] = ()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before = self._own, self._place
        self._own, self._place = Kind(f"{self._module}.{node.name}"), (*self._place, node.name)
        self.generic_visit(node)
        self._own, self._place = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._env, self._place
        self._env = self._env | self._sources.parameters(self._module, node, self._own)
        self._place = (*self._place, node.name)
        self._bind(node)
        self.generic_visit(node)
        self._env, self._place = before

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's own name

    def _bind(self, function: Function) -> None:
        binding = [node for node in ast.walk(function) if isinstance(node, _BINDING)]
        for _ in range(2):  # A name may be bound below the loop that uses it.
            for node in binding:
                match node:
                    case ast.Assign(targets=targets, value=value):
                        for target in targets:
                            self._bound(target, self._of(value))
                    case ast.AnnAssign(target=ast.Name() as target, annotation=annotation):
                        self._bound(target, self._sources.annotated(self._module, annotation))
                    case ast.NamedExpr(target=target, value=value):
                        self._bound(target, self._of(value))
                    case ast.For(target=target, iter=row) | ast.AsyncFor(target=target, iter=row):
                        self._bound(target, self._sources.iterated(self._of(row)))
                    case ast.comprehension(target=target, iter=row):
                        self._bound(target, self._sources.iterated(self._of(row)))
                    case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                        self._bound(target, self._of(value))
                    case ast.MatchAs(pattern=ast.MatchClass(cls=cls), name=str(name)):
                        self._bound(ast.Name(name), self._sources.annotated(self._module, cls))

    def _bound(self, target: ast.AST, kind: Kind) -> None:
        self._sources.bind(self._module, self._env, target, kind)

    def _of(self, node: ast.AST) -> Kind:
        return self._sources.of(self._module, self._env, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._written(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._changed(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in CHANGES:
            kinds = self._of(func.value).members()
            self._changed(func.value if any(each.name in (*ROWS, *TABLES) for each in kinds) else None)
        self.generic_visit(node)

    def _changed(self, node: ast.AST | None) -> None:
        """A collection is changed: it is a field's, or an item of one."""
        match node:
            case ast.Attribute():
                self._written(node)
            case ast.Subscript(value=inner):
                self._changed(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _THROUGH:
                self._changed(inner)

    def _written(self, node: ast.Attribute) -> None:
        for kind in self._of(node.value).members():
            line = [each for each in self._sources.line_of(kind) if node.attr in declared(each[1])]
            made = [each for each in line if any(map(_makes, declared(each[1])[node.attr]))]
            for where, owner in (made or line)[:1]:
                write = Write(f"{where}.{owner.name}", node.attr, self._module, self._place, node.lineno)
                self.found.append(write)


def _makes(declaration: Declaration) -> bool:
    """Whether the statement makes the field, and not only writes it again."""
    by, statement = declaration
    return by is None or by.name == "__init__" or isinstance(statement, ast.AnnAssign)


def fields(sources: Sources) -> Iterator[Field]:
    """The fields that another module writes, by class and name."""
    by_field = defaultdict(list)
    for module, tree in sources.trees.items():
        writes = _Writes(sources, module)
        writes.visit(tree)
        for write in writes.found:
            if write.owner.rpartition(".")[0] != module:
                by_field[write.owner, write.field].append(write)
    for (owner, name), several in sorted(by_field.items()):
        yield Field(owner, name, sentences(sources, owner, name), tuple(several))


def sentences(sources: Sources, owner: str, name: str) -> str:
    """The docstrings below the field, and the class's own where it names the field."""
    _, node = sources.find(*owner.rpartition(".")[::2])
    assert isinstance(node, ast.ClassDef)
    whole = ast.get_docstring(node) or ""
    texts = [whole] if f"``{name}``" in whole else []
    statements = [statement for _, statement in declared(node).get(name, ())]
    for parent in ast.walk(node):
        body = getattr(parent, "body", None)
        for above, below in pairwise(body) if isinstance(body, list) else ():
            if above in statements and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts.append(str(below.value.value))
    return "\n".join(texts)


def _names(text: str, write: Write) -> bool:
    folders = write.module.split(".")
    above = [".".join(folders[:count]) for count in range(2, len(folders) + 1)]
    names = {*write.place, folders[-1], *above}
    return any(re.search(rf"(?<!\w){re.escape(name)}(?![\w])", text) for name in names)


def product() -> Sources:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return Sources({_module(path): path.read_text() for path in paths})


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def main() -> int:
    found = list(fields(product()))
    for field in sorted(found, key=lambda each: not each.unnamed()):
        print(f"{'  ' if not field.unnamed() else '! '}{field}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
