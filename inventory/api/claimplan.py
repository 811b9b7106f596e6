"""The annotation with the devices that are planned for a pod set's claims: written by the controller as the pods'
template starts, read by its webhook as claims are made for the pods.

    {claim of the pod: {request, or request/alternative: {attribute: [values]}}}

A device is named by an attribute that no other has. The devices of all pods of the set stand together: each pod goes to
a node, and can get only the claim's devices there.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

MOST_EXPRESSION: Final = 10 * 1024
"""The most bytes of one selector, a limit of the API server."""
_MOST_TEXT: Final = 65_536
_VALUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}")
_RESERVED: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return|true|var|void"
    "|while"
)
"""Names by which CEL selects no field (CEL specification): the API server would refuse the claim."""

Attributes = Mapping[str, Sequence[str]]
"""The values of devices, by qualified attribute (``domain/name``)."""
Requests = Mapping[str, Attributes]
"""The attributes, by request or ``request/alternative``."""
ClaimPlan = Mapping[str, Requests]
"""The requests, by the name that the pod has for the claim."""


def sayable(attribute: str, value: str) -> bool:
    """Whether a selector can name a device by this attribute and value."""
    named = _ATTRIBUTE.fullmatch(attribute) is not None and not _RESERVED.fullmatch(attribute.rpartition("/")[2])
    return named and _VALUE.fullmatch(value) is not None


def written(plan: ClaimPlan) -> str:
    """The annotation's text; empty for a plan without devices. Devices that would make a selector too long are left
    out: any device will do there.
    """
    fitting = {
        claim: {request: attributes for request, each in requests.items() if (attributes := _fitting(each))}
        for claim, requests in plan.items()
    }
    known = {claim: requests for claim, requests in fitting.items() if requests}
    text = json.dumps(known, separators=(",", ":")) if known else ""
    return text if len(text) <= _MOST_TEXT else ""


def read(text: str) -> ClaimPlan:
    """The plan in an annotation, which any user who makes pods can write; empty where the text is not a plan."""
    if not 0 < len(text) <= _MOST_TEXT:
        return {}
    try:
        decoded = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, list[str]]]])
    except (msgspec.MsgspecError, RecursionError):
        return {}
    named = ((name, value) for each in decoded.values() for one in each.values() for name in one for value in one[name])
    return _chosen(decoded) if all(sayable(*each) for each in named) else {}


def _chosen(plan: ClaimPlan) -> ClaimPlan:
    """The plan without requests and claims that name no device: an empty selector is none."""
    return {
        claim: {
            request: found
            for request, attributes in requests.items()
            if (found := {name: values for name, values in attributes.items() if values})
        }
        for claim, requests in plan.items()
    }


def expression(attributes: Attributes) -> str:
    """A selector in CEL: true for these devices alone. An attribute that a device lacks is not an error."""
    return " || ".join(_one_of(name, values) for name, values in attributes.items())


def _one_of(attribute: str, values: Iterable[str]) -> str:
    domain, _, name = attribute.partition("/")
    where = f'device.attributes["{domain}"]'
    listed = ", ".join(f'"{value}"' for value in values)
    return f'("{name}" in {where} && {where}.{name} in [{listed}])'


def _fitting(attributes: Attributes) -> dict[str, list[str]]:
    """The first values for which one selector has room."""
    fitting: dict[str, list[str]] = {}
    left = MOST_EXPRESSION
    for name, values in attributes.items():
        left -= len(expression({name: ()})) + len(" || ")
        for value in values:
            left -= len(f'"{value}", ')
            if left < 0:
                return fitting
            fitting.setdefault(name, []).append(value)
    return fitting


def merged(plans: Iterable[tuple[str, str, str, str]]) -> dict[str, Any]:
    """The plan of devices that are each given as claim, request, attribute and value; each stands once, in
    their order.
    """
    plan: dict[str, dict[str, dict[str, dict[str, None]]]] = {}
    for claim, request, attribute, value in plans:
        plan.setdefault(claim, {}).setdefault(request, {}).setdefault(attribute, {})[value] = None
    return {
        claim: {request: {name: list(values) for name, values in each.items()} for request, each in requests.items()}
        for claim, requests in plan.items()
    }
