"""The status of a PodGroup, by its pods and their workload, or by the job that it was made for. Pure."""

from collections.abc import Sequence

from controller.foreign.podgroups.group import as_member, read_group
from controller.foreign.podgroups.status import Counts, Standing, counts_of, resources_of, status_patch, stuck
from controller.jobs.framework.marks import managed_ancestor
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, Json, at
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.meta import find_condition
from controller.reconcile.pods.group import SeenPods, filling, group_of, short
from inventory.words.catalog import plural


def of_pods(name: GroupName, seen: SeenPods, above: Sequence[SeenPod] = ()) -> Json:
    """The merge patch of the status of ``seen.pod_group``; empty if nothing changes, or if the status is not known.

    ``above``: pods above its minimum, which are counted and not waited for.
    """
    pod_group = seen.pod_group
    if pod_group is None or name.system is None:
        return {}  # the scheduler of Kubernetes' own groups writes theirs
    try:
        foreign = read_group(name, pod_group)
        pods = [as_member(pod, foreign) for pod in seen.pods]
        group = group_of(pods, foreign)
        missing = short(group, filling(group, [pod for pod in pods if pod.stays or pod.has_succeeded]))
    except JobError:
        return {}  # the pods are refused with the sentence
    workload = seen.workload
    standing = Standing(
        minimum=foreign.minimum,
        counts=counts_of([*pods, *above]),
        missing=missing,
        waits=_waits(len([pod for pod in pods if not pod.node_name]), len(pods), workload),
        stuck=stuck(pods),
    )
    resources = None if workload is None else resources_of(workload.typed)
    return status_patch(name.system, pod_group, standing, resources)


def pods_are_told(given: Json, status: Json) -> str:
    """The message that a group wants each of its pods to get, in an Event: why it waits now; empty if that has not
    changed.
    """
    why = status.get("schedulingConditions")
    return str(why[0]["message"]) if why and at(given, "spec", "markUnschedulable") is True else ""


def of_owner(name: GroupName, given: Json, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The merge patch of the status of a PodGroup none of whose pods is queued by itself.

    A group of a queued job waits with the job; any other waits for its pods. Raises JobError, NestingTooDeepError.
    """
    if name.system is None:
        return {}
    minimum = read_group(name, given).minimum
    ancestor = managed_ancestor(given, settings, cluster)
    if ancestor is None:
        standing = Standing(
            minimum=minimum, counts=Counts(), missing=f"group {name.name} has 0 of {plural(minimum, 'pod')}"
        )
    else:
        waits = "" if cluster.is_admitted(ancestor) else "the job that it was made for is not admitted"
        standing = Standing(minimum=minimum, counts=Counts(), waits=waits)
    return status_patch(name.system, given, standing)


def _waits(unplaced: int, total: int, workload: SeenWorkload | None) -> str:
    if workload is not None and (workload.is_admitted or workload.is_finished):
        return ""
    said = None if workload is None else find_condition(workload.typed.status.conditions, "QuotaReserved")
    why = said.message if said is not None and said.status != "True" and said.message else "it is not admitted yet"
    return f"{unplaced}/{total} tasks in gang unschedulable: {why}"
