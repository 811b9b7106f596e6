"""The placement of a Volcano Job: what a start writes into its pods. It is an annotation of the job, so that its spec
is never touched.

The job queues while it has none, and its pods run only while it has one: it is to this kind what ``spec.suspend`` is to
others. A restart of pods reads it again, whatever has become of the Workload's flavors since.
"""

import msgspec

from controller.jobs.framework.podsets import PodSetInfo
from controller.jobs.framework.raw import JobError, Json, annotations
from controller.objects.meta import Struct
from inventory.api.names import PLACEMENT


class TaskPlacement(Struct, frozen=True, kw_only=True):
    """The placement of one task: ``info.count`` of its pods were admitted together. ``kept``: the number that is left
    after a scale-down.

    Quota that was given up by scaling down is another job's by now, so ``kept`` never grows. ``changed``: the version
    of the job that was scaled down, and when: policies answer to it as long as the job has that version. ``ended``, for
    a job with pods above its minimum: the number of those pods that have ended and given their quota back. ``up``, for
    such a job, if something waits for that: whether all of those pods run or have succeeded.
    """

    info: PodSetInfo
    kept: int | None = None
    ended: int = 0
    up: bool = False
    changed: tuple[int, float] | None = None

    @property
    def pods(self) -> int:
        return self.info.count if self.kept is None else min(self.kept, self.info.count)


Placement = dict[str, TaskPlacement]
"""Placements by task."""


def is_placed(job: Json) -> bool:
    return PLACEMENT in annotations(job)


def placement(job: Json) -> Placement | None:
    """The placement in a job's annotation; None for a job that has not been started. Raises JobError for a value that
    the controller did not write.
    """
    value = annotations(job).get(PLACEMENT)
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Placement)
    except msgspec.DecodeError as error:
        where = f"metadata.annotations[{PLACEMENT}]"
        raise JobError(f"{where}: expected what the controller wrote, found {error}") from None


def written(placed: Placement) -> str:
    return msgspec.json.encode(placed, order="deterministic").decode()


def scaled(placed: Placement, replicas: dict[str, int], at: tuple[int, float]) -> Placement:
    """The placement without what tasks with fewer replicas have given up; the very same object if nothing is new.

    ``at``: the job's version, and now.
    """
    changed = {
        name: msgspec.structs.replace(task, kept=replicas[name], changed=at)
        for name, task in placed.items()
        if name in replicas and replicas[name] < task.pods
    }
    return {**placed, **changed} if changed else placed
