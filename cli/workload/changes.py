"""A person's changes of a Workload: whether it is tried at all, its queue, its priority class, its existence.

Pure: a change is one patch of one object, or a sentence that says why it cannot be. Labels are changed on the job, from
which the controller takes them over; a Workload that stands for nothing but itself is changed itself.
"""

from typing import Any, Final

import msgspec

from cli.printing.console import Json
from cli.words import queues as say
from cli.workload.rows import state_of
from controller.cluster.watching.kinds import WORKLOADS
from controller.jobs.framework import names
from controller.objects.queues import WorkloadPriorityClass
from controller.objects.workload import Workload
from kube.resources import PODS, Resource

WORKLOAD_CLASS: Final = ("kueue.x-k8s.io", "WorkloadPriorityClass")


class RefusedError(Exception):
    """A change that cannot be made; one sentence with what was found, what was expected, and the next step."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A merge patch of one object; ``said`` is printed when it was accepted."""

    resource: Resource
    name: str
    patch: Json
    said: str


Owner = tuple[Resource, str] | None
"""The object that the Workload stands for: its kind and its name."""


def activated(workload: Workload, active: bool) -> Change:
    """The change that stops or resumes the Workload. Stopped: it is tried no more, and evicted if it holds quota.
    Resumed: it waits again, as if it were new.
    """
    if state_of(workload) == "Finished":
        raise RefusedError(say.finished(workload.key))
    word = "resumed" if active else "stopped"
    same = workload.spec.active is active
    return Change(
        resource=WORKLOADS,
        name=workload.metadata.name,
        patch={"spec": {"active": active}},
        said=f"Workload {workload.key}: {'already ' if same else ''}{word}",
    )


def moved(workload: Workload, owner: Owner, queue: str) -> Change:
    """The change to another LocalQueue of its namespace; only while it holds no quota."""
    state, key = state_of(workload), workload.key
    if state == "Finished":
        raise RefusedError(say.finished_not_waiting(key))
    if state not in ("Pending", "Stopped"):
        raise RefusedError(say.holds_quota(key))
    if workload.spec.queue_name == queue:
        raise RefusedError(say.already_there(key, queue))
    said = f"Workload {key}: moved to LocalQueue {queue} (was {workload.spec.queue_name or 'none'})"
    if owner is None:
        return _own(workload, {"queueName": queue}, said)
    return _labelled(workload, owner, names.QUEUE_NAME, queue, said)


def raised(workload: Workload, owner: Owner, class_: WorkloadPriorityClass) -> Change:
    """The change to a WorkloadPriorityClass, which may be a lower one as well."""
    key, spec, name = workload.key, workload.spec, class_.metadata.name
    state, ref = state_of(workload), spec.priority_class_ref
    if state == "Finished":
        raise RefusedError(say.finished(key))
    if state not in ("Pending", "Stopped") and (ref is None or (ref.group, ref.kind) != WORKLOAD_CLASS):
        has = "no class" if ref is None else f"{ref.kind} {ref.name}"
        raise RefusedError(say.class_stays(key, has, WORKLOAD_CLASS[1]))
    was = f"{spec.priority or 0}" + (f" by {ref.name}" if ref is not None else "")
    sentence = f"Workload {key}: priority {class_.value} by {name} (was {was})"
    if owner is None:
        group, kind = WORKLOAD_CLASS
        reference = {"group": group, "kind": kind, "name": name}
        return _own(workload, {"priorityClassRef": reference, "priority": class_.value}, sentence)
    return _labelled(workload, owner, names.PRIORITY_CLASS, name, sentence)


def _own(workload: Workload, spec: dict[str, Any], said: str) -> Change:
    return Change(resource=WORKLOADS, name=workload.metadata.name, patch={"spec": spec}, said=said)


def _labelled(workload: Workload, owner: Owner, label: str, value: str, said: str) -> Change:
    assert owner is not None
    resource, name = owner
    if resource == PODS and len(workload.metadata.owner_references) > 1:
        raise RefusedError(say.group_of_pods(workload.key, len(workload.metadata.owner_references), label))
    return Change(resource=resource, name=name, patch={"metadata": {"labels": {label: value}}}, said=said)
