"""Rules about jobs of kinds that declare where their templates lie: the marks of any job, topology, the kind's own."""

from functools import partial
from typing import Final

from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.raw import JobError, Json, strings
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.framework.topologyrequest import AskingPodSet, topology_refusals
from controller.jobs.rules import marks
from controller.jobs.rules.topology import says as topology_says
from controller.scheduler.model.gates import FeatureGates

_OLD_QUEUE_COUNTS: Final = "ValidateRayAndSparkJobUpdates"


def rules(kind: TemplatedKind) -> tuple[Rule, ...]:
    """The rules about queued jobs of the kind."""
    return (*common(kind), *kind.rules)


def common(kind: TemplatedKind) -> tuple[Rule, ...]:
    """The rules about all jobs of the kind."""
    says = topology_says() if kind.pod_sets_in_cel else {}
    return (*marks.rules(kind.kind, kind.group), Rule(refused=partial(_topology, kind=kind), says=says))


def created(kind: TemplatedKind, job: Json, gates: FeatureGates, *, manage_all: bool = False) -> list[Refusal]:
    """The refusals of a new job. ``manage_all``: jobs without a queue are managed as well."""
    judged = manage_all or _is_judged(kind, job)
    return list(refused(rules(kind) if judged else common(kind), Review(new=job, gates=gates)))


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
    review = Review(
        new=new,
        before=old,
        gates=gates,
        was_suspended=kind.is_suspended(old),
        is_suspended=kind.is_suspended(new),
        has_default_queue=has_default_queue,
    )
    return list(refused(rules(kind) if judged else common(kind), review))


def _is_judged(kind: TemplatedKind, job: Json) -> bool:
    """Whether the kind's own rules apply to the job."""
    return bool(queue_name(job)) or not kind.only_queued_are_judged


def _topology(review: Review, kind: TemplatedKind) -> list[Refusal]:
    """Topology refusals of all pod sets; none for a job whose pod sets cannot be read, which its reconciler refuses."""
    job = review.new
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
    return topology_refusals(asking, review.gates)
