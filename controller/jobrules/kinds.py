"""Rules about jobs of kinds that declare where their templates lie: the marks of any job, topology, the kind's own."""

from controller.engine.model.gates import FeatureGates
from controller.jobframework.kind import Refusal
from controller.jobframework.raw import JobError, Json, strings
from controller.jobframework.templated import TemplatedKind
from controller.jobframework.topologyrequest import AskingPodSet, topology_refusals
from controller.jobrules import marks


def created(kind: TemplatedKind, job: Json, gates: FeatureGates) -> list[Refusal]:
    return [*marks.created(job, kind.kind, gates), *topology(kind, job, gates), *kind.validate(job)]


def updated(
    kind: TemplatedKind, old: Json, new: Json, gates: FeatureGates, *, has_default_queue: bool = False
) -> list[Refusal]:
    common = marks.updated(
        old,
        new,
        kind.kind,
        gates,
        was_suspended=kind.is_suspended(old),
        is_suspended=kind.is_suspended(new),
        has_default_queue=has_default_queue,
    )
    return [*common, *topology(kind, new, gates), *kind.validate(new), *kind.validate_update(old, new)]


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
