"""The CRDs of job kinds where they lie, and the paths of what stands in them outside of pod templates."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDERS: Final = ("appwrapper", "jobset", "kubeflow", "kuberay", "lws", "spark")

Schema = dict[str, Any]


def folder() -> Path:
    """The folder ``crds`` under ``$TESSERA_SHARED``, by default under ``../shared`` beside the checkout."""
    found = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds"
    if not found.is_dir():
        raise FileNotFoundError(f"CRDs of job kinds not found: {found} is no folder; set TESSERA_SHARED")
    return found


@cache
def specs() -> dict[tuple[str, str], Schema]:
    """The schema of ``spec`` by apiVersion and kind, of all versions."""
    found: dict[tuple[str, str], Schema] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in (path for name in FOLDERS for path in sorted((folder() / name).glob("*.yaml"))):
        crd = yaml.load(path.read_text(), loader)["spec"]
        for version in crd["versions"]:
            key = (f"{crd['group']}/{version['name']}", crd["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def is_pod_template(schema: Schema) -> bool:
    inner: Schema = schema.get("properties", {}).get("spec", {}).get("properties", {})
    return {"containers", "tolerations", "nodeSelector"} <= inner.keys()


def below(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field below and the schema of it; ``[]`` stands behind a list and ``{}`` behind a map of objects.

    A pod template is one field: what stands in it is every pod's.
    """
    for name, inner in schema.get("properties", {}).items():
        yield from _field(inner, f"{path}.{name}")


def _field(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    if is_pod_template(schema):
        return
    items, more = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, dict) and "properties" in items:
        yield from below(items, f"{path}[]")
    elif isinstance(more, dict) and "properties" in more:
        yield from below(more, f"{path}{{}}")
    else:
        yield from below(schema, path)
