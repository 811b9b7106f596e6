"""What a start puts into the pods of a Volcano Job: an annotation of the job, so that its spec is never touched.

The job queues while it has none, and its pods run only while it has one: it is to this kind what ``spec.suspend`` is to
others. A restart of pods reads it again, whatever has become of the Workload's flavors since.
"""

import msgspec

from controller.jobframework.podsets import PodSetInfo
from controller.jobframework.raw import JobError, Json, annotations
from controller.objects.meta import Struct
from inventory.api.names import PLACEMENT


class TaskPlacement(Struct, frozen=True, kw_only=True):
    """``info.count`` pods of the task were admitted together. ``kept``: as many as are left after a scale-down.

    What was given up by scaling down is another job's quota by now, so ``kept`` never grows. ``changed``: the version
    of the job that was scaled down, and when: policies answer to it as long as the job has that version. ``ended``:
    of those pods, as many as have ended and given their quota back, of a job with pods above its minimum. ``up``: all
    of those pods run or have succeeded, of such a job, where somebody waits for that.
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
"""By task."""


def is_placed(job: Json) -> bool:
    return PLACEMENT in annotations(job)


def placement(job: Json) -> Placement | None:
    """None for a job that has not been started. Raises JobError for a value that is not the controller's."""
    found = annotations(job).get(PLACEMENT)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=Placement)
    except msgspec.DecodeError as error:
        where = f"metadata.annotations[{PLACEMENT}]"
        raise JobError(f"{where}: expected what the controller wrote, found {error}") from None


def written(placed: Placement) -> str:
    return msgspec.json.encode(placed, order="deterministic").decode()


def scaled(placed: Placement, replicas: dict[str, int], at: tuple[int, float]) -> Placement:
    """With what tasks of fewer replicas have given up; the very placement where that is nothing new.

    ``at``: the job's version, and now.
    """
    changed = {
        name: msgspec.structs.replace(task, kept=replicas[name], changed=at)
        for name, task in placed.items()
        if name in replicas and replicas[name] < task.pods
    }
    return {**placed, **changed} if changed else placed
