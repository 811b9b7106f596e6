"""Names of Tessera's own stand in one place."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("agent", "cli", "controller", "deviceplugin", "inventory", "simulator")


def test_no_other_module_spells_a_name_of_ours() -> None:
    """A sentence may name an annotation; a constant is imported."""
    found = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        if path == ROOT / "inventory/api/names.py":
            continue
        if "tessera.dev" not in (source := path.read_text()):
            continue  # parsing all of them takes a second
        constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in constants
            if isinstance(node.value, str) and re.fullmatch(r"tessera\.dev(/[a-z-]*)?", node.value)
        ]
    assert found == []
