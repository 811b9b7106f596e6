"""DaemonSets as charts render them become the values that the charts' own values would, and nothing is told as lost
that only concerns their own containers.
"""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.migrate.inputs import Inputs
from cli.migrate.plan import planned
from controller.insight.simulation.documents import Document
from tests.cli.migrate.conftest import CHART, Answer
from tests.cli.migrate.manifests import (
    Json,
    cluster_policy,
    device_plugin_chart,
    dumped,
    env,
    exporter_chart,
    plugin_configs,
    workload,
)

TEMPLATE = (CHART / "templates" / "daemonset.yaml").read_text()
SET_BY_CHART = sorted(set(re.findall(r'- name: ([A-Z][A-Z0-9_]+)$|"name" "([A-Z][A-Z0-9_]+)"', TEMPLATE, re.MULTILINE)))
NAMES = sorted({first or second for first, second in SET_BY_CHART})
"""Variables that the chart sets on the agent by itself."""
SHARED = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"


def names_of(values: Json) -> list[str]:
    return [each["name"] for each in values.get("env", [])]


def lost(found: Json) -> set[str]:
    return {each["what"] for each in found["lost"]}


def test_the_template_of_the_chart_is_read() -> None:
    assert {"MPS_ROOT", "MIG_STRATEGY", "NODE_NAME", "TESSERA_METRICS_ADDRESS"} <= set(NAMES)


def test_the_plugins_chart_with_named_configurations_loses_nothing(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(*device_plugin_chart(), plugin_configs()))
    assert found["lost"] == []
    values = found["values"]
    strategies = ["named", "single", "empty"]
    assert values["config"] == {"name": "plugin-configs", "default": "a100", "fallbackStrategies": strategies}
    assert (values["migStrategy"], names_of(values)) == ("mixed", ["GFD_SLEEP_INTERVAL"])
    assert "nodeSelector" not in values


def test_of_the_plugins_chart_feature_discovery_goes_after_the_agent_and_mps_before(migrated: Answer) -> None:
    lines = [each["command"] for each in migrated(all__yaml=dumped(*device_plugin_chart(), plugin_configs()))["steps"]]
    ends = (
        "nvdp-nvidia-device-plugin ",
        "nvdp-nvidia-device-plugin-mps-control-daemon ",
        "helm install",
        "nvdp-nvidia-device-plugin-gpu-feature-discovery ",
    )
    found = [next(i for i, line in enumerate(lines) if end in line) for end in ends]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("default", "objects", "expected"),
    [
        ("gone", [plugin_configs()], "DEFAULT_CONFIG=gone"),
        ("a100", [], "DEFAULT_CONFIG=a100"),
    ],
    ids=["no such file", "no file was read"],
)
def test_a_default_of_a_config_manager_that_nothing_has_is_lost(
    migrated: Answer, default: str, objects: list[Json], expected: str
) -> None:
    found = migrated(all__yaml=dumped(*device_plugin_chart(default=default), *objects))
    assert f"DaemonSet nvdp-nvidia-device-plugin: {expected}" in lost(found)
    assert "default" not in found["values"].get("config", {})


def test_of_two_configurations_the_one_that_the_daemon_set_mounts_is_taken(migrated: Answer) -> None:
    found = migrated(all__yaml=dumped(plugin_configs("another"), plugin_configs(), *device_plugin_chart()))
    assert found["values"]["config"]["name"] == "plugin-configs"
    assert "ConfigMap another" in lost(found)


@pytest.mark.parametrize("root", ["/run/nvidia/mps", "/srv/mps"])
def test_the_folder_of_mps_is_a_value_of_the_chart_and_no_second_variable(migrated: Answer, root: str) -> None:
    shared = {**plugin_configs(), "data": {"a100": SHARED}}
    values = migrated(all__yaml=dumped(*device_plugin_chart(mps_root=root), shared))["values"]
    assert values["mps"] == {"enabled": True, "root": root}
    assert "MPS_ROOT" not in names_of(values)


TEXTS = st.sampled_from(["", "/srv/mps", "mps", "single", "mixed", "true", "uuid", ":9500", "none", "x" * 50])
VARIABLES = st.lists(st.tuples(st.sampled_from([*NAMES, "DCGM_EXPORTER_LISTEN", "GFD_SLEEP_INTERVAL"]), TEXTS))


def documents(variables: list[tuple[str, str]]) -> tuple[Document, Document, Document]:
    """A ClusterPolicy and DaemonSets of its plugin and its exporter without it, with these variables."""
    said = [{"name": name, "value": value} for name, value in variables]
    own = workload("DaemonSet", "p", "n", {"name": "c", "image": "k8s-device-plugin", "env": said})
    exporter = workload("DaemonSet", "e", "n", {"name": "c", "image": "dcgm-exporter", "env": said})
    policy = cluster_policy(devicePlugin={"env": said}, dcgmExporter={"env": said}, gfd={"env": said})
    return tuple(Document("f", 1, each) for each in (policy, own, exporter))  # type: ignore[return-value]


@given(VARIABLES)
def test_no_variable_of_the_values_is_one_that_the_chart_sets(variables: list[tuple[str, str]]) -> None:
    policy, own, exporter = documents(variables)
    for inputs in (Inputs(policies=[policy]), Inputs(workloads=[own, exporter])):
        assert not set(names_of(planned(inputs).values)) & set(NAMES)


@pytest.mark.parametrize(
    ("said", "port", "is_lost"),
    [(":9500", 9500, False), ("0.0.0.0:9500", 9500, False), (":9400", None, False), ("", None, False),
     ("host", None, True), (":99999", None, True)],
)  # fmt: skip
def test_the_exporters_port_is_the_agents_by_its_variable_too(
    migrated: Answer, said: str, port: int | None, is_lost: bool
) -> None:
    found = migrated(d__yaml=dumped(exporter_chart(DCGM_EXPORTER_LISTEN=said)))
    assert found["values"].get("metrics", {}).get("port") == port
    assert bool(lost(found)) is is_lost
    policy = cluster_policy(dcgmExporter={"env": env(DCGM_EXPORTER_LISTEN=said)})
    found = migrated(p__yaml=dumped(policy))
    assert found["values"].get("metrics", {}).get("port") == port
    assert bool(lost(found)) is is_lost


@pytest.mark.parametrize("said", [5, "DEFAULT_CONFIG", [None, 1, {"name": 2}], {"name": "DEFAULT_CONFIG"}])
def test_variables_of_an_init_container_that_are_none_are_passed_over(migrated: Answer, said: Any) -> None:
    plugin, *_ = device_plugin_chart(default="")
    plugin["spec"]["template"]["spec"]["initContainers"][0]["env"] = said
    assert "default" not in migrated(all__yaml=dumped(plugin, plugin_configs()))["values"]["config"]


def test_what_a_container_is_told_of_its_own_pod_is_not_lost_and_a_secret_is(migrated: Answer) -> None:
    plugin, *_ = device_plugin_chart()
    own: dict[str, Any] = plugin["spec"]["template"]["spec"]["containers"][1]
    own["env"].append({"name": "MIG_STRATEGY_OF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})
    found = migrated(all__yaml=dumped(plugin, plugin_configs()))
    assert lost(found) == {"DaemonSet nvdp-nvidia-device-plugin: nvidia-device-plugin-ctr: env[MIG_STRATEGY_OF]"}
