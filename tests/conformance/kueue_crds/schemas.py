"""Kueue's own CRDs, their schemas for jsonschema, and random objects that fit a schema."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.conformance.corpus import ROOT

Json = dict[str, Any]

_QUANTITY = st.sampled_from(["0", "1", "500m", "2Gi", "1e3", "1.5", 3])
_TEMPLATE: Json = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def folder() -> Path:
    """``crds/kueue`` under ``$TESSERA_SHARED``, by default ``../shared`` beside the checkout. Absent: an error."""
    found = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "kueue"
    if not found.is_dir():
        raise FileNotFoundError(f"conformance data not found: {found}; set TESSERA_SHARED to the folder of crds/kueue")
    return found


@cache
def crds() -> dict[str, Json]:
    """Each CRD by its kind."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = (yaml.load(path.read_text(), Loader=loader) for path in sorted(folder().glob("*.yaml")))
    return {crd["spec"]["names"]["kind"]: crd for crd in found}


@cache
def schema(kind: str, version: str) -> Json:
    """The OpenAPI schema of one version, closed: a field that it does not know is an error, where a server prunes."""
    (found,) = (one for one in crds()[kind]["spec"]["versions"] if one["name"] == version)
    closed: Json = _closed(found["schema"]["openAPIV3Schema"])
    closed["properties"]["metadata"] = {"type": "object"}
    return closed


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _closed(value) for key, value in node.items()}
    if isinstance(made.get("pattern"), str):
        made["pattern"] = made["pattern"].replace("^(?i)", "(?i)^")  # Go's place for the flag is not Python's
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def errors(instance: Json, kind: str, version: str) -> list[str]:
    """What the schema of ``version`` objects to."""
    found = Draft202012Validator(schema(kind, version)).iter_errors(instance)
    return [f"{error.json_path}: {error.message}" for error in found]


def objects(kind: str, version: str, overrides: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Json]:
    """Objects that the schema accepts; of metadata only a name. ``overrides`` by path, such as ``.spec.podSets``."""
    whole = schema(kind, version)
    parts = {
        key: _values(value, f".{key}", overrides)
        for key, value in whole["properties"].items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    needed = set(whole.get("required", ()))
    fixed: Json = {
        "apiVersion": st.just(f"kueue.x-k8s.io/{version}"),
        "kind": st.just(kind),
        "metadata": st.just({"name": "x"}),
    }
    fixed |= {key: value for key, value in parts.items() if key in needed}
    return st.fixed_dictionaries(fixed, optional={key: value for key, value in parts.items() if key not in needed})


def _values(node: Json, path: str, overrides: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if path in overrides:
        return overrides[path]
    if path.endswith(".podSets[].template"):
        return st.just(_TEMPLATE)
    if node.get("x-kubernetes-int-or-string"):
        return _QUANTITY
    if "enum" in node:
        return st.sampled_from(node["enum"])
    makers: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "object": lambda: _object(node, path, overrides),
        "array": lambda: _array(node, path, overrides),
        "string": lambda: _string(node),
        "boolean": st.booleans,
        "integer": lambda: st.integers(node.get("minimum", 0), node.get("maximum", 2**31 - 1)),
    }
    return makers[node["type"]]()


def _object(node: Json, path: str, overrides: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Json]:
    if "properties" not in node:
        value = _values(node.get("additionalProperties") or {"type": "string"}, f"{path}{{}}", overrides)
        return st.dictionaries(st.text("abc", min_size=1, max_size=3), value, max_size=2)
    parts = {key: _values(value, f"{path}.{key}", overrides) for key, value in node["properties"].items()}
    needed = set(node.get("required", ()))
    return st.fixed_dictionaries(
        {key: value for key, value in parts.items() if key in needed},
        optional={key: value for key, value in parts.items() if key not in needed},
    )


def _array(node: Json, path: str, overrides: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    least = node.get("minItems", 0)
    keys = node.get("x-kubernetes-list-map-keys", [])
    return st.lists(
        _values(node["items"], f"{path}[]", overrides),
        min_size=least,
        max_size=least + 1,
        unique_by=(lambda item: tuple(item.get(key) for key in keys)) if keys else None,
    )


def _string(node: Json) -> st.SearchStrategy[str]:
    if node.get("format") == "date-time":
        return st.just("2026-01-02T03:04:05Z")
    return st.text("abc", min_size=1, max_size=4)
