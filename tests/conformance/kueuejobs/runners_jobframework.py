"""Runners of the suites about what all kinds of jobs share: the generic loop, priorities, metrics, gates."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.observing import Counting
from controller.jobs.framework import compose, names
from controller.jobs.framework.actions import CreateWorkload, SetPodsReady
from controller.jobs.framework.marks import managed_ancestor
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, infos, started_template
from controller.jobs.framework.raw import Json, PriorityClassMissingError, merged
from controller.jobs.framework.steps import refuse
from controller.jobs.kinds.batchjob import BatchJob
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from kube.clock import Clock
from kube.writing.writes import Written
from tests.conformance.kueuejobs.runners_kinds import given, kind_of
from tests.conformance.kueuejobs.runners_podsets import filled, settings_of
from tests.conformance.kueuejobs.runners_reconcile import workloads_json
from tests.conformance.kueuejobs.runners_small import classes
from tests.conformance.kueuejobs.world import At, api_objects, reaches, world
from tests.conformance.replay import Case, Difference, first_difference, runner


class _Generic(BatchJob):
    """A Job that asks for the pod sets that the case names."""

    def __init__(self, asked: tuple[JobPodSet, ...]) -> None:
        self._asked = asked

    def pod_sets(self, _job: Json) -> tuple[JobPodSet, ...]:
        return self._asked


def _without_requests(workload: Json) -> Json:
    """Kueue's case gives the pod sets of its job by themselves, without what their containers are."""
    sets = [
        {**one, "template": {**one["template"], "spec": {**one["template"]["spec"], "containers": []}}}
        for one in workload["spec"].get("podSets") or ()
    ]
    return {**workload, "spec": {**workload["spec"], "podSets": sets}}


@runner("jobs-jobframework-TestReconcileGenericJob")
def generic_job(case: Case) -> Difference | None:
    asked = tuple(msgspec.convert({**one, "template": one["template"]}, JobPodSet) for one in case.input["podSets"])
    state = world(case, _Generic(asked), case.input["job"], ())
    wanted = case.expect["wantWorkloads"]

    def compared() -> Difference | None:
        one, other = (
            workloads_json([_without_requests(raw) for raw in each], owners=True, metadata=True, templates=True)
            for each in (wanted or (), list(state.workloads.values()))
        )
        return first_difference(one, other, "workloads")

    return reaches(state, compared)


@runner("jobs-jobframework-TestReconcileGenericJobWithCustomWorkloadActivation")
def activation(case: Case) -> Difference | None:
    state = world(case, BatchJob(), _job(case), ())
    for action in state.next():
        state.carry_out(action)
    (workload,) = state.workloads.values()
    return first_difference(case.expect["expectedActive"], workload["spec"].get("active", True), "active")


@runner("jobs-jobframework-TestReconcileGenericJobWithWaitForPodsReady")
def pods_ready_is_written(case: Case) -> Difference | None:
    """An error of the API server is that of the write in which the condition goes."""
    state = world(case, BatchJob(), case.input["job"], [case.input["workload"]])
    written = any(isinstance(action, SetPodsReady) for action in state.next())
    return None if written or not case.expect["wantError"] else Difference("condition", "a write", None)


def _job(case: Case) -> Json:
    return case.input.get("job") or next(one for one in api_objects(case) if one["kind"] == "Job")


# -- priorities


@runner("jobs-jobframework-TestApplyDefaultWorkloadPriorityClass")
def class_of_a_job_without_one(case: Case) -> Difference | None:
    """The class that its Workload gets; a part of a larger job has none."""
    job = case.input["job"]
    state = world(case, BatchJob(), job, ())
    parent = managed_ancestor(job, state.settings, state.cluster) or job["metadata"].get("ownerReferences")
    if parent:
        return first_difference(case.expect["wantPriorityClassLabel"], "")
    found = names.PRIORITY_CLASS in (job["metadata"].get("labels") or {})
    chosen = (
        {"priorityClassRef": {"name": job["metadata"]["labels"][names.PRIORITY_CLASS]}}
        if found
        else compose.default_class(settings_of(case), classes(case))
    )
    return first_difference(case.expect["wantPriorityClassLabel"], chosen.get("priorityClassRef", {}).get("name", ""))


@runner("jobs-jobframework-TestExtractPriorityReportsMissingWorkloadPriorityClass")
def missing_class(case: Case) -> Difference | None:
    job = case.input["job"]
    for pod_set in case.input.get("podSets") or ():
        job = merged(job, {"spec": {"template": pod_set["template"]}})
    events, error = [], False
    listed = [{"kind": "WorkloadPriorityClass", **one} for one in case.input.get("objects") or ()]
    try:
        compose.priority(BatchJob(), job, settings_of(case), world(case, BatchJob(), job, (), listed).cluster)
    except PriorityClassMissingError as missing:
        error, events = True, [refuse(missing).reason]
    return first_difference(bool(case.expect["wantErr"]), error, "error") or first_difference(
        [one["reason"] for one in case.expect["wantEvents"] or ()], events, "events"
    )


@runner("jobs-jobframework-TestUpdateWorkloadPriority")
def priority_follows_the_class(case: Case) -> Difference | None:
    """Each step is one look at the class and one patch a Workload; what fails is done by the next step."""
    job = next(one for one in api_objects(case) if one["kind"] == "Job")
    found = {raw["metadata"]["name"]: raw for raw in case.input["workloads"]}
    value, writes = case.input["class"]["value"], 0
    for step in case.input["steps"]:
        changed = re.search(r"changed to (\d+)", (step.get("before") or {}).get("$words", ""))
        value = int(changed[1]) if changed else value
        listed = [{"kind": "WorkloadPriorityClass", **case.input["class"], "value": value}]
        cluster = world(case, BatchJob(), job, (), listed).cluster
        for name, raw in found.items():
            patch = compose.mark_patch(job, SeenWorkload.of(raw), cluster)
            wrote = {key: patch[key] for key in ("priority", "priorityClassRef") if key in patch}
            writes += bool(wrote)
            found[name] = merged(raw, {"spec": wrote})
    seen = {
        name: filled({"priority": spec.get("priority"), "refName": (spec.get("priorityClassRef") or {}).get("name")})
        for name, spec in ((name, raw["spec"]) for name, raw in found.items())
    }
    wanted = {
        name: {**({} if "refName" in one else _ref(seen[name], one)), **one}
        for name, one in case.expect["want"].items()
    }
    difference = first_difference(wanted, seen)
    if difference is None and case.expect.get("wantWorkloadWrites") is not None:
        difference = first_difference(case.expect["wantWorkloadWrites"], writes, "writes")
    return difference


def _ref(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """A case that names no class does not look at it, where a priority is wanted."""
    return {"refName": found["refName"]} if "refName" in found and wanted else {}


# -- metrics


class _Taking:
    """An API server that takes everything."""

    async def put(self, _write: Any) -> Any:
        return Written(object=None)


@runner("jobs-jobframework-TestRecordWorkloadCreationLatency")
def creation_latency(case: Case) -> Difference | None:
    """A job 5 s old gets its Workload."""
    instruments = Instruments()
    none: Any = None
    at = cast("Clock", At(1005.0))
    counting = Counting(instruments, local_queues=False)
    actions = WorkloadActions(none, none, none, cast("Any", _Taking()), at, created=counting.created)
    job: Json = {"metadata": {"name": "test-job", "namespace": "default", "creationTimestamp": "1970-01-01T00:16:40Z"}}
    again = re.search(r"generation (\d+)", (case.input["makeJob"] or {}).get("$words", ""))
    job["metadata"]["generation"] = int(again[1]) if again else 1
    create = CreateWorkload(body={"metadata": {"name": "w"}})
    asyncio.run(actions.carry_out(create, "default", case.input["jobKind"], [job]))
    found = instruments.registry.get_sample_value(
        "kueue_workload_creation_latency_seconds_sum", {"job_kind": case.input["jobKind"]}
    )
    return first_difference(float(case.expect["expectedLatency"] or 0), found or 0.0)


# -- gates and names


@runner("jobs-job-Test_applyWorkloadSliceSchedulingGate")
def gate_of_an_elastic_job(case: Case) -> Difference | None:
    """The gates of its pods, from its start on: a job that waits has none."""
    job = case.input["args"]["job"]
    elastic = compose.elastic_here(BatchJob(), job, settings_of(case))
    raw = {
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}},
    }
    (info,) = infos(decode(raw, Workload), _no_flavor, elastic=elastic)
    spec = started_template(job["spec"]["template"], info)["spec"]
    return first_difference(case.expect["want"] or [], spec.get("schedulingGates") or [])


def _no_flavor(_name: str) -> ResourceFlavor | None:
    return None


@runner("jobs-jobframework-TestGetWorkloadNameForVariant")
def variants(case: Case) -> Difference | None:
    """There are none."""
    return Difference("variant", case.expect, None)


@runner("jobs-trainjob-TestRestorePodSetsInfo")
def restored_train_job(case: Case) -> Difference | None:
    job = given(case)
    anything = SeenWorkload.of({"metadata": {"name": "w"}, "spec": {"podSets": []}})
    found = kind_of(case).restored(job, anything)
    return first_difference(filled(case.expect["wantTrainJob"]), filled(found)) or first_difference(
        case.expect["wantReturn"], found != job, "changed"
    )
