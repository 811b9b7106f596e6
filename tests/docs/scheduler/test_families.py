"""``docs/scheduler/words.md``: the types that request, and those that say what does not fit, are all on its tables."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/scheduler/words.md"
FAMILIES = {"who requests what": ("Request", "Requests"), "what does not fit": ("NoFit",)}
"""The endings of the types' names by the last heading of their table."""


def listed(heading: str) -> set[str]:
    """The types on the table whose last column has this heading."""
    _, _, rest = PAGE.read_text().partition(f"| type | module | {heading} |\n")
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    return {row.split("`")[1] for row in rows}


def defined(*endings: str) -> set[str]:
    """The public types of the scheduler, aliases included, whose names end so."""
    names: set[str] = set()
    for path in (ROOT / "controller/scheduler").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if name.endswith(endings) and not name.startswith("_")}


@pytest.mark.parametrize("heading", FAMILIES)
def test_a_type_of_a_family_is_on_the_page(heading: str) -> None:
    assert listed(heading) == defined(*FAMILIES[heading])
    assert len(listed(heading)) > 5
