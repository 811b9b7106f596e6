"""Copies of claim templates in the controller's namespace: claims are made of a template in their own namespace alone,
and a placeholder is in another than the pod that it stands for.

A copy lives as long as its workload waits for nodes. The claims that are made of it have the placeholder as their
owner, and go with it. A claim that several pods share is none of the placeholder's: it lives in one namespace, and a
copy for each placeholder would ask for its devices as often as there are pods.
"""

import hashlib
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from controller.jobs.framework.raw import Json, copied, mapping, sequence
from controller.objects.core import PodTemplateSpec
from controller.objects.decode import decode
from controller.objects.deviceclaims import RESOURCE, ResourceClaimTemplate
from controller.objects.workload import Workload
from controller.scheduler.model.deviceclaims import of_group
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import PLACEHOLDER_FOR, PLACEHOLDER_OF

NOBODYS: Final = "/"
"""The key of no workload: what has the label and no annotation that tells its workload is nobody's, and is removed."""
_DIGITS: Final = 16
_LONGEST: Final = 253
"""The most characters of a template's name."""


class ClaimCopy(NamedTuple):
    """``of``: the uid of the Workload."""

    name: str
    uid: str
    of: str
    workload: WorkloadKey


def copy_of(template: ResourceClaimTemplate) -> ClaimCopy | None:
    """The copy that a template of our own namespace is; None for any other template."""
    of = template.metadata.labels.get(PLACEHOLDER_OF)
    if of is None:
        return None
    workload = template.metadata.annotations.get(PLACEHOLDER_FOR, NOBODYS).partition(" ")[0]
    return ClaimCopy(template.metadata.name, template.metadata.uid, of, WorkloadKey(workload))


def copy_name(uid: str, template: str) -> str:
    """The name of the copy for the Workload of this uid: the same for every leader, so that none is made twice."""
    digest = hashlib.sha256(f"{uid} {template}".encode()).hexdigest()[:_DIGITS]
    return f"placeholder-{digest}-{template}"[:_LONGEST].rstrip("-.")


def copy_body(namespace: str, workload: Workload, original: Json) -> Json:
    """The copy of a template, given as JSON. Claims that are made of it have the label of placeholders."""
    named = str(mapping(original, "metadata").get("name"))
    label = {PLACEHOLDER_OF: workload.metadata.uid}
    spec: Json = copied(mapping(original, "spec"))
    metadata = mapping(spec, "metadata")
    spec["metadata"] = {**metadata, "labels": {**mapping(metadata, "labels"), **label}}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": copy_name(workload.metadata.uid, named),
            "namespace": namespace,
            "labels": label,
            "annotations": {PLACEHOLDER_FOR: f"{workload.key} {named}"},
        },
        "spec": spec,
    }


def asks_as_admin(original: Json) -> bool:
    """Whether a template asks for devices as an administrator: who may do that is decided by namespace, and such a
    claim takes no device from anybody. It is not copied.
    """
    return any(
        bool(mapping(request, "exactly").get("adminAccess"))
        for request in sequence(original, "spec", "spec", "devices", "requests")
    )


def claims_by_template(template: Json) -> dict[str, str]:
    """The claims of a pod template that each pod has for itself, with the names of their templates."""
    shared = of_group(decode(template, PodTemplateSpec))
    return {
        str(claim["name"]): str(claim["resourceClaimTemplateName"])
        for claim in sequence(template, "spec", "resourceClaims")
        if claim.get("resourceClaimTemplateName") and claim.get("name") not in shared
    }


def used_claims(spec: Json, names: Collection[str]) -> Iterator[Json]:
    """What the containers of a pod use of its claims, of those with these names, each once: a claim as a whole if any
    container uses it so, else its requests.
    """
    used: dict[str, dict[str, None]] = {}
    for container in (*sequence(spec, "initContainers"), *sequence(spec, "containers")):
        for each in sequence(container, "resources", "claims"):
            if (name := str(each.get("name"))) in names:
                used.setdefault(name, {})[str(each.get("request") or "")] = None
    for name, requests in used.items():
        if "" in requests:
            yield {"name": name}
        else:
            yield from ({"name": name, "request": request} for request in requests)
