"""The CRD of GpuNode, from inventory/api/gpunode.py.

msgspec's JSON schema becomes a structural OpenAPI v3 schema: references are put in place, ``null`` is left out (an
optional field is one that is not required), defaults and titles go.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from agent.cluster.gpunode import GPU_NODES
from inventory.api.gpunode import GpuNodeStatus
from kube.resources import Resource

SOURCE = "inventory/api/gpunode.py"
Schema = dict[str, Any]


def structural(kind: type) -> Schema:
    """The OpenAPI v3 schema of a struct."""
    schema = msgspec.json.schema(kind)
    return _resolve({"$ref": schema["$ref"]}, schema["$defs"])


def _resolve(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in schema:
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolve(definitions[schema["$ref"].rsplit("/", 1)[1]] | own, definitions)
    if "anyOf" in schema:
        (only,) = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        return _resolve(only | {key: value for key, value in schema.items() if key != "anyOf"}, definitions)
    made = {key: value for key, value in schema.items() if key not in ("title", "default", "items", "properties")}
    if made.get("type") == "integer":
        made["format"] = "int64"
    if not made.get("required", True):
        del made["required"]
    if "pattern" in made:
        made["pattern"] = made["pattern"].replace(r"\Z", "$")  # RE2 has no \Z, and its $ is the end of the text
    if "items" in schema:
        made["items"] = _resolve(schema["items"], definitions)
    if "properties" in schema:
        made["properties"] = {name: _resolve(each, definitions) for name, each in schema["properties"].items()}
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    return dict(sorted(made.items(), key=lambda item: (item[0] != "description", item[0] != "type")))


def _rule(schema: Schema, rule: str, message: str) -> None:
    schema["x-kubernetes-validations"] = [{"rule": rule, "message": message}]


def gpunode_crd() -> Schema:
    """The CustomResourceDefinition of GpuNode."""
    status = structural(GpuNodeStatus)
    fields = status["properties"]
    _rule(fields["summary"], "self.healthy <= self.gpus", "more healthy GPUs than GPUs")
    _rule(fields["devices"], "self.all(d, self.exists_one(e, e.uuid == d.uuid))", "two devices with one UUID")
    _rule(fields["links"]["items"], "self.a < self.b", "a must be the smaller index")
    columns = [
        ("GPUs", "integer", ".status.summary.gpus"),
        ("Healthy", "integer", ".status.summary.healthy"),
        ("Product", "string", ".status.summary.product"),
        ("Driver", "string", ".status.driver.version"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    return own_crd(
        GPU_NODES,
        short="gn",
        columns=columns,
        description="One node's GPUs, as its agent found them. Written by the agent, read by everyone.",
        section=("status", status),
    )


def own_crd(
    resource: Resource,
    *,
    short: str,
    columns: Sequence[tuple[str, str, str]],
    description: str,
    section: tuple[str, Schema],
) -> Schema:
    """A cluster-scoped CRD of ours with one version and one section, ``spec`` or ``status``, which is required.

    ``columns``: name, type and JSON path of what ``kubectl get`` shows.
    """
    name, schema = section
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [{"name": each, "type": kind, "jsonPath": path} for each, kind, path in columns],
        "schema": {
            "openAPIV3Schema": {
                "description": description,
                "type": "object",
                "required": [name],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    name: schema,
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [short],
            },
            "versions": [version],
        },
    }
