"""The chart's policies for queues and workloads, read from its templates and asked about one request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import yaml

from tests.conformance.crds import crdfiles
from tests.support.controller.celpolicies import evaluated
from tests.support.queuerules.schemas import Json, Refusal

_TEMPLATES: Final = crdfiles.ROOT / "charts" / "tessera" / "templates"
_NAMES: Final = ("queue-policy-quotas.yaml", "queue-policy-workloads.yaml")
_INCLUDED: Final = {
    "tessera.fullname": "t-tessera",
    "tessera.controllerUser": "system:serviceaccount:tessera-system:t-tessera-controller",
    "tessera.controllerLabels": "",
}
_SET: Final = re.compile(r"{{- \$(\w+) := (?:printf )?\"([^\"]*)\" ?(.*?) }}\n")
_PUT: Final = re.compile(r"{{-? (\$\w+|include \"[\w.]+\" \.)(?: \| (squote|nindent 4))? }}")
_GATES: Final = re.compile(r"{{ include \"tessera.gatesInForce\" .* }}")
"""The feature gates by name, as they are where the configuration says nothing; a request may say others."""
_DEFAULTS: Final = re.compile(r"{{- \$gates := dict (.*) }}\n")
_BLOCK: Final = re.compile(r"{{- (?:if .Values.controller.enabled|end) }}\n?")


@dataclass(frozen=True, slots=True)
class Request:
    resource: str
    """Such as ``workloads``, or ``workloads/status``."""
    object: Json
    old: Json | None
    """None: the object is created."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Values of variables that need not be reckoned."""
    user: str = "somebody"


def written(template: str) -> str:
    """The template's text for a release, with as much of the template language as these two use."""
    known: dict[str, str] = {}

    def value_of(word: str) -> str:
        return known[word] if word.startswith("$") else _INCLUDED[word.split('"')[1]]

    def put(found: re.Match[str]) -> str:
        return f"'{value_of(found[1])}'" if found[2] == "squote" else value_of(found[1])

    lines = []
    defaults = _DEFAULTS.search(template)
    pairs = re.findall(r"\"(\w+)\" (true|false)", defaults[1]) if defaults is not None else []
    gates = ", ".join(f"'{name}': {value}" for name, value in sorted(pairs))
    for line in _GATES.sub(f"{{{gates}}}", _BLOCK.sub("", _DEFAULTS.sub("", template))).splitlines(keepends=True):
        named = _SET.fullmatch(line)
        if named is None:
            lines.append(_PUT.sub(put, line))
        else:
            words = re.findall(r"\$\w+|include \"[\w.]+\" \.", named[3])
            known[f"${named[1]}"] = named[2] % tuple(map(value_of, words)) if words else named[2]
    made = "".join(lines)
    assert "{{" not in made, made[made.index("{{") :][:80]
    return made


@cache
def policies() -> tuple[Json, ...]:
    found = (
        one for name in _NAMES for one in yaml.load_all(written((_TEMPLATES / name).read_text()), yaml.CSafeLoader)
    )
    return tuple(one for one in found if one["kind"] == "ValidatingAdmissionPolicy")


def refusals(request: Request) -> list[Refusal]:
    """Of every policy, though a server stops at its first: they are in no order."""
    return [one for policy in policies() if _matches(policy, request) for one in _said(policy["spec"], request)]


def _given(request: Request) -> dict[str, Any]:
    operation = "CREATE" if request.old is None else "UPDATE"
    asked = {"operation": operation, "userInfo": {"username": request.user}}
    return {"object": request.object, "oldObject": request.old, "request": asked, "variables": {}}


def _matches(policy: Json, request: Request) -> bool:
    given = _given(request)
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    return any(
        request.resource in rule["resources"] and given["request"]["operation"] in rule["operations"] for rule in rules
    ) and all(evaluated(one["expression"], given) for one in policy["spec"].get("matchConditions", ()))


def _said(spec: Json, request: Request) -> list[Refusal]:
    given = _given(request)
    for variable in spec["variables"]:
        name = variable["name"]
        known = name in request.known
        given["variables"][name] = request.known[name] if known else evaluated(variable["expression"], given)
    found = [
        one["message"] if "message" in one else str(evaluated(one["messageExpression"], given))
        for one in spec["validations"]
        if not evaluated(one["expression"], given)
    ]
    return [Refusal(leading_field(sentence), sentence) for sentence in found]


def leading_field(sentence: str) -> str:
    """The path that a sentence begins with."""
    first, _, rest = sentence.partition(" ")
    return f"metadata.annotations[{rest.partition(':')[0]}]" if first == "annotation" else first.rstrip(":")
