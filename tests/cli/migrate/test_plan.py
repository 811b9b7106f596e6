"""A plan for any ClusterPolicy: its values fit the chart, its steps can be taken back, nothing is told twice."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.migrate.fates import PARTS, ROWS, Fate, row_of
from cli.migrate.inputs import Inputs
from cli.migrate.parts import TOLERATIONS, Step
from cli.migrate.plan import MigrationPlan, planned
from cli.migrate.shapes import SPEC, STATUS, Shape, Type, misfits
from controller.insight.simulation.documents import Document

CHART = Path(__file__).parents[3] / "charts" / "tessera"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
SENTENCES = yaml.safe_load((CHART / "files" / "sentences.yaml").read_text())
READ = (
    "DEVICE_ID_STRATEGY",
    "GFD_SLEEP_INTERVAL",
    "MIG_STRATEGY",
    "NODE_NAME",
    "DCGM_EXPORTER_COLLECTORS",
    "NVIDIA_VISIBLE_DEVICES",
    "DCGM_EXPORTER_LISTEN",
)
FOLLOWS_MIG = {"name": "TESSERA_MIG_MANAGER", "value": "agent"}
PLUGIN_PODS = "app in (nvidia-device-plugin-daemonset,nvidia-device-plugin-mps-control-daemon)"
"""The selector of the plugin's pods, as the operator's manifests label them."""
TEXTS = st.sampled_from(
    ["", "/", "/run/x", "run/x", "a'b $(reboot)", "a\nb", "1", "25%", "app", "x,y", "/" + "x" * 60, *READ]
)


def document(spec: Any, status: Any = None) -> Document:
    body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
    return Document("policy.yaml", 1, body | {"spec": spec} | ({"status": status} if status else {}))


def plan(spec: dict[str, Any], **more: Any) -> MigrationPlan:
    return planned(Inputs(policies=[document(spec)]), **more)


def lost(found: MigrationPlan) -> set[str]:
    return {each.what for each in found.lost}


def values_of(shape: Shape) -> st.SearchStrategy[Any]:
    """Values that the shape allows, and nothing (null)."""
    match shape.type:
        case Type.BOOLEAN:
            found: st.SearchStrategy[Any] = st.booleans()
        case Type.INTEGER:
            found = st.integers(shape.least or 0, 100)
        case Type.ARRAY:
            assert shape.each
            found = st.lists(values_of(shape.each), max_size=3)
        case Type.OBJECT if shape.each:
            found = st.dictionaries(st.sampled_from(["app", "team", "helm.sh/chart", "x'y"]), values_of(shape.each))
        case Type.OBJECT:
            found = st.fixed_dictionaries({}, optional={key: values_of(each) for key, each in shape.fields.items()})
        case _ if shape.words:
            found = st.sampled_from(shape.words)
        case _ if shape.pattern:
            found = st.sampled_from(["15s", "1m30s", "2h", "500m", "1"]).filter(
                lambda text: re.search(shape.pattern, text)
            )
        case _:
            found = TEXTS
    return st.none() | found


PARTLY = st.fixed_dictionaries(
    {},
    optional={
        key: values_of(SPEC.fields[key])
        for key in ("devicePlugin", "gfd", "migManager", "dcgmExporter", "daemonsets", "hostPaths", "mig", "cdi", "gds",
                    "gdrcopy", "toolkit", "operator", "driver")
    },
)  # fmt: skip


def fits_the_chart(values: dict[str, Any]) -> None:
    jsonschema.validate(values, SCHEMA)
    for rule in SENTENCES:
        found: list[Any] = [values]
        for part in rule["value"].split("."):
            found = [each[part] for each in found if isinstance(each, dict) and part in each]
        for each in found:
            assert re.search(rule["pattern"], each), (rule, each)


@given(PARTLY)
def test_values_fit_the_chart_whatever_the_policy_says(spec: dict[str, Any]) -> None:
    assert not list(misfits(spec, SPEC))
    found = plan(spec)
    found.validate()
    fits_the_chart(found.values)
    names = [each["name"] for each in found.values.get("env", [])]
    assert len(set(names)) == len(names)


@given(PARTLY, TEXTS.filter(bool))
def test_what_a_document_says_stays_one_word_of_a_shell(spec: dict[str, Any], namespace: str) -> None:
    found = planned(Inputs(policies=[document(spec, {"namespace": namespace})]))
    for step in found.steps:
        for line in (step.command, step.undo):
            words = shlex.split(line)
            assert "$(reboot)" not in words
            assert words[0] in ("kubectl", "helm", "printf")
            patches = [json.loads(words[i + 1]) for i, word in enumerate(words) if word == "-p"]
            assert all(isinstance(each, dict | list) for each in patches)


def test_every_field_has_a_row_that_says_what_becomes_of_it() -> None:
    def leaves(shape: Shape, path: str) -> list[str]:
        if not shape.fields:
            return [path]
        return [leaf for key, each in shape.fields.items() for leaf in leaves(each, f"{path}.{key}".lstrip("."))]

    assert [path for path in leaves(SPEC, "") if row_of(path) is None] == []
    assert all(row.why for row in ROWS.values() if row.fate in (Fate.KEPT, Fate.LOST))


def test_every_row_is_of_a_field() -> None:
    for path in ROWS:
        shape = SPEC
        for key in path.split("."):
            shape = shape.fields[key]


@pytest.mark.parametrize("part", PARTS)
def test_of_a_part_that_goes_no_field_is_taken_for_its_neighbours(part: str) -> None:
    """Each has its own row, so that a new one is not passed over."""
    for key in SPEC.fields[part].fields:
        assert row_of(f"{part}.{key}") or all(row_of(f"{part}.{key}.{each}") for each in SPEC.fields[part].fields[key].fields)  # noqa: E501  # fmt: skip
    assert part not in ROWS


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_the_mig_strategy_is_taken_over(strategy: str) -> None:
    assert plan({"mig": {"strategy": strategy}}).values["migStrategy"] == strategy


def test_an_empty_policy_means_what_the_operator_does_by_default() -> None:
    found = plan({})
    assert found.values.pop("affinity")
    assert found.values == {
        "deviceListStrategy": ["cdi-annotations", "cdi-cri"],
        "cdi": {"nvidiaHookPath": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"},
        "runtimeClassName": "nvidia",
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "env": [FOLLOWS_MIG],
        "controller": {"enabled": False},
    }
    assert (found.lost, found.kept) == ([], [])


def test_without_cdi_and_with_drivers_on_the_hosts_nothing_is_set_for_them() -> None:
    found = plan({"cdi": {"enabled": False}, "driver": {"enabled": False}, "migManager": {"enabled": False}})
    assert found.values.pop("affinity")
    assert found.values == {"runtimeClassName": "nvidia", "controller": {"enabled": False}}


def test_with_the_nri_plugin_the_agent_opens_the_device_files_itself() -> None:
    found = plan({"cdi": {"nriPluginEnabled": True}})
    assert found.values["compatWithCPUManager"] is True
    assert "runtimeClassName" not in found.values


def test_gds_and_gdrcopy_stay_the_operators_and_are_told_to_the_agent() -> None:
    found = plan({"gds": {"enabled": True, "image": "nvidia-fs"}, "gdrcopy": {"enabled": True, "image": "gdrdrv"}})
    assert [found.values[key] for key in ("gdsEnabled", "mofedEnabled", "gdrcopyEnabled")] == [True] * 3
    assert {each.what for each in found.kept} == {"spec.gds", "spec.gdrcopy"}


def test_tolerations_are_the_charts_and_theirs() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["tolerations"] == TOLERATIONS
    theirs = {"key": "team", "operator": "Exists"}
    found = plan({"daemonsets": {"tolerations": [TOLERATIONS[1], theirs]}})
    assert found.values["tolerations"] == [*TOLERATIONS, theirs]


def test_labels_that_the_chart_sets_are_lost_and_others_taken_over() -> None:
    labels = {"team": "x", "app": "y", "app.kubernetes.io/name": "z"}
    found = plan({"daemonsets": {"labels": labels, "annotations": {"checksum/config": "1", "note": "2"}}})
    assert (found.values["podLabels"], found.values["podAnnotations"]) == ({"team": "x"}, {"note": "2"})
    assert lost(found) == {"spec.daemonsets.labels[app.kubernetes.io/name]", "spec.daemonsets.annotations[checksum/config]"}  # noqa: E501  # fmt: skip


def test_a_number_of_pods_is_a_number_and_a_part_of_them_a_text() -> None:
    for said, meant in (("1", 1), ("25%", "25%")):
        values = plan({"daemonsets": {"rollingUpdate": {"maxUnavailable": said}}}).values
        assert values["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": meant}}


def test_variables_that_the_agent_reads_are_taken_over_and_others_named() -> None:
    env = [{"name": name, "value": {"DEVICE_ID_STRATEGY": "uuid"}.get(name, "60s")} for name in READ]
    found = plan({"mig": {"strategy": "single"}, "devicePlugin": {"env": env}, "gfd": {"env": env[:1]}})
    names = [each["name"] for each in found.values["env"]]
    assert names == ["GFD_SLEEP_INTERVAL", FOLLOWS_MIG["name"]]
    assert found.values["deviceIDStrategy"] == "uuid"
    assert lost(found) == {
        f"spec.devicePlugin.env[{name}]" for name in ("NODE_NAME", "DCGM_EXPORTER_COLLECTORS", "DCGM_EXPORTER_LISTEN")
    }


def test_the_exporters_switches_are_the_agents_variables_and_its_monitor_the_charts() -> None:
    monitor = {"enabled": True, "interval": "30s", "additionalLabels": {"release": "p"}, "scrapeTimeout": "10s"}
    more = {"enablePodLabels": True, "enablePodUID": True, "podLabelAllowlistRegex": ["^team$", "^app$"]}
    found = plan({"dcgmExporter": {"serviceMonitor": monitor, "hostPID": False} | more})
    *switches, last = found.values["env"]
    assert last == FOLLOWS_MIG
    assert [(each["name"].removeprefix("DCGM_EXPORTER_KUBERNETES_"), each["value"]) for each in switches] == [
        ("ENABLE_POD_LABELS", "true"),
        ("ENABLE_POD_UID", "true"),
        ("POD_LABEL_ALLOWLIST_REGEX", "^team$,^app$"),
    ]
    assert found.values["metrics"] == {
        "hostPID": False,
        "serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "p"}},
    }
    assert lost(found) == {"spec.dcgmExporter.serviceMonitor.scrapeTimeout"}


def test_what_the_chart_cannot_say_is_lost_with_the_reason() -> None:
    found = plan(
        {
            "hostPaths": {"driverInstallDir": "run", "kubeletRootDir": "kubelet"},
            "toolkit": {"installDir": "nvidia"},
            "devicePlugin": {"mps": {"root": "mps"}, "config": {"name": "c", "default": "a/b"}, "args": ["-x"]},
            "dcgmExporter": {
                "serviceMonitor": {"enabled": True, "interval": "1m30s"},
                "podLabelAllowlistRegex": ["a,b"],
            },
        }
    )
    assert lost(found) == {
        "spec.hostPaths.driverInstallDir",
        "spec.hostPaths.kubeletRootDir",
        "spec.toolkit.installDir",
        "spec.devicePlugin.mps.root",
        "spec.devicePlugin.config",
        "spec.devicePlugin.config.default",
        "spec.devicePlugin.args",
        "spec.dcgmExporter.serviceMonitor.interval",
        "spec.dcgmExporter.podLabelAllowlistRegex",
    }


def test_usual_values_lose_nothing() -> None:
    exporter = {
        "service": {"type": "ClusterIP", "internalTrafficPolicy": "Cluster"},
        "hpcJobMapping": {"enabled": False},
    }
    found = plan({"dcgmExporter": exporter, "migManager": {"config": {"name": "default-mig-parted-config"}}})
    assert lost(found) == set()


def test_a_part_that_is_off_loses_nothing_and_needs_no_step() -> None:
    off = {"enabled": False, "env": [{"name": "X", "value": "y"}], "args": ["-x"]}
    found = plan(dict.fromkeys(PARTS, off))
    assert lost(found) == set()
    assert not [each for each in found.steps if "clusterpolicies" in each.command]


def places(steps: list[Step], *words: str) -> list[int]:
    return [next(i for i, each in enumerate(steps) if word in each.command) for word in words]


def test_who_cuts_and_who_serves_gpus_goes_before_the_agent_comes_and_the_others_after() -> None:
    found = places(plan({}).steps, '"migManager"', '"devicePlugin"', "helm install", '"gfd"', '"dcgmExporter"')
    assert found == sorted(found)
    ends = ("mig-manager=", "device-plugin=", "gpu-feature-discovery=", "dcgm-exporter=")
    found = places(plan({}, nodes=("gpu-1",)).steps, "helm install", *ends)
    assert found == sorted(found)


def test_the_agent_comes_when_the_plugins_pods_have_ended_and_the_plugin_when_the_agents_have() -> None:
    """The kubelet drops a resource with the plugin that ends, also where the other has registered by then."""
    steps = planned(Inputs(policies=[document({}, {"namespace": "nvidia"})])).steps
    (off,) = (each for each in steps if '"devicePlugin"' in each.command)
    patch, _, wait = off.command.partition(" && ")
    assert patch.startswith("kubectl patch clusterpolicies.nvidia.com/")
    gone = shlex.split(wait)
    assert gone[:4] == ["kubectl", "wait", "pod", "--for=delete"]
    assert {"--namespace=nvidia", f"--selector={PLUGIN_PODS}"} <= set(gone)
    (agent,) = (each for each in plan({}).steps if "helm install" in each.command)
    assert [each.split()[:3] for each in agent.undo.split(" && ")] == [
        ["helm", "uninstall", "tessera"],
        ["kubectl", "wait", "pod"],
    ]


def test_on_a_single_node_neither_serves_between_the_two() -> None:
    label = "nvidia.com/gpu.deploy.device-plugin"
    (step,) = (each for each in plan({}, nodes=("gpu-1",)).steps if f"{label}=" in each.command)
    for line, space, last in ((step.command, "gpu-operator", "false"), (step.undo, "tessera-system", "true")):
        first, wait, then = (shlex.split(each) for each in line.split(" && "))
        assert (first[-1], then[-1]) == (f"{label}=moving", f"{label}={last}")
        assert wait[:4] == ["kubectl", "wait", "pod", "--for=delete"]
        assert {"--field-selector=spec.nodeName=gpu-1", f"--namespace={space}"} <= set(wait)


@pytest.mark.parametrize(
    ("spec", "nodes", "followed"),
    [
        ({}, (), True),
        ({}, ("gpu-1",), False),
        ({"migManager": {"enabled": False}}, (), False),
        ({"migManager": {"config": {"name": "own"}}}, (), False),
    ],
    ids=["off for all", "a node's label says it", "none was there", "a file of its own"],
)
def test_the_agent_is_told_to_follow_the_label_of_mig_where_the_operators_mark_stays(
    spec: dict[str, Any], nodes: tuple[str, ...], followed: bool
) -> None:
    """The operator marks every node that can do MIG for its MIG manager, also where that is off."""
    assert (FOLLOWS_MIG in plan(spec, nodes=nodes).values.get("env", [])) is followed


@pytest.mark.parametrize(("before", "after"), [({}, "null"), ({"enabled": True}, "true")])
def test_the_way_back_of_a_switch_is_what_was_there(before: dict[str, Any], after: str) -> None:
    (step,) = (each for each in plan({"gfd": before}).steps if '"gfd"' in each.command)
    assert '{"spec": {"gfd": {"enabled": false}}}' in step.command
    assert f'{{"spec": {{"gfd": {{"enabled": {after}}}}}}}' in step.undo


@pytest.mark.parametrize(
    ("data", "namespace"),
    [
        ({"status": {"namespace": "nvidia"}}, "nvidia"),
        ({"metadata": {"name": "p", "annotations": {"meta.helm.sh/release-namespace": "gpus"}}}, "gpus"),
        ({}, "gpu-operator"),
    ],
)
def test_the_operators_namespace_is_the_one_that_the_document_tells(data: dict[str, Any], namespace: str) -> None:
    body = document({"devicePlugin": {"config": {"name": "c"}}}).data | data
    commands = [each.command for each in planned(Inputs(policies=[Document("p.yaml", 1, body)])).steps]
    assert [each for each in commands if f"kubectl get configmap/c --namespace={namespace} " in each]


def test_a_status_is_judged_too() -> None:
    (one,) = misfits({"state": "happy"}, STATUS)
    assert (one.path, one.expected) == (("state",), "ignored, ready or notReady")


def test_a_variable_that_the_agent_would_refuse_is_lost() -> None:
    found = plan({"devicePlugin": {"env": [{"name": "DEVICE_ID_STRATEGY", "value": "serial"}]}})
    assert found.values["env"] == [FOLLOWS_MIG]
    assert lost(found) == {"spec.devicePlugin.env[DEVICE_ID_STRATEGY]"}


def machine(name: str, **labels: str) -> Document:
    found = {f"nvidia.com/gpu.deploy.{key.replace('_', '-')}": value for key, value in labels.items()}
    metadata = {"name": name, "labels": found}
    return Document("n.yaml", 1, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


@pytest.mark.parametrize(
    ("there", "ends"),
    [
        ([machine("gpu-1", device_plugin="paused")], ("device-plugin=paused", "gpu-feature-discovery-")),
        ([machine("gpu-2")], ("device-plugin=true", "gpu-feature-discovery=true")),
    ],
    ids=["the node was read", "another node was read"],
)
def test_the_way_back_of_a_nodes_label_is_what_the_node_had(there: list[Document], ends: tuple[str, str]) -> None:
    found = planned(Inputs(policies=[document({})], nodes=there), nodes=("gpu-1",))
    undone = [each.undo for each in found.steps if each.command.startswith("kubectl label node/gpu-1")]
    for end in ends:
        assert [each for each in undone if each.endswith(f"nvidia.com/gpu.deploy.{end}")]


@pytest.mark.parametrize(
    ("sandbox", "refused"),
    [
        ({}, {"operands": "false", "device-plugin": "false"}),
        ({"enabled": True}, {"operands": "false", "workload": "vm-vgpu"}),
        ({"enabled": True, "defaultWorkload": "vm-passthrough"}, {"workload": ""}),
    ],
)
def test_agents_keep_away_from_nodes_that_the_operator_does_not_serve(
    sandbox: dict[str, Any], refused: dict[str, str]
) -> None:
    affinity = plan({"sandboxWorkloads": sandbox}).values["affinity"]["nodeAffinity"]
    (terms,) = (each["nodeSelectorTerms"] for each in affinity.values())
    keys = {"workload": "nvidia.com/gpu.workload.config"}

    def fits(labels: dict[str, str]) -> bool:
        def holds(one: dict[str, Any]) -> bool:
            return (labels.get(one["key"]) in one["values"]) is (one["operator"] == "In")

        return any(all(map(holds, term["matchExpressions"])) for term in terms)

    served = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.workload.config": "container"}
    assert fits(served)
    assert not fits({})
    for key, value in refused.items():
        assert not fits(served | {keys.get(key, f"nvidia.com/gpu.deploy.{key}"): value})


def test_single_nodes_are_chosen_by_their_label_alone() -> None:
    assert "affinity" not in plan({}, nodes=("gpu-1",)).values


def test_the_way_back_deletes_the_namespace_that_the_step_made_alone() -> None:
    (step,) = (each for each in plan({}).steps if "kubectl get namespace/" in each.command)
    (made,) = (json.loads(word) for word in shlex.split(step.command) if word.startswith("{"))
    (selector,) = (word for word in step.undo.split() if word.startswith("--selector="))
    key, _, value = selector.removeprefix("--selector=").partition("=")
    assert made["metadata"]["labels"][key] == value
    for there, created in (("", True), ("namespace/tessera-system\n", False)):
        kubectl = f"kubectl() {{ if [ $1 = get ]; then printf '{there}'; else echo created; fi; }}"
        done = subprocess.run(["sh", "-c", f"{kubectl}; {step.command}"], capture_output=True, text=True, check=True)
        assert ("created" in done.stdout) is created
