"""The status of a PodGroup, by its pods and their workload, or by the job that it was made for. Pure."""

from collections.abc import Mapping, Sequence

from controller.foreign.podgroups.group import as_member, read_group
from controller.foreign.podgroups.status import Counts, Standing, counts_of, status_patch, stuck
from controller.jobs.framework.marks import managed_ancestor
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, Json, at
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.meta import find_condition
from controller.objects.workload import Workload
from controller.reconcile.pods.group import SeenPods, filling, group_of, short
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.podrequests import amounts, one_pod, scaled
from controller.scheduler.model.resources import UNLIMITED, Amount, ClusterQueueName, ResourceName
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.quota.queueusage import quantity_of
from controller.scheduler.volcano.tree import is_preemptible
from inventory.words.catalog import plural

Amounts = Mapping[ResourceName, Amount]


def of_pods(name: GroupName, seen: SeenPods, above: Sequence[SeenPod] = ()) -> Json:
    """The merge patch of the status of ``seen.pod_group``; empty if nothing changes, or if the status is not known.

    ``above``: pods above its minimum, which are counted and not waited for.
    """
    given = seen.pod_group
    if given is None:
        return {}
    try:
        foreign = read_group(name, given)
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
    resources = None if workload is None else _resources(workload.typed)
    return status_patch(name.system, given, standing, resources)


def pods_are_told(given: Json, status: Json) -> str:
    """The message that KAI's group wants each of its pods to get, in an Event: why it waits now; empty if that has not
    changed.
    """
    why = status.get("schedulingConditions")
    return str(why[0]["message"]) if why and at(given, "spec", "markUnschedulable") is True else ""


def of_owner(name: GroupName, given: Json, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The merge patch of the status of a PodGroup none of whose pods is queued by itself.

    A group of a queued job waits with the job; any other waits for its pods. Raises JobError, NestingTooDeepError.
    """
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


def _resources(workload: Workload) -> dict[str, dict[str, str]]:
    """KAI's ``resourcesStatus`` of a workload."""
    requested: dict[ResourceName, Amount] = {}
    for pod_set in workload.spec.pod_sets:
        _add(requested, scaled(one_pod(pod_set.template.spec), pod_set.count))
    allocated: dict[ResourceName, Amount] = {}
    admission = workload.status.admission
    for assignment in () if admission is None else admission.pod_set_assignments:
        _add(allocated, amounts(assignment.resource_usage))
    info = WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName(""), pod_sets=())
    preemptible = is_preemptible(info, workload.spec.priority or 0, System.KAI)
    return {
        "requested": _shown(requested),
        "allocated": _shown(allocated),
        "allocatedNonPreemptible": {} if preemptible else _shown(allocated),
    }


def _add(total: dict[ResourceName, Amount], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = min(total.get(name, 0) + amount, UNLIMITED)


def _shown(total: Amounts) -> dict[str, str]:
    return {name: str(quantity_of(name, amount)) for name, amount in sorted(total.items()) if amount}
