"""The API of one reconciliation, in memory: a job and its Workloads, our reconciler's actions carried out on them.

Kueue's controller does one effect a call and some of them in two calls; ours does what goes together in one. So a case
is compared with what the API holds after each action of our first steps: one of these states must be what is wanted.
Where nothing is to change, nothing may have changed after the whole first step.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast

from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    Action,
    AwaitOwner,
    AwaitPods,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    LowerGroup,
    MakeGroup,
    Refuse,
    RemoveFinalizer,
    RemoveGroup,
    StartJob,
    StopJob,
    UngatePods,
    UpdateWorkload,
)
from controller.jobs.framework.compose import owner_reference
from controller.jobs.framework.kind import JobKind, ObjectKind, api_version
from controller.jobs.framework.marks import prebuilt_mark
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import ClusterObjects, JobSettings, Observed
from controller.jobs.kinds.table import DECLARED_KINDS, JOB_KINDS
from controller.objects.decode import decode
from controller.objects.meta import LabelSelector, LabelSelectorRequirement, OwnerReference, is_true, to_json
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.jobs.reconcile import reconcile
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import FeatureGates
from kube.clock import Clock
from tests.conformance.replay import Case, Difference

A = TypeVar("A")
STEPS: Final = 3
KINDS: Final[tuple[JobKind, ...]] = (*JOB_KINDS, *DECLARED_KINDS)
_CLASSES: Final = ("PriorityClass", "WorkloadPriorityClass")


@dataclass(frozen=True)
class At:
    """A clock that stands still."""

    seconds: float

    def wall(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class World:
    """``job`` None: it was deleted. ``events``: (type, reason), in order."""

    kind: JobKind
    job: Json | None
    workloads: dict[str, Json]
    settings: JobSettings
    cluster: ClusterObjects
    namespace_labels: Mapping[str, str]
    now_s: float
    gates: FeatureGates
    events: list[tuple[str, str]] = field(default_factory=list)
    _serial: int = 0

    def next(self) -> tuple[Action, ...]:
        seen = Observed(
            kind=self.kind,
            job=copy.deepcopy(self.job),
            workloads=tuple(SeenWorkload.of(copy.deepcopy(raw)) for raw in self.workloads.values()),
            namespace_labels=self.namespace_labels,
        )
        return reconcile(seen, self.settings, self.cluster)

    def carry_out(self, action: Action) -> None:
        match action:
            case StartJob(patches=patches) | StopJob(patches=patches) | AwaitPods(patches=patches):
                for patch in patches:
                    self.job = merged(self.job, patch.body)
            case CreateWorkload(body=body):
                self.workloads.setdefault(body["metadata"]["name"], copy.deepcopy(body))
            case UpdateWorkload(name=name, patch=patch_):
                self.workloads[name] = merged(self.workloads[name], patch_)
            case DeleteWorkload(name=name):
                delete(self.workloads, name)
            case RemoveFinalizer(name=name):
                remove_finalizer(self.workloads, name)
            case AwaitOwner():
                self.events.append(("Normal", "AwaitsOwner"))
            case EmitEvent(type=type_, reason=reason):
                self.events.append((type_, reason))
            case Refuse(reason=reason):
                self.events.append(("Warning", reason))
            case UngatePods() | MakeGroup() | LowerGroup() | RemoveGroup():
                pass
            case _:
                raw = self.workloads[action.name]
                raw["status"] = to_json(self.after(decode(raw, Workload), action).status)

    def after(self, workload: Workload, action: Any) -> Workload:
        """The workload as an action about its status leaves it."""
        none: Any = None
        engine = Engine(EngineConfig(gates=self.gates))
        clock = cast("Clock", At(self.now_s))
        actions = WorkloadActions(engine, none, none, none, clock, created=lambda _kind, _age: None)
        return actions._after(workload, action)


def delete(workloads: dict[str, Json], name: str) -> None:
    """As the API server does: a Workload with finalizers stays until the last one is removed."""
    metadata = workloads[name]["metadata"]
    if metadata.get("finalizers"):
        metadata["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    else:
        del workloads[name]


def remove_finalizer(workloads: dict[str, Json], name: str) -> None:
    metadata = workloads[name]["metadata"]
    metadata["finalizers"] = [one for one in metadata["finalizers"] if one != names.RESOURCE_IN_USE]
    if metadata.get("deletionTimestamp") and not metadata["finalizers"]:
        del workloads[name]


class Stepping(Protocol[A]):
    """What our reconcilers are run on."""

    def next(self) -> Iterable[A]: ...

    def carry_out(self, action: A) -> None: ...


def reaches(state: Stepping[A], compared: Callable[[], Difference | None]) -> Difference | None:
    """The difference that all our first steps leave; what nothing is to change is compared after one of them."""
    unchanged = compared() is None
    last: Difference | None = None
    for _ in range(STEPS):
        for action in state.next():
            state.carry_out(action)
            if not unchanged and compared() is None:
                return None
        last = compared()
        if last is None or unchanged:
            return last
    return last


def world(case: Case, kind: JobKind, job: Json | None, workloads: Sequence[Json], others: Sequence[Json] = ()) -> World:
    """``others``: objects besides, of any kind."""
    listed = [*api_objects(case), *others, *({"kind": kind.kind, **job} for _ in [0] if job is not None)]
    owned = [_controlled(kind, job, raw) for raw in workloads]
    known = {raw["metadata"]["name"]: raw for raw in owned}
    for raw in listed:
        if raw["kind"] == "Workload":
            known.setdefault(raw["metadata"]["name"], copy.deepcopy(raw))
    namespace = (job or {}).get("metadata", {}).get("namespace", "")
    labels = next(
        (
            one["metadata"].get("labels") or {}
            for one in listed
            if one["kind"] == "Namespace" and one["metadata"]["name"] == namespace
        ),
        {},
    )
    now_s = datetime.fromisoformat(case.input["now"]).timestamp()
    return World(
        kind=kind,
        job=copy.deepcopy(job),
        workloads=known,
        settings=settings(case),
        cluster=cluster(listed, list(known.values())),
        namespace_labels=labels,
        now_s=now_s,
        gates=case.gates,
    )


def api_objects(case: Case) -> list[Json]:
    found = [one.get("object", one) for one in case.input.get("apiObjects") or ()]
    for key in ("priorityClasses", "otherJobs", "initObjects", "objs"):
        found += [{"kind": "WorkloadPriorityClass", **one} for one in case.input.get(key) or ()]
    return found


def _controlled(kind: JobKind, job: Json | None, workload: Json) -> Json:
    """A workload without a controller gets the job as such, unless the job is to adopt it."""
    raw = copy.deepcopy(workload)
    owners = raw["metadata"].get("ownerReferences") or []
    if job is None or any(owner.get("controller") for owner in owners) or prebuilt_mark(job)[1]:
        return raw
    raw["metadata"]["ownerReferences"] = [*owners, owner_reference(kind, job)]
    return raw


def settings(case: Case) -> JobSettings:
    options = case.input.get("options") or {}
    return JobSettings(
        manage_jobs_without_queue_name=bool(options.get("manageJobsWithoutQueueName")),
        managed_jobs_namespace_selector=selector(options.get("managedJobsNamespaceSelector")),
        label_keys_to_copy=tuple(options.get("labelKeysToCopy") or ()),
        wait_for_pods_ready=bool(options.get("waitForPodsReady")),
        gates=case.gates,
    )


def selector(text: str | None) -> LabelSelector:
    """Of Kubernetes' text form: ``key=value`` and ``key in (a,b)``, ``key notin (a,b)``."""
    labels: dict[str, str] = {}
    expressions: list[LabelSelectorRequirement] = []
    for term in (text or "").split(",") if "(" not in (text or "") else [text or ""]:
        if "(" in term:
            key, operator, values = term.split(maxsplit=2)
            listed = tuple(value.strip() for value in values.strip("()").split(","))
            expressions.append(
                LabelSelectorRequirement(key=key, operator="In" if operator == "in" else "NotIn", values=listed)
            )
        elif term:
            key, _, value = term.partition("=")
            labels[key] = value
    return LabelSelector(match_labels=labels, match_expressions=tuple(expressions))


def cluster(listed: Sequence[Json], workloads: Sequence[Json]) -> ClusterObjects:
    """What the API holds besides the job and its Workloads."""
    decoded = [decode(one, ResourceFlavor) for one in listed if one["kind"] == "ResourceFlavor"]
    flavors = {one.metadata.name: one for one in decoded}
    values = {
        kind: {one["metadata"]["name"]: one["value"] for one in listed if one["kind"] == kind and "value" in one}
        for kind in _CLASSES
    }
    default = min(((one["value"], one["metadata"]["name"]) for one in listed if one.get("globalDefault")), default=None)

    def owner(namespace: str, reference: OwnerReference) -> Json | None:
        for one in listed:
            meta = one["metadata"]
            same = (one["kind"], meta["name"], meta.get("namespace", "")) == (reference.kind, reference.name, namespace)
            if same and meta.get("uid", "") == reference.uid:
                return one
        return None

    def is_admitted(uid: str) -> bool:
        return any(
            is_true(decode(raw, Workload).status.conditions, "Admitted")
            for raw in workloads
            for reference in raw["metadata"].get("ownerReferences") or ()
            if reference.get("uid", "") == uid
        )

    def look(wanted: ObjectKind, namespace: str, name: str) -> Json | None:
        for one in listed:
            meta = one["metadata"]
            if (one["kind"], meta.get("name"), meta.get("namespace", "")) == (wanted.kind, name, namespace):
                return one
        return None

    job_kinds = {(api_version(kind), kind.kind) for kind in KINDS}
    return ClusterObjects(
        flavor=flavors.get,
        workload_priority=values["WorkloadPriorityClass"].get,
        pod_priority=values["PriorityClass"].get,
        global_default=lambda: None if default is None else (default[1], default[0]),
        owner=owner,
        is_job_kind=lambda version, kind: (version, kind) in job_kinds,
        is_admitted=is_admitted,
        look=look,
    )
