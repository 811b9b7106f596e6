"""The corpus's API objects of Kueue's kinds, each once, named as an API server needs it."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.conformance.crds.crdfiles import PLURALS

_WRITTEN_BY_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields")


def corpus_objects(folder: Path) -> list[dict[str, Any]]:
    """Distinct objects of all cases, without what an API server writes itself."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/*.json")):
        for one in _objects(json.loads(path.read_text())):
            made = _named(one)
            found.setdefault(json.dumps({**made, "metadata": {**made["metadata"], "name": ""}}, sort_keys=True), made)
    return list(found.values())


def _objects(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, list):
        return [one for item in data for one in _objects(item)]
    if not isinstance(data, dict):
        return []
    if data.get("kind") in PLURALS and str(data.get("apiVersion", "")).startswith("kueue.x-k8s.io/"):
        return [data]
    return [one for item in data.values() for one in _objects(item)]


def _named(given: dict[str, Any]) -> dict[str, Any]:
    made = deepcopy(given)
    metadata = {key: value for key, value in made.get("metadata", {}).items() if key not in _WRITTEN_BY_SERVER}
    made["metadata"] = metadata | {"name": metadata.get("name") or "unnamed"}
    if made["kind"] in ("LocalQueue", "Workload"):
        made["metadata"]["namespace"] = "default"
    return made
