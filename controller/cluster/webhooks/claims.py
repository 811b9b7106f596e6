"""The mutating webhook for ResourceClaims that are made for pods of queued jobs: it puts the devices that the engine
chose for the pod before the other devices that the claim may get. Pure: a review and the pod's annotation in, a review
out.

A request becomes one with alternatives (``firstAvailable``): the planned devices, then the original request. A plan
that is out of date so blocks no pod. Where the API has no such form (admin access, all devices, too many alternatives
or selectors) a request stays as it is. Source: resource.k8s.io/v1 ``DeviceRequest``.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.cluster.webhooks.review import answered, request_of
from controller.objects.conversion.tree import ConversionError, Json, child, children, text
from controller.scheduler.dra.claims.book import POD_CLAIM
from inventory.api import claimplan
from inventory.api.claimplan import Requests

PATH: Final = "/mutate-claim"
_OBJECT: Final = ".request.object"
_DEVICES: Final = f"{_OBJECT}.spec.devices"
_MOST_ALTERNATIVES: Final = 8
_MOST_SELECTORS: Final = 32
_MOST_REFERENCES: Final = 32
_MOST_NAME: Final = 63
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PLANNED: Final = "planned"
_ASKED: Final = "asked"


class OwnerPod(NamedTuple):
    namespace: str
    name: str
    uid: str


def owner(body: bytes) -> OwnerPod | None:
    """The pod that the claim in a review is made for; None for any other claim, and for a body that is no review."""
    try:
        request = request_of(body)
        metadata = child(child(request, "object", ".request") or {}, "metadata", _OBJECT) or {}
        owners = children(metadata, "ownerReferences", f"{_OBJECT}.metadata")
        controller = next((each for each in owners if each.get("controller") is True), {})
        if not _claim_name(metadata) or controller.get("kind") != "Pod":
            return None
        name, uid = (text(controller, key, f"{_OBJECT}.metadata.ownerReferences") for key in ("name", "uid"))
        namespace = text(request, "namespace", ".request")
        # Any client that reaches the port can send a review: text that is no name must not become part of a path.
        named = uid and all(_OBJECT_NAME.fullmatch(each) for each in (namespace, name))
        return OwnerPod(namespace, name, uid) if named else None
    except (ConversionError, RecursionError):
        return None


def answer(body: bytes, annotation: str) -> bytes:
    """The review of the same uid: allowed, with the planned devices first. A body that is no review is refused.

    ``annotation``: the pod's, empty if nothing is planned for it.
    """

    def made(claim: Json, _namespace: str) -> list[Json]:
        metadata = child(claim, "metadata", _OBJECT) or {}
        planned = claimplan.read(annotation).get(_claim_name(metadata), {})
        devices = child(child(claim, "spec", _OBJECT) or {}, "devices", f"{_OBJECT}.spec")
        return patch(devices, planned) if devices and planned else []

    return answered(body, made)


def patch(devices: Json, planned: Requests) -> list[Json]:
    """The JSON patch (RFC 6902) for a claim's ``spec.devices``. Raises ConversionError if there are none."""
    requests, also = [], dict[str, tuple[str, ...]]()
    for request in children(devices, "requests", _DEVICES):
        made, names = _alternatives(request, planned)
        requests.append(made)
        also.update(names)
    if not also:
        return []
    wanted: Json = {**devices, "requests": requests}
    for key in ("constraints", "config"):
        listed = [_referring(each, also) for each in children(devices, key, _DEVICES)]
        if any(len(each.get("requests") or ()) > _MOST_REFERENCES for each in listed):
            return []
        wanted |= {key: listed} if listed else {}
    return [{"op": "add", "path": "/spec/devices", "value": wanted}]


def _alternatives(request: Json, planned: Requests) -> tuple[Json, Mapping[str, tuple[str, ...]]]:
    """The request with its planned alternatives first, and by name the alternatives that join it in references."""
    name = text(request, "name", f"{_DEVICES}.requests")
    exactly = child(request, "exactly", f"{_DEVICES}.requests")
    alternatives = children(request, "firstAvailable", f"{_DEVICES}.requests")
    if exactly is not None:
        if name not in planned or exactly.get("adminAccess"):
            return request, {}
        plain = {key: value for key, value in exactly.items() if key != "adminAccess"}
        chosen = [(_PLANNED, name, plain)]
        alternatives = [{"name": _ASKED, **plain}]
    else:
        each = [(text(one, "name", f"{_DEVICES}.requests"), one) for one in alternatives]
        chosen = [(f"{_PLANNED}-{sub}"[:_MOST_NAME], f"{name}/{sub}", one) for sub, one in each]
        chosen = [entry for entry in chosen if entry[1] in planned]
    expressions = [claimplan.expression(planned[label]) for _, label, _ in chosen]
    first = [_planned(sub, one, chooses) for (sub, _, one), chooses in zip(chosen, expressions, strict=True)]
    every = [*first, *alternatives]
    fits = (
        len({one["name"] for one in every}) == len(every) <= _MOST_ALTERNATIVES
        and all(len(one["selectors"]) <= _MOST_SELECTORS for one in first)
        and all(len(chooses) <= claimplan.MOST_EXPRESSION for chooses in expressions)
    )
    if not first or not fits:
        return request, {}
    # A driver that compares whole names must find its configuration under both names.
    both: dict[str, tuple[str, ...]] = {name: (f"{name}/{_PLANNED}", f"{name}/{_ASKED}")}
    also = {label: (f"{name}/{sub}",) for sub, label, _ in chosen} if exactly is None else both
    return {"name": name, "firstAvailable": every}, also


def _planned(name: str, asked: Json, expression: str) -> Json:
    selectors = children(dict(asked), "selectors", f"{_DEVICES}.requests")
    return {**asked, "name": name, "selectors": [*selectors, {"cel": {"expression": expression}}]}


def _referring(entry: Json, also: Mapping[str, tuple[str, ...]]) -> Json:
    """A constraint or a configuration that names requests or is for all of them, with the names of alternatives
    added.
    """
    named = entry.get("requests")
    if not isinstance(named, list) or not named:
        return entry
    more = [each for name in named if isinstance(name, str) for each in also.get(name, ())]
    return {**entry, "requests": [*named, *more]}


def _claim_name(metadata: Json) -> str:
    annotations = child(metadata, "annotations", f"{_OBJECT}.metadata") or {}
    found = annotations.get(POD_CLAIM)
    return found if isinstance(found, str) else ""
