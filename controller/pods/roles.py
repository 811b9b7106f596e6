"""Pods of a group sorted into roles, one pod set for each: pods that a scheduler cannot tell apart are of one role.

Source: Kueue's KEP 976, "Groups of Pods created beforehand". A role is computed here and nowhere else: an annotation
that states one would let a large pod be counted as a small one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from controller.jobframework import names
from controller.jobframework.podsets import UNCONSTRAINED, JobPodSet, check_requests
from controller.jobframework.podview import (
    FAST_ADMISSION,
    GROUP_NAME,
    GROUP_TOTAL,
    INDEX_OFFSET,
    MANAGED,
    OWN_GATES,
    POD_INDEX,
    POD_INDEX_LABEL,
    RETRIABLE,
    SERVING,
    VOLCANO_GROUPS,
    SeenPod,
)
from controller.jobframework.raw import JobError, Json, mapping, parsed_integer, sequence
from controller.jobframework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobframework.topologyrequest import (
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
    topology_request,
)
from inventory.api.names import DEVICES, PREFIX

MAIN: Final = "main"
MAX_ROLES: Final = 18

_HASH_LENGTH: Final = 8
_SHAPE: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
_CONTAINER_SHAPE: Final = ("ports", "resources", "restartPolicy")
_PLACED_BY: Final = (
    REQUIRED,
    PREFERRED,
    UNCONSTRAINED,
    SLICE_TOPOLOGY,
    SLICE_SIZE,
    SLICE_CONSTRAINTS,
    PODSET_GROUP,
    POD_INDEX_LABEL,
    INDEX_OFFSET,
)
_NOT_IN_TEMPLATE: Final = (
    MANAGED,
    GROUP_NAME,
    GROUP_TOTAL,
    FAST_ADMISSION,
    SERVING,
    RETRIABLE,
    POD_INDEX,
    names.QUEUE_NAME,
    names.PRIORITY_CLASS,
    names.MAX_EXEC_TIME,
    *VOLCANO_GROUPS,
    DEVICES,
)


def role(pod: SeenPod) -> str:
    """8 hexadecimal digits; of an ungated pod those of its start, as its spec has changed since.

    Raises JobError.
    """
    if not pod.is_gated:
        known = pod.labels.get(names.POD_SET, "")
        if known:
            return known
    spec = mapping(pod.raw, "spec")
    shape: Json = {key: spec[key] for key in _SHAPE if spec.get(key)}
    for key in ("initContainers", "containers"):
        shape[key] = [_container(item) for item in sequence(pod.raw, "spec", key)]
    placed = {
        key: value
        for key, value in pod.annotations.items()
        if (key in _PLACED_BY or key.startswith(PREFIX)) and key != DEVICES
    }
    text_ = msgspec.json.encode([shape, placed], order="deterministic")
    return hashlib.sha256(text_).hexdigest()[:_HASH_LENGTH]


def _container(container: Any) -> Json:
    if not isinstance(container, dict):
        raise JobError(f"spec.containers: expected objects, found {type(container).__name__}")
    return {key: container[key] for key in _CONTAINER_SHAPE if container.get(key)}


def template(pod: SeenPod) -> Json:
    """The pod as a template: without what says which pod it is, where it runs, and how it is queued."""
    metadata = {
        key: kept
        for key, found in (("labels", pod.labels), ("annotations", pod.annotations))
        if (kept := {name: value for name, value in found.items() if name not in _NOT_IN_TEMPLATE})
    }
    spec = {key: value for key, value in mapping(pod.raw, "spec").items() if key != "nodeName"}
    gates = [
        gate
        for gate in sequence(pod.raw, "spec", "schedulingGates")
        if not (isinstance(gate, dict) and gate.get("name") in OWN_GATES)
    ]
    spec.pop("schedulingGates", None)
    if gates:
        spec["schedulingGates"] = gates
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def pod_set(pod: SeenPod, name: str, count: int, *, minimum: int | None = None) -> JobPodSet:
    """The pod set of ``count`` pods like this one. Raises JobError."""
    body = template(pod)
    check_requests(body, "")
    offset(pod)
    request = topology_request(
        pod.annotations, path="metadata.annotations", count=count, pod_index_label=index_label(pod)
    )
    return JobPodSet(name=name, count=count, template=body, min_count=minimum, topology_request=request)


def index_label(pod: SeenPod) -> str | None:
    """The label with the pod's number in its role; None where the pods have none."""
    return pod.annotations.get(POD_INDEX_LABEL) or (POD_INDEX if POD_INDEX in pod.labels else None)


def offset(pod: SeenPod) -> int:
    """The number of the first pod of the role. Raises JobError."""
    found, where = pod.annotations.get(INDEX_OFFSET), f"metadata.annotations[{INDEX_OFFSET}]"
    if found is None:
        return 0
    value = parsed_integer(found, where)
    if value < 0:
        raise JobError(f"{where}: expected at least 0, found {value}")
    return value


def by_role(pods: Sequence[SeenPod]) -> dict[str, list[SeenPod]]:
    """Roles in the order of their oldest pods, pods from the oldest on."""
    found: dict[str, list[SeenPod]] = {}
    for pod in sorted(pods, key=lambda member: member.age_key):
        found.setdefault(role(pod), []).append(pod)
    return found
