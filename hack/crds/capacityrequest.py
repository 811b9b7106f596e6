"""The CRD of CapacityRequest, from controller/objects/capacityrequests.py."""

from typing import Any, Final

from controller.objects import capacityrequests as api
from controller.objects.capacityrequests import CapacityOffer, CapacityRequestSpec, CapacityRequestStatus
from hack.crds.schema import Schema, Shape, Shapes, structural
from hack.crds.shapes import DATE_TIME
from inventory.api.names import GROUP, VERSION

SOURCE: Final = "controller/objects/capacityrequests.py"

_SPAN: Final = r"([0-9]+(\.[0-9]+)?(h|m|s|ms))+"
_WHEN: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
_DURATION: Final[Schema] = {"pattern": f"^{_SPAN}$", "maxLength": 64}
_MOMENT: Final[Schema] = {"pattern": f"^({_SPAN}|{_WHEN})$", "maxLength": 64}
_NAME: Final[Schema] = {"maxLength": 253}
_UNITS: Final[Schema] = {"minimum": 1, "maximum": api.MOST_UNITS}
_FIXED: Final = (
    "queueName",
    "unit",
    "template",
    "min",
    "duration",
    "notBefore",
    "notAfter",
    "answerWithin",
    "priorityClassName",
    "useWithin",
)
"""Fields that a request keeps: others of its spec may change."""

_NOT_LONGER: Final = "duration(self.{name}) <= duration('8784h')"
_WHOLE_UNITS: Final = (
    "!has(self.unit) || self.unit.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || "
    "type(self.unit[name]) == int || quantity(self.unit[name]).isInteger())"
)

_SHAPES: Final[Shapes] = {
    CapacityRequestSpec: Shape(
        required=("queueName",),
        fields={
            "queueName": {**_NAME, "minLength": 1},
            "unit": {"maxProperties": 16},
            "min": {**_UNITS, "default": 1},
            "max": _UNITS,
            "duration": _DURATION,
            "notBefore": _MOMENT,
            "notAfter": _MOMENT,
            "answerWithin": {**_DURATION, "default": "30s"},
            "priorityClassName": _NAME,
            "useWithin": {**_DURATION, "default": "10m"},
            "renew": {"pattern": f"^{_WHEN}$", "maxLength": 64},
            "accept": {"maxLength": 63},
        },
        rules=(
            ("has(self.unit) != has(self.template)", "one of unit and template is set"),
            ("!has(self.max) || self.max >= self.min", "max is at least min"),
            ("!has(self.renew) || has(self.duration)", "renew needs a duration, which it begins anew"),
            *(
                (
                    f"!has(self.{name}) || (duration(self.{name}) > duration('0s') && {_NOT_LONGER.format(name=name)})",
                    f"{name} is above 0, and at most 8784h",
                )
                for name in ("duration", "answerWithin", "useWithin")
            ),
            (
                _WHOLE_UNITS,
                "unit has whole numbers, except of cpu, memory and ephemeral-storage",
            ),
            *(
                (
                    f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
                    f"{name} cannot be changed: accept, renew and a smaller max can",
                )
                for name in _FIXED
            ),
            (
                "!has(oldSelf.max) ? !has(self.max) : has(self.max) && self.max <= oldSelf.max",
                "max can only become smaller",
            ),
        ),
    ),
    CapacityOffer: Shape(
        required=("id", "units", "from", "standsUntil"),
        fields={"from": DATE_TIME, "until": DATE_TIME, "standsUntil": DATE_TIME},
    ),
    CapacityRequestStatus: Shape(
        fields={
            "state": {"enum": ["", *api.STATES]},
            "from": DATE_TIME,
            "until": DATE_TIME,
            "usedAt": DATE_TIME,
            "holdsUntil": DATE_TIME,
            "offers": {"maxItems": 8},
        },
    ),
}


def capacityrequest_crd() -> Schema:
    """The CustomResourceDefinition of CapacityRequest, with a status that is written by itself."""
    columns = (
        ("Queue", "string", ".spec.queueName"),
        ("State", "string", ".status.state"),
        ("Units", "integer", ".status.units"),
        ("Until", "string", ".status.until"),
        ("Message", "string", ".status.message"),
    )
    root: dict[str, Any] = {
        "description": "Capacity that a program asks for, and the answer: granted, offered or refused, at once.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(CapacityRequestSpec, _SHAPES),
            "status": structural(CapacityRequestStatus, _SHAPES),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {api.LONGEST_NAME}",
                "message": f"metadata.name: expected at most {api.LONGEST_NAME} characters: pods name it in a label",
            }
        ],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": each, "type": kind, "jsonPath": path} for each, kind, path in columns],
        "schema": {"openAPIV3Schema": root},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": api.KIND,
                "listKind": f"{api.KIND}List",
                "plural": api.PLURAL,
                "singular": api.KIND.lower(),
                "shortNames": ["capreq"],
            },
            "versions": [version],
        },
    }
