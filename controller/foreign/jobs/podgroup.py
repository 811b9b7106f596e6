"""The PodGroup of a Volcano Job, as Volcano's own controller makes it, for users and tools. Pure.

Source: volcano-sh/volcano, pkg/controllers/job/job_controller_actions.go. Tessera decides by the job itself, so nothing
is read from it. It exists from the first reconciliation of a job that has not ended, follows the job's size, and is
deleted with it.
"""

from collections.abc import Iterable
from typing import Final

from controller.foreign.jobs.bodies import group_name, owner_reference
from controller.foreign.jobs.gang import Seen
from controller.foreign.jobs.lifecycle import FINAL
from controller.foreign.jobs.podfacts import PARTITION_ID, TASK_SPEC, PodFacts
from controller.foreign.jobs.spec import DEFAULT_QUEUE, JobPlan, Task
from controller.foreign.objects.volcanogroup import GROUP_VERSION
from controller.foreign.objects.volcanojob import VolcanoJobStatus
from controller.foreign.podgroups.status import Counts, Standing, stamped, status_patch
from controller.jobs.framework.podsets import typed_template
from controller.jobs.framework.raw import Json, annotations, labels, mapping, sequence, text
from controller.objects.meta import to_json
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.podrequests import one_pod, scaled
from controller.scheduler.model.resources import UNLIMITED, Amount, ResourceName
from controller.scheduler.quota.queueusage import quantity_of
from inventory.api.names import PREFIX
from inventory.words.catalog import plural

_OF_OTHERS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
_COMPLETED: Final = "Completed"


def pod_group(job: Json, seen: Seen, status: VolcanoJobStatus) -> Json:
    """The whole object with its status, which is no subresource of the kind. Raises JobError."""
    at = status.state.last_transition_time
    patch = status_patch(System.VOLCANO, {}, _standing(seen, status))
    notes = {key: value for key, value in annotations(job).items() if not key.startswith(PREFIX)}
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": text(job, "metadata", "namespace"),
            "labels": labels(job),
            "annotations": {key: value for key, value in notes.items() if key not in _OF_OTHERS},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _spec(job, seen.plan),
        "status": patch if at is None else stamped(patch, to_json(at)),
    }


def _spec(job: Json, plan: JobPlan) -> Json:
    spec: Json = {
        "minMember": plan.min_available,
        "minTaskMember": {task.name: task.minimum for task in plan.tasks},
        "minResources": _resources(plan),
        "queue": text(job, "spec", "queue") or DEFAULT_QUEUE,
    }
    if name := text(job, "spec", "priorityClassName"):
        spec["priorityClassName"] = name
    if levels := mapping(job, "spec", "networkTopology"):
        spec["networkTopology"] = levels
    if policies := list(_policies(job, plan)):
        spec["subGroupPolicy"] = policies
    return spec


def _resources(plan: JobPlan) -> dict[str, str]:
    """The requests of the first pods, as many as the job needs at least."""
    total: dict[ResourceName, Amount] = {}
    left = plan.min_available
    for task in plan.tasks:
        count = min(left, task.replicas)
        left -= count
        for name, amount in scaled(one_pod(typed_template(task.template, f"task {task.name}").spec), count).items():
            total[name] = min(total.get(name, 0) + amount, UNLIMITED)
    return {name: str(quantity_of(name, amount)) for name, amount in sorted(total.items()) if amount}


def _policies(job: Json, plan: JobPlan) -> Iterable[Json]:
    for task, given in zip(plan.tasks, sequence(job, "spec", "tasks"), strict=True):
        if task.partition_size:
            yield _policy(task, mapping(given, "partitionPolicy"))


def _policy(task: Task, given: Json) -> Json:
    levels = mapping(given, "networkTopology")
    return {
        "name": task.name,
        "labelSelector": {"matchLabels": {TASK_SPEC: task.name}},
        "matchLabelKeys": [PARTITION_ID],
        "subGroupSize": task.partition_size,
        "minSubGroups": given.get("minPartitions") or 0,
        **({"networkTopology": levels} if levels else {}),
    }


def _standing(seen: Seen, status: VolcanoJobStatus) -> Standing:
    phase, unplaced = status.state.phase, status.pending
    if phase == _COMPLETED:
        counts = Counts(succeeded=status.succeeded, failed=status.failed, scheduled=status.succeeded + status.failed)
        return Standing(minimum=1 if counts.scheduled else 0, counts=counts)
    waits = ""
    if phase in FINAL or seen.placed is None:
        why = "the job is not admitted" if phase not in FINAL else f"the job is {phase}"
        waits = f"{unplaced}/{seen.plan.replicas} tasks in gang unschedulable: {why}"
    counts = Counts(
        pending=status.pending,
        running=status.running,
        succeeded=status.succeeded,
        failed=status.failed,
        scheduled=status.running + status.succeeded + status.failed,
    )
    minimum = max(1, seen.here.min_available)
    return Standing(minimum=minimum, counts=counts, waits=waits, stuck=_stuck(seen.pods))


def _stuck(pods: Iterable[PodFacts]) -> str:
    lost = [pod.name for pod in pods if pod.is_unschedulable and not pod.is_terminating]
    return f"{plural(len(lost), 'pod has', 'pods have')} no node, {lost[0]} among them" if lost else ""


def differs(before: Json | None, wanted: Json) -> bool:
    """Whether the PodGroup is to be written. Inqueue after Pending says that pods are on their way: not worth a
    write.
    """
    if before is None or before["spec"] != wanted["spec"]:
        return True
    phases = tuple(mapping(each, "status").get("phase") for each in (before, wanted))
    return phases != ("Pending", "Inqueue") and before != wanted


def is_over(status: VolcanoJobStatus) -> bool:
    return status.state.phase in FINAL
