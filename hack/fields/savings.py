"""Caches, ``__slots__`` and classes outside of the garbage collector, and what the code says that each buys.

``python -m hack.fields.savings`` lists them, those without a figure first; ``tests/hack/fields`` fails on these. The
figure stands in the docstring of the function, class or module, in the comment above it, or in the text below it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from hack.fields.written import PACKAGES, ROOT

FIGURE = re.compile(r"\d[\d,.]* (?:ns|us|ms|s|bytes|KiB|MiB|GiB|%|times)(?!\w)")


class Saving(NamedTuple):
    """``words``: all that is said of it."""

    place: str
    name: str
    kind: str
    words: str

    def __str__(self) -> str:
        return f"{self.place}: {self.name} ({self.kind})"

    @property
    def measured(self) -> bool:
        return FIGURE.search(" ".join(self.words.split())) is not None


def savings(place: str, text: str) -> Iterator[Saving]:
    """Those of one module."""
    tree, lines = ast.parse(text), text.splitlines()
    whole = ast.get_docstring(tree) or ""
    for parent in ast.walk(tree):
        body = [each for each in ast.iter_child_nodes(parent) if isinstance(each, ast.stmt)]
        own = ast.get_docstring(parent) or "" if isinstance(parent, ast.ClassDef) else ""
        for node, below in pairwise([*body, ast.Pass()]):
            said = (whole, own, _above(lines, node), _text(below), _docstring(node))
            if kind := _kind(node):
                yield Saving(f"{place}:{node.lineno}", _name(node), kind, "\n".join(said))


def _kind(node: ast.stmt) -> str:
    """What the statement saves by; empty for any other."""
    match node:
        case ast.FunctionDef(decorator_list=decorators) if any(map(_is_cache, decorators)):
            return "cache"
        case ast.Assign(value=ast.Call(func=ast.Call() as made)) if _is_cache(made):
            return "cache"
        case ast.ClassDef(body=body, decorator_list=decorators, keywords=keywords):
            own = [ast.unparse(each) for each in body if isinstance(each, ast.Assign)]
            slots = any(text.startswith("__slots__ = (") and text != "__slots__ = ()" for text in own)
            if slots or any("slots=True" in ast.unparse(each) for each in decorators):
                return "slots"
            if any(each.arg == "gc" and ast.unparse(each.value) == "False" for each in keywords):
                return "gc=False"
    return ""


def _is_cache(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called).removeprefix("functools.") in ("cache", "lru_cache")


def _name(node: ast.stmt) -> str:
    return getattr(node, "name", "") or ast.unparse(getattr(node, "targets", [node])[0])


def _docstring(node: ast.stmt) -> str:
    return ast.get_docstring(node) or "" if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""


def _text(node: ast.stmt) -> str:
    return str(node.value.value) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""


def _above(lines: list[str], node: ast.stmt) -> str:
    """The comment that ends right above the statement, or above ``__slots__`` in a class."""
    comment: list[str] = []
    inner = next((each.lineno for each in getattr(node, "body", ()) if isinstance(each, ast.Assign)), 0)
    for first in (min((each.lineno for each in getattr(node, "decorator_list", ())), default=node.lineno), inner):
        at = first - 2
        while at >= 0 and lines[at].strip().startswith("#"):
            comment.insert(0, lines[at].strip(" #"))
            at -= 1
    return "\n".join(comment)


def product() -> Iterator[Saving]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from savings(str(path.relative_to(ROOT)), path.read_text())


def main() -> int:
    for saving in sorted(product(), key=lambda each: each.measured):
        print(f"{'  ' if saving.measured else '! '}{saving}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
