"""The chart without Helm: its values, their schema, and the names that it shares with the code."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from agent.config.table import OPTIONS
from agent.health.remediation import RebootMode, ResetMode
from controller.cluster.config.load import default, parse
from controller.cluster.config.pagekeys import ALGORITHMS, PAGE
from controller.cluster.process.foreignsystems import FREE_S
from controller.scheduler.mirror.specs import System
from hack.crds import rendered
from inventory.api.names import REPAIR_TAINT
from simulator.fleet.fleetfile import load_fleet

CHART = Path(__file__).parents[2] / "charts" / "tessera"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
SENTENCES = yaml.load((CHART / "files" / "sentences.yaml").read_text(), yaml.CSafeLoader)
TEMPLATES = "\n".join(path.read_text() for path in sorted((CHART / "templates").rglob("*.*")))


def test_the_crd_is_what_the_structs_say() -> None:
    for path, text in rendered().items():
        assert path.read_text() == text, f"{path.name} is stale: .venv/bin/python -m hack.crds"


@pytest.mark.parametrize("system", System)
def test_chart_and_controller_agree_when_others_decide(system: System) -> None:
    """The values go into the configuration as they are; without the chart its own defaults are the same."""
    given = VALUES["controller"][system.value]
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    switch = parse(json.dumps({**head, "tessera": {system.value: given}})).switch(system)
    assert switch == default().switch(system)
    assert (switch.enabled, list(switch.leases), list(switch.scheduler_names)) == (
        None,
        given["leases"],
        given["schedulerNames"],
    )


def test_chart_and_controller_agree_how_long_a_lease_keeps_them_off_and_where_they_decide() -> None:
    foreign, controller = ((CHART / "templates" / f"_{name}.tpl").read_text() for name in ("foreign", "controller"))
    assert f"max {FREE_S:.0f} (dig" in foreign
    assert 'include "tessera.foreignNamespaces"' in controller
    assert '"namespaceSelector" $selector' in controller
    assert not re.search(r"\.Values\.controller\.(?:volcano|kai)\b", controller)


def test_the_schema_is_one_and_the_defaults_fit_it() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def test_schema_and_values_name_the_same_keys() -> None:
    def compare(values: dict[str, Any], schema: dict[str, Any], where: str) -> None:
        known = set(schema["properties"]) - ({"global"} if not where else set())
        assert set(values) == known, where
        for key, value in values.items():
            inner = schema["properties"][key]
            if "properties" in inner:
                compare(value, inner, f"{where}.{key}")

    compare(VALUES, SCHEMA, "")


def test_without_a_fleet_file_every_node_has_the_simulated_gpus_of_the_example() -> None:
    ours, example = (CHART / "files" / "fleet.yaml", CHART.parents[1] / "examples" / "fleets" / "a100-8.yaml")
    assert yaml.load(ours.read_text(), yaml.CSafeLoader) == yaml.load(example.read_text(), yaml.CSafeLoader)
    assert load_fleet(ours).node("any-name").gpus


@pytest.mark.parametrize(
    "wrong",
    [
        {"migStrateg": "single"},
        {"migStrategy": "both"},
        {"deviceListStrategy": ["cdi"]},
        {"deviceListStrategy": []},
        {"image": {"repository": "x", "pullpolicy": "Always"}},
        {"metrics": {"port": 0}},
        {"simulate": "nodes: []"},
        {"networkPolicy": {"metricsFrom": [{"namespaceSelectr": {}}]}},
        {"config": {"map": {"a": 1}}},
        {"config": {"fallbackStrategies": ["first"]}},
        {"config": {"fallbackStrategies": []}},
        {"mps": {"enable": True}},
        {"remediation": {"reset": "always"}},
        {"remediation": {"reset": None}},
        {"remediation": {"reboot": True}},
        {"remediation": {"stewards": []}},
        {"remediation": {"stewards": "nv-hostengine"}},
        {"controller": {"kai": {"topology": []}}},
        {"controller": {"page": {"oidc": {"clientSecret": "s3cret"}}}},
        {"controller": {"page": {"oidc": {"clientSecretFile": "/etc/secret"}}}},
        {"controller": {"page": {"oidc": {"signingAlgs": ["none"]}}}},
    ],
    ids=str,
)
def test_a_slip_in_the_values_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


UNFIT = {
    "image.digest": "sha256:0123",
    "config.default": "a/b",
    "mps.root": "run",
    "mps.resources[]": "gpu",
    "nvidiaDriverRoot": "run/nvidia",
    "cdi.nvidiaHookPath": "nvidia-ctk",
    "kubeletDir": "kubelet",
    "stateDir": "",
    "cdiDir": "./cdi",
    "dra.driver": "GPU",
    "metrics.serviceMonitor.interval": "15",
    "metrics.rules.runbooks": "https://example.com/runbooks",
    "controller.page.oidc.issuerURL": "http://login.example.com",
    "controller.page.oidc.redirectURL": "https://tessera.example.com/",
    "controller.jobs.ownerGroups[]": "apps/v1",
    "controller.jobKinds[].group": "example",
    "controller.jobKinds[].version": "V1",
    "controller.jobKinds[].kind": "sweep",
    "controller.jobKinds[].plural": "Sweeps",
    "controller.jobKinds[].suspend": "spec.suspend",
    "controller.volcano.leases[]": "volcano",
    "controller.kai.leases[]": "a/b/c",
}


def test_what_a_text_must_look_like_is_told_in_words_and_never_by_the_schema() -> None:
    """A pattern in the schema is told as a pattern. ``tests/e2e/chart/test_values.py`` has what Helm says."""
    assert "pattern" not in (CHART / "values.schema.json").read_text()
    assert {rule["value"] for rule in SENTENCES} == set(UNFIT)
    for rule in SENTENCES:
        assert not re.search(rule["pattern"], UNFIT[rule["value"]]), rule
        assert all(re.search(rule["pattern"], text) for text in given(rule["value"])), rule


def given(path: str) -> list[str]:
    """The texts that the values have there by default."""
    found: list[Any] = [VALUES]
    for part in path.split("."):
        found = [one[part.removesuffix("[]")] for one in found if one is not None]
        found = [each for one in found for each in (one if part.endswith("[]") else [one])]
    return [one for one in found if one is not None]


def test_templates_use_values_that_exist_and_every_value_is_used() -> None:
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", TEMPLATES))
    for path in used:
        node: Any = VALUES
        for part in path.split("."):
            assert part in node, f".Values.{path} is in a template and not in values.yaml"
            node = node[part]
    assert set(VALUES) == {path.split(".")[0] for path in used}


def test_the_page_takes_every_key_of_its_provider_from_the_chart() -> None:
    """The two files are mounted, so the chart's values name the object and its key."""
    known = {key.path.split(".")[3].removesuffix("[]") for key in PAGE if key.path.startswith("tessera.page.oidc.")}
    mounted = {"clientSecretFile": "clientSecret", "caFile": "ca"}
    given = SCHEMA["properties"]["controller"]["properties"]["page"]["properties"]["oidc"]["properties"]
    assert {mounted.get(key, key) for key in known} == set(given)
    assert tuple(sorted(given["signingAlgs"]["items"]["enum"])) == tuple(sorted(ALGORITHMS))


def test_the_example_of_a_provider_fits_the_schema() -> None:
    path = CHART.parents[1] / "examples/page/oidc-values.yaml"
    jsonschema.validate(yaml.load(path.read_text(), yaml.CSafeLoader), SCHEMA)


def test_environment_variables_are_those_that_the_agent_reads() -> None:
    known = {name for option in OPTIONS for name in option.variables}
    # The nvidia container runtime reads these, not we.
    runtime = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    runtime |= {"NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES"}
    daemonset = (CHART / "templates" / "daemonset.yaml").read_text()
    named = set(re.findall(r'- name: ([A-Z_]+)|"name" "([A-Z_]+)"', daemonset))
    variables = {first or second for first, second in named}
    assert variables - runtime <= known
    assert len(variables) > 10


def test_nothing_is_reset_by_default_and_the_chart_knows_the_agents_modes() -> None:
    assert VALUES["remediation"] == {"reset": "never", "reboot": "never", "stewards": None}
    known = SCHEMA["properties"]["remediation"]["properties"]
    assert known["reset"]["enum"] == [mode.value for mode in ResetMode]
    assert known["reboot"]["enum"] == [mode.value for mode in RebootMode]


def test_the_agent_runs_where_a_repair_keeps_others_out() -> None:
    assert {"key": REPAIR_TAINT, "operator": "Exists", "effect": "NoSchedule"} in VALUES["tolerations"]


def test_the_memory_request_is_what_the_project_promises() -> None:
    assert VALUES["resources"]["requests"]["memory"] == "64Mi"
