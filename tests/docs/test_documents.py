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


def test_the_comparison_says_when_and_which_versions_were_read() -> None:
    page = (ROOT / "docs/comparison.md").read_text()
    assert re.search(r"read on \d{4}-\d{2}-\d{2}", page)
    for peer in ("device plugin", "NVSentinel", "GPU operator", "DRA driver", "HAMi", "Kueue", "KAI", "Volcano"):
        assert re.search(rf"{peer} \d+\.\d+", page), peer
    for table in re.split(r"^## ", page, flags=re.MULTILINE):
        widths = {row.count(" | ") for row in table.splitlines() if row.startswith("| ") and "---" not in row}
        assert len(widths) <= 1, table.partition("\n")[0]


LONG = {"architecture.md", "benchmarks.md", "messages.md", "metrics.md"}
"""References: one looks something up there."""
AT_MOST = 20_000


def test_a_page_can_be_read_in_one_go() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in LONG]
    assert {page.name: size for page in pages if (size := len(page.read_text())) > AT_MOST} == {}


def test_installing_begins_with_the_first_success_and_has_its_tables_below() -> None:
    before = (ROOT / "docs/install.md").read_text().partition("\n| ")[0]
    assert "kubectl apply -f examples/pod-one-gpu.yaml" in before
    assert "kubectl apply -f examples/queues/team-quotas.yaml" in before
