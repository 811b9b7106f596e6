"""The facts of a pod that a Volcano Job's lifecycle reads. Labels and annotations have Volcano's names."""

from typing import Any, Final

import msgspec

from controller.jobs.framework.names import POD_SET
from controller.jobs.framework.podview import TERMINATION_TARGET
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    condition,
    has_condition,
    integer,
    labels,
    sequence,
    text,
)
from controller.objects.meta import Struct, Time
from inventory.api.names import ABOVE_MINIMUM_OF

TASK_INDEX: Final = "volcano.sh/task-index"
TASK_SPEC: Final = "volcano.sh/task-spec"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
QUEUE_NAME: Final = "volcano.sh/queue-name"
PARTITION_ID: Final = "volcano.sh/partition-id"
JOB_VERSION: Final = "volcano.sh/job-version"
JOB_RETRY_COUNT: Final = "volcano.sh/job-retry-count"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"
"""The mark of a pod that the controller itself deletes. Its value is the retry of the job that it is deleted for."""

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_DIGITS: Final = 9


class PodFacts(Struct, frozen=True, kw_only=True):
    """``version``: the version of the job for which the pod was made. ``marked``: see OUT_OF_SYNC; None if it has no
    mark.

    ``exit_code``: of the first container, None while it has none. ``finished_s``, ``deleted_s``: when it ended, and
    when its deletion was requested. ``is_ours``: Tessera made it; else Volcano's own controller did. ``created_s``:
    since when it waits to run; None for a pod above the minimum that is in the queue, or on no node yet. ``is_above``:
    it is above the minimum. ``is_given_up``: the queue deletes it, because its quota is another workload's.
    """

    name: str
    uid: str
    task: str
    index: int
    version: int
    phase: str = "Pending"
    marked: int | None = None
    created_s: float | None = 0.0
    finished_s: float | None = None
    deleted_s: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    is_ready: bool = False
    is_unschedulable: bool = False
    is_ours: bool = True
    is_above: bool = False
    is_given_up: bool = False

    @property
    def is_terminating(self) -> bool:
        return self.deleted_s is not None

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def pod_facts(pod: Json) -> PodFacts | None:
    """The facts of a pod; None if it does not say which of its job's pods it is."""
    try:
        own, annotated = labels(pod), annotations(pod)
        index, version = _number(own.get(TASK_INDEX, annotated.get(TASK_INDEX))), _number(annotated.get(JOB_VERSION))
        task = own.get(TASK_SPEC) or annotated.get(TASK_SPEC, "")
        if index is None or version is None or not task:
            return None
        return _facts(pod, task, index, version, annotated.get(OUT_OF_SYNC))
    except (JobError, msgspec.ValidationError):
        return None


def _facts(pod: Json, task: str, index: int, version: int, mark: str | None) -> PodFacts:
    phase = text(pod, "status", "phase") or "Pending"
    deleted = _time_s(pod, "metadata", "deletionTimestamp")
    if deleted is not None:
        deleted -= integer(pod, "metadata", "deletionGracePeriodSeconds", default=0)
    statuses = [each for each in sequence(pod, "status", "containerStatuses") if isinstance(each, dict)]
    ended = [_time_s(each, "state", "terminated", "finishedAt") for each in statuses]
    created = _time_s(pod, "metadata", "creationTimestamp") or 0.0
    is_above = ABOVE_MINIMUM_OF in annotations(pod)
    return PodFacts(
        name=text(pod, "metadata", "name"),
        uid=text(pod, "metadata", "uid"),
        task=task,
        index=index,
        version=version,
        phase=phase if phase in PHASES else "Unknown",
        marked=None if mark is None else _number(mark) or 0,
        created_s=_bound_s(pod) if is_above else created,
        finished_s=max((at for at in ended if at is not None), default=created),
        deleted_s=deleted,
        exit_code=_exit_code(statuses),
        restarts=sum(integer(each, "restartCount", default=0) for each in statuses),
        is_ready=bool(statuses) and all(each.get("ready") is True for each in statuses),
        is_unschedulable=_is_unschedulable(pod),
        is_ours=is_above or POD_SET in labels(pod),
        is_above=is_above,
        is_given_up=is_above and has_condition(pod, TERMINATION_TARGET),
    )


def _bound_s(pod: Json) -> float | None:
    """The time at which the pod was bound to its node."""
    said = condition(pod, "PodScheduled")
    return _time_s(said, "lastTransitionTime") if said.get("status") == "True" else None


def _exit_code(statuses: list[Json]) -> int | None:
    terminated = statuses and (statuses[0].get("state") or {}).get("terminated")
    return integer(terminated, "exitCode", default=0) if isinstance(terminated, dict) else None


def _is_unschedulable(pod: Json) -> bool:
    return any(
        condition.get("type") == "PodScheduled"
        and condition.get("status") == "False"
        and condition.get("reason") == "Unschedulable"
        for condition in sequence(pod, "status", "conditions")
        if isinstance(condition, dict)
    )


def _number(value: Any) -> int | None:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS
    return int(value) if is_number else None


def _time_s(given: Json, *path: str) -> float | None:
    value = text(given, *path)
    return msgspec.convert(value, Time).timestamp() if value else None
