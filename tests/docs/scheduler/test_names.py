"""Names of the code that stand on the scheduler's pages beside a module are in that module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs/scheduler").glob("*.md"))
ROW = re.compile(r"^\| (`[^|]+`) \| `([\w/]+\.py)` \|", re.MULTILINE)
"""A row of a table: names, and the module that they are in."""


def defined(module: Path) -> set[str]:
    """Functions, classes, constants of the module, and methods as ``Class.method``."""

    def of(body: list[ast.stmt], before: str) -> Iterator[str]:
        for each in body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield before + each.name
            if isinstance(each, ast.ClassDef):
                yield from of(each.body, f"{each.name}.")
            if isinstance(each, ast.Assign | ast.AnnAssign):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                yield from (before + target.id for target in targets if isinstance(target, ast.Name))

    return set(of(ast.parse(module.read_text()).body, ""))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_name_beside_a_module_is_defined_there(page: Path) -> None:
    rows = ROW.findall(page.read_text())
    assert rows
    for names, module in rows:
        assert set(re.findall(r"`([^`]+)`", names)) - defined(ROOT / module) == set(), module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_method_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    known: set[str] = set().union(*(defined(module) for module in (ROOT / "controller/scheduler").rglob("*.py")))
    classes = {name.partition(".")[0] for name in known if "." in name}
    named = {name for name in re.findall(r"`([A-Z]\w+\.\w+)`", text) if name.partition(".")[0] in classes}
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_test_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    sources = "\n".join(module.read_text() for module in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert {name for name in named if f"def {name}(" not in sources} == set()
