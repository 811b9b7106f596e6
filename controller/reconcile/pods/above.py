"""Pods above the minimum of an elastic group: each is queued by itself, after the group's Workload and only beside it.

Pods of a job that grows get their marks with the places of its minimum (``controller.reconcile.placing.growing``).

A group of a PodGroup asks for its minimum. Once that holds quota, every pod beyond it gets a mark that names its
Workload; from there on it is a pod on its own, which the engine admits last and evicts first. While the minimum holds
none, or lacks a pod, those that wait lose the mark again: they may be needed for it.
"""

from controller.foreign.podgroups.group import subgroup_of
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json, text
from controller.jobs.framework.settings import ClusterObjects
from controller.objects.meta import is_true
from controller.reconcile.pods.actions import PatchPod, PodAction, deleted, dropped, is_of_pods
from controller.reconcile.pods.replacing import WAITING
from controller.reconcile.pods.start import tied
from controller.scheduler.topology.gangdomains import shape_of
from inventory.api.names import ABOVE_MINIMUM_OF, ABOVE_MINIMUM_SUBGROUP, SUBGROUP


def marked(pod: SeenPod, minimum: SeenWorkload, part: str) -> PatchPod:
    """The patch that makes the pod one on its own, with the queue of its group and the subgroup that it was in.

    ``part``: the subgroup that it starts with as a whole; empty for none.
    """
    body = _with(pod, minimum.name)
    body["metadata"]["annotations"][ABOVE_MINIMUM_SUBGROUP] = part or None
    body["metadata"]["labels"] = {QUEUE_NAME: minimum.typed.spec.queue_name}
    if leaf := subgroup_of(pod):
        body["metadata"]["annotations"][SUBGROUP] = leaf
    return PatchPod(name=pod.name, body=body)


def subgroups_of(minimum: SeenWorkload) -> set[str]:
    """The leaf subgroups whose pods the minimum has."""
    shape = shape_of(minimum.typed)
    members = {} if shape is None else shape.members
    return {members[each.name] for each in minimum.typed.spec.pod_sets if each.name in members}


def returned(pods: tuple[SeenPod, ...], workload: SeenWorkload | None, minimum: SeenWorkload | None) -> list[PodAction]:
    """Actions that put pods on their own back into their group; empty if they stay on their own.

    ``minimum``: the Workload of their group, None if it is gone.
    """
    waits = all(pod.above_minimum_of and pod.is_gated and pod.stays and not pod.waits_with_its_job for pod in pods)
    if not waits or minimum is None or minimum.is_finished or (minimum.is_reserved and not is_short(minimum)):
        return []
    if workload is not None and workload.is_reserved:
        return []
    return [
        *([] if workload is None else dropped(workload)),
        *(PatchPod(name=pod.name, body=_with(pod, None)) for pod in pods),
    ]


def left_behind(
    pods: tuple[SeenPod, ...], seen: SeenWorkload | None, minimum: SeenWorkload | None, cluster: ClusterObjects
) -> list[PodAction]:
    """Actions that delete pods that still wait above the minimum of a job that has ended: no other controller would
    delete them.

    ``seen``: their own Workload. Pods of the job that run go on to their own end, and so do pods that have the queue's
    finalizer: no job made them. If the minimum's Workload is not kept once it has finished, the job itself tells.
    """
    waiting = [pod for pod in pods if pod.waits_with_its_job and pod.stays and not pod.has_finalizer]
    if not waiting or not (_has_ended(waiting[0], cluster) if minimum is None else minimum.is_finished):
        return []
    own = seen if seen is not None and is_of_pods(seen, pods) else None
    told = f"Workload {waiting[0].above_minimum_of} has finished, whose minimum it waited above"
    return [
        *([] if own is None or own.is_terminating else dropped(own)),
        *(deleted(pod, "JobFinished", told) for pod in waiting),
    ]


def _has_ended(pod: SeenPod, cluster: ClusterObjects) -> bool:
    job = controller_of(pod.raw)
    return job is not None and cluster.has_ended(text(pod.raw, "metadata", "namespace"), job)


def is_whole(minimum: SeenWorkload) -> bool:
    """Whether the group's pods may be on nodes, and none of them is awaited."""
    conditions = minimum.typed.status.conditions
    return minimum.eviction is None and is_true(conditions, "Admitted") and not is_short(minimum)


def is_short(minimum: SeenWorkload) -> bool:
    return is_true(minimum.typed.status.conditions, WAITING)


def _with(pod: SeenPod, name: str | None) -> Json:
    return {"metadata": {**tied(pod), "annotations": {ABOVE_MINIMUM_OF: name, ABOVE_MINIMUM_SUBGROUP: None}}}
