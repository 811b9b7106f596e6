"""Carries out actions about a Workload, for jobs and for plain pods: one write each, answered before the next."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from controller.cluster.watching.kinds import WORKLOADS
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.watching.workqueue import ActionFailedError
from controller.cluster.writing.stampedwrites import failure, is_taken, stamped_write, written
from controller.cluster.writing.workloadwrites import Result, Then, WorkloadWrites, outcome_of
from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    CreateWorkload,
    DeleteWorkload,
    FinishWorkload,
    HoldWorkload,
    ReleaseQuota,
    RemoveFinalizer,
    SetGangScheduled,
    SetPodsReady,
    SetReclaimable,
    SetWaitingForPods,
    UpdateWorkload,
    WorkloadAction,
)
from controller.jobs.framework.raw import Json
from controller.objects.meta import Condition, Time, epoch_s, find_condition, with_condition
from controller.objects.workload import ReclaimablePod, RequeueState, Workload
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.gangverdict import with_gang_verdict
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.clock import Clock
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb, Written

_WAIT_S: Final = 0.01

_FAILPOINTS: Final = {
    FinishWorkload: Failpoint.FINISHED,
    ReleaseQuota: Failpoint.RELEASED,
    HoldWorkload: Failpoint.HELD,
    SetReclaimable: Failpoint.RECLAIMABLE,
    SetPodsReady: Failpoint.PODS_READY,
    SetWaitingForPods: Failpoint.WAITING_FOR_PODS,
    SetGangScheduled: Failpoint.GANG_SCHEDULED,
}


class WorkloadActions:
    """``carry_out`` and ``remove_finalizer`` raise ActionFailedError and KubeError.

    A Workload has one write under way at a time, also of those by the engine's decisions: an action waits until the
    ledger's ``LedgerEntry.writing`` is False and the engine assumes nothing of it. ``created`` gets the kind of job of
    each new Workload, and the age of the job.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        writer: Writer,
        clock: Clock,
        *,
        created: Callable[[str, float], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._writer = writer
        self._clock = clock
        self._created = created

    async def carry_out(self, action: WorkloadAction, namespace: str, kind: str, objects: Collection[Json]) -> None:
        """Carries out an action. ``objects``, of that ``kind``, are those that the Workload is for: ``created`` gets
        the age of the oldest.
        """
        match action:
            case CreateWorkload(body=body):
                await self._create(namespace, body)
                if objects and all(_is_new(found) for found in objects):
                    now_s = self._clock.wall()
                    self._created(kind, max(_age_s(found, now_s) for found in objects))
            case UpdateWorkload(name=name, patch=patch):
                await self._update(namespace, name, patch)
            case DeleteWorkload(name=name, uid=uid):
                await self._delete(namespace, name, uid)
            case RemoveFinalizer(name=name, uid=uid):
                await self.remove_finalizer(WorkloadKey(f"{namespace}/{name}"), uid)
            case _:
                key = WorkloadKey(f"{namespace}/{action.name}")
                entry = await self._free(key, action.uid)
                after = self._after(entry.workload, action)
                failpoint = _FAILPOINTS[type(action)]
                await self._written(lambda then: self._writes.status(entry, after, then, failpoint))

    def _after(
        self,
        workload: Workload,
        action: FinishWorkload
        | SetReclaimable
        | SetPodsReady
        | SetWaitingForPods
        | SetGangScheduled
        | ReleaseQuota
        | HoldWorkload,
    ) -> Workload:
        now_s = self._clock.wall()
        match action:
            case FinishWorkload(reason=reason, message=message):
                return status.finished(workload, reason, message, now_s)
            case SetReclaimable(pods=pods):
                return _reclaimable(workload, pods)
            case SetPodsReady():
                return _with_condition(workload, reasons.PODS_READY, action, now_s)
            case SetWaitingForPods():
                return _with_condition(workload, reasons.WAITING_FOR_PODS, action, now_s)
            case SetGangScheduled(status=said, reason=reason, message=message):
                return with_gang_verdict(workload, said, reason, message, now_s)
            case ReleaseQuota():
                return self._released(workload, action, now_s)
            case HoldWorkload(on=True, message=message):
                return self._held(workload, message, now_s)
            case HoldWorkload(message=message):
                return self._off_hold(workload, message, now_s)

    def _released(self, workload: Workload, action: ReleaseQuota, now_s: float) -> Workload:
        gates = self._engine.state.config.gates
        after = status.unreserved(workload, PendingReason.PENDING_EVALUATION, action.message, now_s=now_s, gates=gates)
        if action.requeue:
            return status.requeued(after, action.reason, action.message, now_s)
        known = find_condition(after.status.conditions, reasons.REQUEUED)
        if known is not None and known.status == "False":
            return after  # its eviction said when it may queue again
        state = after.status.requeue_state or RequeueState()
        return status.held_back(after, action.reason, action.message, state=state, now_s=now_s)

    def _held(self, workload: Workload, message: str, now_s: float) -> Workload:
        gates = self._engine.state.config.gates
        after = status.unreserved(workload, PendingReason.ON_HOLD, message, now_s=now_s, gates=gates)
        state = workload.status.requeue_state or RequeueState()
        return status.held_back(after, PendingReason.ON_HOLD, message, state=state, now_s=now_s)

    def _off_hold(self, workload: Workload, message: str, now_s: float) -> Workload:
        after = status.requeued(workload, PendingReason.ON_HOLD, message, now_s)
        said = find_condition(after.status.conditions, reasons.QUOTA_RESERVED)
        if said is None or said.status != "False" or said.reason != PendingReason.ON_HOLD:
            return after
        gates = self._engine.state.config.gates
        return status.unreserved(after, PendingReason.PENDING_EVALUATION, message, now_s=now_s, gates=gates)

    async def remove_finalizer(self, key: WorkloadKey, uid: str) -> None:
        entry = await self._free(key, uid)
        left = [finalizer for finalizer in entry.workload.metadata.finalizers if finalizer != names.RESOURCE_IN_USE]
        metadata = msgspec.structs.replace(entry.workload.metadata, finalizers=tuple(left))
        after = msgspec.structs.replace(entry.workload, metadata=metadata)
        await self._written(
            lambda then: self._writes.spec(
                entry, after, {"metadata": {"finalizers": left or None}}, then, Failpoint.WORKLOAD_FINALIZER
            )
        )

    async def _create(self, namespace: str, body: Json) -> None:
        meta = {"namespace": namespace, "name": body["metadata"]["name"]}
        outcome = await self._writer.put(stamped_write(Verb.CREATE, WORKLOADS, meta, body, Failpoint.WORKLOAD))
        if not isinstance(outcome, Written) and not is_taken(outcome):
            raise failure(outcome)

    async def _update(self, namespace: str, name: str, patch: Json) -> None:
        """Sends ``patch``, which is tied to the version it was made for: a Workload that has changed since is
        reconciled anew.
        """
        key = WorkloadKey(f"{namespace}/{name}")
        entry = await self._free(key, patch["metadata"]["uid"])
        if entry.workload.metadata.resource_version != patch["metadata"]["resourceVersion"]:
            raise ActionFailedError(f"workload {key} has changed meanwhile")
        # The answer is not the whole spec: the watch brings it.
        meta = {"namespace": namespace, "name": name}
        write = stamped_write(Verb.MERGE_PATCH, WORKLOADS, meta, patch, Failpoint.WORKLOAD_CHANGED)
        await written(self._writer.put, write)

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        meta = {"namespace": namespace, "name": name}
        write = stamped_write(Verb.DELETE, WORKLOADS, meta, uid, Failpoint.WORKLOAD_REMOVED)
        await written(self._writer.put, write, Missing, Conflicted)

    async def _free(self, key: WorkloadKey, uid: str) -> LedgerEntry:
        """The workload, once no write of it is under way."""
        while True:
            entry = self._ledger.get(key)
            if entry is None or entry.uid != uid:
                raise ActionFailedError(f"workload {key} is gone")
            if not entry.writing and key not in self._engine.state.unwritten.admissions:
                return entry
            await asyncio.sleep(_WAIT_S)

    async def _written(self, begin: Callable[[Then], None]) -> None:
        result, why = await outcome_of(begin)
        if result not in (Result.WRITTEN, Result.UNCHANGED, Result.GONE):
            raise ActionFailedError(why)


def _is_new(given: Json) -> bool:
    """Whether the job's first Workload is its first: an object of a later generation was resized or changed, and waited
    for nothing.
    """
    return int(given["metadata"].get("generation") or 1) == 1


def _age_s(given: Json, now_s: float) -> float:
    """Seconds since the API server created the object."""
    at = msgspec.convert(given["metadata"].get("creationTimestamp"), Time | None)
    return 0.0 if at is None else max(0.0, now_s - epoch_s(at))


def _reclaimable(workload: Workload, pods: dict[str, int]) -> Workload:
    listed = tuple(ReclaimablePod(name=name, count=count) for name, count in sorted(pods.items()))
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, reclaimable_pods=listed))


def _with_condition(workload: Workload, type_: str, action: SetPodsReady | SetWaitingForPods, now_s: float) -> Workload:
    condition = Condition(
        type=type_,
        status=action.status,
        reason=action.reason,
        message=action.message,
        last_transition_time=status.moment(now_s),
    )
    conditions = with_condition(workload.status.conditions, condition)
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, conditions=conditions))
