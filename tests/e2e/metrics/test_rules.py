"""Every recording and alert rule by promtool: what it says of which series, and when it says nothing."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import prometheus
from tests.support.charts.recordcases import RECORDS, Records
from tests.support.charts.rulecases import ALERTS, Fires

pytestmark = pytest.mark.e2e

RULES = Path(__file__).parents[3] / "charts/tessera/files/rules.yaml"


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    prometheus.ensure()


ALL: dict[str, dict[str, Any]] = {
    one.get("alert") or one["record"]: one
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for one in group["rules"]
}


def needed(name: str) -> list[dict[str, Any]]:
    """The rule after those whose samples it reads."""
    found = [one for other in ALL if other != name and other in ALL[name]["expr"] for one in needed(other)]
    return [*found, ALL[name]]


def run(folder: Path, name: str, *tests: dict[str, Any]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": needed(name)}]}))
    file = folder / "tests.yaml"
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(tests)}
    file.write_text(yaml.safe_dump(content))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted({one.alert for one in ALERTS}))
def test_an_alert_fires_when_it_should_and_only_then(name: str, tmp_path: Path) -> None:
    cases: list[Fires] = [one for one in ALERTS if one.alert == name]
    run(tmp_path, name, *(one.test(ALL[name]) for one in cases))


@pytest.mark.parametrize("name", sorted({one.record for one in RECORDS}))
def test_a_recording_rule_records_the_sum_that_it_names(name: str, tmp_path: Path) -> None:
    cases: list[Records] = [one for one in RECORDS if one.record == name]
    run(tmp_path, name, *(one.test() for one in cases))
