"""What the chart makes of rules and dashboards, and the example for Prometheus without its operator."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.telemetry import collectors
from controller.cluster.config.load import parse
from hack import prometheus
from hack.cluster.programs import binaries
from hack.pages.dashboards import FOLDER
from tests.support.charts.series import RULES
from tests.support.e2e.lab import EXAMPLES

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"
Objects = Mapping[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    binaries.build("helm")
    prometheus.ensure()


def helm(metrics: Mapping[str, Any], **values: Any) -> "subprocess.CompletedProcess[str]":
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", "tessera-system"]
    for name, value in {"metrics": metrics, **values}.items():
        command += ["--set-json", f"{name}={json.dumps(value)}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rendered(**metrics: Any) -> Objects:
    done = helm(metrics)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout) if one}


def test_without_asking_there_are_neither_rules_nor_dashboards() -> None:
    found = rendered()
    assert "PrometheusRule" not in {kind for kind, _ in found}
    maps = [name for kind, name in found if kind == "ConfigMap"]
    assert maps
    assert not [name for name in maps if "rules" in name or "dashboard" in name]


def test_the_operators_object_and_the_rules_file_are_the_same_rules() -> None:
    found = rendered(rules={"prometheusRule": True, "configMap": True, "labels": {"release": "prometheus"}})
    rule, config = found["PrometheusRule", "t-tessera"], found["ConfigMap", "t-tessera-rules"]
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert yaml.safe_load(config["data"]["tessera.rules.yaml"]) == rule["spec"]
    assert rule["metadata"]["labels"]["release"] == config["metadata"]["labels"]["release"] == "prometheus"
    settings = parse(found["ConfigMap", "t-tessera-controller"]["data"]["controller.yaml"])
    assert settings.metrics.cluster_queue_resources, "queues' GPU-hours are made of these series"


def test_a_site_leaves_alerts_out_and_adds_its_labels_and_runbooks(tmp_path: Path) -> None:
    site = {"alertLabels": {"team": "gpu"}, "runbooks": "https://wiki.example.com/", "without": ["TesseraGpuXid"]}
    text = rendered(rules={"configMap": True, **site})["ConfigMap", "t-tessera-rules"]["data"]["tessera.rules.yaml"]
    alerts = {
        rule["alert"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule
    }
    assert "TesseraGpuXid" not in alerts
    one = alerts["TesseraGpuUnhealthy"]
    assert one["labels"] == {"severity": "critical", "team": "gpu"}
    assert one["annotations"]["runbook_url"] == "https://wiki.example.com/TesseraGpuUnhealthy.md"
    (tmp_path / "rules.yaml").write_text(text)
    subprocess.run(["promtool", "check", "rules", "--lint-fatal", tmp_path / "rules.yaml"], check=True, timeout=60)


def test_an_alert_that_does_not_exist_cannot_be_left_out() -> None:
    done = helm({"rules": {"configMap": True, "without": ["TesseraGpuXids"]}})
    assert done.returncode != 0
    assert 'metrics.rules.without: found "TesseraGpuXids", expected some of TesseraGpuNeverUsed' in done.stderr


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds() -> None:
    found = rendered(dashboards={"enabled": True, "annotations": {"grafana_folder": "GPUs"}})
    for path in FOLDER.glob("*.json"):
        one = found["ConfigMap", f"t-tessera-dashboard-{path.stem}"]
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
        assert json.loads(one["data"][f"tessera-{path.name}"]) == json.loads(path.read_text())


def test_a_collectors_file_goes_along_with_the_config_files_as_the_page_says() -> None:
    page = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    values = yaml.safe_load(page.split("```\nconfig:")[1].split("```")[0])
    done = helm({}, config=values)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    (files,) = (one["data"] for one in objects if one["metadata"]["name"] == "t-tessera-agent-config")
    (agent,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet")
    (mounted,) = (one for one in agent["containers"][0]["volumeMounts"] if one["name"] == "config")
    wanted = Path(yaml.safe_load(files["default"])["metrics"]["collectors"])
    assert str(wanted.parent) == mounted["mountPath"]
    found = collectors.parse(files[wanted.name], wanted.name)
    assert [field.name for field in found.fields] == ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DRIVER_VERSION"]
    assert found.missing == ()


def test_the_agents_own_labels_are_kept_when_the_operator_scrapes_them() -> None:
    monitor = rendered(serviceMonitor={"enabled": True})["ServiceMonitor", "t-tessera-agent"]
    assert monitor["spec"]["endpoints"][0]["honorLabels"] is True


def test_prometheus_takes_the_example_with_the_rules(tmp_path: Path) -> None:
    config = yaml.safe_load((EXAMPLES / "metrics/prometheus-rules.yaml").read_text())
    (mounted,) = config["rule_files"]
    name = Path(mounted).name
    config["rule_files"] = [str(tmp_path / name)]
    text = rendered(rules={"configMap": True})["ConfigMap", "t-tessera-rules"]["data"][name]
    (tmp_path / name).write_text(text)
    for job in config["scrape_configs"]:
        (discovery,) = job.pop("kubernetes_sd_configs")  # Debian builds its Prometheus without
        assert discovery["role"] == "pod"
        assert job["honor_labels"]
    path = tmp_path / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    subprocess.run(["promtool", "check", "config", path], check=True, timeout=60)
