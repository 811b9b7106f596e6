"""The first page: figures are the measured ones, rounded right; it shows the page, and says how mature this is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMPARISON = (ROOT / "docs/comparison.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
FIRST_SCREEN = 36
"""Lines before the first heading below the title: what it had in November 2026."""

FIGURES = (
    (r"kubelet's device list in (\d+) ms \(median\)", r"XID to the kubelet's list \| p50 ([\d.]+) ms"),
    (r"one process: ([\d.]+) % of a core at rest", r"CPU at rest \| ([\d.]+) % of a core"),
    (r"four DaemonSets, in (\d+) MiB", r"resident memory \| ([\d.]+) MiB"),
    (r"allocated (\d+) of 512 GPUs", r"Tessera \(`keepLinkedGpus`\) \| (\d+) \("),
    (r"of 512 GPUs \(([\d.]+) %\)", r"Tessera \(`keepLinkedGpus`\) \| \d+ \(([\d.]+) %\)"),
    (r"had allocated (\d+) \(", r"best fit by count \(policy `kueue`\) \| (\d+) \("),
    (r"had allocated \d+ \((\d+) %\)", r"best fit by count \(policy `kueue`\) \| \d+ \(([\d.]+) %\)"),
    (r"10,000 in (\d+) ms", r"half full \| [\d.]+, [\d.]+, ([\d.]+) ms"),
    (r"10,000 in \d+ ms \(([\d.]+) to", r"cluster empty \| [\d.]+, [\d.]+, ([\d.]+) ms"),
    (r"10,000 in \d+ ms \([\d.]+ to ([\d.]+)\)", r"half full \| [\d.]+, [\d.]+, ([\d.]+) ms"),
    (r"3,000 Workloads took ([\d.]+) s", r"\| wall time \| [\d.]+ s \| [\d.]+ s \| ([\d.]+) s"),
    (r"\(([\d.]+) s in a slow hour\)", r"null controller took [\d.]+ s and Tessera ([\d.]+)\."),
    (r"Kueue took ([\d.]+) s", r"\| wall time \| [\d.]+ s \| [\d.]+ s \| [\d.]+ s \| ([\d.]+) s"),
    (r"at most ([\d.]+) times", r"The largest factor was ([\d.]+)\."),
)
"""What the first page says, and where the benchmarks have it."""


def number(pattern: str, text: str) -> str:
    found = re.search(pattern, re.sub(r"\n +", " ", text))
    assert found, pattern
    return found[1]


@pytest.mark.parametrize(("said", "measured"), FIGURES, ids=[said for said, _ in FIGURES])
def test_a_figure_is_the_measured_one_rounded(said: str, measured: str) -> None:
    told, exact = number(said, README), number(measured, BENCHMARKS)
    places = len(told.partition(".")[2])
    assert float(told) == round(float(exact), places)


def test_what_a_node_pays_at_rest_is_told_alike_with_the_limits() -> None:
    measured = number(r"CPU at rest \| ([\d.]+) % of a core", BENCHMARKS)
    assert f"{measured} % of a core at rest with 8 GPUs" in (ROOT / "docs/limits.md").read_text()


def test_a_share_of_the_fleet_is_what_its_two_numbers_give() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| (\d+) \(([\d.]+) %\) \|", BENCHMARKS.partition("## Fragmentation")[2], re.MULTILINE
    )
    assert len(rows) == 4
    assert [(count, share) for count, share in rows if f"{int(count) / 512:.1%}" != f"{share}%"] == []


def test_what_a_node_pays_is_told_alike_on_both_pages_and_is_of_one_run() -> None:
    run = BENCHMARKS.partition("### As a node has it")[2].partition("\n\nWith a load")[0]
    rest = number(r"CPU at rest \| ([\d.]+) % of a core", run)
    memory = round(float(number(r"resident memory \| ([\d.]+) MiB", run)))
    start = number(r"from start to listed.*?\(([\d.]+) s against", run)
    allocate = number(r"Allocate: p50, p99; [^|]+\| ([\d.]+), ", run)
    for page in (README, COMPARISON):
        text = re.sub(r"\s+", " ", page)
        for figure in (
            f"{memory} MiB",
            f"{rest} % of a core at rest",
            f"{start} s of CPU from start to listed",
            f"{allocate} ms for an Allocate (median, on two busy cores)",
        ):
            assert figure in text


def test_it_shows_the_page_and_says_how_mature_this_is() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\((docs/pictures/[\w-]+\.png)\)", README)
    assert (ROOT / picture).exists()
    before = README.partition("\n## ")[0]
    maturity = before.partition("**Maturity:**")[2].partition("\n\n")[0]
    for word in ("no years on real fleets", "simulated", "`make quick`", "`make demo`"):
        assert word in maturity


def test_the_first_screen_has_not_grown() -> None:
    assert README.partition("\n## ")[0].count("\n") < FIRST_SCREEN


def test_the_first_compilation_takes_as_long_on_every_page() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "hack/cluster/README.md"]
    told = [re.findall(r"compile[^.|\n]*?\(?about (\d+) minutes", page.read_text()) for page in pages]
    assert all(told)
    assert len({minutes for each in told for minutes in each}) == 1
