"""Growth of gangs that were admitted with a part of their pods (decision 183). Pure.

A Job whose ``spec.scheduling`` asks for fewer pods than its parallelism starts with as many as have quota. While it
runs so, a second Workload, the growth, asks for more of them; it is a slice that is to replace the Job's Workload, as
those of elastic jobs are. When the growth is admitted, the Workload before it is over, the parallelism is raised to
what was admitted, and the growth loses its mark: it is the Job's Workload then. No pod waits behind a gate meanwhile,
because kube-scheduler would start none of its group.
"""

from controller.jobs.framework import compose, names
from controller.jobs.framework.actions import Action, CreateWorkload, StartJob
from controller.jobs.framework.context import Context
from controller.jobs.framework.podsets import SeenWorkload, before_growth
from controller.jobs.framework.steps import delete, event, finish, update
from controller.messages import jobs as words
from controller.reconcile.jobs.elastic import in_order
from controller.scheduler.model.workload import is_growth
from inventory.api.names import GROWTH


def followed(context: Context, live: list[SeenWorkload]) -> tuple[list[SeenWorkload], list[Action]]:
    """The live Workloads of a job without the growth that waits, and the actions that keep, end or take over one."""
    if not _may_grow(context) and not any(is_growth(each.typed) for each in live):
        return live, []
    admitted = [each for each in in_order(live) if each.is_admitted]
    base = admitted[-1] if admitted else None
    if base is not None and (replaced := [each for each in admitted[:-1] if each.typed.key == _follows(base)]):
        return live, [finish(old, "WorkloadSliceReplaced", words.slice_replaced(base.name)) for old in replaced]
    if base is None or context.kind.is_suspended(context.job):
        return _stopped(context, live)
    if is_growth(base.typed) and base.eviction is None:
        return live, _grown(context, base)
    waiting = [each for each in live if is_growth(each.typed) and not each.is_admitted]
    rest = [each for each in live if each not in waiting]
    most = _most(context, base)
    kept = [each for each in waiting if each.is_reserved or (most and _asks_for(each, base, most))]
    actions: list[Action] = [delete(each) for each in waiting if each not in kept]
    if most and not waiting and rest == [base]:
        body = compose.growth_body(context.kind, context.job, context.settings, base, most)
        told = words.growth_created(body["metadata"]["name"], sum(most.values()), base.name)
        actions += [CreateWorkload(body=body), event("CreatedWorkload", told)]
    return rest, actions


def _may_grow(context: Context) -> bool:
    on = all(context.settings.gates.on(gate) for gate in ("ElasticJobsViaWorkloadSlices", "PartialAdmission"))
    return on and bool(context.kind.full_counts(context.job))


def _stopped(context: Context, live: list[SeenWorkload]) -> tuple[list[SeenWorkload], list[Action]]:
    """``followed`` of a job that does not run: a growth of what has stopped asks for nothing; one that was admitted
    and that the job has not followed yet, is the job's Workload.
    """
    others = [each for each in live if not is_growth(each.typed)]
    if others:
        return others, [delete(each) for each in live if each not in others and not each.is_reserved]
    if len(live) == 1 and not live[0].is_reserved and not context.kind.is_started(context.job, live[0]):
        return live, [_settled(live[0])]
    return live, []


def _most(context: Context, base: SeenWorkload) -> dict[str, int]:
    """Pods by pod set up to which the job may grow beside ``base``; empty where it is not to, or has all of them.

    A limit of the run time counts for each Workload, and a check of an admission may take long or refuse: a job of
    either keeps the counts of its admission.
    """
    status, admitted = base.typed.status, compose.admitted_counts(base.typed)
    fixed = base.typed.spec.maximum_execution_time_seconds is not None or status.admission_checks
    if fixed or status.reclaimable_pods or base.eviction is not None or not _may_grow(context):
        return {}
    if context.kind.counts(context.job) != admitted:
        return {}
    most = context.kind.full_counts(context.job)
    return most if most.keys() == admitted.keys() and all(most[name] > admitted[name] for name in admitted) else {}


def _asks_for(growth: SeenWorkload, base: SeenWorkload, most: dict[str, int]) -> bool:
    asked, given = growth.typed.spec, compose.admitted_counts(base.typed)
    stays = _follows(growth) == base.typed.key and asked.queue_name == base.typed.spec.queue_name
    return stays and compose.counts_of(asked.pod_sets) == most and before_growth(growth.typed) in given.values()


def _follows(slice_: SeenWorkload) -> str:
    """The key of the Workload that the slice is to replace; empty for none."""
    return slice_.typed.metadata.annotations.get(names.REPLACEMENT_FOR, "")


def _grown(context: Context, growth: SeenWorkload) -> list[Action]:
    """Actions for a growth that is admitted: the job gets the pods, then the growth is its Workload."""
    admitted, before = compose.admitted_counts(growth.typed), before_growth(growth.typed)
    if set(context.kind.counts(context.job).values()) != {before}:
        return [_settled(growth)]  # it has grown, or somebody has changed it
    patch = context.kind.resized(context.job, admitted)
    told = words.job_grown(before or 0, sum(admitted.values()))
    return [StartJob(patches=(patch,), name=growth.name, uid=growth.uid), event("Grown", told)]


def _settled(growth: SeenWorkload) -> Action:
    return update(growth, {"metadata": {"annotations": {GROWTH: None}}})
