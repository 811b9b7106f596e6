"""Runners of the suites about queues and classes: their status, finalizers, past usage, and what a change leads to."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.finalizers import Finalizers
from controller.cluster.writing.pace import Pace
from controller.cluster.writing.priorities import Priorities, changes_value
from controller.cluster.writing.queuestatus import QueueStatuses
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.jobs.framework.names import RESOURCE_IN_USE
from controller.jobs.framework.raw import Json, merged
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject, epoch_s, to_json
from controller.objects.quantity import parse_quantity
from controller.objects.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import AdmissionFairSharing, EngineConfig
from controller.scheduler.model.resources import CPU, LocalQueueKey, ResourceName, WorkloadKey
from kube.resources import Resource
from kube.writing.writes import Write
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.kueuejobs.runners_core import now_s
from tests.conformance.kueuejobs.runners_workload import LOST, taking_part
from tests.conformance.replay import Case, Difference, first_difference, runner

_ON_USAGE: Final = {"admissionMode": "UsageBasedAdmissionFairSharing"}
_MILLI: Final = 1000


def _fair_sharing(case: Case) -> AdmissionFairSharing | None:
    given = case.input.get("afsConfig")
    if given is None:
        return None
    return AdmissionFairSharing(
        half_life_s=duration_s(given.get("usageHalfLifeTime") or "0s"),
        sampling_interval_s=duration_s(given.get("usageSamplingInterval") or "5m"),
        resource_weights={ResourceName(name): float(weight) for name, weight in _weights(given)},
    )


def _weights(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list((given.get("resourceWeights") or {}).items())


class _Statuses:
    """The status of one object, as the writer of queue statuses leaves it."""

    def __init__(self, engine: Engine, resource: Resource, raw: Json) -> None:
        self.raw = copy.deepcopy(raw)
        self._is_it: Callable[[Write[Any]], bool] = lambda write: (
            write.resource == resource and write.name == raw["metadata"]["name"]
        )
        self.writer = QueueStatuses(engine, self._put, pace=Pace(), backlog=lambda: 0)

    def _put(self, write: Write[Any]) -> None:
        if self._is_it(write):
            self.raw = merged(self.raw, write.body)

    def shown(self) -> Any:
        """Without times, and without empty lists and maps, which some writers leave out. A count of 0 is written."""
        status = dict(self.raw.get("status") or {})
        for key in ("flavorsReservation", "flavorsUsage"):
            status[key] = [one for one in status.get(key) or () if one["name"] != LOST]
        return _filled(_timeless(status))


def _filled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := _filled(item)) not in (None, {}, [], "")}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def _timeless(value: Any) -> Any:
    hidden = ("lastTransitionTime", "lastUpdate", "message", "observedGeneration")
    if isinstance(value, Mapping):
        return {key: _timeless(item) for key, item in value.items() if key not in hidden}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


# -- LocalQueues -------------------------------------------------------------------------------------------------------


@runner("jobs-core-TestLocalQueueReconcile")
def local_queue(case: Case) -> Difference | None:
    engine, at_s = Engine(EngineConfig(gates=case.gates, admission_fair_sharing=_fair_sharing(case))), now_s(case)
    raw, queue = case.input["localQueue"], case.input.get("clusterQueue")
    if queue is not None and not case.input.get("deleteClusterQueue"):
        scoped = {**queue, "spec": {**queue["spec"], "admissionScope": _ON_USAGE}}
        engine.put(taking_part(engine, scoped, at_s), at_s)
    key = LocalQueueKey(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}")
    given = decode(raw, LocalQueue)
    before = case.input.get("initialConsumedResources") or {}
    if before.get("statusAccounted"):
        engine.state.usage.restore(key, _cores(before.get("resources")), _at(before["lastUpdate"]))
    engine.put(given, at_s)
    for workload in case.input.get("runningWls") or ():
        engine.put(decode(workload, Workload), at_s)
    status = _Statuses(engine, LOCAL_QUEUES, raw)
    status.writer.observed(LOCAL_QUEUES, given)
    status.writer.sampled(engine.sample_usage(at_s))
    status.writer.write(at_s)
    wanted = _Statuses(engine, LOCAL_QUEUES, case.expect["wantLocalQueue"]).shown()
    return (
        first_difference(wanted, status.shown(), "status")
        or _again(case, engine, key)
        or _consumed(case.expect.get("wantConsumedResources"), engine, key)
    )


def _again(case: Case, engine: Engine, key: LocalQueueKey) -> Difference | None:
    """After a sample Kueue's status write brings the queue back: only then it says no time."""
    wanted = duration_s(case.expect.get("wantRequeueAfter") or "0s")
    due_s = engine.state.usage.due_s(key, now_s(case))
    return first_difference(wanted, None if due_s is None else due_s - now_s(case), "again") if wanted else None


def _consumed(wanted: Json | None, engine: Engine, key: LocalQueueKey) -> Difference | None:
    if wanted is None:
        return None
    record = engine.state.usage.record(key)
    found = None if record is None else {"at": record.at_s, "resources": dict(record.consumed)}
    expected = {"at": _at(wanted["lastUpdate"]), "resources": _cores(wanted.get("resources"))}
    return first_difference(expected, found, "consumed")


def _cores(given: Mapping[str, Any] | None) -> dict[ResourceName, float]:
    return {ResourceName(name): float(parse_quantity(str(text)).fraction) for name, text in (given or {}).items()}


def _at(text: str) -> float:
    return epoch_s(decode({"metadata": {"creationTimestamp": text}}, LocalQueue).metadata.creation_timestamp)


# -- ClusterQueues and cohorts -----------------------------------------------------------------------------------------


@runner("jobs-core-TestUpdateCqStatusIfChanged")
def cluster_queue_status(case: Case) -> Difference | None:
    """The condition that the case sets follows from the objects here: they are made such that it does."""
    engine, at_s = Engine(EngineConfig(gates=case.gates)), now_s(case)
    listed = case.input["apiObjects"]
    raw = next(one for one in listed if one["kind"] == "ClusterQueue")
    if case.input.get("newReason") == "Terminating":
        raw = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": case.input["now"]}}
    active = case.input.get("newConditionStatus") == "True" or case.input.get("newReason") == "Terminating"
    condition = {"type": "Active", "status": "True" if active else "False", "reason": "Test"}
    if case.input["insertCqIntoCache"]:
        engine.put(taking_part(engine, {**raw, "status": {"conditions": [condition]}}, at_s), at_s)
    for one in (*listed, case.input.get("newWl") or {"kind": ""}):
        if one["kind"] == "LocalQueue":
            engine.put(decode(one, LocalQueue), at_s)
        elif one["kind"] == "Workload":
            engine.put(decode(one, Workload), at_s)
    status = _Statuses(engine, CLUSTER_QUEUES, {**raw, "status": case.input["cqStatus"]})
    status.writer.write(at_s)
    wanted = _Statuses(engine, CLUSTER_QUEUES, {**raw, "status": case.expect["wantCqStatus"]}).shown()
    return first_difference(wanted, status.shown())


@runner("jobs-core-TestClusterQueueReconcile")
def deleted_cluster_queue(case: Case) -> Difference | None:
    engine, at_s = Engine(EngineConfig(gates=case.gates)), now_s(case)
    (raw,) = (one for one in case.input["apiObjects"] if one["kind"] == "ClusterQueue")
    queue = decode(raw, ClusterQueue)
    engine.put(queue, at_s)
    engine.put(decode(case.input["workload"], Workload), at_s)
    status = _Statuses(engine, CLUSTER_QUEUES, raw)
    status.writer.write(at_s)
    deleted = RESOURCE_IN_USE not in _finalizers(engine, CLUSTER_QUEUES, queue)
    conditions = {} if deleted else {one["type"]: one for one in status.raw["status"].get("conditions", ())}
    active = conditions.get("Active", {})
    found = {
        "wantActive": active.get("status", ""),
        "wantDeleted": deleted,
        "wantReason": active.get("reason", ""),
        "wantReserving": 0 if deleted else status.raw["status"].get("reservingWorkloads"),
    }
    return first_difference({key: case.expect[key] for key in found}, found)


def _finalizers(engine: Engine, resource: Resource, given: KubernetesObject) -> list[str]:
    """Those of the object after all that is to be done about them."""
    written: list[list[str]] = []
    keeper = Finalizers(engine, lambda write: written.append(write.body["metadata"]["finalizers"] or []))
    keeper.observed(resource, given)
    keeper.release()
    return written[-1] if written else list(given.metadata.finalizers)


@runner("jobs-core-TestResourceFlavorReconcile")
def flavor(case: Case) -> Difference | None:
    engine, at_s, given = Engine(EngineConfig(gates=case.gates)), now_s(case), case.input["flavor"]
    if case.input.get("skipStore"):
        return first_difference(None, case.expect.get("wantFlavor"))  # no event tells of it
    there = next((one for one in case.input.get("apiObjects") or () if one["kind"] == "ResourceFlavor"), given)
    for queue in case.input.get("clusterQueues") or ():
        engine.put(decode(queue, ClusterQueue), at_s)
    found = decode(there, ResourceFlavor)
    engine.put(found, at_s)
    left = _finalizers(engine, FLAVORS, found)
    if found.metadata.deletion_timestamp is not None and not left:
        return first_difference(case.expect["wantDeleted"], True, "deleted")
    wanted = case.expect.get("wantFlavor") or {"metadata": {}}
    return first_difference(wanted["metadata"].get("finalizers") or [], left)


@runner("jobs-core-TestCohortReconcilerFilters")
def cohort_changes(case: Case) -> Difference | None:
    """Whether the engine sees another cohort."""
    engine, at_s = Engine(EngineConfig(gates=case.gates)), now_s(case)
    engine.put(decode(case.input["old"], Cohort), at_s)
    before = engine.state.changes
    engine.put(decode(case.input["new"], Cohort), at_s)
    return first_difference(case.expect["want"], engine.state.changes != before)


# -- priority classes --------------------------------------------------------------------------------------------------


@runner("jobs-core-TestWorkloadPriorityClassPredicates")
def class_changes(case: Case) -> Difference | None:
    """Only a class that is there, and was, can have changed its value."""
    old, new = (
        None if raw is None else decode(raw, WorkloadPriorityClass)
        for raw in (case.input.get("oldWPC"), case.input.get("newWPC"))
    )
    return first_difference(case.expect["want"], new is not None and changes_value(old, new))


class _Specs:
    """Stands for the API server behind ``WorkloadWrites``: takes specs in, but those of ``refused``."""

    def __init__(self, ledger: Ledger, refused: re.Pattern[str] | None) -> None:
        self._ledger = ledger
        self._refused = refused

    def spec(
        self,
        entry: LedgerEntry,
        after: Workload,
        _changes: Json,
        then: Callable[[Result, str], None],
        _failpoint: object,
    ) -> None:
        if self._refused is not None and self._refused.fullmatch(after.metadata.name):
            then(Result.REFUSED, "the case says so")
            return
        self._ledger.wrote(WorkloadKey(after.key), after, str(entry.version + 1))
        then(Result.WRITTEN, "")


@runner("jobs-core-TestWorkloadPriorityClassReconcile")
def class_of_workloads(case: Case) -> Difference | None:
    ledger, given = Ledger(), decode(case.input["wpc"], WorkloadPriorityClass)
    for raw in case.input.get("workloads") or ():
        ledger.observe(decode(raw, Workload))
    words = {name: said["$words"] for name, said in (case.input.get("clientFuncs") or {}).items()}
    priorities = Priorities(ledger, cast("WorkloadWrites", _Specs(ledger, _refused(words))), backlog=lambda: 0)
    if "NotFound" not in words.get("get", ""):  # else it is gone, and no change of it is told
        priorities.changed(decode({**to_json(given), "value": given.value - 1}, WorkloadPriorityClass), given)
    priorities.write(now_s(case))
    priorities.write(now_s(case))
    found = {entry.workload.metadata.name: entry.workload.spec.priority for entry in ledger.values()}
    wanted = {raw["metadata"]["name"]: raw["spec"].get("priority") for raw in case.expect.get("wantWorkloads") or ()}
    return first_difference(wanted, {name: found.get(name) for name in wanted}) or first_difference(
        bool(case.expect["wantError"]), bool(priorities.waiting), "to be written again"
    )


def _refused(words: Mapping[str, str]) -> re.Pattern[str] | None:
    """The names of Workloads whose writes fail, as ``every update of Workload wl2 fails`` says it."""
    said = words.get("update") or words.get("patch") or ""
    if not said:
        return None
    named = re.search(r"Workload (\w+) fails", said)
    return re.compile(re.escape(named.group(1)) if named else ".*")


# -- past usage --------------------------------------------------------------------------------------------------------


def _penalised(case: Case) -> tuple[Engine, WorkloadKey]:
    """A penalty of 2 cpu is pending for the old Workload, and then the new one is seen."""
    fair = AdmissionFairSharing(half_life_s=3600.0, sampling_interval_s=3600.0)
    engine, at_s = Engine(EngineConfig(gates=case.gates, admission_fair_sharing=fair)), now_s(case)
    old, new = (decode(case.input[name], Workload) for name in ("oldWl", "newWl"))
    quotas = [{"name": "rf", "resources": [{"name": "cpu", "nominalQuota": "100"}]}]
    spec = {"admissionScope": _ON_USAGE, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}]}
    engine.put(decode({"metadata": {"name": "rf"}, "spec": {}}, ResourceFlavor), at_s)
    engine.put(decode({"metadata": {"name": "cq"}, "spec": spec}, ClusterQueue), at_s)
    for name in sorted({old.spec.queue_name, new.spec.queue_name}):
        meta = {"name": name, "namespace": old.metadata.namespace}
        engine.put(decode({"metadata": meta, "spec": {"clusterQueue": "cq"}}, LocalQueue), at_s)
    engine.put(old, at_s)
    key = WorkloadKey(old.key)
    owing = LocalQueueKey(f"{old.metadata.namespace}/{old.spec.queue_name}")
    engine.state.usage.penalise(owing, key, {CPU: 4 * _MILLI})
    engine.put(new, at_s)
    return engine, key


@runner("jobs-core-TestUpdateSettlesAfsEntryPenalty")
def settled(case: Case) -> Difference | None:
    engine, key = _penalised(case)
    new = case.input["newWl"]
    queue = LocalQueueKey(f"{new['metadata']['namespace']}/{new['spec']['queueName']}")
    record = engine.state.usage.record(queue)
    found = {
        "wantFolded": record is not None and bool(record.consumed.get(CPU)),
        "wantPending": engine.state.usage.penalised(queue, key),
    }
    return first_difference({name: case.expect[name] for name in found}, found)


@runner("jobs-core-TestUpdateDropsUnsettleableAfsEntryPenalty")
def dropped(case: Case) -> Difference | None:
    engine, key = _penalised(case)
    wanted = case.expect["wantPendingOn"]
    return first_difference(
        wanted, {queue: engine.state.usage.penalised(LocalQueueKey(queue), key) for queue in wanted}
    )
