"""Whatever stands in a file: ``tessera migrate`` answers with a plan or with lines, in a moment."""

from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cli.main import tessera

ROOT = Path(__file__).parents[3]
FILES = [
    *sorted((ROOT / "examples" / "migrate").glob("*.yaml")),
    ROOT / "examples" / "kai" / "podgroup-subgroups.yaml",
    ROOT / "examples" / "volcano" / "job.yaml",
    ROOT / "examples" / "claims" / "gpu-mps.yaml",
]
_KUEUE = {"controllerManagerConfigYaml": "kind: Configuration"}
VALUES: list[dict[str, Any]] = [
    {"driver": {}, "devicePlugin": {"config": {"name": "c", "data": {"a": "version: v1"}}}, "operator": {}},
    {"migStrategy": "single", "config": {"map": {"a": "version: v1"}}, "gfd": {"sleepInterval": "60s"}, "mps": {}},
    {"extraEnv": [{"name": "A", "value": "b"}], "arguments": ["-f"], "customMetrics": "DCGM_FI_DEV_GPU_UTIL, gauge, x"},
    {"kubeletPlugin": {"tolerations": [{}]}, "resources": {"gpus": {"enabled": True}}, "featureGates": {"A": True}},
    {"managerConfig": _KUEUE, "controllerManager": {"featureGates": [{}]}},
    {"basic": {}, "custom": {"scheduler_config_override": "actions: allocate", "scheduler_name": "x"}},
    {"scheduler": {"actions": ["allocate"]}, "global": {}},
    {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}]}]},
]  # fmt: skip
DOCUMENTS: list[Any] = [*(each for file in FILES for each in yaml.safe_load_all(file.read_text()) if each), *VALUES]
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2.5, "", "x", "a\n- b: {", "$(reboot)", [], [None], [[]], {}, {"x": None}, {"": [1]}]
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, below in inner for each in paths(below, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    if isinstance(value, dict):
        return {key: replaced(each, path[1:], junk) if key == path[0] else each for key, each in value.items()}
    return [replaced(each, path[1:], junk) if index == path[0] else each for index, each in enumerate(value)]


PLACES = [(number, path) for number, each in enumerate(DOCUMENTS) for path in paths(each) if path]


def answered(text: str, *words: str) -> int:
    done = click.testing.CliRunner().invoke(tessera, ["migrate", "-", "-o", "json", *words], input=text)
    assert done.exit_code in (0, 2), done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert (done.exit_code == 2) is done.stderr.startswith("Error") or "\nError" in done.stderr or done.exit_code == 0
    return done.exit_code


@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3))
def test_a_document_with_anything_in_any_place_is_answered(changes: list[tuple[tuple[int, Any], Any]]) -> None:
    number = changes[0][0][0]
    document = DOCUMENTS[number]
    for (other, path), junk in changes:
        if other == number:
            document = replaced(document, path, junk) if path in paths(document) else document
    answered(yaml.safe_dump(document))


@given(st.text(st.characters(codec="utf-8"), max_size=200))
@example('DCGM_FI_DEV_GPU_UTIL, gauge, "')
@example("version: v1\nmig-configs: &a [*a]")
@example("actions: &a {b: *a}\ntiers: []")
def test_any_text_is_answered(text: str) -> None:
    answered(text)


BOMB = "\n".join(
    ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}" for n in range(1, 10)]
)


@pytest.mark.parametrize(
    "head",
    [
        "driver: {}\nmig: *a9\n",
        "migStrategy: *a9\nnodeSelector: *a9\n",
        "basic: *a9\ncustom: *a9\n",
        "actions: allocate\ntiers: [*a9]\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec: *a9\n",
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: j}\nspec: {config: [{opaque: {driver: gpu.nvidia.com, parameters: *a9}}]}\n",  # noqa: E501
        "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: j}\nspec: *a9\n",
        "apiVersion: v1\nkind: Node\nmetadata: {name: j, labels: *a9}\n",
        "version: v1\nflags: *a9\n",
        "mig-configs: *a9\n",
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: *a9\n",
    ],
)
def test_aliases_of_aliases_are_answered_in_a_moment(head: str) -> None:
    answered(f"{BOMB}\n{head}")
