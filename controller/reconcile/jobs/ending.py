"""Pods that a job does not need any more: their quota is given back, except for pods that outlive the job.

Jobs of some kinds end before their pods: such a job is over by its status, but its Workload is not while a pod of it
may run.
"""

from collections.abc import Iterable, Mapping

from controller.jobs.framework.actions import Action, AwaitPods, SetReclaimable
from controller.jobs.framework.context import Context, controls
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import JobError, Json, text
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.steps import event


def awaits_pods(kind: JobKind, job: Json, workloads: Iterable[SeenWorkload], settings: JobSettings) -> bool:
    """Whether pods that this job has left behind count: ``Observed.left_pods`` is needed.

    They count also for a job that stops because it is being deleted: its controller may ignore it from then on, and its
    status still tell of pods that are long gone. A deletion in the foreground waits for the Workload, as the Workload
    does for the pods.
    """
    if not kind.ends_before_its_pods or not _holders(job, workloads):
        return False
    try:
        if kind.finished(job) is not None:
            return settings.charges_to_the_end
        return bool(text(job, "metadata", "deletionTimestamp")) and kind.is_suspended(job)
    except JobError:
        return False


def outlived(context: Context, left: Mapping[str, int]) -> list[Action]:
    """Actions for a job that ended before its pods: they keep their quota, and are deleted if that is revoked."""
    actions: list[Action] = []
    evicted = False
    for workload in _holders(context.job, context.seen.workloads):
        evicted = evicted or workload.eviction is not None
        asked = {pod_set.name: pod_set.count for pod_set in workload.typed.spec.pod_sets}
        ended = {name: count - left.get(name, 0) for name, count in asked.items() if count > left.get(name, 0)}
        actions += reclaimed(context, workload, ended if left.keys() <= asked.keys() else {})
    count = sum(left.values())
    those = "it runs" if count == 1 else "they run"
    told = f"The job has ended, and the quota of {count} of its pods is held while {those}"
    patches = context.kind.taken_away(context.job) if evicted else ()
    return [*actions, event("PodsOutliveJob", told), AwaitPods(count=count, patches=patches)]


def reclaimed(context: Context, workload: SeenWorkload, have: Mapping[str, int] | None = None) -> list[Action]:
    """Actions that give back quota of pods. ``have``: pods by pod set that are not needed any more; None: those that
    the job's status tells.
    """
    if not context.settings.gates.on("ReclaimablePods") or not workload.is_reserved:
        return []
    had = {pod.name: pod.count for pod in workload.typed.status.reclaimable_pods}
    have = context.kind.reclaimable(context.job, workload) if have is None else have
    grown = {name: max(count, had.get(name, 0)) for name, count in {**had, **have}.items()}  # it never shrinks
    if grown == had:
        return []
    return [SetReclaimable(name=workload.name, uid=workload.uid, pods=grown)]


def _holders(job: Json, workloads: Iterable[SeenWorkload]) -> list[SeenWorkload]:
    return [each for each in workloads if each.is_reserved and not each.is_finished and controls(job, each)]
