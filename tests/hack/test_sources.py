"""What holds for every source file of the project."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 600
"""Lines of a module."""
APART = {"kubeletapi", "build", "dist"}
"""What is generated, and what is built."""


def test_no_module_is_too_long_to_be_read() -> None:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in APART]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    assert ROOT / "tests/hack/test_sources.py" in sources
    lengths = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in sources}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST}


def test_what_the_fast_tier_does_not_even_read_is_of_another() -> None:
    for tier in ("e2e", "conformance", "gpu"):
        cases = [*(ROOT / "tests" / tier).rglob("test_*.py")]
        assert cases
        marked = re.compile(rf"^pytestmark = .*pytest\.mark\.{tier}\b", re.MULTILINE)
        assert not [path.name for path in cases if not marked.search(path.read_text())]
        assert f"--ignore=tests/{tier}" in (ROOT / "Makefile").read_text()
