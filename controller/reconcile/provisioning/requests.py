"""What a ProvisioningRequest of a workload has to say: its name, its pod sets and the PodTemplates they are made from.

Names and rules are Kueue's (KEP-1136): a PodTemplate is the template of the pod set with the node selectors and
tolerations of its flavors, where a limit without a request is the request too. An autoscaler compares it with nodes;
no pod is made from it.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from controller.jobs.framework.names import is_label_value
from controller.jobs.framework.offspot import off_spot, with_affinity
from controller.jobs.framework.podsets import FlavorMissingError
from controller.jobs.framework.podview import MANAGED
from controller.jobs.framework.raw import Json, copied, mapping, sequence
from controller.objects.core import PodSpec
from controller.objects.meta import to_json
from controller.objects.provisioning import (
    AUTOSCALING,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSetAssignment, PodSetUpdate, Workload
from controller.scheduler.topology.requests import SpotRule
from inventory.api.names import ASKED_FOR

CONSUME: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_NAME: Final = "autoscaling.x-k8s.io/provisioning-class-name"
PARAMETER_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""The prefix of annotations of a Workload, copied from its job, that are parameters of its requests."""

_LONGEST_NAME: Final = 247
_HASH_DIGITS: Final = 5
_DIGEST_DIGITS: Final = 16
_LABELS: Final[Mapping[str, str]] = {MANAGED: "true"}
_SCHEDULING: Final = ("nodeSelector", "tolerations", "affinity", "resources", "resourceClaims")
"""Fields of a pod's spec by which, with the requests of its containers, nodes are chosen."""


class InconsistentPodSetsError(Exception):
    """The admission names other pod sets than the spec: nothing can be requested for them."""


class NeededPodSet(NamedTuple):
    """A pod set for which nodes are requested. ``pods`` is above 0."""

    name: str
    pods: int
    flavors: tuple[str, ...]


class RequestedPodSet(NamedTuple):
    """An entry of a request: the template of the first of the pod sets that are merged into it."""

    name: str
    pods: int
    template: Json


class RequestBodies(NamedTuple):
    """The objects of one attempt, in the order in which they are created: PodTemplates, then the request."""

    request: Json
    templates: tuple[Json, ...]


def request_name(workload: str, check: str, attempt: int) -> str:
    """The name of the request of one attempt, counted from 1."""
    return _limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    return _limited(f"ppt-{request}-{pod_set}")


def _limited(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]}"


def needed(workload: Workload, config: ProvisioningRequestConfig) -> tuple[NeededPodSet, ...]:
    """The pod sets for which nodes are requested: with pods, and with one of the managed resources, if there are any.

    A pod set has a resource if a container names it, or if a flavor was assigned for it: claims of devices and
    fractions count as resources that no container names.
    """
    admission = workload.status.admission
    assigned = {each.name: each for each in (admission.pod_set_assignments if admission is not None else ())}
    managed = frozenset(config.spec.managed_resources)
    pod_sets = []
    for pod_set in workload.spec.pod_sets:
        assignment = assigned.get(pod_set.name, PodSetAssignment())
        count = pod_set.count if assignment.count is None else assignment.count
        has = not managed or not managed.isdisjoint(assignment.flavors) or _names_any(pod_set.template.spec, managed)
        if count > 0 and has:
            pod_sets.append(NeededPodSet(pod_set.name, count, tuple(sorted(set(assignment.flavors.values())))))
    return tuple(pod_sets)


def _names_any(spec: PodSpec, managed: frozenset[str]) -> bool:
    """Whether a container, or the pod as a whole, has one of the resources."""
    parts = [each.resources for each in (*spec.init_containers, *spec.containers)]
    if spec.resources is not None:
        parts.append(spec.resources)
    return any(not managed.isdisjoint(amounts) for each in parts for amounts in (each.requests, each.limits))


def parameters(workload: Workload, config: ProvisioningRequestConfigSpec) -> dict[str, str]:
    """The parameters of a request: those of the configuration, and those of the workload in their place."""
    own = {
        key.removeprefix(PARAMETER_PREFIX): value
        for key, value in workload.metadata.annotations.items()
        if key.startswith(PARAMETER_PREFIX)
    }
    return {**config.parameters, **own}


def digest(pod_sets: Sequence[NeededPodSet]) -> str:
    """A digest of the pods and flavors, which two reservations of quota share if the same nodes are requested."""
    text = msgspec.json.encode([list(each) for each in pod_sets])
    return hashlib.sha256(text).hexdigest()[:_DIGEST_DIGITS]


def is_in_sync(request: ProvisioningRequest, workload: Workload, config: ProvisioningRequestConfig) -> bool:
    """Whether the request is still what would be requested. One without a digest was made by Kueue."""
    if request.spec.provisioning_class_name != config.spec.provisioning_class_name:
        return False
    wanted, has = parameters(workload, config.spec), request.spec.parameters
    if any(has.get(key) != value for key, value in wanted.items()):
        return False
    pod_sets = needed(workload, config)
    if sum(each.count for each in request.spec.pod_sets) != sum(each.pods for each in pod_sets):
        return False
    made_for = request.metadata.annotations.get(ASKED_FOR)
    return made_for is None or made_for == digest(pod_sets)


def attempt_of(request: str, workload: str, check: str, most: int) -> int | None:
    """The attempt that a request's name says; None for the name of another workload or check. A name that was cut says
    none: attempts up to ``most`` are compared.
    """
    prefix = f"{workload}-{check}-"
    number = request.removeprefix(prefix)
    if number != request and number.isascii() and number.isdigit() and len(number) < len("1000000"):
        return int(number) if request_name(workload, check, int(number)) == request else None
    return next((each for each in range(1, most + 1) if request_name(workload, check, each) == request), None)


def updates(
    request: ProvisioningRequest, pod_sets: Iterable[NeededPodSet], config: ProvisioningRequestConfig
) -> tuple[PodSetUpdate, ...]:
    """What the pods get so that they run on the nodes of the request. A detail that the provider left out, or that no
    label can have as its value, selects nothing: the API server would refuse the pods.
    """
    details, asked = request.status.provisioning_class_details, config.spec.pod_set_updates
    selector = {
        each.key: details[each.value_from_provisioning_class_detail]
        for each in (asked.node_selector if asked is not None else ())
        if is_label_value(details.get(each.value_from_provisioning_class_detail, " "))
    }
    notes = {CONSUME: request.metadata.name, CLASS_NAME: request.spec.provisioning_class_name}
    return tuple(PodSetUpdate(name=each.name, annotations=notes, node_selector=selector) for each in pod_sets)


# -- bodies ------------------------------------------------------------------------------------------------------------


def bodies(
    workload: Workload,
    pod_sets: Sequence[Json],
    config: ProvisioningRequestConfig,
    name: str,
    flavor: Callable[[str], ResourceFlavor | None],
    spot: SpotRule | None = None,
) -> RequestBodies:
    """The request ``name`` and its PodTemplates. ``pod_sets``: those of the Workload's spec, as JSON. ``spot``: what
    the workload wants of nodes.

    Raises InconsistentPodSetsError, FlavorMissingError and JobError.
    """
    by_name = {str(each.get("name")): each for each in pod_sets}
    admission = workload.status.admission
    assigned = {each.name for each in (admission.pod_set_assignments if admission is not None else ())}
    wanted = needed(workload, config)
    for each in wanted:
        if each.name not in by_name or each.name not in assigned:
            raise InconsistentPodSetsError(f"pod set {each.name} has no flavors assigned")
    templates_of = {each.name: flavored_template(by_name[each.name], each, flavor) for each in wanted}
    for template in templates_of.values():
        with_affinity(template["spec"], off_spot(spot))
    entries = _merged(
        [RequestedPodSet(each.name, each.pods, templates_of[each.name]) for each in wanted],
        config.spec.pod_set_merge_policy,
    )
    owner = reference(workload.api_version or "kueue.x-k8s.io/v1beta2", "Workload", workload)
    about = {"namespace": workload.metadata.namespace, "labels": dict(_LABELS), "ownerReferences": [owner]}
    templates = tuple(
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {**about, "name": template_name(name, entry.name)},
            "template": entry.template,
        }
        for entry in entries
    )
    spec: Json = {
        "provisioningClassName": config.spec.provisioning_class_name,
        "podSets": [
            {"podTemplateRef": {"name": template_name(name, entry.name)}, "count": entry.pods} for entry in entries
        ],
    }
    if given := parameters(workload, config.spec):
        spec["parameters"] = given
    metadata = {**about, "name": name, "annotations": {ASKED_FOR: digest(wanted)}}
    request = {"apiVersion": AUTOSCALING, "kind": "ProvisioningRequest", "metadata": metadata, "spec": spec}
    return RequestBodies(request, templates)


def reference(api_version: str, kind: str, owner: Workload | ProvisioningRequest) -> Json:
    """A controller's reference to an object, which keeps it from being deleted before what it owns."""
    meta = owner.metadata
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def flavored_template(pod_set: Json, needs: NeededPodSet, flavor: Callable[[str], ResourceFlavor | None]) -> Json:
    """The pods' template with the node selectors and tolerations of their flavors. Raises FlavorMissingError."""
    template: Json = copied(mapping(pod_set, "template"))
    spec = template.setdefault("spec", {})
    selector, tolerations = dict(mapping(spec, "nodeSelector")), list(sequence(spec, "tolerations"))
    for name in needs.flavors:
        resource_flavor = flavor(name)
        if resource_flavor is None:
            raise FlavorMissingError(f"ResourceFlavor {name} does not exist")
        selector |= resource_flavor.spec.node_labels
        tolerations += [each for each in map(to_json, resource_flavor.spec.tolerations) if each not in tolerations]
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = tolerations
    parts = [*sequence(spec, "initContainers"), *sequence(spec, "containers"), spec]
    for each in parts:
        if limits := mapping(each, "resources", "limits"):
            each["resources"]["requests"] = {**limits, **mapping(each, "resources", "requests")}
    return template


def _merged(entries: Sequence[RequestedPodSet], policy: str | None) -> list[RequestedPodSet]:
    """The entries with those of equal templates as one, which has the name of the first."""
    merged: dict[Any, RequestedPodSet] = {}
    for entry in entries:
        key = entry.name if policy is None else _alike(entry.template, policy)
        known = merged.get(key)
        merged[key] = entry if known is None else known._replace(pods=known.pods + entry.pods)
    return list(merged.values())


def _alike(template: Json, policy: str) -> bytes:
    """A key that templates share if the policy merges them."""
    compared: Any = template
    if policy == "IdenticalWorkloadSchedulingRequirements":
        spec = mapping(template, "spec")
        containers = [
            [mapping(each, "resources", "requests") for each in sequence(spec, key)]
            for key in ("containers", "initContainers")
        ]
        compared = [{key: spec.get(key) for key in _SCHEDULING}, containers]
    return msgspec.json.encode(compared, order="deterministic")
