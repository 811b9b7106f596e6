"""What the pages name exists: commands, anchors, examples, names of ours, metrics, values of the chart, rights."""

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.jobs.kinds.table import JOB_KINDS
from tests.support.cli.lines import understood

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("kinds/*.md")),
    *sorted(DOCS.glob("runbooks/*.md")),
    *sorted(DOCS.glob("scheduler/*.md")),
]
CODE = (
    "agent",
    "cli",
    "controller",
    "deviceplugin",
    "failpoints",
    "history",
    "inventory",
    "kube",
    "simulator",
    "charts",
    "examples",
    "hack",
)
COMPOSED = {"tessera.dev/gpu-percent-largest": "{OWN}/gpu-percent-largest"}
"""Names that the code puts together, and how it does."""

Named = dict[str, set[str]]
"""What is named and is not there, by page."""


def over_all_pages(look: Callable[[Path], Iterable[str]], pages: Iterable[Path] = PAGES) -> Named:
    """Only the pages where ``look`` found something."""
    found = {str(page.relative_to(ROOT)): set(look(page)) for page in pages}
    return {name: wrong for name, wrong in found.items() if wrong}


@functools.cache
def sources() -> str:
    """All that is not a page: what a page names must be in it."""
    kinds = {".py", ".yaml", ".yml", ".tpl", ".json", ".csv"}
    files = (path for room in CODE for path in sorted((ROOT / room).rglob("*")) if path.suffix in kinds)
    return "\n".join(path.read_text() for path in files)


def blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```[a-z]*\n(.*?)```", page.read_text(), re.DOTALL))


def inline(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))


@functools.cache
def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_a_command_is_written_as_its_parser_takes_it() -> None:
    def wrong(page: Path) -> Iterable[str]:
        shown = [line for line in blocks(page).splitlines() if re.match(r"\s*(\$ )?tessera ", line)]
        named = [one for one in inline(page) if one.startswith("tessera ")]
        return filter(None, map(understood, [*shown, *named]))

    assert over_all_pages(wrong) == {}


def test_a_link_into_a_page_leads_to_a_heading() -> None:
    def wrong(page: Path) -> Iterable[str]:
        for target, fragment in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            path = (page.parent / target) if target else page
            if path.suffix == ".md" and fragment not in anchors(path):
                yield f"{target}#{fragment}"

    assert over_all_pages(wrong) == {}


def test_a_name_of_ours_is_one_that_the_code_knows() -> None:
    def wrong(page: Path) -> Iterable[str]:
        named = set(re.findall(r"tessera\.dev/[a-z][a-z0-9-]+[a-z0-9](?![\w-]*\*)", page.read_text()))
        return (one for one in named if COMPOSED.get(one, one) not in sources())

    assert over_all_pages(wrong) == {}


def test_a_metric_is_one_that_is_written() -> None:
    def wrong(page: Path) -> Iterable[str]:
        named = set(re.findall(r"\b(?:tessera|kueue)_[a-z][a-z0-9_]+[a-z0-9]\b(?![_*])", page.read_text()))
        bare = {re.sub(r"_(bucket|sum|count)$", "", one) for one in named}
        return (one for one in bare if f'"{one}"' not in sources() and f'"{one.partition("_")[2]}"' not in sources())

    assert over_all_pages(wrong) == {}


def test_an_example_that_is_named_is_there() -> None:
    def wrong(page: Path) -> Iterable[str]:
        named = set(re.findall(r"\bexamples/[\w./-]*\w", page.read_text()))
        return (one for one in named if not (ROOT / one).exists())

    assert over_all_pages(wrong) == {}


def test_a_file_of_the_code_that_is_named_is_there() -> None:
    rooms = "|".join({*CODE, "tests", "yamlfile"} - {"examples"})

    def wrong(page: Path) -> Iterable[str]:
        named = set(re.findall(rf"(?<![\w./-])((?:{rooms})/[\w./-]*\w)", page.read_text()))
        return (one for one in named if not (ROOT / one).exists())

    assert over_all_pages(wrong, [*PAGES, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("decisions/*.md"))]) == {}


def values(tree: dict[str, Any], before: str = "") -> set[str]:
    found = set()
    for key, value in tree.items():
        found.add(before + key)
        if isinstance(value, dict):
            found |= values(value, f"{before}{key}.")
    return found


@functools.cache
def chart() -> set[str]:
    """The chart's values, by their paths."""
    return values(yaml.safe_load((ROOT / "charts/tessera/values.yaml").read_text()))


@pytest.mark.parametrize("word", ["--set ", "--set-file "])
def test_what_helm_is_told_is_a_value_of_the_chart(word: str) -> None:
    for page in PAGES:
        for name in re.findall(rf"{word}([\w.]+)=", page.read_text()):
            free = name.startswith(("config.map.", "controller.config.", "metrics.rules.labels."))
            assert free or name in chart(), f"{page.name}: {name}"


def test_the_page_of_values_names_values_of_the_chart() -> None:
    table = (DOCS / "chart-values.md").read_text().partition("Not taken over")[0]
    named = [
        name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    assert len(named) > 30
    assert [name for name in named if name.removesuffix(".*") not in chart()] == []


def test_a_value_of_the_chart_is_named_as_it_is() -> None:
    groups = {"controller.groupKindConcurrency", "controller.cacheSyncTimeout"}
    like_a_value = r"(controller|fractions|admissionPolicy|rbac)(\.[a-zA-Z]+)+(\.\*)?"

    def wrong(page: Path) -> Iterable[str]:
        named = (one.partition(":")[0].partition("=")[0] for one in inline(page))
        dotted = (one.removesuffix(".*") for one in named if re.fullmatch(like_a_value, one))
        return (one for one in dotted if one not in chart() | groups)

    assert over_all_pages(wrong) == {}


def test_every_page_is_on_the_list() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "README.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} == listed


@pytest.mark.parametrize("page", ["README.md", "architecture.md"])
def test_every_page_of_the_scheduler_is_linked(page: str) -> None:
    linked = set(re.findall(r"\]\(scheduler/([\w-]+\.md)", (DOCS / page).read_text()))
    assert {each.name for each in (DOCS / "scheduler").glob("*.md")} == linked


def test_every_page_of_an_alert_is_on_the_alerts_page() -> None:
    listed = set(re.findall(r"\(runbooks/(\w+\.md)\)", (DOCS / "alerts.md").read_text()))
    assert {page.name for page in (DOCS / "runbooks").glob("*.md")} == listed


def test_every_example_is_told_of_on_a_page() -> None:
    told = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"examples/[\w./-]*\w", told))
    folders = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*") if path.is_dir()}
    for path in sorted(path for path in (ROOT / "examples").rglob("*") if path.is_file()):
        name = str(path.relative_to(ROOT))
        by_folder = str(path.parent.relative_to(ROOT)) in named & folders
        assert name in named or by_folder or path.stem in told, f"{name} is on no page"


def test_the_security_page_lists_every_right_that_the_chart_asks_for() -> None:
    told = (DOCS / "security.md").read_text()
    for file in ("rbac.yaml", "controller-rbac.yaml", "webhook.yaml"):
        text = re.sub(r"\{\{-?[^}]*\}\}", "", (ROOT / "charts/tessera/templates" / file).read_text())
        for names in re.findall(r"resources: \[([^\]]+)\]", text):
            for name in names.split(", "):
                assert re.search(rf"`{name}(\.[\w.-]+)?`|`{name}`", told), f"{file}: {name} is not on the security page"


def test_the_security_page_lists_every_kind_of_job_that_the_controller_may_change() -> None:
    told = (DOCS / "security.md").read_text()
    for kind in JOB_KINDS:
        for plural in (kind.plural, *(read.plural for read in kind.reads)):
            assert f"`{plural}`" in told, plural


def test_the_security_page_lists_every_folder_of_the_host() -> None:
    told = (DOCS / "security.md").read_text()
    text = (ROOT / "charts/tessera/templates/daemonset.yaml").read_text()
    for name in re.findall(r"- name: ([\w-]+)\n\s+hostPath:", text):
        shown = {"cdi": "/var/run/cdi", "state": "/var/lib/tessera", "mps": "mps.root", "dev": "`/dev`"}
        shown |= {"driver-root": "driver's root", "plugins-registry": "plugins_registry"}
        assert shown.get(name, name) in told, name


@pytest.mark.parametrize("name", ["nvidia", "nvidia-dra", "kueue", "kai", "volcano", "hami"])
def test_who_comes_from_elsewhere_finds_a_table_and_an_order(name: str) -> None:
    text = (DOCS / f"migration-{name}.md").read_text()
    assert text.count("\n| --- | --- |") + text.count("\n| --- | --- | --- |") >= 2
    assert re.search(r"^## (In which order|Switching)$", text, re.MULTILINE)
    assert re.search(r"^1\. .*^2\. .*^3?", text, re.MULTILINE | re.DOTALL)
    assert "not yet" in text.lower(), "no page of this kind is honest without what is missing"
    assert f"migration-{name}.md" in (DOCS / "comparison.md").read_text()
