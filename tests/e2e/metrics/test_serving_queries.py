"""Queries of the examples for autoscalers, by Prometheus' own promtool: the smaller of load and queue counts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.metrics.table import READ
from hack import prometheus
from tests.support.e2e.lab import EXAMPLES

pytestmark = pytest.mark.e2e

SCALE = EXAMPLES / "serving-scale"
USABLE = 'tessera_local_queue_usable_units{namespace="team",local_queue="chat",unit="replica",flavor="%s",role="%s"}'
LOAD = 'vllm:request_success_total{namespace="team",pod="chat-1"}'


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    prometheus.ensure()


def _query() -> str:
    scaled = yaml.safe_load((SCALE / "keda.yaml").read_text())
    found: str = scaled["spec"]["triggers"][0]["metadata"]["query"]
    return found


@pytest.mark.parametrize(("a_second", "usable", "replicas"), [(40, 3, 3), (8, 6, 2)])
def test_keda_scales_to_the_smaller_of_what_load_wants_and_the_queue_would_run(
    tmp_path: Path, a_second: int, usable: int, replicas: int
) -> None:
    """Two replicas of the controller tell the same of one flavor, and a second flavor has none."""
    series = [(LOAD, f"0+{a_second * 15}x20")]
    series += [(USABLE % ("a", role), f"{usable}x20") for role in ("leader", "standalone")]
    series.append((USABLE % ("b", "leader"), "0x20"))
    case: dict[str, Any] = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [
            {"expr": _query(), "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": replicas}]}
        ],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_adapters_rule_serves_a_series_of_the_controller_under_the_name_that_the_example_asks_for() -> None:
    (rule,) = yaml.safe_load((SCALE / "values.yaml").read_text())["rules"]["external"]
    family = next(each for each in READ if each.name == rule["seriesQuery"])
    autoscaler = list(yaml.safe_load_all((SCALE / "hpa.yaml").read_text()))[-1]
    metric = autoscaler["spec"]["metrics"][0]["external"]["metric"]
    assert metric["name"] == rule["name"]["as"]
    assert set(metric["selector"]["matchLabels"]) <= set(family.labels)
    assert "namespace" in rule["resources"]["overrides"]
