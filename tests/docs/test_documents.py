"""Documents point at what exists, and say what the commands do."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for name in ("*.md", "docs/**/*.md", "hack/*/*.md", "tests/*/*.md") for page in ROOT.glob(name))
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z0-9-]+)`|^make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert {one or other for one, other in named} <= targets


PART = re.compile(r"\b([\d,]+) of ([\d,]+)\b[^(.;|\n]{0,40}\((\d+(?:\.(\d+))?) %\)")


def test_a_part_in_percent_is_that_of_the_two_numbers_beside_it() -> None:
    found = [(page.name, *each) for page in PAGES for each in PART.findall(page.read_text())]
    assert found
    for page, some, every, percent, digits in found:
        part = 100 * int(some.replace(",", "")) / int(every.replace(",", ""))
        assert f"{part:.{len(digits)}f}" == percent, f"{page}: {some} of {every} is {part} %"


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:3]) for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()


def test_make_help_names_every_documented_target() -> None:
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "quick", "demo", "test", "check", "conformance", "e2e", "bench", "proto", "clean"):
        assert f"make {target} " in shown
