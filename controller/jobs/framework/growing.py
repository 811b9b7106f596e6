"""Jobs that begin with a minimum and grow: which jobs do, and with how many pods each of them begins.

A foreign pod grouper makes of some kinds a gang of fewer pods than they have. Such a job in that system's queue has a
Workload of its minimum; its other pods are queued one by one (``controller.reconcile.placing.growing``). All its pods
are created behind a gate, with an empty ``ABOVE_MINIMUM_OF``, which tells of a started job that it was started so.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from controller.jobs.framework.foreignmarks import (
    KAI_BATCH_MINIMUM,
    KUBEFLOW_MINIMUMS,
    asks_for_level,
    is_in_kai_queue,
    minimum_in,
)
from controller.jobs.framework.marks import prebuilt_mark
from controller.jobs.framework.names import ELASTIC_JOB, MIN_PARALLELISM
from controller.jobs.framework.podsets import is_marked
from controller.jobs.framework.podview import GROUP_NAME
from controller.jobs.framework.raw import JobError, Json, annotations, at, labels, shown, strings
from inventory.api.names import ABOVE_MINIMUM_OF

_PLACED_BY_ITSELF: Final = "kueue.x-k8s.io/podset-"
"""Annotations of templates that request places for all pods of a pod set."""
_ANY_ONE: Final = 1


def batch_minimum(job: Json) -> int | None:
    """The size of the gang that a pod grouper makes of a batch Job's pods; None for a number that cannot be read."""
    said = annotations(job).get(KAI_BATCH_MINIMUM) or labels(job).get(KAI_BATCH_MINIMUM)
    return minimum_in(said) if said else _ANY_ONE


def kubeflow_minimum(job: Json) -> int | None:
    """The size of the gang that a pod grouper makes of a training operator's job; None if it asks for no such gang."""
    said = (value for path in KUBEFLOW_MINIMUMS if isinstance(value := at(job, *path), int))
    return next((least for value in said if (least := minimum_in(value)) is not None), None)


def begins_with(
    job: Json, counts: Mapping[str, int], least: int | None, templates: Iterable[Json], *, may_grow: bool
) -> dict[str, int]:
    """Pods by pod set that start together, out of all of ``counts``: ``least`` in the order of the pod sets, or all of
    them if the job does not grow.

    ``may_grow``: whether pods above a minimum are told apart, let go of and queued here, see ``JobKind.whole``. Raises
    JobError for a job that was not started and carries the mark all the same: its pods could not be told apart.
    """
    starting = dict(counts)
    if least is None or min(starting.values(), default=0) < 0 or not 0 < least < sum(starting.values()):
        return starting
    if not _grows(job, tuple(templates), may_grow=may_grow):
        return starting
    left = least
    for name, count in starting.items():
        starting[name] = min(count, left)
        left -= starting[name]
    return starting


def _grows(job: Json, templates: tuple[Json, ...], *, may_grow: bool) -> bool:
    annotated = [strings(template, "metadata", "annotations") for template in templates]
    if any(map(is_marked, templates)):
        return may_grow and any(ABOVE_MINIMUM_OF in each for each in annotated)
    if (forged := next((each[ABOVE_MINIMUM_OF] for each in annotated if ABOVE_MINIMUM_OF in each), None)) is not None:
        where = f"metadata.annotations[{ABOVE_MINIMUM_OF}] of a pod template"
        raise JobError(f"{where}: expected none, the controller writes it; found {shown(forged)}")
    if not may_grow or any(key.startswith(_PLACED_BY_ITSELF) for each in annotated for key in each):
        return False
    if any(map(asks_for_level, templates)):
        return False
    if any(GROUP_NAME in {**labels(template), **annotations(template)} for template in templates):
        return False
    others = {MIN_PARALLELISM, ELASTIC_JOB} & {*annotations(job), *labels(job)}
    return not others and not prebuilt_mark(job)[1] and is_in_kai_queue(job)
