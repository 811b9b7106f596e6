"""What holds for every source file of the project."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 600
"""Of a module, tests included."""
MOST_MODULES = 18
"""Of a folder of the product or of ``hack/``."""
FRAGMENT_LINES = 30
"""A module of the product or of ``hack/`` with fewer lines is a fragment."""
MOST_FRAGMENTS = 20
APART = {"kubeletapi", "build", "dist"}
"""What is generated, and what is built."""
NO_MODULES = {"__init__.py", "__main__.py"}
"""A package's face and its entrance: they are as short as they can be."""


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def named(paths: Iterable[Path]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def sources() -> list[Path]:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in APART]
    return [path for folder in folders for path in folder.rglob("*.py")]


def modules() -> list[Path]:
    """The modules of the product and of ``hack/``."""
    apart = {"tests", "examples", "docs", "charts"}
    found = [path for path in sources() if path.name not in NO_MODULES]
    return [path for path in found if path.relative_to(ROOT).parts[0] not in apart]


def test_no_module_is_too_long_to_be_read() -> None:
    found = sources()
    assert ROOT / "tests/hack/test_sources.py" in found
    assert named(path for path in found if lines(path) > MOST_LINES) == []


def test_no_folder_has_too_many_modules_to_be_seen_at_once() -> None:
    counts = Counter(path.parent for path in modules())
    assert counts[ROOT / "controller/scheduler/topology"] > 1
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_few_modules_are_fragments() -> None:
    fragments = named(path for path in modules() if lines(path) < FRAGMENT_LINES)
    assert len(fragments) <= MOST_FRAGMENTS, "\n".join(fragments)


def test_the_limits_are_those_that_contributors_are_told() -> None:
    told = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert (
        f"No module has more than {MOST_LINES} lines and no folder more than {MOST_MODULES} modules; at most"
        f" {MOST_FRAGMENTS} modules are fragments of less than {FRAGMENT_LINES} lines"
    ) in told


def test_what_the_fast_tier_does_not_even_read_is_of_another() -> None:
    for tier in ("e2e", "conformance", "gpu"):
        cases = [*(ROOT / "tests" / tier).rglob("test_*.py")]
        assert cases
        marked = re.compile(rf"^pytestmark = .*pytest\.mark\.{tier}\b", re.MULTILINE)
        assert not [path.name for path in cases if not marked.search(path.read_text())]
        assert f"--ignore=tests/{tier}" in (ROOT / "Makefile").read_text()
