"""The CRD of JobKind, from inventory/api/jobkind.py and the rules of controller/jobs/kinds/declared/rules.py."""

from collections.abc import Iterable
from typing import Any, Final

from controller.cluster.watching.kinds import DECLARATIONS
from controller.jobs.kinds.declared.rules import CHANGED, FIXED, NAME, POD_SET_RULES, SPEC_RULES, STATUS_RULES, Rule
from hack.crds.gpunode import Schema, own_crd, structural
from inventory.api.jobkind import SpecFields, StatusFields

SOURCE: Final = "inventory/api/jobkind.py"
_TESTS: Final = ("ready", "active", "suspended", "succeeded", "failed")


def jobkind_crd() -> Schema:
    """The CustomResourceDefinition of JobKind, with a status that is written by itself."""
    spec = _open(structural(SpecFields))
    fields = spec["properties"]
    spec["x-kubernetes-validations"] = [*_printed(SPEC_RULES), *map(_fixed, FIXED)]
    fields["podSets"]["items"]["x-kubernetes-validations"] = _printed(POD_SET_RULES)
    for name in _TESTS:
        fields[name]["x-kubernetes-validations"] = _printed(STATUS_RULES)
    status = structural(StatusFields)
    conditions = status["properties"]["conditions"]
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    crd = own_crd(
        DECLARATIONS,
        short="jk",
        columns=(
            ("Kind", "string", ".spec.kind"),
            ("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status'),
            ("Active", "string", '.status.conditions[?(@.type=="Active")].status'),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        description="A kind of job of another system, queued without code: where its objects have their pod "
        "templates, counts, suspend field, conditions and status.",
        section=("spec", spec),
    )
    (version,) = crd["spec"]["versions"]
    version["subresources"] = {"status": {}}
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["status"] = status
    rule, message = NAME
    schema["x-kubernetes-validations"] = [{"rule": rule, "messageExpression": message}]
    return crd


def _open(schema: Schema) -> Schema:
    """Without ``additionalProperties: false``, which no CRD takes: unknown fields are pruned, and clients tell them."""
    made = {key: _open(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    return made


def _printed(rules: Iterable[Rule[Any]]) -> list[Schema]:
    return [
        {"rule": rule.cel, "message": rule.sentence, **({"fieldPath": f".{rule.field}"} if rule.field else {})}
        for rule in rules
    ]


def _fixed(field: str) -> Schema:
    return {"rule": f"self.{field} == oldSelf.{field}", "message": CHANGED, "fieldPath": f".{field}"}
