"""Every field of the GPU Operator's ClusterPolicy and GPUCluster, as their CRDs have it, is known to
``tessera migrate`` with its values, and something becomes of it.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.migrate.fates import CLUSTER_ROWS, ROWS, row_of
from cli.migrate.shapes import CLUSTER_SPEC, CLUSTER_STATUS, SPEC, STATUS, Shape

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).resolve().parents[3]


KINDS = {
    "ClusterPolicy": ("clusterpolicies.yaml", "v1", {"spec": SPEC, "status": STATUS}, ROWS, 300),
    "GPUCluster": ("gpuclusters.yaml", "v1alpha1", {"spec": CLUSTER_SPEC, "status": CLUSTER_STATUS}, CLUSTER_ROWS, 80),
}


def schema(kind: str) -> dict[str, Any]:
    """The schema in ``crds/nvidia`` under ``$TESSERA_SHARED``, by default ``../shared``. It must be there."""
    folder = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "nvidia"
    assert folder.is_dir(), f"NVIDIA's CRDs not found: {folder} is no folder; set TESSERA_SHARED"
    crd = yaml.load((folder / KINDS[kind][0]).read_text(), yaml.CSafeLoader)
    (version,) = crd["spec"]["versions"]
    assert (crd["spec"]["names"]["kind"], version["name"]) == (kind, KINDS[kind][1])
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def theirs(node: dict[str, Any], path: str) -> dict[str, tuple[Any, ...]]:
    """Type, words, pattern and least value by path."""
    kind = "int-or-string" if node.get("x-kubernetes-int-or-string") else node["type"]
    found = {path: (kind, tuple(node.get("enum", ())), node.get("pattern", ""), node.get("minimum"))}
    for key, each in node.get("properties", {}).items():
        found |= theirs(each, f"{path}.{key}")
    inner = node.get("items") or node.get("additionalProperties")
    return found | (theirs(inner, f"{path}[]") if isinstance(inner, dict) else {})


def ours(shape: Shape, path: str) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {path: (shape.type.value, shape.words, shape.pattern, shape.least)}
    for key, each in shape.fields.items():
        found |= ours(each, f"{path}.{key}")
    return found | (ours(shape.each, f"{path}[]") if shape.each else {})


@pytest.mark.parametrize("key", ["spec", "status"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_known_with_the_values_that_it_allows(kind: str, key: str) -> None:
    found = theirs(schema(kind)[key], key)
    assert len(found) > 5
    assert ours(KINDS[kind][2][key], key) == found


@pytest.mark.parametrize("kind", KINDS)
def test_something_becomes_of_every_field(kind: str) -> None:
    paths = {path.partition("[")[0].removeprefix("spec.") for path in theirs(schema(kind)["spec"], "spec")} - {"spec"}
    inner = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)}
    assert len(paths - inner) > KINDS[kind][4]
    assert sorted(path for path in paths - inner if row_of(path, KINDS[kind][3]) is None) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_of_a_field_that_the_crd_has(kind: str) -> None:
    paths = {path.partition("[")[0].removeprefix("spec.") for path in theirs(schema(kind)["spec"], "spec")}
    assert sorted(set(KINDS[kind][3]) - paths) == []
