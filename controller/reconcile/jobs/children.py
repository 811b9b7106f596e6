"""Jobs that were made for an owner, but not by its controller: they start within the charge of the owner's workload.

Such a job was created suspended, with the mark ``tessera.dev/awaits-owner``. One that runs, and exceeds the charge
because of what the owner's own controller has started since, is suspended again: children that surely belong to the
owner go first.
"""

import msgspec

from controller.jobs.framework.actions import Action, AwaitOwner, StartJob, StopJob
from controller.jobs.framework.charge import Beyond, Charge, deal, group_kind, makes, pods_of
from controller.jobs.framework.context import Context
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.podsets import (
    FlavorMissingError,
    JobPodSet,
    PodSetInfo,
    SeenWorkload,
    StartConflictError,
    infos,
)
from controller.jobs.framework.settings import kept_off_spot
from controller.jobs.framework.steps import event
from controller.messages import jobs as words


def beside_its_owner(context: Context, charge: Charge) -> list[Action]:
    """Actions for a child whose owner's workload is admitted. Raises JobError."""
    kind, job = context.kind, context.job
    if kind.finished(job) is not None:
        return []
    suspended, sets = kind.is_suspended(job), kind.pod_sets(job)
    dealt = deal(charge, [pods_of(each) for each in sets])
    owner = controller_of(job)
    beyond = dealt.sentence if isinstance(dealt, Beyond) else ""
    if owner is not None and not makes(group_kind(owner.api_version, owner.kind), (kind.group, kind.kind)):
        beyond = words.no_such_child(owner.kind, kind.kind)
    if beyond:
        waiting: list[Action] = [AwaitOwner(message=beyond)]
        return waiting if suspended else [StopJob(patches=(kind.suspend(job),)), event("Suspended", beyond), *waiting]
    if isinstance(dealt, Beyond) or not suspended:
        return []
    try:
        off = kept_off_spot(context.settings, context.cluster, charge.workload.typed)
        gates = context.settings.gates
        found = infos(charge.workload.typed, context.cluster.flavor, elastic=False, gates=gates, off=off)
        given = {info.name: info for info in found}
        own = tuple(_info(given[name], each) for name, each in zip(dealt.pod_sets, sets, strict=True))
        patches = kind.start(job, _as_workload(context, sets), own)
    except StartConflictError as conflict:
        return [AwaitOwner(message=f"The job cannot start: {conflict}")]
    except FlavorMissingError as missing:
        return [AwaitOwner(message=f"The job cannot start yet: {missing}")]
    if not patches:
        return []
    started = [event("Started", words.started_beside_its_owner(charge.workload.name))]
    return [StartJob(patches=patches, name=charge.workload.name, uid=charge.workload.uid), *started]


def _info(given: PodSetInfo, pod_set: JobPodSet) -> PodSetInfo:
    """What a start writes into one of the child's pod sets, from its owner's."""
    return msgspec.structs.replace(given, name=pod_set.name, count=pod_set.count)


def _as_workload(context: Context, sets: tuple[JobPodSet, ...]) -> SeenWorkload:
    """The child's own templates in the form in which a start takes them: the child has no workload."""
    meta = {"name": context.job["metadata"]["name"], "namespace": context.job["metadata"].get("namespace", "")}
    return SeenWorkload.of({"metadata": meta, "spec": {"podSets": [each.as_json() for each in sets]}})
