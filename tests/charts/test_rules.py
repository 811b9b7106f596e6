"""Recording and alert rules without promtool: each has a case, a runbook, and series that exist."""

import re
from pathlib import Path

import pytest

from tests.support.charts.recordcases import RECORDS
from tests.support.charts.rulecases import ALERTS
from tests.support.charts.series import known, named, rules

ROOT = Path(__file__).parents[2]
BY_NAME = {one["alert"]: one for one in rules() if "alert" in one}
PAGES = {path.stem: path for path in (ROOT / "docs/runbooks").glob("*.md")}


def test_every_rule_has_a_case_and_every_alert_also_one_where_it_is_quiet() -> None:
    assert (
        {one.alert for one in ALERTS if one.firing} == {one.alert for one in ALERTS if not one.firing} == set(BY_NAME)
    )
    assert {one.record for one in RECORDS} == {one["record"] for one in rules() if "record" in one}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert set(PAGES) == set(BY_NAME)
    for name, page in PAGES.items():
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        assert headings == [name, "What it means", "How to look", "What to do"]
        assert BY_NAME[name]["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_an_alert_says_how_bad_where_and_how_much(name: str) -> None:
    rule = BY_NAME[name]
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert "$value" in rule["annotations"]["summary"]
    assert "{{" not in rule["annotations"]["description"]


def test_rules_and_runbooks_name_series_that_exist() -> None:
    there = known()
    for rule in rules():
        assert named(rule["expr"]) <= known(usual=True), rule
    for page in PAGES.values():
        for block in re.findall(r"```\n(.*?)```", page.read_text(), re.DOTALL):
            assert named(block) <= there, page.name


def test_the_alerts_page_lists_them_all() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE
    )
    assert {(name, page, severity) for name, page, severity in listed} == {
        (name, name, rule["labels"]["severity"]) for name, rule in BY_NAME.items()
    }
