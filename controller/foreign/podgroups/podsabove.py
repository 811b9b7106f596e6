"""What becomes of pods of a PodGroup of Kubernetes' own that get no quota. Pure.

kube-scheduler starts none of a group while one of its pods has a scheduling gate. A pod that a controller makes anew is
deleted when others start. One that nobody makes anew is kept where the annotation ``tessera.dev/pods-above`` of its
PodGroup says so, and without it where the policy is basic: then the pods that wait get quota all at once or not at all.
"""

from dataclasses import replace
from typing import Final

from controller.foreign.podgroups.group import ForeignGroup
from controller.foreign.podgroups.native import Find
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError, Json, annotations, at, shown
from inventory.api.names import COMPOSITE_GROUP, OUT_OF_GROUP, PODS_ABOVE

BEGINS_WITH: Final = "$beginsWith"
"""The key under which ``beginning_together`` puts the name of the PodGroup into a pod's JSON; no API has it."""
_DELETE: Final = "delete"
_KEEP: Final = "keep"


def is_kept(pod: SeenPod, given: Json | None) -> bool:
    """Whether the pod waits for quota where its sisters have some. ``given``: its PodGroup, None if that is gone."""
    if controller_of(pod.raw) is not None or COMPOSITE_GROUP in pod.annotations:
        return False
    said = _said(given)
    if said in (_DELETE, _KEEP):
        return said == _KEEP
    return OUT_OF_GROUP in pod.annotations or (given is not None and _is_basic(given))


def problem_of(pod: SeenPod, given: Json | None) -> str:
    """The sentence on a wrong value of the annotation; empty for none."""
    value = _said(given)
    if value in ("", _DELETE, _KEEP):
        return ""
    where = f"PodGroup {pod.native_group}: metadata.annotations[{PODS_ABOVE}]"
    return f"{where}: found {shown(value)}, expected {_DELETE} or {_KEEP}"


def beginning_together(pod: SeenPod, find: Find) -> SeenPod:
    """A pod that is queued by itself, with the name of the PodGroup whose waiting pods get quota together with it, if
    there is one, under ``BEGINS_WITH``.
    """
    name = pod.native_group
    if not name or not is_kept(pod, find(name, False)):
        return pod
    return SeenPod({**pod.raw, BEGINS_WITH: name})


def begins_with(pod: SeenPod) -> str:
    """The PodGroup of a pod from ``beginning_together``; empty for none."""
    found = pod.raw.get(BEGINS_WITH, "")
    return found if isinstance(found, str) else ""


def whole(group: ForeignGroup, pods: tuple[SeenPod, ...], given: Json | None) -> ForeignGroup:
    """The group with all of its pods for its minimum, if all are kept. ``pods``: those of a group that holds no
    quota.
    """
    there = [pod for pod in pods if pod.stays or pod.has_succeeded]
    if group.system is not None or group.groups or group.part or not there:
        return group
    if not all(is_kept(pod, given) for pod in there):
        return group
    return replace(group, minimum=max(group.minimum, len(there)), kept=len(there) > group.minimum)


def _said(given: Json | None) -> str:
    try:
        return "" if given is None else annotations(given).get(PODS_ABOVE, "")
    except JobError:
        return ""


def _is_basic(given: Json) -> bool:
    try:
        return at(given, "spec", "schedulingPolicy", "basic") is not None
    except JobError:
        return False
