"""``tessera migrate``: a plan from files, what is lost first; and lines for input that is wrong."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.conftest import Run

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "migrate" / "clusterpolicy.yaml"
SCHEMA = json.loads((ROOT / "charts" / "tessera" / "values.schema.json").read_text())


def policy(folder: Path, spec: str, *more: str) -> str:
    file = folder / "policy.yaml"
    head = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\n"
    file.write_text(f"{head}spec:\n{spec}" + "".join(f"---\n{each}" for each in more))
    return str(file)


def answer(run: Run, *words: str) -> dict[str, Any]:
    done = run("migrate", *words, "-o", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_example_is_a_plan_with_values_for_the_chart(run: Run) -> None:
    found = answer(run, str(EXAMPLE))
    assert set(found) == {"values", "steps", "lost", "kept"}
    assert found["values"]["migStrategy"] == "mixed"
    assert found["values"]["config"] == {"name": "plugin-config", "default": "whole"}
    jsonschema.validate(found["values"], SCHEMA)
    assert all(set(each) == {"do", "command", "undo"} for each in found["steps"])
    assert {each["what"] for each in found["kept"]} == {
        "spec.driver",
        "spec.operator",
        "spec.toolkit",
        "spec.validator",
    }
    assert found["values"]["mig"]["config"] == {"name": "team-mig-config", "key": "config.yaml"}
    assert found["values"]["metrics"]["collectors"] == {"name": "team-metrics", "key": "dcgm-metrics.csv"}
    assert "spec.migManager.env" in {each["what"] for each in found["lost"]}


def test_what_is_lost_is_said_first_and_is_no_failure(run: Run) -> None:
    done = run("migrate", str(EXAMPLE))
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[0]) == (0, "Lost:")
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert [each.partition(" ")[0] for each in headings] == ["Lost:", "Stays", "Values", "Steps,"]


def test_where_nothing_is_lost_that_is_said(run: Run, tmp_path: Path) -> None:
    assert run("migrate", policy(tmp_path, "  mig: {strategy: single}\n")).stdout.startswith("Lost: nothing\n")


def test_each_command_of_the_text_is_that_of_the_json(run: Run) -> None:
    shown = run("migrate", str(EXAMPLE)).stdout
    for step in answer(run, str(EXAMPLE))["steps"]:
        assert f"     {step['command']}\n     back: {step['undo']}\n" in shown


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("  mig:\n    strategy: both\n", '6: spec.mig.strategy: found "both", expected none, single or mixed'),
        ("  gfd: {enabled: 'yes'}\n", '5: spec.gfd.enabled: found "yes", expected true or false'),
        ("  devicePlugin:\n    env:\n    - {name: A, value: 1}\n", "7: spec.devicePlugin.env[0].value: found 1,"),
        ("  driver: {upgradePolicy: {maxParallelUpgrades: -1}}\n", "found -1, expected a whole number of at least 0"),
        ("  dcgm: {resources: {limits: {cpu: many}}}\n", 'found "many", expected an amount such as 500m or 64Mi'),
        ("  toolkit: []\n", "5: spec.toolkit: found a list, expected an object"),
        ("  [1]\n", "spec: found a list, expected an object"),
    ],
)
def test_a_value_that_its_kind_does_not_allow_is_a_line_and_exit_2(
    run: Run, tmp_path: Path, spec: str, line: str
) -> None:
    file = policy(tmp_path, spec)
    done = run("migrate", file)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {file}:")
    assert line in done.stderr


def test_all_wrong_values_are_told_at_once(run: Run, tmp_path: Path) -> None:
    done = run("migrate", policy(tmp_path, "  mig: {strategy: 1}\n  gfd: {enabled: 1}\n"))
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("content", [None, b"a: [", b"\xff\xfe", b""])
def test_a_file_that_cannot_be_read_is_a_line_and_exit_2(run: Run, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_bytes(content)
    done = run("migrate", str(file))
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert str(file) in done.stderr


def test_other_kinds_and_unknown_fields_are_named_and_passed_over(run: Run, tmp_path: Path) -> None:
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin-config}\n"
    file = policy(tmp_path, "  mig: {strategy: mixed}\n  gdf: {enabled: true}\n", other)
    done = run("migrate", file)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"{file}:8: note: ConfigMap (v1) is not read by this command; passed over",
        f"{file}:6: note: spec.gdf: found a field that ClusterPolicy does not have; passed over",
    ]


def test_a_program_of_an_unknown_image_is_named_with_it(run: Run, tmp_path: Path) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "cloud/plugin:v1"}]}}
    head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "gpus"}}
    file = tmp_path / "set.yaml"
    file.write_text(yaml.safe_dump({**head, "spec": {"template": pod}}))
    said = "DaemonSet gpus: image cloud/plugin:v1 is not one of the programs that this command knows; passed over"
    assert run("migrate", str(file)).stderr.splitlines() == [f"{file}:1: note: {said}"]


def test_an_object_without_keys_is_said_to_have_none(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text("{}")
    done = run("migrate", str(file))
    assert done.exit_code == 2
    assert f"{file}:1: found no keys, expected an object with apiVersion" in done.stderr


def test_files_without_a_policy_are_an_empty_plan(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    assert answer(run, str(file)) == {"values": {}, "steps": [], "lost": [], "kept": []}
    assert run("migrate", str(file)).stdout == "Nothing to migrate: nothing was read that Tessera stands in for.\n"


def test_of_two_policies_the_one_that_the_operator_obeys_is_migrated(run: Run, tmp_path: Path) -> None:
    first, second = (yaml.safe_load(EXAMPLE.read_text()) for _ in range(2))
    first["status"]["state"] = "ignored"
    second["metadata"]["name"], second["spec"]["mig"]["strategy"] = "other", "single"
    file = tmp_path / "policies.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [first, second]}))
    assert answer(run, str(file))["values"]["migStrategy"] == "single"
    assert "ClusterPolicy cluster-policy: the operator obeys one ClusterPolicy" in run("migrate", str(file)).stderr


def test_on_chosen_nodes_alone_the_agents_follow_the_label_by_which_the_plugin_leaves(run: Run) -> None:
    found = answer(run, str(EXAMPLE), "--node", "gpu-1", "--node", "gpu-2")
    assert found["values"]["nodeSelector"] == {"nvidia.com/gpu.deploy.device-plugin": "false"}
    commands = [each["command"] for each in found["steps"]]
    assert not [each for each in commands if "clusterpolicies" in each]
    assert len([each for each in commands if each.startswith("kubectl label node/gpu-")]) == 8
    assert next(i for i, each in enumerate(commands) if "helm install" in each) == 5


def test_the_images_repository_is_a_value(run: Run) -> None:
    found = answer(run, str(EXAMPLE), "--image", "registry.example.com/tessera-agent")
    assert found["values"]["image"] == {"repository": "registry.example.com/tessera-agent"}


@pytest.mark.parametrize("name", ["a b", "$(reboot)", "-l"])
def test_a_name_that_no_node_has_is_refused(run: Run, name: str) -> None:
    done = run("migrate", str(EXAMPLE), f"--node={name}")
    assert done.exit_code == 2
    assert "expected the name of a node" in done.stderr


def test_a_policy_with_a_name_that_no_object_has_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "a;reboot"}}')
    done = run("migrate", str(file))
    assert done.exit_code == 2
    assert ":1: metadata.name: found" in done.stderr


DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("reg:5000/x", {"repository": "reg:5000/x"}),
        ("reg:5000/x:1.2", {"repository": "reg:5000/x", "tag": "1.2"}),
        (f"reg/x@{DIGEST}", {"repository": "reg/x", "digest": DIGEST}),
    ],
)
def test_tag_and_digest_of_an_image_are_values_of_their_own(run: Run, reference: str, image: dict[str, str]) -> None:
    found = answer(run, str(EXAMPLE), "--image", reference)["values"]
    assert found["image"] == image
    jsonschema.validate(found, SCHEMA)
