"""What the pods of a group request together: how many they are, which roles they have, which are too many.

Source: Kueue's KEP 976, "Groups of Pods created beforehand", "Serving Workload" and "Retrying Failed Pods". Foreign
PodGroups are read by ``controller.foreign.podgroups.group``.

Pods of a group are sorted into roles, one pod set for each: pods that a scheduler cannot tell apart are of one role. A
role is computed here and nowhere else: an annotation that states one would let a large pod be counted as a small one.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any, Final

import msgspec

from controller.foreign.podgroups.group import SHARED, ForeignGroup, chosen, lacking
from controller.foreign.podgroups.native import Find, nothing_found
from controller.jobs.framework import names
from controller.jobs.framework.charge import Charge
from controller.jobs.framework.marks import prebuilt_mark, priority_class, queue_name
from controller.jobs.framework.names import PRIORITY_CLASS, QUEUE_NAME, is_object_name
from controller.jobs.framework.podsets import UNCONSTRAINED, JobPodSet, SeenWorkload, check_requests
from controller.jobs.framework.podview import (
    FAST_ADMISSION,
    GROUP_NAME,
    GROUP_TOTAL,
    INDEX_OFFSET,
    POD_INDEX,
    POD_INDEX_LABEL,
    ROLE_HASH,
    SERVING,
    SUSPENDING_PARENT,
    SeenPod,
)
from controller.jobs.framework.raw import JobError, Json, integer, mapping, parsed_integer, sequence, shown, text
from controller.jobs.framework.tiers import Tiers, asked, together
from controller.jobs.framework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobs.framework.topologyrequest import (
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
    ranked,
    topology_request,
)
from inventory.api.names import COMPOSITE_GROUP, DEVICES, OUT_OF_GROUP, PREFIX
from inventory.words.catalog import plural

MAIN: Final = "main"
MAX_ROLES: Final = 18

_HASH_LENGTH: Final = 8
_SHAPE: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
"""The fields by which Kueue tells roles apart, beside containers; a pod's own ``resources`` if it has some."""
_MAPS: Final = ("nodeSelector", "overhead")
_MORE: Final = ("priorityClassName", "schedulerName")
_DEFAULTS: Final = {"schedulerName": "default-scheduler"}
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
_OF_NO_SHAPE: Final = (DEVICES, COMPOSITE_GROUP, OUT_OF_GROUP)
"""Annotations of Tessera's that say nothing about what a pod requests."""


def role(pod: SeenPod) -> str:
    """The role of a pod: 8 hexadecimal digits; for an ungated pod the digits of its start, as its spec has changed
    since.

    The digits are Kueue's (its function GenerateRoleHash), so that groups which Kueue started go on. Fields that Kueue
    does not tell pods apart by and that decide on their places here are added if a pod has them. Fields stand in the
    order in which the API server writes them. Raises JobError.
    """
    if of_serving_object(pod):
        return pod.annotations.get(ROLE_HASH, MAIN)
    if not pod.is_gated:
        known = pod.labels.get(names.POD_SET, "")
        if known:
            return known
    spec = mapping(pod.raw, "spec")
    shape: Json = {key: spec.get(key) or None for key in _SHAPE}
    shape |= {key: dict(sorted(shape[key].items())) for key in _MAPS if isinstance(shape[key], dict)}
    for key in ("initContainers", "containers"):
        shape[key] = [_container(item) for item in sequence(pod.raw, "spec", key)] or None
    if own := spec.get("resources"):
        shape["resources"] = own
    text_ = msgspec.json.encode({**_beyond(pod), "spec": dict(sorted(shape.items()))})
    return hashlib.sha256(text_).hexdigest()[:_HASH_LENGTH]


def of_serving_object(pod: SeenPod) -> bool:
    """Whether the pod's Workload was made of the serving object that it belongs to, by the pod's marks."""
    return SUSPENDING_PARENT in pod.annotations and prebuilt_mark(pod.raw)[1] == pod.group != ""


def _container(container: Any) -> Json:
    if not isinstance(container, dict):
        raise JobError(f"spec.containers: expected objects, found {type(container).__name__}")
    asked = {**mapping(container, "resources", "limits"), **mapping(container, "resources", "requests")}
    return {"ports": container.get("ports") or None, "resources": {"requests": dict(sorted(asked.items())) or None}}


def _beyond(pod: SeenPod) -> Json:
    """The further fields that tell pods apart; empty for most."""
    spec = mapping(pod.raw, "spec")
    fields: Json = {key: spec[key] for key in _MORE if spec.get(key) and spec[key] != _DEFAULTS.get(key)}
    sidecars = [item.get("restartPolicy") for item in sequence(pod.raw, "spec", "initContainers")]
    if any(sidecars):
        fields["sidecars"] = sidecars
    placed = {
        key: value
        for key, value in sorted(pod.annotations.items())
        if (key in _PLACED_BY or key.startswith(PREFIX)) and key not in _OF_NO_SHAPE
    }
    if placed:
        fields["placed"] = placed
    return {"more": fields} if fields else {}


def template(pod: SeenPod) -> Json:
    """The pod as a template: without its identity, its node and its queueing.

    Annotations about its devices are kept; labels say nothing about those. Its gates stay, as in Kueue's workloads: a
    pod that has waited since Kueue is the same.
    """
    of_devices = {
        key: value for key, value in pod.annotations.items() if key.startswith(PREFIX) and key not in _OF_NO_SHAPE
    }
    spec = {key: value for key, value in mapping(pod.raw, "spec").items() if key != "nodeName"}
    if made := mapping(pod.raw, SHARED):
        spec["resourceClaims"] = [_shared(claim, made) for claim in sequence(pod.raw, "spec", "resourceClaims")]
    return {"metadata": {"annotations": of_devices}, "spec": spec} if of_devices else {"spec": spec}


def _shared(claim: Any, made: Mapping[str, str]) -> Any:
    """The claim of a pod by the name of the ResourceClaim that its group has for it: it is charged once."""
    name = claim.get("name") if isinstance(claim, dict) else None
    return {"name": name, "resourceClaimName": made[name]} if isinstance(name, str) and name in made else claim


def pod_set(pod: SeenPod, name: str, count: int, *, minimum: int | None = None) -> JobPodSet:
    """The pod set of ``count`` pods like this one. Raises JobError."""
    body = template(pod)
    check_requests(body, "")
    offset(pod)
    request = ranked(
        topology_request(pod.annotations, path="metadata.annotations", count=count), index_label(pod), None, None
    )
    return JobPodSet(name=name, count=count, template=body, min_count=minimum, topology_request=request)


def index_label(pod: SeenPod) -> str:
    """The label with the pod's number in its role; empty if pods are placed in any order."""
    return pod.annotations.get(POD_INDEX_LABEL) or POD_INDEX


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
    """The pods of each role: roles in the order of their oldest pods, pods from the oldest on."""
    found: dict[str, list[SeenPod]] = {}
    for pod in sorted(pods, key=lambda member: member.age_key):
        found.setdefault(role(pod), []).append(pod)
    return found


@dataclass(frozen=True, kw_only=True)
class Sister:
    """A waiting pod of the same PodGroup of Kubernetes' own. ``workload``: that by which it is queued, None if there is
    none yet.
    """

    pod: SeenPod
    workload: SeenWorkload | None


@dataclass(frozen=True, kw_only=True)
class SeenPods:
    """All pods of one group, or one pod on its own, with what belongs to them.

    ``workload``: the one of the name that ``compose.workload_name`` gives, whatever owns it. ``pod_group``: the
    foreign object that they are in; ``find`` finds Kubernetes' own of their namespace. ``namespace_terminating``:
    the namespace is being deleted: no pods follow. ``predecessor_runs``: the pod whose quota this one takes over may
    still be on its node. ``minimum``: for a pod above the minimum of its group, that group's Workload. ``sisters``:
    what else of their PodGroup of Kubernetes' own waits, and is queued apart. ``charge``, ``unread``: as for a job,
    see ``Observed``.
    """

    pods: tuple[SeenPod, ...]
    workload: SeenWorkload | None = None
    pod_group: Json | None = None
    find: Find = nothing_found
    namespace_labels: Mapping[str, str] = default(default_factory=dict)
    namespace_terminating: bool = False
    predecessor_runs: bool = False
    minimum: SeenWorkload | None = None
    sisters: tuple[Sister, ...] = ()
    charge: Charge | None = None
    unread: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of ``total`` pods, which may start with ``minimum`` of them. ``name`` is empty for a single pod.

    ``declared``: the pods themselves name their total, so one more is too many; a PodGroup (``foreign``) names a
    minimum. ``of_object``: the Workload is made of the object that the pods belong to, not of the pods.
    """

    name: str
    total: int
    minimum: int
    fast: bool = False
    serving: bool = False
    declared: bool = True
    of_object: bool = False
    foreign: ForeignGroup | None = None


def group_of(pods: Sequence[SeenPod], foreign: ForeignGroup | None = None) -> Group:
    """The group of pods. ``pods`` is not empty; pods of a PodGroup come with it. Raises JobError if they contradict
    each other.
    """
    oldest = min(pods, key=lambda member: member.age_key)
    name = oldest.group if foreign is None else foreign.name
    if not name:
        return Group(name="", total=1, minimum=1)
    if not is_object_name(name):
        where = f"metadata.labels[{GROUP_NAME}]"
        raise JobError(f"{where}: expected a name of lower case letters, digits, '-' and '.', found {shown(name)}")
    if of_serving_object(oldest):
        total = oldest.total()
        return Group(name=name, total=total, minimum=total, fast=True, serving=True, of_object=True)
    _agree(pods, QUEUE_NAME, lambda pod: queue_name(pod.raw))
    _agree(pods, PRIORITY_CLASS, lambda pod: priority_class(pod.raw))
    if foreign is not None and foreign.system is None:
        _check_scheduled_together(pods, foreign)
    if foreign is None:
        _agree(pods, GROUP_TOTAL, lambda pod: str(pod.total()))
        total = minimum = oldest.total()
        _check_indexes(pods, total)
    elif foreign.part:
        total = minimum = foreign.minimum
    else:
        _agree(pods, GROUP_TOTAL, lambda pod: pod.annotations.get(GROUP_TOTAL, ""))
        minimum = foreign.minimum
        total = oldest.total() if GROUP_TOTAL in oldest.annotations else minimum
    if minimum > total:
        field = "spec.minMember" if foreign is None or foreign.system else "spec.schedulingPolicy.gang.minCount"
        raise JobError(f"PodGroup {name}: {field} is {minimum}, and the group has {plural(total, 'pod')}")
    return Group(
        name=name,
        total=total,
        minimum=minimum,
        fast=oldest.flag(FAST_ADMISSION),
        serving=oldest.flag(SERVING),
        declared=foreign is None or (GROUP_TOTAL in oldest.annotations and not foreign.part),
        foreign=foreign,
    )


def _check_scheduled_together(pods: Sequence[SeenPod], group: ForeignGroup) -> None:
    """Checks what kube-scheduler asks of the pods of a group: it starts none of a group otherwise. Raises JobError."""
    for key in ("schedulerName", "preemptionPolicy"):
        _agree(pods, f"spec.{key}", lambda pod, key=key: text(pod.raw, "spec", key))  # type: ignore[misc]
    for pod in pods:
        found = integer(pod.raw, "spec", "priority", default=group.priority or 0)
        if group.priority is not None and found != group.priority:
            where = f"PodGroup {group.title}: spec.priority"
            raise JobError(f"{where}: expected {found}, that of pod {pod.name}, found {group.priority}")


def filling(group: Group, pods: Sequence[SeenPod]) -> list[SeenPod]:
    """The first of ``pods`` that fill the group of a PodGroup, in their order."""
    return list(pods[: group.total]) if group.foreign is None else chosen(group.foreign, pods, group.total)


def short(group: Group, pods: Sequence[SeenPod]) -> str:
    """A sentence on why these pods are too few; empty if they are not."""
    parts = "" if group.foreign is None else lacking(group.foreign, pods)
    whole = f"{len(pods)} of {plural(group.total, 'pod')}"
    if group.foreign is not None and group.foreign.system is None and not group.foreign.groups:
        told = f"PodGroup {group.foreign.title} has {plural(len(pods), 'pod')}, and its minCount is {group.total}"
        return told if len(pods) < group.total else ""
    title = group.name if group.foreign is None else group.foreign.title
    if not parts:
        return f"group {title} has {whole}" if len(pods) < group.total else ""
    return f"group {title} has {parts}" if len(pods) >= group.minimum else f"group {title} has {whole}"


def _check_indexes(pods: Sequence[SeenPod], total: int) -> None:
    for pod in pods:
        found, where = pod.labels.get(POD_INDEX), f"metadata.labels[{POD_INDEX}]"
        if found is not None and not 0 <= parsed_integer(found, where) < total:
            raise JobError(f"{where}: expected at least 0 and below the total {total}, found {shown(found)}")


def copied_labels(pods: Sequence[SeenPod], keys: Sequence[str]) -> dict[str, str]:
    """Labels that the workload copies from all of its pods. Raises JobError if two disagree."""
    copied: dict[str, str] = {}
    for pod in pods:
        for key in keys:
            value = pod.labels.get(key)
            if value is not None and copied.setdefault(key, value) != value:
                where = f"metadata.labels[{key}]"
                raise JobError(f"{where}: the pods of a group must agree, found {shown(value)} on {pod.name}")
    return copied


def _agree(pods: Sequence[SeenPod], key: str, read: Callable[[SeenPod], str]) -> None:
    first, *others = sorted(pods, key=lambda member: member.age_key)
    for pod in others:
        if read(pod) != read(first):
            raise JobError(
                f"{key}: the pods of a group must agree, found {shown(read(first))} on {first.name} "
                f"and {shown(read(pod))} on {pod.name}"
            )


def pod_sets(group: Group, pods: Sequence[SeenPod], tiers: Tiers = ()) -> tuple[JobPodSet, ...]:
    """A pod set for each role of ``pods``; empty while other pods have to come first. Raises JobError.

    Under fast admission pods of a single role stand for those that are still to come. ``tiers``: see ``JobSettings``.
    """
    made = _pod_sets(group, pods)
    if group.foreign is None or len(made) > 1:
        return made  # what several pod sets share is the gang's, see ``ForeignGroup.shape``
    if group.foreign.system is None:
        level = "" if group.foreign.part else group.foreign.levels.required_topology_level
        return together(made, {"required": level} if level else {}, f"PodGroup {group.name}")
    if group.foreign.network is None:
        return made
    path = f"PodGroup {group.name}: spec.networkTopology"
    return together(made, asked(group.foreign.network, tiers, path), path)


def _pod_sets(group: Group, pods: Sequence[SeenPod]) -> tuple[JobPodSet, ...]:
    roles = by_role(pods)
    if len(roles) > MAX_ROLES and group.foreign is not None and group.foreign.groups:
        why = "as many as a Workload may have pod sets"
        most = f"expected at most {MAX_ROLES} groups and shapes of pods in one tree, {why}, found {len(roles)}"
        raise JobError(f"group {group.foreign.title}: {most}")
    if len(roles) > MAX_ROLES:
        raise JobError(f"group {group.name}: expected at most {MAX_ROLES} different shapes of pods, found {len(roles)}")
    missing = group.total - len(pods)
    if not group.name:
        return (pod_set(pods[0], MAIN, 1),)
    if group.foreign is not None and lacking(group.foreign, pods):
        return ()
    if len(roles) == 1 and (group.fast or len(pods) >= group.minimum):
        ((name, own),) = roles.items()
        minimum = group.minimum if group.minimum < group.total else None
        count = group.total if group.declared else max(group.total, len(own))  # a subgroup may be larger
        return (pod_set(_model(own), name, count, minimum=minimum),)
    if missing > 0:
        return ()
    return tuple(pod_set(_model(own), name, len(own)) for name, own in sorted(roles.items()))


def all_ready(pods: Sequence[SeenPod], needed: int) -> bool:
    """Whether as many pods as are needed have started, and all started ones are ready or have succeeded."""
    here = [pod for pod in pods if not pod.is_gated]
    return len(here) >= needed and all(pod.is_ready for pod in here)


def _model(pods: Sequence[SeenPod]) -> SeenPod:
    """The pod that stands for a role: the oldest gated pod, else the oldest. The start of an ungated pod has changed
    its spec, its node above all.
    """
    return next((pod for pod in pods if pod.is_gated), pods[0])


def excess(group: Group, pods: Sequence[SeenPod], counts: Mapping[str, int] | None) -> list[SeenPod]:
    """The ``pods`` that are too many, in the order in which they are to go.

    ``counts``: pods by role that the workload has, once it can no longer change; a pod of another role is too many.
    Pods without the queue's finalizer go first, then gated pods before pods that run, newer pods before older ones; a
    pod that has succeeded is counted and kept.
    """
    roles = {"": list(pods)} if counts is None else by_role(pods)
    allowed = {"": group.total} if counts is None else counts
    superfluous: list[SeenPod] = []
    for name, own in roles.items():
        spare = len(own) - allowed.get(name, 0)
        leaving = sorted((pod for pod in own if pod.stays), key=lambda pod: pod.age_key, reverse=True)
        leaving.sort(key=lambda pod: (pod.has_finalizer, not pod.is_gated))
        superfluous += leaving[: max(spare, 0)]
    return superfluous
