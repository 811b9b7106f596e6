"""Marks of Volcano and KAI on jobs and pods, read as Kueue's: the queue, the priority, whether the job may be
preempted, and its levels of a topology.

An object that names a LocalQueue is Kueue's: that label wins. Whether another object is Volcano's or KAI's, the
scheduler decides that its pods name; an object without one that has marks of both is refused. Sources: KAI's pod
grouper (label on the owner, then on the pod), Volcano's annotations on pods and owners, and the ``schedulerName`` of
pods that name no queue. JobError is raised for a mark that cannot be read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.names import QUEUE_NAME, is_label_key
from controller.jobs.framework.podview import KAI_QUEUE, SCHEDULERS, VOLCANO_GROUPS, GroupName, foreign_group
from controller.jobs.framework.raw import JobError, Json, annotations, at, labels, mapping, parsed_duration, shown, text
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.gangshape import GangShape, Subgroup
from inventory.api.names import SCHEDULER_NAME
from inventory.words.catalog import plural

KAI_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
KAI_PRIORITY_CLASS: Final = "priorityClassName"
"""The label of KAI's priority class; it has this plain key."""
VOLCANO_QUEUES: Final = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
VOLCANO_PREEMPTABLE: Final = "volcano.sh/preemptable"
DEFAULT_QUEUES: Final = {System.VOLCANO: "default", System.KAI: "default-queue"}
KAI_PRIORITIES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""KAI's own classes, which count if the cluster has none of that name."""
SPARK_SCHEDULER: Final = ("spec", "batchScheduler")
SPARK_QUEUE: Final = ("spec", "batchSchedulerOptions", "queue")
KUBEFLOW_QUEUE: Final = ("spec", "runPolicy", "schedulingPolicy", "queue")
KAI_STALENESS: Final = "kai.scheduler/staleness-grace-period"
KAI_BATCH_MINIMUM: Final = "kai.scheduler/batch-min-member"
KAI_TOPOLOGY: Final = "kai.scheduler/topology"
KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"

KUBEFLOW_MINIMUMS: Final = (
    ("spec", "elasticPolicy", "minReplicas"),
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
)
_NUMBER: Final = re.compile("[0-9]{1,9}", re.ASCII)
_MARKS: Final = {"annotations": annotations, "labels": labels}

TWO_SCHEDULERS: Final = "schedulerName: expected that of Volcano or of KAI"
TWO_QUEUES: Final = "metadata: expected marks of Volcano or of KAI, or a schedulerName that says whose it is"
"""The beginnings of sentences about objects with marks of both."""
_AS_SAID: Final = (System.VOLCANO, System.KAI)
_VOLCANO_GROUP: Final = "batch.volcano.sh"
_BY_KIND: Final = {"Deployment": "inference", "Notebook": "build"}
_OF_JOBS: Final = "train"
_OF_DEPLOYMENTS: Final = "pod-template-hash"
"""A label that pods of Deployments have, and no others."""
_DEPTH: Final = 8

GroupQueue = Callable[[str, GroupName], str]
"""Returns the queue of a PodGroup, by its namespace and name; empty if there is no such group."""
PriorityOf = Callable[[str], int | None]
"""Returns the value of a PriorityClass, by its name; None if there is none."""


class ForeignQueue(NamedTuple):
    """A queue of Volcano or KAI, under its name there."""

    system: System
    name: str


def no_group(_namespace: str, _name: GroupName) -> str:
    return ""


def foreign_queue(
    job: Json, group_queue: GroupQueue = no_group, schedulers: Mapping[str, System] = SCHEDULERS
) -> ForeignQueue | None:
    """The queue of Volcano or KAI that the object is for; None if it is for neither, or names one of Kueue's.

    ``schedulers``: the systems by the names of their schedulers. The scheduler that the object names decides whose the
    object is, as a scheduler takes the pods that name it. Raises JobError if none is named and there are marks of both
    (decision 075). A queue that is named anywhere in the object stands before that of its PodGroup.
    """
    if queue_name(job):
        return None
    if _is_volcano_job(job):
        return ForeignQueue(System.VOLCANO, text(job, "spec", "queue") or DEFAULT_QUEUES[System.VOLCANO])
    marked = [job, *pod_templates(job)]
    if told := conflict(job, schedulers):
        raise JobError(told)
    named = _named_systems(job, marked, schedulers)
    for system in named or System:
        if name := next(filter(None, (_marked_queue(each, system) for each in marked)), ""):
            return ForeignQueue(system, name)
    for each in marked:
        group = foreign_group(labels(each), annotations(each), _scheduler(each), schedulers)
        if group is None or group.system not in named:
            continue
        if name := group_queue(text(job, "metadata", "namespace"), group):
            return ForeignQueue(group.system, name)
    for system, queue in named.items():
        return ForeignQueue(system, (queue if system is System.VOLCANO else "") or DEFAULT_QUEUES[system])
    return None


def conflict(job: Json, schedulers: Mapping[str, System] = SCHEDULERS) -> str:
    """Why it is not known whether the object is Volcano's or KAI's, with the two marks; empty if it is known.

    Empty too for an object that names one of Kueue's queues: it is neither's.
    """
    if queue_name(job) or _is_volcano_job(job):
        return ""
    marked = [job, *pod_templates(job)]
    listed = [scheduler for scheduler, _ in _named_schedulers(job, marked)]
    names = [next((each for each in listed if schedulers.get(each) is system), "") for system in _AS_SAID]
    if any(names):
        return f"{TWO_SCHEDULERS}, found {' and '.join(map(shown, names))}" if all(names) else ""
    marks = [next(filter(None, (_mark(each, system) for each in marked)), "") for system in _AS_SAID]
    return f"{TWO_QUEUES}, found {' and '.join(marks)}" if all(marks) else ""


def _mark(marked: Json, system: System) -> str:
    """The first mark of the system, with its value; empty for none. A KAI pod-group annotation without KAI's scheduler
    name or queue label is no mark of KAI.
    """
    in_annotations, in_labels = annotations(marked), labels(marked)
    if system is System.KAI:
        marks = [(KAI_QUEUE, in_labels.get(KAI_QUEUE, ""))]
    else:
        marks = [(key, where.get(key, "")) for key in VOLCANO_QUEUES for where in (in_annotations, in_labels)]
        marks += [(key, in_annotations.get(key, "")) for key in VOLCANO_GROUPS]
    return next((f"{key} {shown(value)}" for key, value in marks if value), "")


def _is_volcano_job(job: Json) -> bool:
    return text(job, "apiVersion").partition("/")[0] == _VOLCANO_GROUP


def _named_systems(job: Json, marked: Iterable[Json], schedulers: Mapping[str, System]) -> dict[System, str]:
    """The systems whose scheduler the object names, each with the queue that stands beside the first such name."""
    queues: dict[System, str] = {}
    for scheduler, queue in _named_schedulers(job, marked):
        if (system := schedulers.get(scheduler)) is not None:
            queues.setdefault(system, queue)
    return queues


def _named_schedulers(job: Json, marked: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """Schedulers that the object names, each with the queue that stands beside it: operators have fields for both."""
    yield text(job, *SPARK_SCHEDULER), text(job, *SPARK_QUEUE)
    for each in marked:
        yield _scheduler(each), text(job, *KUBEFLOW_QUEUE)


def _scheduler(marked: Json) -> str:
    """The scheduler of pods: the one that they were created with, if that was replaced, else their present one."""
    return annotations(marked).get(SCHEDULER_NAME) or text(marked, "spec", "schedulerName")


def _marked_queue(marked: Json, system: System) -> str:
    said, own = annotations(marked), labels(marked)
    if system is System.KAI:
        return own.get(KAI_QUEUE, "")
    return next((name for key in VOLCANO_QUEUES if (name := said.get(key) or own.get(key, ""))), "")


def as_queued(job: Json, group_queue: GroupQueue = no_group, schedulers: Mapping[str, System] = SCHEDULERS) -> Json:
    """The object with Kueue's label for the queue that it is for; unchanged if it is for none of Volcano's or KAI's.
    Raises JobError as ``foreign_queue`` does.
    """
    found = foreign_queue(job, group_queue, schedulers)
    if found is None:
        return job
    return {**job, "metadata": {**mapping(job, "metadata"), "labels": {**labels(job), QUEUE_NAME: found.name}}}


def pod_templates(job: Json) -> Iterator[Json]:
    """All pod templates of an object, whatever its kind: any part with ``spec.containers``. A pod itself yields
    none.
    """
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
    """Name and value of the priority class of a KAI job; None for any other job, or for an unknown name.

    ``known``: the cluster's PriorityClasses.
    """
    return kai_value(kai_class_name(job), known) if _is_of_kai(job) else None


def _is_of_kai(job: Json) -> bool:
    if _is_volcano_job(job):
        return False
    marked = (job, *pod_templates(job))
    named = _named_systems(job, marked, SCHEDULERS)
    return System.KAI in named or (not named and any(KAI_QUEUE in labels(each) for each in marked))


def is_in_kai_queue(job: Json) -> bool:
    """Whether the job's queue is the one that it, or its pods, name as KAI's."""
    queue = queue_name(job)
    bare = {key: {k: v for k, v in said(job).items() if k != QUEUE_NAME} for key, said in _MARKS.items()}
    unnamed = {**job, "metadata": {**mapping(job, "metadata"), **bare}}
    found = None if conflict(unnamed) else foreign_queue(unnamed)
    return found is not None and found.system is System.KAI and found.name == queue


def minimum_in(said: object) -> int | None:
    """A number of pods above 0 in a mark or a field; None for anything else."""
    if isinstance(said, str):
        said = int(said) if _NUMBER.fullmatch(said) else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def smaller_gang(job: Json, pods: int) -> str:
    """A sentence if a KAI job asks for a gang of fewer than its ``pods``; empty if it does not."""
    if not _is_of_kai(job):
        return ""
    asked: dict[str, object] = {
        f"metadata.{key}[{KAI_BATCH_MINIMUM}]": said(job).get(KAI_BATCH_MINIMUM) for key, said in _MARKS.items()
    }
    asked |= {".".join(path): value for path in KUBEFLOW_MINIMUMS if isinstance(value := at(job, *path), int)}
    for where, number in asked.items():
        least = minimum_in(number)
        if least is not None and least < pods:
            return f"{where}: found {least}; the job starts with all of its {plural(pods, 'pod')}"
    return ""


def staleness_s(job: Json) -> float | None:
    """Seconds that a KAI job may run below its minimum; negative for ever; None if the job does not say. Raises
    JobError.
    """
    said = annotations(job).get(KAI_STALENESS, "")
    if not said or not _is_of_kai(job):
        return None
    return parsed_duration(said, f"metadata.annotations[{KAI_STALENESS}]")


def member_class(pod: Json, system: System | None, of_group: str, value_of: PriorityOf) -> tuple[str, int] | None:
    """The class that counts for a pod by KAI's rules, with its value; ``of_group`` is that of its PodGroup, of this
    system. None if none does.
    """
    if system is System.KAI:
        return kai_value(of_group or kai_class_name(pod), value_of)
    return kai_class(pod, value_of)


def foreign_levels(job: Json, templates: Mapping[str, Json]) -> GangShape | None:
    """The domains that a KAI job requests for its pods. ``templates``: by pod set; a request in one binds its pods
    alone.

    None without a request. Raises JobError for a level that is no label of nodes.
    """
    if not any(map(asks_for_level, (job, *templates.values()))) or not _is_of_kai(job):
        return None
    own = {name: said for name, template in templates.items() if (said := _levels(template, name))}
    whole = _levels(job, "") or Subgroup(name="")
    return GangShape(
        groups=tuple(own.values()),
        members={name: name for name in own},
        topology=whole.topology,
        required_level=whole.required_level,
        preferred_level=whole.preferred_level,
    )


def asks_for_level(marked: Json) -> bool:
    """Whether KAI's annotations of an object or a pod template request a level."""
    return not annotations(marked).keys().isdisjoint((KAI_REQUIRED, KAI_PREFERRED))


def _levels(marked: Json, pod_set: str) -> Subgroup | None:
    """The levels of the whole job, or of the pods of one pod set; None without any. Raises JobError."""
    annotated = annotations(marked)
    required, preferred = annotated.get(KAI_REQUIRED, ""), annotated.get(KAI_PREFERRED, "")
    for key, level in ((KAI_REQUIRED, required), (KAI_PREFERRED, preferred)):
        if level and not is_label_key(level):
            whose = f" of the pods of {pod_set}" if pod_set else ""
            raise JobError(f"metadata.annotations[{key}]{whose}: expected a label of nodes, found {shown(level)}")
    if not (required or preferred):
        return None
    topology = annotated.get(KAI_TOPOLOGY, "")
    return Subgroup(name=pod_set, topology=topology, required_level=required, preferred_level=preferred)


def kai_class_name(job: Json) -> str:
    """The name of a KAI job's priority class: in the label of the job or its pods, their ``priorityClassName``, or what
    KAI gives jobs of this kind.
    """
    marked = [job, *pod_templates(job)]
    named = [labels(each).get(KAI_PRIORITY_CLASS, "") for each in marked]
    named += [text(each, "spec", "priorityClassName") for each in marked]
    kind = "Deployment" if _OF_DEPLOYMENTS in labels(job) else text(job, "kind")
    return next(filter(None, named), _BY_KIND.get(kind, _OF_JOBS))


def kai_value(name: str, known: PriorityOf) -> tuple[str, int] | None:
    """Name and value of a class; None for a class that neither the cluster nor KAI has."""
    value = known(name)
    value = KAI_PRIORITIES.get(name) if value is None else value
    return None if value is None else (name, value)


def preemption_marks(job: Json) -> dict[str, str]:
    """Annotations for the Workload that say whether it may be preempted."""
    marks: dict[str, str] = {}
    for key in (KAI_PREEMPTIBILITY, VOLCANO_PREEMPTABLE):
        said = labels(job).get(key) or annotations(job).get(key)
        if said is not None:
            marks[key] = said
    return marks
