"""The mutating webhooks for objects of Volcano and KAI, for API servers without MutatingAdmissionPolicy. Pure.

They do what the chart's policies do: an object for a queue of theirs gets Kueue's label with that queue's name and
waits like any other, pods that name their scheduler are bound by the default one, a serving object that is a Volcano
gang is stamped as one, and a Volcano Job gets its defaults. Each webhook is for one system: their configurations select
the namespaces of its switch, and leave out children of other jobs.
"""

from collections.abc import Mapping
from typing import Final

from controller.cluster.config.settings import ForeignSystem
from controller.cluster.webhooks import jobs, pods
from controller.cluster.webhooks.jobs import SuspendPaths
from controller.cluster.webhooks.review import answered, escaped
from controller.foreign.rules.schedulers import DEFAULT_SCHEDULER
from controller.foreign.rules.servinggangs import is_asked, is_deployment, stamped
from controller.foreign.rules.volcanodefaults import defaulted
from controller.jobs.framework.foreignmarks import foreign_queue
from controller.jobs.framework.podview import SCHEDULERS
from controller.jobs.framework.raw import JobError
from controller.objects.conversion.tree import ConversionError, Json, child, text
from controller.scheduler.mirror.specs import System
from inventory.api.names import SCHEDULER_NAME

_OBJECT: Final = ".request.object"
GANG_PATH: Final = "/mutate-volcano-gang"
DEFAULTS_PATH: Final = "/mutate-volcano-defaults"
Schedulers = Mapping[str, System]
_ITS_GROUPS: Final = "?"
"""Stands for the queue of a pod's PodGroup. No queue has this name."""


def queue_answer(
    body: bytes,
    *,
    switch: ForeignSystem,
    schedulers: Schedulers = SCHEDULERS,
    suspend_paths: SuspendPaths | None = None,
) -> bytes:
    """The review of the same uid: allowed, with the label and what holds the job or pod back; refused if marks of both
    systems leave open whose it is. ``schedulers``: both systems', by name.
    """

    def made(given: Json, _namespace: str) -> list[Json]:
        return queue_patch(given, switch, suspend_paths or {}, schedulers)

    return answered(body, made)


def scheduler_answer(body: bytes, *, switch: ForeignSystem) -> bytes:
    """The answer to a review of a pod: allowed, with the default scheduler's name."""

    def made(pod: Json, _namespace: str) -> list[Json]:
        return scheduler_patch(pod, switch)

    return answered(body, made)


def gang_answer(body: bytes, *, switch: ForeignSystem, schedulers: Schedulers = SCHEDULERS) -> bytes:
    """The answer to a review of a Deployment or StatefulSet whose pods start together: allowed, with its stamps."""

    def made(owner: Json, _namespace: str) -> list[Json]:
        return gang_patch(owner, switch, schedulers)

    return answered(body, made, made)


def defaults_answer(body: bytes) -> bytes:
    """The answer to a review of a Volcano Job: allowed, with defaults for fields that are not set."""

    def made(job: Json, _namespace: str) -> list[Json]:
        return defaults_patch(job)

    return answered(body, made)


def queue_patch(
    given: Json, switch: ForeignSystem, suspend_paths: SuspendPaths, schedulers: Schedulers = SCHEDULERS
) -> list[Json]:
    """The JSON patch (RFC 6902) that queues the object; empty for one that names a queue already, or is for none of the
    system's.

    A pod that leaves its queue to its PodGroup is held without the label: the controller reads the group.
    """
    queue = _queue(given, switch, schedulers)
    api_version, kind = (text(given, key, _OBJECT) for key in ("apiVersion", "kind"))
    is_pod = (api_version, kind) == ("v1", "Pod")
    if not queue or (queue == _ITS_GROUPS and not is_pod):
        return []
    labels = child(child(given, "metadata", _OBJECT) or {}, "labels", f"{_OBJECT}.metadata")
    queued = {
        **given,
        "metadata": {**(given.get("metadata") or {}), "labels": {**(labels or {}), jobs.QUEUE_LABEL: queue}},
    }
    marks = [jobs.labelled(labels, queue)]
    if queue == _ITS_GROUPS:
        marks = [] if labels is not None else [{"op": "add", "path": "/metadata/labels", "value": {}}]
    if is_pod:
        return [*marks, *pods.patch(queued, manage_without_queue_name=False)]
    path = suspend_paths.get((api_version.rpartition("/")[0], kind), jobs.PLAIN)
    return [*marks, *jobs.suspended(queued, path)]


def _queue(given: Json, switch: ForeignSystem, schedulers: Schedulers) -> str:
    try:
        found = foreign_queue(given, lambda _namespace, _group: _ITS_GROUPS, schedulers)
    except (JobError, AttributeError, TypeError) as error:
        raise ConversionError(f"{_OBJECT}: {error}") from None
    return "" if found is None or found.system is not switch.system else found.name


def gang_patch(owner: Json, switch: ForeignSystem, schedulers: Schedulers = SCHEDULERS) -> list[Json]:
    """The JSON patch with stamps for a Deployment's pods, or the label of its queue for a StatefulSet; empty for an
    object that is no gang of the system.
    """
    try:
        if not is_asked(owner) or (queue := _queue(owner, switch, schedulers)) in ("", _ITS_GROUPS):
            return []
        if is_deployment(owner):
            return jobs.differences(owner, stamped(owner, queue))
        return [jobs.labelled(owner["metadata"].get("labels"), queue)]
    except JobError as error:
        raise ConversionError(f"{_OBJECT}: {error}") from None


def defaults_patch(job: Json) -> list[Json]:
    """The JSON patch with a Volcano Job's defaults. Lists that differ are replaced whole."""
    try:
        return jobs.differences(job, defaulted(job))
    except JobError as error:
        raise ConversionError(f"{_OBJECT}: {error}") from None


def scheduler_patch(pod: Json, switch: ForeignSystem) -> list[Json]:
    """The JSON patch that replaces a pod's scheduler. The pod's former one is kept in an annotation: it may be all that
    says whose queue it is for.
    """
    spec = child(pod, "spec", _OBJECT) or {}
    named = text(spec, "schedulerName", f"{_OBJECT}.spec")
    if switch.binds(named) == named or named not in switch.scheduler_names:
        return []
    annotations = child(child(pod, "metadata", _OBJECT) or {}, "annotations", f"{_OBJECT}.metadata")
    kept = {"op": "add", "path": f"/metadata/annotations/{escaped(SCHEDULER_NAME)}", "value": named}
    return [
        *([] if annotations is not None else [{"op": "add", "path": "/metadata/annotations", "value": {}}]),
        kept,
        {"op": "add", "path": "/spec/schedulerName", "value": DEFAULT_SCHEDULER},
    ]


def queue_path(system: System) -> str:
    return f"/mutate-{system}-queue"


def scheduler_path(system: System) -> str:
    return f"/mutate-{system}-scheduler"
