"""The reconciler of jobs: it turns one job and its workloads into actions. Pure: same input, same actions.

The order of the questions is Kueue's: is the workload finished, or being deleted? is the job finished? is there a
workload, and does it match the job? which pods are reclaimable, are all ready? was it evicted? is it to run?

The result is the next step only: each step changes an object, whose watch brings the job back here. Thus a crash
between any two steps, and an event that was missed, cost time and nothing else.

Precondition: the job is never older than the caller's own last write to it. Quota and finalizers are given up for good
because of the state in which the job was seen.
"""

from dataclasses import replace

from controller.jobs.framework import compose, names
from controller.jobs.framework.actions import (
    Action,
    AwaitOwner,
    AwaitPods,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishWorkload,
    RemoveFinalizer,
    StartJob,
    StopJob,
    UpdateWorkload,
)
from controller.jobs.framework.context import Context, controls
from controller.jobs.framework.foreignmarks import smaller_gang
from controller.jobs.framework.kind import Outcome, Review, completed, refused
from controller.jobs.framework.marks import (
    NestingTooDeepError,
    awaits_owner,
    is_managed,
    managed_ancestor,
    prebuilt_mark,
    prebuilt_workload,
)
from controller.jobs.framework.podsets import FlavorMissingError, SeenWorkload, StartConflictError, infos
from controller.jobs.framework.raw import JobError, PriorityClassMissingError, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings, Observed, kept_off_spot
from controller.jobs.framework.steps import (
    delete,
    event,
    finish,
    finish_orphans,
    flavor_missing,
    hold,
    not_startable,
    refuse,
    release_quota,
    remove_finalizers,
    update,
)
from controller.messages import jobs as words
from controller.objects.meta import Condition, find_condition
from controller.objects.workload import Workload
from controller.reconcile.jobs import elastic, growth, startgroups, theirgroups
from controller.reconcile.jobs.children import beside_its_owner
from controller.reconcile.jobs.ending import outlived, reclaimed
from controller.reconcile.lifecycle.readiness import pods_ready_action
from controller.scheduler.model.resources import WorkloadKey
from inventory.api import claimplan

_GONE = "The job does not exist any more"
_ON_HOLD = "OnHold"
_RUN_TO_THE_END = ("Succeeded", "Failed")


def reconcile(seen: Observed, settings: JobSettings, cluster: ClusterObjects) -> tuple[Action, ...]:
    """The actions of the next step, in order; empty when nothing is to be done, or not before something changes."""
    if seen.job is None:
        return tuple(finish_orphans(seen.workloads, _GONE, settings.gates))
    context = Context(kind=seen.kind, job=seen.job, seen=seen, settings=settings, cluster=cluster)
    try:
        job = completed(seen.kind, seen.job, cluster.look)
        if job is not seen.job:
            context = replace(context, job=job)
        return tuple(_job(context))
    except JobError as error:
        return (*_hold(context, error), refuse(error))


def is_orphan(workload: Workload) -> bool:
    """Whether a workload's job was deleted with its dependents orphaned: that removes the owner reference, and not the
    label.
    """
    return not workload.metadata.owner_references and bool(workload.metadata.labels.get(names.JOB_UID))


def unowned(workload: SeenWorkload, settings: JobSettings) -> list[FinishWorkload | RemoveFinalizer]:
    """Actions for a Workload without a job: nothing runs by it, so it may be deleted; an orphaned one is finished."""
    if workload.is_terminating:
        return [*remove_finalizers([workload])]
    if is_orphan(workload.typed) and settings.gates.on("FinishOrphanedWorkloads"):
        return finish_orphans([workload], _GONE, settings.gates)
    return []


def _job(context: Context) -> list[Action]:
    seen, job, settings = context.seen, context.job, context.settings
    own = [workload for workload in seen.workloads if controls(job, workload)]
    if text(job, "metadata", "deletionTimestamp"):
        return _leaving(context, own)
    if context.kind.is_skipped(job) or not is_managed(job, seen.namespace_labels, settings):
        return _unmanaged(context, own)
    if seen.unread and context.kind.is_suspended(job):
        return [AwaitOwner(message=seen.unread)]
    try:
        ancestor = managed_ancestor(job, settings, context.cluster)
    except NestingTooDeepError as error:
        return [*_hold(context), refuse(error)]
    if ancestor is not None:
        return _child(context, ancestor, own)
    prebuilt = prebuilt_workload(job)
    if prebuilt:
        return _prebuilt(context, prebuilt)
    if context.kind.is_suspended(job):
        theirgroups.check_named(context.kind, job, seen.named)
    return _queued(context, own)


def _unmanaged(context: Context, own: list[SeenWorkload]) -> list[Action]:
    """Actions for a job that left its queue: its pending workloads are deleted, one with quota goes on to its end."""
    if any(workload.is_reserved and not workload.is_finished for workload in own):
        return _queued(context, own, prebuilt=bool(prebuilt_mark(context.job)[1]))
    return _withdrawn(own)


def _withdrawn(own: list[SeenWorkload]) -> list[Action]:
    return [
        action
        for workload in own
        if workload.is_terminating or not workload.is_finished
        for action in _withdraw(workload)
    ]


def _withdraw(workload: SeenWorkload) -> list[Action]:
    if workload.is_terminating:
        return [*remove_finalizers([workload])]
    return [delete(workload), event("DeletedWorkload", words.deleted_workload(workload.name))]


def _child(context: Context, ancestor: str, own: list[SeenWorkload]) -> list[Action]:
    """Actions for a part of a larger job: that job's workload counts its pods, and both start together.

    If its owner's controller made it, that starts it; else it starts here, within that workload's charge.
    """
    actions = _withdrawn(own)
    admitted, waits = context.cluster.is_admitted(ancestor), awaits_owner(context.job)
    if waits and admitted and context.seen.charge is not None:
        return [*actions, *beside_its_owner(context, context.seen.charge)]
    if waits and context.kind.is_suspended(context.job) and context.kind.finished(context.job) is None:
        return [*actions, AwaitOwner(message=words.owner_not_admitted())]
    if admitted or context.kind.is_suspended(context.job):
        return actions
    stop = StopJob(patches=(context.kind.suspend(context.job),))
    return [*actions, stop, event("Suspended", words.owner_not_admitted())]


def _leaving(context: Context, own: list[SeenWorkload]) -> list[Action]:
    """Actions for a job that is being deleted: its quota is released when its pods are gone, and it never starts
    again.
    """
    outcome = context.kind.finished(context.job)
    if outcome is not None:
        return _done(context, outcome, [workload for workload in own if not workload.is_finished], own)
    if not context.kind.is_stopped(context.job) and any(workload.is_reserved for workload in own):
        if not context.kind.is_suspended(context.job):
            return _suspended(context)
        left = context.seen.left_pods
        if left is None:
            return []
        if left:
            return [AwaitPods(count=sum(left.values()))]
    return [*finish_orphans(own, _GONE, context.settings.gates)]


def _suspended(context: Context) -> list[Action]:
    return [StopJob(patches=(context.kind.suspend(context.job),))]


def _hold(context: Context, error: JobError | None = None) -> list[Action]:
    """Actions for a job that is refused: it is suspended, unless it was admitted before it became wrong and is not
    evicted.
    """
    kind, job = context.kind, context.job
    try:
        if kind.finished(job) is not None:
            return []
        own = [each for each in context.seen.workloads if each.is_live and controls(job, each)]
        admitted = [workload for workload in own if workload.is_admitted]
        evicted = any(workload.eviction is not None for workload in admitted)
        if not kind.is_suspended(job):
            return _suspended(context) if evicted or not admitted else []
        missing = error is None or isinstance(error, PriorityClassMissingError)
        if missing or prebuilt_mark(job)[1] or not kind.is_stopped(job):
            return []
        # The job cannot start: it must hold no quota.
        return [action for workload in own for action in _withdraw(workload)]
    except JobError:
        return []


def _prebuilt(context: Context, name: str) -> list[Action]:
    workload = next((each for each in context.seen.workloads if each.name == name), None)
    if workload is None:
        waiting = EmitEvent(type="Warning", reason="ErrWorkloadCompose", message=words.no_prebuilt_workload(name))
        return [*_hold(context), waiting]
    if not controls(context.job, workload):
        if any(owner.controller for owner in workload.typed.metadata.owner_references):
            raise JobError(f"{prebuilt_mark(context.job)[0]}: workload {name} belongs to another job")
        if workload.is_finished or workload.is_terminating:
            raise JobError(f"{prebuilt_mark(context.job)[0]}: workload {name} is finished or being deleted")
        return [*_hold(context), _adopted(context, workload)]
    return _queued(context, [workload], prebuilt=True)


def _adopted(context: Context, workload: SeenWorkload) -> UpdateWorkload:
    labels_ = {names.JOB_UID: text(context.job, "metadata", "uid")}
    owner = compose.owner_reference(context.kind, context.job)
    return update(workload, {"metadata": {"labels": labels_, "ownerReferences": [*workload.owner_references, owner]}})


def _queued(context: Context, own: list[SeenWorkload], *, prebuilt: bool = False) -> list[Action]:
    """Actions for a job that is queued itself."""
    live = [workload for workload in own if workload.is_live]
    finished = [workload for workload in own if workload.is_finished and not workload.is_terminating]
    terminating = [workload for workload in own if workload.is_terminating]
    outcome = context.kind.finished(context.job)
    if outcome is not None:
        return _done(context, outcome, live, [*finished, *terminating])
    if terminating:
        return _deleted_by_others(context, terminating, live)
    if not live and finished:
        return _after_the_end(context, finished, prebuilt=prebuilt)
    if context.elastic and not context.kind.is_suspended(context.job):
        sliced, changes = elastic.slices(context, live)
        if sliced is not None:
            return changes or _matched(context, sliced, prebuilt=prebuilt)
    if not prebuilt and not context.elastic:
        live, growing = growth.followed(context, live)
        if growing:
            return growing
    if not live:
        return _without_workload(context)
    chosen = live[0] if len(live) == 1 else _chosen(context, live)
    if not context.fits(chosen):
        return _mismatch(context, chosen, prebuilt=prebuilt)
    surplus = [action for workload in live if workload is not chosen for action in _withdraw(workload)]
    return surplus or _matched(context, chosen, prebuilt=prebuilt)


def _done(context: Context, outcome: Outcome, live: list[SeenWorkload], ended: list[SeenWorkload]) -> list[Action]:
    """Actions for a job that has ended. ``ended``: workloads that hold nothing any more, so their finalizers are
    removed.
    """
    if context.seen.left_pods:
        return outlived(context, context.seen.left_pods)
    actions: list[Action] = []
    for workload in live:
        actions.append(finish(workload, outcome.reason, outcome.message))
        actions.append(event("FinishedWorkload", words.finished_workload(workload.name, outcome.message)))
    return actions + remove_finalizers(ended)


def _deleted_by_others(context: Context, terminating: list[SeenWorkload], live: list[SeenWorkload]) -> list[Action]:
    """Actions while workloads are being deleted: the job stops, then they lose their finalizers."""
    holder = next((workload for workload in terminating if workload.is_reserved and not workload.is_finished), None)
    if holder is not None and not any(workload.is_admitted for workload in live):
        stopping = _stopping(context, holder, words.workload_being_deleted(holder.name))
        if stopping or not context.kind.is_stopped(context.job):
            return stopping
    return [*remove_finalizers(terminating)]


def _after_the_end(context: Context, finished: list[SeenWorkload], *, prebuilt: bool) -> list[Action]:
    """Actions if the workload is finished and the job is not: it is stopped, unless the workload has the job's own
    coming end.
    """
    last = max(finished, key=_age)
    condition = find_condition(last.typed.status.conditions, "Finished")
    reason = "" if condition is None else condition.reason
    left: list[Action] = [*remove_finalizers(finished)]
    if reason in _RUN_TO_THE_END:
        return left
    stopping = _stopping(context, last, words.finished_workload(last.name, reason))
    if stopping or not context.kind.is_stopped(context.job) or prebuilt:
        return stopping or left
    # A job that was repaired after its start failed is queued as a new one, and so is one whose last slice is gone.
    ended = reason != "WorkloadSliceReplaced"
    return left if ended and compose.asks_for(context.kind, context.job, last, context.settings) else _withdraw(last)


def _age(workload: SeenWorkload) -> tuple[float, str]:
    created = workload.typed.metadata.creation_timestamp
    return (0.0 if created is None else created.timestamp(), workload.name)


def _without_workload(context: Context) -> list[Action]:
    stopping = _stopping(context, None, words.no_workload_yet())
    if stopping or not context.kind.is_stopped(context.job):
        return stopping
    _check_rules(context)
    body = compose.workload_body(context.kind, context.job, context.settings, context.cluster)
    created = words.created_workload(body["metadata"]["name"])
    whole = smaller_gang(context.job, sum(context.kind.counts(context.job).values()))
    told = [event("StartsWhole", whole)] if whole else []
    return [CreateWorkload(body=body), event("CreatedWorkload", created), *told]


def _check_rules(context: Context) -> None:
    """Checks a job that is to be queued by the rules of its kind. Raises JobError with the first that it breaks."""
    for refusal in refused(context.kind.rules, Review(new=context.job, gates=context.settings.gates)):
        raise JobError(f"{refusal.field}: {refusal.sentence}")


def _chosen(context: Context, live: list[SeenWorkload]) -> SeenWorkload:
    """The workload to keep of several: one that fits, then one that holds quota, then the oldest."""
    return min(live, key=lambda workload: (not context.fits(workload), not workload.is_reserved, _age(workload)))


def _mismatch(context: Context, workload: SeenWorkload, *, prebuilt: bool) -> list[Action]:
    kind, job = context.kind, context.job
    held = workload.is_reserved
    if held and workload.eviction is not None:  # compared again when it has been requeued
        return _evicted(context, workload, workload.eviction)
    lowered = elastic.lowered(context, workload) if context.elastic and not prebuilt else []
    if lowered:
        return lowered
    untouched = kind.is_suspended(job) and not kind.is_started(job, workload)
    if untouched and not held and not prebuilt:
        _check_rules(context)
        spec = compose.spec_patch(kind, job, workload, context.settings, context.cluster)
        updated = words.adapted_workload(workload.name)
        return [update(workload, {"spec": spec}), event("UpdatedWorkload", updated)]
    stopping = _stopping(context, workload, words.no_match_any_more(workload.name))
    if stopping or not kind.is_stopped(job):
        return stopping
    if prebuilt:
        return [finish(workload, "OutOfSync", words.other_than_prebuilt())]
    return _withdraw(workload)


def _matched(context: Context, workload: SeenWorkload, *, prebuilt: bool) -> list[Action]:
    """Actions for a job with one workload that matches it."""
    if context.kind.needs_again(context.job, workload):
        stopping = _stopping(context, workload, words.pods_given_back(workload.name))
        return stopping if stopping or not context.kind.is_stopped(context.job) else _withdraw(workload)
    actions = _synchronized(context, workload, prebuilt=prebuilt)
    if any(isinstance(action, DeleteWorkload) for action in actions):
        return actions
    actions += reclaimed(context, workload)
    ready = pods_ready_action(context, workload)
    actions += [ready] if ready is not None else []
    actions += startgroups.followed(context, workload)
    if workload.eviction is not None:
        return actions + _evicted(context, workload, workload.eviction)
    if context.kind.is_on_hold(context.job):
        return actions + _on_hold(context, workload)
    if _is_held(workload):
        return [*actions, hold(workload, "The job may start again", on=False)]
    return actions + _run_or_not(context, workload)


def _is_held(workload: SeenWorkload) -> bool:
    requeued = find_condition(workload.typed.status.conditions, "Requeued")
    return requeued is not None and requeued.status == "False" and requeued.reason == _ON_HOLD


def _on_hold(context: Context, workload: SeenWorkload) -> list[Action]:
    """Actions for a job that says that it must not start: it holds no quota meanwhile, and keeps its workload."""
    stopping = _stopping(context, workload, words.on_hold())
    if stopping or not context.kind.is_stopped(context.job):
        return stopping
    if _is_held(workload) and not workload.is_reserved:
        return []
    return [hold(workload, words.on_hold(), on=True)]


def _synchronized(context: Context, workload: SeenWorkload, *, prebuilt: bool) -> list[Action]:
    """Actions for labels of the job that have changed. A value that cannot be read is reported and ignored."""
    job = context.job
    try:
        spec = compose.mark_patch(job, workload, context.cluster)
        metadata = {} if prebuilt else compose.metadata_patch(context.kind, job, workload, context.settings)
    except JobError as error:
        return [refuse(error)]
    if context.moved_while_reserved(workload) and not prebuilt:
        return _withdraw(workload)
    if not spec and not metadata:
        return []
    updated = event("UpdatedWorkload", words.updated_workload(workload.name, ", ".join([*spec, *metadata])))
    return [update(workload, {"metadata": metadata, **({"spec": spec} if spec else {})}), updated]


def _evicted(context: Context, workload: SeenWorkload, evicted: Condition) -> list[Action]:
    stopping = _stopping(context, workload, evicted.message or f"Evicted: {evicted.reason}")
    if stopping or not context.kind.is_stopped(context.job) or not workload.is_reserved:
        return stopping
    return [release_quota(workload, evicted)]


def _run_or_not(context: Context, workload: SeenWorkload) -> list[Action]:
    if not workload.is_admitted:
        return _stopping(context, workload, words.not_admitted(workload.name))
    if not context.kind.is_suspended(context.job):
        return elastic.ungated(context, workload) if context.elastic else []
    group = startgroups.group_of_start(context, workload)
    if group and (removed := theirgroups.unwanted(context)):
        return removed  # their removal brings the next reconciliation
    try:
        grows = bool(context.kind.counts_above(context.job))
        starts = infos(
            workload.typed,
            context.cluster.flavor,
            elastic=context.elastic,
            grows=grows,
            gates=context.settings.gates,
            claims=lambda name: claimplan.written(context.cluster.claim_devices(WorkloadKey(workload.typed.key), name)),
            group=group,
            off=kept_off_spot(context.settings, context.cluster, workload.typed),
        )
        patches = context.kind.start(context.job, workload, starts)
    except StartConflictError as conflict:
        return [*not_startable(workload.name, workload.uid, f"The job cannot start: {conflict}")]
    except FlavorMissingError as missing:
        return [flavor_missing("The job", missing)]
    if not patches:
        return []
    admission = workload.typed.status.admission
    queue = "" if admission is None else admission.cluster_queue
    started = any(not patch.subresource for patch in patches)
    events = [event("Started", words.started(queue))] if started else []
    start = StartJob(patches=patches, name=workload.name, uid=workload.uid)
    return [*startgroups.made(context, workload, group), start, *events]


def _stopping(context: Context, workload: SeenWorkload | None, why: str) -> list[Action]:
    """Actions with the next patches of a stop; the event comes with the first, when the job stops running."""
    ran = not context.kind.is_suspended(context.job)
    patches = context.kind.stop(context.job, workload)
    if not patches:
        return []
    return [StopJob(patches=patches), *([event("Stopped", why)] if ran else [])]
