"""Runners of the suites in which a job is reconciled: what the API holds of job and Workloads afterwards."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.marks import is_managed, managed_ancestor
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.kinds.batchjob import BatchJob
from tests.conformance.kueuejobs.differences import ADDED_TO_TEMPLATES, ADDED_TO_WORKLOADS
from tests.conformance.kueuejobs.runners_kinds import given, kind_of
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.world import World, reaches, selector, world
from tests.conformance.replay import Case, Difference, first_difference, runner

_KEPT: Final = ("labels", "finalizers", "name", "namespace")
_TIMES: Final = ("lastTransitionTime", "message", "observedGeneration", "lastProbeTime")


def workloads_json(listed: Sequence[Json], *, owners: bool, metadata: bool, templates: bool) -> list[Any]:
    """What a case compares of Workloads, in the order of their names: no times, no texts."""
    found = []
    for raw in sorted(listed, key=lambda one: str(one["metadata"].get("name"))):
        kept = {key: raw["metadata"].get(key) for key in ("namespace", "labels", "finalizers")}
        noted = raw["metadata"].get("annotations") or {}
        kept["annotations"] = {key: value for key, value in noted.items() if key not in ADDED_TO_WORKLOADS}
        if owners:
            kept["ownerReferences"] = raw["metadata"].get("ownerReferences")
        status = dict(raw.get("status") or {})
        conditions = {one["type"]: _untimed(one) for one in status.pop("conditions", None) or ()}
        checks = [_untimed(one) for one in status.pop("admissionChecks", None) or ()]
        if conditions.get("QuotaReserved", {}).get("status") == "False":
            status.pop("admission", None)  # what is left of it means nothing: Kueue's test API does not take it away
        spec = dict(raw["spec"])
        if not metadata:
            kept = {}
            spec.pop("priority", None)
        if not templates:
            spec["podSets"] = [{**one, "template": {}} for one in spec.get("podSets") or ()]
        if spec.get("active", True):
            spec.pop("active", None)
        status |= {"checks": checks, "conditions": conditions}
        found.append(filled({"metadata": kept, "spec": spec, "status": status}))
    return found


def _untimed(item: Mapping[str, Any]) -> Json:
    return {key: value for key, value in item.items() if key not in _TIMES}


def job_json(job: Json | None, *, metadata: bool) -> Any:
    if job is None:
        return {}
    status = dict(job.get("status") or {})
    kept = {key: value for key, value in job["metadata"].items() if key in _KEPT}
    spec = without(job.get("spec"), ADDED_TO_TEMPLATES)
    return filled({"metadata": kept if metadata else {}, "spec": spec, "status": status})


def without(value: Any, keys: Sequence[str]) -> Any:
    """JSON without these annotations, wherever they stand."""
    if isinstance(value, Mapping):
        return {key: without(item, keys) for key, item in value.items() if key not in keys}
    return [without(item, keys) for item in value] if isinstance(value, list) else value


def reconciled(case: Case, kind: JobKind, job: Json, *, metadata: bool) -> Difference | None:
    """The first difference that all our first steps leave."""
    templates = "pod template" not in case.compare
    wanted_workloads = case.expect.get("wantWorkloads")
    state = world(case, kind, job, case.input.get("workloads") or ())
    owners = metadata and "prebuilt" in str(job["metadata"])

    def compared() -> Difference | None:
        return _compared(case, state, wanted_workloads, owners=owners, metadata=metadata, templates=templates)

    return reaches(state, compared)


def _compared(
    case: Case, state: World, wanted: Sequence[Json] | None, *, owners: bool, metadata: bool, templates: bool
) -> Difference | None:
    if wanted is not None or "wantWorkloads" in case.expect:
        one, other = (
            workloads_json(each, owners=owners, metadata=metadata, templates=templates)
            for each in (wanted or (), list(state.workloads.values()))
        )
        if difference := first_difference(one, other, "workloads"):
            return difference
    if "wantJob" not in case.expect or case.expect["wantJob"] is None:
        return None
    return first_difference(
        job_json(case.expect["wantJob"], metadata=metadata), job_json(state.job, metadata=metadata), "job"
    )


@runner("jobs-job-TestReconciler")
def batch_job(case: Case) -> Difference | None:
    job = case.input.get("job")
    return _orphans(case) if job is None else reconciled(case, BatchJob(), job, metadata=True)


def _orphans(case: Case) -> Difference | None:
    """The job is gone: its Workloads lose their finalizers."""
    state = world(case, BatchJob(), None, case.input["workloads"])
    for action in state.next():
        state.carry_out(action)
    return _compared(case, state, case.expect["wantWorkloads"], owners=True, metadata=True, templates=True)


_DECLARED: Final = (
    "appwrapper",
    "jobset",
    "mpijob",
    "paddlejob",
    "raycluster",
    "sparkapplication",
    "trainjob",
    "xgboostjob",
)

for _name in _DECLARED:

    @runner(f"jobs-{_name}-TestReconciler")
    def declared_kind(case: Case) -> Difference | None:
        return reconciled(case, kind_of(case), given(case), metadata=False)


@runner("jobs-jobframework-TestReconcileGenericJob_EvictionClearsQuotaReservation")
def quota_of_an_evicted_job(case: Case) -> Difference | None:
    there = case.input["apiObjects"]
    job = next(one for one in there if one["kind"] == "Job")
    state = world(case, BatchJob(), job, ())
    for action in state.next():
        state.carry_out(action)
    (workload,) = state.workloads.values()
    found = next(one for one in workload["status"]["conditions"] if one["type"] == "QuotaReserved")
    wanted = case.expect["quotaReservedCondition"]
    return first_difference(wanted, {key: found[key] for key in wanted})


@runner("jobs-jobframework-TestWorkloadShouldBeSuspended")
def is_to_be_suspended(case: Case) -> Difference | None:
    """A job in a managed namespace that is queued, and no part of a larger one that is."""
    job = case.input["obj"]
    managed = bool(case.input["manageJobsWithoutQueueName"])
    state = world(case, BatchJob(), job, ())
    rules = JobSettings(
        manage_jobs_without_queue_name=managed,
        managed_jobs_namespace_selector=selector("kubernetes.io/metadata.name notin (unmanaged-ns)"),
        gates=case.gates,
    )
    own = is_managed(job, state.namespace_labels, rules)
    found = own and managed_ancestor(job, rules, state.cluster) is None
    return first_difference(bool(case.expect["wantErr"]), False, "error") or first_difference(
        case.expect["wantSuspend"], found
    )
