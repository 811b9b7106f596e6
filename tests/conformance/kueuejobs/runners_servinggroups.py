"""Runners of the suites about StatefulSets and LeaderWorkerSets: templates, Workloads, and the marks of pods."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from controller.jobs.framework.actions import (
    AwaitOwner,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    Refuse,
    RemoveFinalizer,
    UpdateWorkload,
)
from controller.jobs.framework.marks import is_managed
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json, merged
from controller.jobs.serving.kind import ServingKind
from controller.jobs.serving.table import SERVING_KINDS
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.workload import Workload
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.pods.actions import DeletePod, PatchPod, PodAction
from controller.reconcile.serving.compose import group_index
from controller.reconcile.serving.reconcile import SeenServing, reconcile_serving
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from kube.clock import Clock
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.runners_reconcile import workloads_json
from tests.conformance.kueuejobs.world import cluster, settings
from tests.conformance.replay import Case, Difference, first_difference, runner

_CALLS: Final = 2
_VERSION: Final = "resourceVersion"


class _At:
    """A clock that stands at the cases' time, 2025."""

    def wall(self) -> float:
        return 1735689600.0


class ServingWorld:
    """The API of one reconciliation: a serving object, its Workloads and pods, our actions carried out on them.

    ``past_filter``: an object without a queue comes to the reconciler too, which in a cluster is kept from it.
    """

    def __init__(
        self, case: Case, kind: ServingKind, owner: Json | None, pods: Sequence[Json], *, past_filter: bool = False
    ) -> None:
        given = case.input
        self._kind = kind
        self._owner = owner
        self._case = case
        listed = [*(given.get("workloads") or ()), *(one for one in _api(case) if one["kind"] == "Workload")]
        self.workloads = {one["metadata"]["name"]: copy.deepcopy(one) for one in listed}
        self.pods = {one["metadata"]["name"]: copy.deepcopy(one) for one in pods}
        self.events: list[tuple[str, str]] = []
        classes = [{"kind": "WorkloadPriorityClass", **one} for one in given.get("workloadPriorityClasses") or ()]
        self._cluster = cluster([*_api(case), *classes], list(self.workloads.values()))
        manage_all = settings(case).manage_jobs_without_queue_name or past_filter
        self._settings = replace(settings(case), manage_jobs_without_queue_name=manage_all)

    def reconcile(self) -> None:
        seen = SeenServing(
            kind=self._kind,
            owner=copy.deepcopy(self._owner),
            workloads=tuple(SeenWorkload.of(copy.deepcopy(raw)) for raw in self.workloads.values()),
            pods=tuple(SeenPod(copy.deepcopy(raw)) for raw in self.pods.values()),
        )
        for action in reconcile_serving(seen, self._settings, self._cluster):
            self._carry_out(action)

    def _carry_out(self, action: PodAction) -> None:
        match action:
            case PatchPod(name=name, body=body):
                self.pods[name] = merged(self.pods[name], body)
            case CreateWorkload(body=body):
                self.workloads.setdefault(body["metadata"]["name"], copy.deepcopy(body))
            case UpdateWorkload(name=name, patch=change):
                self.workloads[name] = merged(self.workloads[name], change)
            case DeleteWorkload(name=name):
                self.workloads[name]["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
            case RemoveFinalizer(name=name):
                self.workloads[name]["metadata"]["finalizers"] = []
            case AwaitOwner():
                self.events.append(("Normal", "AwaitsOwner"))
            case EmitEvent(type=type_, reason=reason):
                self.events.append((type_, reason))
            case Refuse(reason=reason):
                self.events.append(("Warning", reason))
            case DeletePod():
                raise AssertionError("pods of a group are stopped where groups are reconciled")
            case _:
                raw = self.workloads[action.name]
                raw["status"] = to_json(self._actions()._after(decode(raw, Workload), action).status)
        gone = [
            name
            for name, raw in self.workloads.items()
            if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers")
        ]
        for name in gone:
            del self.workloads[name]

    def _actions(self) -> WorkloadActions:
        none: Any = None
        engine = Engine(EngineConfig(gates=self._case.gates))
        return WorkloadActions(engine, none, none, none, cast("Clock", _At()), created=lambda _kind, _age: None)


def _api(case: Case) -> list[Json]:
    return [one.get("object", one) for one in case.input.get("apiObjects") or ()]


def _kind(case: Case) -> ServingKind:
    name = case.suite.split("-")[1]
    return next(kind for kind in SERVING_KINDS if kind.kind.lower() == name)


def _pods(listed: Sequence[Json]) -> Any:
    kept = sorted(listed, key=lambda one: str(one["metadata"]["name"]))
    return filled(
        [{**one, "metadata": {key: value for key, value in one["metadata"].items() if key != _VERSION}} for one in kept]
    )


def _reconciled(case: Case, owner: Json | None) -> Difference | None:
    kind = _kind(case)
    pods = case.input.get("pods") or ()
    state = ServingWorld(case, kind, owner, pods, past_filter=kind.kind == "LeaderWorkerSet")
    for _ in range(_CALLS):
        state.reconcile()
    wanted, failed = case.expect.get("wantWorkloads") or [], case.expect.get("wantErr") is not None
    one, other = (
        workloads_json(listed, owners=True, metadata=True, templates=True)
        for listed in (wanted, list(state.workloads.values()))
    )
    refused = any(reason == "WorkloadPriorityClassNotFound" for _, reason in state.events)
    return (
        first_difference(one, other, "workloads")
        or first_difference(_pods(case.expect.get("wantPods") or ()), _pods(list(state.pods.values())), "pods")
        or first_difference(failed, refused, "error")
        or first_difference(_reasons(case), {reason for _, reason in state.events}, "events")
    )


def _reasons(case: Case) -> set[str]:
    return {one["reason"] for one in case.expect.get("wantEvents") or ()}


@runner("jobs-statefulset-TestReconciler")
def statefulset(case: Case) -> Difference | None:
    return _reconciled(case, case.input.get("statefulSet"))


@runner("jobs-leaderworkerset-TestReconciler")
def leaderworkerset(case: Case) -> Difference | None:
    return _reconciled(case, case.input.get("leaderWorkerSet"))


@runner("jobs-statefulset-TestPodReconciler")
def statefulset_pod(case: Case) -> Difference | None:
    """The set's Workloads are not looked at. The pod names its set by another uid: Kueue goes by the name there."""
    owner = case.input["sts"]
    pod, wanted = (_owned(each, owner) for each in (case.input["pod"], *case.expect["wantPods"]))
    state = ServingWorld(case, _kind(case), owner, (pod,))
    state.reconcile()
    return first_difference(_pods((wanted,)), _pods(list(state.pods.values())), "pods")


def _owned(pod: Json, owner: Json) -> Json:
    metadata = pod["metadata"]
    references = [{**one, "uid": owner["metadata"].get("uid", "")} for one in metadata.get("ownerReferences") or ()]
    return {**pod, "metadata": {**metadata, **({"ownerReferences": references} if references else {})}}


@runner("jobs-statefulset-TestReconciler_ClearOnHoldSetsReason")
def off_hold(case: Case) -> Difference | None:
    owner = next(one for one in _api(case) if one["kind"] == "StatefulSet")
    state = ServingWorld(case, _kind(case), owner, ())
    state.reconcile()
    (workload,) = state.workloads.values()
    found = next(one for one in workload["status"]["conditions"] if one["type"] == "QuotaReserved")
    wanted = case.expect["quotaReservedCondition"]
    return first_difference(wanted, {key: found[key] for key in wanted})


@runner("jobs-statefulset-TestReleaseScaleDownReservation")
def scaled_to_zero(case: Case) -> Difference | None:
    """What becomes of the Workload of a set that was scaled to zero, whose pods have gone."""
    workload = case.input["workload"]
    metadata = {"name": "sts", "namespace": "ns", "uid": "sts-uid", "labels": {QUEUE_NAME: "lq"}}
    owner = {"metadata": metadata, "spec": {"replicas": 0}}
    state = ServingWorld(case, _kind(case), owner, ())
    state.workloads = {workload["metadata"]["name"]: copy.deepcopy(workload)}
    state.reconcile()
    status = next(iter(state.workloads.values())).get("status") or {}
    found = next((one for one in status.get("conditions") or () if one["type"] == "QuotaReserved"), None)
    kept = None if found is None else {"status": found["status"], "reason": found["reason"]}
    wanted = case.expect.get("wantQuotaReserved")
    wanted = None if wanted is None else {"status": wanted["status"], "reason": wanted["reason"]}
    return first_difference(wanted, kept, "condition") or first_difference(
        bool(case.expect["wantAdmissionNil"]), not status.get("admission"), "admission"
    )


@runner("jobs-statefulset-TestHandle")
def handled(case: Case) -> Difference | None:
    """Whether the set's reconciler is for this object."""
    given, kind = case.input["obj"], _kind(case)
    ours = given.get("kind", kind.kind) != kind.kind or not kind.is_anothers(given)
    managed = is_managed(given, {}, settings(case))
    return first_difference(bool(case.expect.get("want")), ours or managed)


@runner("jobs-leaderworkerset-TestGetWorkloadIndex")
def index(case: Case) -> Difference | None:
    workload = case.input.get("workload")
    found = -1 if workload is None else group_index(workload)
    return first_difference(case.expect["wantIndex"], -1 if found is None else found)


@runner("jobs-statefulset-util-TestUngatePod")
def gates(case: Case) -> Difference | None:
    """No Workload is admitted here."""
    owner = case.input.get("statefulSet")
    state = ServingWorld(case, _kind(case), owner, (case.input["pod"],))
    state.reconcile()
    (pod,) = state.pods.values()
    return first_difference(case.expect.get("wantGates") or [], pod["spec"].get("schedulingGates") or [], "gates")
