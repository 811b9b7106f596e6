"""The schema of a pod template as Kubernetes' own OpenAPI has it, reduced to what a structural schema may say.

``podtemplate.json`` beside this file keeps the definitions, each once and without prose, so that generation needs no
cluster. They are put in place of their references when a CRD is written.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]

KEPT: Final = Path(__file__).with_name("podtemplate.json")
ROOT: Final = "io.k8s.api.core.v1.PodTemplateSpec"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$",
    "x-kubernetes-int-or-string": True,
}
"""What the API server itself takes for a quantity."""
_LEAVES: Final[dict[str, Schema]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
}
_TEMPLATE_META: Final = ("annotations", "finalizers", "labels", "name", "namespace")
"""What of a template's metadata means anything; the rest is the API server's to write."""
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
_WORDS: Final = ("type", "format", "required", "minimum", "maximum")
_EXTENSIONS: Final = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


@cache
def pod_template() -> Schema:
    """The whole schema, references resolved. Shared: copy before changing it."""
    definitions: dict[str, Schema] = json.loads(KEPT.read_text())
    return _with_key_defaults(_inlined({"$ref": ROOT}, definitions))


def _inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if (name := schema.get("$ref")) is not None:
        return _LEAVES.get(name) or _inlined(definitions[name], definitions)
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {key: _inlined(value, definitions) for key, value in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            made[inner] = _inlined(schema[inner], definitions)
    return made


def take(document: Path) -> None:
    """Write the definitions anew from an OpenAPI v3 document of core/v1."""
    found = json.loads(document.read_text())["components"]["schemas"]
    KEPT.write_text(json.dumps(reduced(found), indent=1, sort_keys=True) + "\n")


def reduced(found: dict[str, Schema]) -> dict[str, Schema]:
    """The definitions that a pod template needs, by name."""
    needed: dict[str, Schema] = {}
    wanted = [ROOT]
    while wanted:
        name = wanted.pop()
        if name in needed or name in _LEAVES:
            continue
        schema = found[name]
        if name == META:
            fields = {key: dict(schema["properties"][key]) for key in _TEMPLATE_META}
            fields["finalizers"].pop("x-kubernetes-list-type")  # a template's may repeat
            schema = {"type": "object", "properties": fields}
        needed[name] = _reduced(schema, wanted)
    return needed


def _reduced(schema: Schema, wanted: list[str]) -> Schema:
    """One definition without prose, enumerations and defaults: a pod's validation is not the workload's.

    Names of further definitions are added to ``wanted``.
    """
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ())), None)
    if reference is not None:
        name = str(reference).rpartition("/")[2]
        wanted.append(name)
        return {"$ref": name}
    made: Schema = {word: schema[word] for word in (*_WORDS, *_EXTENSIONS) if word in schema}
    if "properties" in schema:
        made["properties"] = {key: _reduced(value, wanted) for key, value in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            made[inner] = _reduced(schema[inner], wanted)
    return made


def _with_key_defaults(schema: Schema) -> Schema:
    """``schema`` with a default for every key of a keyed list that is not required: the API server asks for one."""
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {key: _with_key_defaults(value) for key, value in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            made[inner] = _with_key_defaults(schema[inner])
    if keys := schema.get("x-kubernetes-list-map-keys"):
        item = made["items"]
        optional = [key for key in keys if key not in item.get("required", ())]
        given = {key: item["properties"][key] | {"default": _KEY_DEFAULTS.get(key, "")} for key in optional}
        made["items"] = item | {"properties": item["properties"] | given}
    return made
