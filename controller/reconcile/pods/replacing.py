"""Pods of a group that have failed: the condition that replacements are awaited, and how long failed pods are kept.

Source: Kueue's KEP 976, "Retrying Failed Pods".
"""

from collections.abc import Sequence
from typing import Final

from controller.jobs.framework import compose
from controller.jobs.framework.actions import SetWaitingForPods
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.messages import jobs as words
from controller.objects.meta import find_condition
from controller.reconcile.pods.actions import PodAction, finalizer_removed
from controller.reconcile.pods.group import role
from controller.scheduler.decisions.reasons import PODS_FAILED, STALE_GANG, WAITING_FOR_PODS

WAITING: Final = WAITING_FOR_PODS


def waiting(workload: SeenWorkload, *, needed: int, there: int, failing: bool) -> list[PodAction]:
    """The action that sets the condition WaitingForReplacementPods, if it is to change.

    ``there``: pods of ``needed`` that stay or have succeeded. ``failing``: the missing pods existed before. An eviction
    sets its own reason, another eviction a new reason; once admitted again, the reason stays until all pods exist.
    """
    now, evicted = find_condition(workload.typed.status.conditions, WAITING), workload.eviction
    waits = now is not None and now.status == "True"
    name, uid, missing = workload.name, workload.uid, needed - there
    if missing <= 0:
        why = words.pods_complete(needed)
        done = SetWaitingForPods(name=name, uid=uid, status="False", reason="PodsReady", message=why)
        return [done] if waits else []
    if evicted is None and (waits or not failing):
        return []
    reason = PODS_FAILED if evicted is None else evicted.reason
    if waits and now is not None and now.reason == reason:
        return []
    why = words.pods_missing(missing, needed)
    return [SetWaitingForPods(name=name, uid=uid, status="True", reason=reason, message=why)]


def is_stale(workload: SeenWorkload) -> bool:
    """Whether the group was evicted because its pods were not replaced: no pod is awaited once all of them have
    ended.
    """
    now = find_condition(workload.typed.status.conditions, WAITING)
    evicted = workload.eviction is not None and workload.eviction.reason == STALE_GANG
    return evicted or (now is not None and (now.status, now.reason) == ("True", STALE_GANG))


def spare_finalizers(
    workload: SeenWorkload, pods: Sequence[SeenPod], failed: Sequence[SeenPod], filling: Sequence[SeenPod]
) -> list[PodAction]:
    """Patches that remove the finalizer of failed pods that need not be kept. ``filling``: pods that stay, or have
    succeeded.

    They are as many of each role as were replaced, the longest inactive first; and pods that are being deleted, for
    whose end their owner may wait before it makes another. The finalizer of one owner of the workload stays: the API
    server deletes an object that has no owner left, and a workload that is deleted takes the waiting pods with it.
    """
    held = sorted((pod for pod in failed if pod.has_finalizer and pod.is_retriable), key=lambda pod: pod.inactive_key)
    counts = compose.counts_of(workload.typed.spec.pod_sets)
    left = {name: -count for name, count in counts.items()}
    for pod in (*filling, *failed):
        left[role(pod)] = left.get(role(pod), 0) + 1
    spare = []
    for pod in held:
        if left.get(role(pod), 0) > 0 or pod.is_terminating:
            left[role(pod)] -= 1
            spare.append(pod)
    owners = {owner.uid for owner in workload.typed.metadata.owner_references}
    if not any(pod.has_finalizer and pod.uid in owners for pod in pods if pod not in spare):
        spare = spare[:-1]
    return [finalizer_removed(pod) for pod in spare]
