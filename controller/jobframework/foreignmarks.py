"""Marks of Volcano and KAI on jobs and pods, as ours: the queue, the priority, whether the job may be preempted.

An object that names a LocalQueue is Kueue's: that label wins. Sources: KAI's pod grouper (label on the owner, then on
the pod), Volcano's annotations on pods and owners, and the ``schedulerName`` of pods that name no queue. JobError for a
mark that cannot be read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from controller.engine.mirror.specs import System
from controller.jobframework.marks import queue_name
from controller.jobframework.names import QUEUE_NAME
from controller.jobframework.podview import KAI_QUEUE, SCHEDULERS, GroupName, foreign_group
from controller.jobframework.raw import Json, annotations, at, labels, mapping, parsed_duration, text
from inventory.api.names import SCHEDULER_NAME

KAI_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
KAI_PRIORITY_CLASS: Final = "priorityClassName"
"""A label of this plain key."""
VOLCANO_QUEUES: Final = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
VOLCANO_PREEMPTABLE: Final = "volcano.sh/preemptable"
DEFAULT_QUEUES: Final = {System.VOLCANO: "default", System.KAI: "default-queue"}
KAI_PRIORITIES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""KAI's own classes, which count where the cluster has none of that name."""
SPARK_SCHEDULER: Final = ("spec", "batchScheduler")
SPARK_QUEUE: Final = ("spec", "batchSchedulerOptions", "queue")
KUBEFLOW_QUEUE: Final = ("spec", "runPolicy", "schedulingPolicy", "queue")
KAI_STALENESS: Final = "kai.scheduler/staleness-grace-period"
KAI_BATCH_MINIMUM: Final = "kai.scheduler/batch-min-member"

KUBEFLOW_MINIMUMS: Final = (
    ("spec", "elasticPolicy", "minReplicas"),
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
)
_NUMBER: Final = re.compile("[0-9]{1,9}", re.ASCII)
_MARKS: Final = {"annotations": annotations, "labels": labels}

_VOLCANO_GROUP: Final = "batch.volcano.sh"
_BY_KIND: Final = {"Deployment": "inference", "Notebook": "build"}
_OF_JOBS: Final = "train"
_OF_DEPLOYMENTS: Final = "pod-template-hash"
"""A label of pods that a Deployment made, and of no others."""
_DEPTH: Final = 8

GroupQueue = Callable[[str, GroupName], str]
"""The queue of a PodGroup, by its namespace and name; empty where there is no such group."""
PriorityOf = Callable[[str], int | None]
"""Value of a PriorityClass, by its name."""


class ForeignQueue(NamedTuple):
    """A queue of another system, under its name there."""

    system: System
    name: str


def no_group(_namespace: str, _name: GroupName) -> str:
    return ""


def foreign_queue(
    job: Json, group_queue: GroupQueue = no_group, schedulers: Mapping[str, System] = SCHEDULERS
) -> ForeignQueue | None:
    """The queue that the object is for; None where it is for none of them, or names one of Kueue's."""
    if queue_name(job):
        return None
    marked = [job, *pod_templates(job)]
    for each in marked:
        if name := labels(each).get(KAI_QUEUE, ""):
            return ForeignQueue(System.KAI, name)
        if name := _volcano_queue(each):
            return ForeignQueue(System.VOLCANO, name)
        group = foreign_group(labels(each), annotations(each), text(each, "spec", "schedulerName"))
        if group is not None and (name := group_queue(text(job, "metadata", "namespace"), group)):
            return ForeignQueue(group.system, name)
    if text(job, "apiVersion").partition("/")[0] == _VOLCANO_GROUP:
        return ForeignQueue(System.VOLCANO, text(job, "spec", "queue") or DEFAULT_QUEUES[System.VOLCANO])
    for scheduler, queue in _named_schedulers(job, marked):
        if (system := schedulers.get(scheduler)) is not None:
            own = queue if system is System.VOLCANO else ""
            return ForeignQueue(system, own or DEFAULT_QUEUES[system])
    return None


def _named_schedulers(job: Json, marked: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """Schedulers that the object names, each with the queue that stands beside it: operators have fields for both."""
    yield text(job, *SPARK_SCHEDULER), text(job, *SPARK_QUEUE)
    for each in marked:
        yield _scheduler(each), text(job, *KUBEFLOW_QUEUE)


def _scheduler(marked: Json) -> str:
    """Of pods as they are, or as they came in."""
    return annotations(marked).get(SCHEDULER_NAME) or text(marked, "spec", "schedulerName")


def _volcano_queue(marked: Json) -> str:
    said, own = annotations(marked), labels(marked)
    return next((name for key in VOLCANO_QUEUES if (name := said.get(key) or own.get(key, ""))), "")


def as_queued(job: Json, group_queue: GroupQueue = no_group) -> Json:
    """The object with Kueue's label for the queue that it is for; as it is where it is for none of theirs."""
    found = foreign_queue(job, group_queue)
    if found is None:
        return job
    return {**job, "metadata": {**mapping(job, "metadata"), "labels": {**labels(job), QUEUE_NAME: found.name}}}


def pod_templates(job: Json) -> Iterator[Json]:
    """All pod templates of an object, whatever its kind: what has ``spec.containers``. None of a pod itself."""
    yield from _below(job.get("spec"), _DEPTH)


def _below(value: object, depth: int) -> Iterator[Json]:
    if isinstance(value, list) and depth:
        for item in value:
            yield from _below(item, depth - 1)
    if not isinstance(value, dict) or not depth:
        return
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        yield value
        return
    for item in value.values():
        yield from _below(item, depth - 1)


def kai_class(job: Json, known: PriorityOf) -> tuple[str, int] | None:
    """Name and value of the class by which a job of KAI's runs; None for any other job, or for an unknown name.

    ``known``: the cluster's PriorityClasses.
    """
    return kai_value(kai_class_name(job), known) if _is_of_kai(job) else None


def _is_of_kai(job: Json) -> bool:
    marked = (job, *pod_templates(job))
    return any(KAI_QUEUE in labels(each) or SCHEDULERS.get(_scheduler(each)) is System.KAI for each in marked)


def is_in_kai_queue(job: Json) -> bool:
    """Whether the queue that the job is in is the one that it, or its pods, name as KAI's."""
    queue = queue_name(job)
    bare = {key: {k: v for k, v in said(job).items() if k != QUEUE_NAME} for key, said in _MARKS.items()}
    found = foreign_queue({**job, "metadata": {**mapping(job, "metadata"), **bare}})
    return found is not None and found.system is System.KAI and found.name == queue


def minimum_in(said: object) -> int | None:
    """A number of pods above 0 as a mark or a field says it; None for anything else."""
    if isinstance(said, str):
        said = int(said) if _NUMBER.fullmatch(said) else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def smaller_gang(job: Json, pods: int) -> str:
    """Where a job of KAI's asks for a gang of fewer than its ``pods``, in a sentence; empty where it does not."""
    if not _is_of_kai(job):
        return ""
    asked: dict[str, object] = {
        f"metadata.{key}[{KAI_BATCH_MINIMUM}]": said(job).get(KAI_BATCH_MINIMUM) for key, said in _MARKS.items()
    }
    asked |= {".".join(path): value for path in KUBEFLOW_MINIMUMS if isinstance(value := at(job, *path), int)}
    for where, number in asked.items():
        least = minimum_in(number)
        if least is not None and least < pods:
            return f"{where}: found {least}; the job starts with all of its {pods} pods"
    return ""


def staleness_s(job: Json) -> float | None:
    """How long a job of KAI's may run below its minimum, where it says so; below 0 for ever. Raises JobError."""
    said = annotations(job).get(KAI_STALENESS, "")
    if not said or not _is_of_kai(job):
        return None
    return parsed_duration(said, f"metadata.annotations[{KAI_STALENESS}]")


def kai_class_name(job: Json) -> str:
    """The label of the job or its pods, their ``priorityClassName``, or what KAI gives jobs of this kind."""
    marked = [job, *pod_templates(job)]
    named = [labels(each).get(KAI_PRIORITY_CLASS, "") for each in marked]
    named += [text(each, "spec", "priorityClassName") for each in marked]
    kind = "Deployment" if _OF_DEPLOYMENTS in labels(job) else text(job, "kind")
    return next(filter(None, named), _BY_KIND.get(kind, _OF_JOBS))


def kai_value(name: str, known: PriorityOf) -> tuple[str, int] | None:
    """Name and value; None for a class that neither the cluster nor KAI has."""
    value = known(name)
    value = KAI_PRIORITIES.get(name) if value is None else value
    return None if value is None else (name, value)


def preemption_marks(job: Json) -> dict[str, str]:
    """What says whether the job's workload may be preempted, for the Workload's annotations."""
    found: dict[str, str] = {}
    for key in (KAI_PREEMPTIBILITY, VOLCANO_PREEMPTABLE):
        said = labels(job).get(key) or annotations(job).get(key)
        if said is not None:
            found[key] = said
    return found
