"""Rules about jobs of kinds that declare where their templates lie: the marks of any job, topology, the kind's own."""

from typing import Final

from controller.engine.model.gates import FeatureGates
from controller.jobframework.kind import Refusal
from controller.jobframework.marks import queue_name
from controller.jobframework.raw import JobError, Json, strings
from controller.jobframework.templated import TemplatedKind
from controller.jobframework.topologyrequest import AskingPodSet, topology_refusals
from controller.jobrules import marks

_OLD_QUEUE_COUNTS: Final = "ValidateRayAndSparkJobUpdates"


def created(kind: TemplatedKind, job: Json, gates: FeatureGates, *, manage_all: bool = False) -> list[Refusal]:
    """``manage_all``: jobs without a queue are managed as well."""
    common = [*marks.created(job, kind.kind, gates), *topology(kind, job, gates)]
    return [*common, *kind.validate(job)] if manage_all or _is_judged(kind, job) else common


def updated(
    kind: TemplatedKind,
    old: Json,
    new: Json,
    gates: FeatureGates,
    *,
    has_default_queue: bool = False,
    manage_all: bool = False,
) -> list[Refusal]:
    judged = manage_all or _is_judged(kind, new)
    if not judged and not (gates.on(_OLD_QUEUE_COUNTS) and queue_name(old)):
        return []
    common = marks.updated(
        old,
        new,
        kind.kind,
        gates,
        was_suspended=kind.is_suspended(old),
        is_suspended=kind.is_suspended(new),
        has_default_queue=has_default_queue,
    )
    found = [*common, *topology(kind, new, gates)]
    return [*found, *kind.validate(new), *kind.validate_update(old, new)] if judged else found


def _is_judged(kind: TemplatedKind, job: Json) -> bool:
    """Whether the kind's own rules are about it."""
    return bool(queue_name(job)) or not kind.only_queued_are_judged


def topology(kind: TemplatedKind, job: Json, gates: FeatureGates) -> list[Refusal]:
    """Of all pod sets; nothing of a job whose pod sets cannot be told, which its reconciler refuses."""
    try:
        asking = [
            AskingPodSet(
                name=slot.name,
                path=slot.annotations_shown,
                count=slot.count,
                annotations=strings(slot.written(job), "metadata", "annotations"),
            )
            for slot in kind.slots(job)
        ]
    except JobError:
        return []
    return topology_refusals(asking, gates)
