"""The reconciler's actions, carried out: one write each, answered before the next."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.core import Core
from controller.engine.conditions import reasons, status
from controller.engine.conditions.reasons import PendingReason
from controller.engine.model.resources import WorkloadKey
from controller.jobframework import names
from controller.jobframework.actions import (
    Action,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishWorkload,
    RefuseJob,
    ReleaseQuota,
    RemoveFinalizer,
    SetPodsReady,
    SetReclaimable,
    StartJob,
    StopJob,
    UngatePods,
    UpdateWorkload,
)
from controller.jobframework.kind import JobKind, Patch
from controller.jobframework.raw import Json, sequence
from controller.objects.meta import Condition, Time, epoch_s, with_condition
from controller.objects.workload import ReclaimablePod, Workload
from controller.pods.actions import SetWaitingForPods
from controller.watching.kinds import JOBS, WORKLOADS
from controller.watching.ledger import Kept, WrittenVersions
from controller.watching.workqueue import ActionFailedError
from controller.writing.events import People
from controller.writing.workloadwrites import Result, Stamped
from kube.client import Client, Selection
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.reflector import Key
from kube.resources import PODS
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb, Write, Written

_WAIT_S: Final = 0.01
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_WAITING: Final = "WaitingForReplacementPods"


class Hands:
    """``act`` raises ActionFailedError and KubeError."""

    def __init__(self, client: Client, writer: Writer, core: Core, people: People, clock: Clock) -> None:
        self._client = client
        self._writer = writer
        self._core = core
        self._people = people
        self._clock = clock
        self._echoes = WrittenVersions()
        self.created: Callable[[str, float], None] = _nobody
        """Told of each new Workload: the kind of what it is for, and how long that had been there."""

    def behind(self, key: Key, uid: str, resource_version: str) -> bool:
        """Whether this view of a job is older than our own last write to it: nothing may be decided by it."""
        return self._echoes.behind(key, uid, resource_version)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._echoes.forget(key)

    async def act(self, kind: JobKind, job: Json, action: Action) -> None:
        namespace = job["metadata"].get("namespace", "")
        match action:
            case StartJob(patches=patches) | StopJob(patches=patches):
                for patch in patches:
                    await self._patch_job(job, patch)
            case EmitEvent(type=type_, reason=reason, message=note):
                self._tell(kind, job, type_, reason, note)
            case RefuseJob(reason=reason, sentence=sentence):
                self._tell(kind, job, "Warning", reason, sentence)
            case UngatePods(gate=gate, counts=counts):
                await self._ungate(job, gate, counts)
            case _:
                await self.workload(namespace, action)
                if isinstance(action, CreateWorkload):
                    self.created(kind.kind, age_s(job, self._clock.wall()))

    async def workload(self, namespace: str, action: Action | SetWaitingForPods) -> None:
        """An action about the workload alone; others do nothing."""
        match action:
            case CreateWorkload(body=body):
                await self._create(namespace, body)
            case UpdateWorkload(name=name, patch=patch):
                await self._update(WorkloadKey(f"{namespace}/{name}"), patch)
            case DeleteWorkload(name=name, uid=uid):
                await self._delete(namespace, name, uid)
            case RemoveFinalizer(name=name, uid=uid):
                await self.remove_finalizer(WorkloadKey(f"{namespace}/{name}"), uid)
            case FinishWorkload(name=name, uid=uid, reason=reason, message=message):
                key = WorkloadKey(f"{namespace}/{name}")
                await self._status(key, uid, lambda one: status.finished(one, reason, message, self._clock.wall()))
            case SetReclaimable(name=name, uid=uid, pods=pods):
                await self._status(WorkloadKey(f"{namespace}/{name}"), uid, lambda one: _reclaimable(one, pods))
            case SetPodsReady(name=name, uid=uid):
                key = WorkloadKey(f"{namespace}/{name}")
                await self._status(key, uid, lambda one: _with(one, reasons.PODS_READY, action, self._clock.wall()))
            case SetWaitingForPods(name=name, uid=uid):
                key = WorkloadKey(f"{namespace}/{name}")
                await self._status(key, uid, lambda one: _with(one, _WAITING, action, self._clock.wall()))
            case ReleaseQuota(name=name, uid=uid):
                key = WorkloadKey(f"{namespace}/{name}")
                await self._status(key, uid, lambda one: self._released(one, action))

    # -- workloads ---------------------------------------------------------------------------------------------------

    async def _status(self, key: WorkloadKey, uid: str, make: Callable[[Workload], Workload]) -> None:
        kept = await self._free(key, uid)
        await self._written(lambda then: self._core.writes.status(kept, make(kept.workload), then))

    async def _update(self, key: WorkloadKey, patch: Json) -> None:
        """``patch`` is tied to the version it was made for: what has changed since is looked at again."""
        uid = patch["metadata"]["uid"]
        kept = await self._free(key, uid)
        if kept.workload.metadata.resource_version != patch["metadata"]["resourceVersion"]:
            raise ActionFailedError(f"workload {key} has changed meanwhile")
        # The spec is not known here in full: the watch brings it.
        write = Write(
            verb=Verb.MERGE_PATCH,
            resource=WORKLOADS,
            namespace=key.partition("/")[0],
            name=key.partition("/")[2],
            body=patch,
            kind=Stamped,
        )
        await self._done(write)

    async def remove_finalizer(self, key: WorkloadKey, uid: str) -> None:
        kept = await self._free(key, uid)
        left = [one for one in kept.workload.metadata.finalizers if one != names.RESOURCE_IN_USE]
        metadata = msgspec.structs.replace(kept.workload.metadata, finalizers=tuple(left))
        after = msgspec.structs.replace(kept.workload, metadata=metadata)
        await self._written(
            lambda then: self._core.writes.spec(kept, after, {"metadata": {"finalizers": left or None}}, then)
        )

    async def _create(self, namespace: str, body: Json) -> None:
        name = body["metadata"]["name"]
        write = Write(verb=Verb.CREATE, resource=WORKLOADS, namespace=namespace, name=name, body=body, kind=Stamped)
        outcome = await self._writer.put(write)
        taken = isinstance(outcome, Conflicted) and outcome.error.reason == "AlreadyExists"
        if not isinstance(outcome, Written) and not taken:
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        write: Write[Stamped] = Write(
            verb=Verb.DELETE, resource=WORKLOADS, namespace=namespace, name=name, body=uid, kind=Stamped
        )
        outcome = await self._writer.put(write)
        if not isinstance(outcome, Written | Missing | Conflicted):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))

    async def _free(self, key: WorkloadKey, uid: str) -> Kept:
        """The workload, once no write of it is under way."""
        while True:
            kept = self._core.ledger.get(key)
            if kept is None or kept.uid != uid:
                raise ActionFailedError(f"workload {key} is gone")
            if not kept.writing and key not in self._core.engine.state.assumed:
                return kept
            await asyncio.sleep(_WAIT_S)

    async def _written(self, begin: Callable[[Callable[[Result, str], None]], None]) -> None:
        future: asyncio.Future[tuple[Result, str]] = asyncio.get_running_loop().create_future()

        def then(result: Result, why: str) -> None:
            if not future.done():
                future.set_result((result, why))

        begin(then)
        result, why = await future
        if result not in (Result.WRITTEN, Result.UNCHANGED, Result.GONE):
            raise ActionFailedError(why)

    def _released(self, workload: Workload, action: ReleaseQuota) -> Workload:
        """What was evicted holds nothing any more; what goes straight back to its queue says so."""
        now_s, gates = self._clock.wall(), self._core.engine.state.config.gates
        after = status.unreserved(workload, PendingReason.PENDING_EVALUATION, action.message, now_s=now_s, gates=gates)
        return status.requeued(after, action.reason, action.message, now_s) if action.requeue else after

    # -- the job and its pods ----------------------------------------------------------------------------------------

    async def _patch_job(self, job: Json, patch: Patch) -> None:
        meta = job["metadata"]
        write = Write(
            verb=Verb.MERGE_PATCH,
            resource=JOBS,
            namespace=meta["namespace"],
            name=meta["name"],
            subresource=patch.subresource or None,
            body=patch.body,
            kind=Stamped,
        )
        answer = await self._done(write)
        if answer is not None:
            key = Key(meta["namespace"], meta["name"])
            self._echoes.wrote(key, meta.get("uid", ""), answer.metadata.resource_version)

    async def _done(self, write: Write[Stamped]) -> Stamped | None:
        outcome = await self._writer.put(write)
        if not isinstance(outcome, Written):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))
        return outcome.object

    async def gated_pods(self, job: Json, gate: str) -> int:
        return len(await self._gated(job, gate))

    async def _gated(self, job: Json, gate: str) -> list[Json]:
        meta = job["metadata"]
        chosen = Selection(namespace=meta["namespace"], label_selector=f"{_JOB_NAME}={meta['name']}")
        listing = await self._client.list_all(PODS, dict[str, Any], chosen)
        return [pod for pod in listing.items if gate in _gates(pod)]

    async def _ungate(self, job: Json, gate: str, counts: dict[str, int]) -> None:
        """Of a kind with one pod set: as many pods as were admitted go on, oldest first."""
        meta = job["metadata"]
        chosen = Selection(namespace=meta["namespace"], label_selector=f"{_JOB_NAME}={meta['name']}")
        pods = (await self._client.list_all(PODS, dict[str, Any], chosen)).items
        live = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        free = sum(gate not in _gates(pod) for pod in live)
        held = sorted(
            (pod for pod in live if gate in _gates(pod)),
            key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]),
        )
        for pod in held[: max(0, sum(counts.values()) - free)]:
            gates = [one for one in sequence(pod, "spec", "schedulingGates") if one.get("name") != gate]
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "spec": {"schedulingGates": gates or None}}
            write = Write(
                verb=Verb.MERGE_PATCH,
                resource=PODS,
                namespace=meta["namespace"],
                name=pod["metadata"]["name"],
                body=body,
                kind=Stamped,
            )
            await self._done(write)

    def _tell(self, kind: JobKind, job: Json, type_: str, reason: str, note: str) -> None:
        meta = job["metadata"]
        version = f"{kind.group}/{kind.version}"
        about = ObjectReference(version, kind.kind, meta["name"], meta.get("uid", ""), meta["namespace"])
        self._people.tell(about, type_, reason, note)


def _nobody(kind: str, waited_s: float) -> None:
    """Nobody counts."""


def age_s(one: Json, now_s: float) -> float:
    """How long ago the API server made the object."""
    at = msgspec.convert(one["metadata"].get("creationTimestamp"), Time | None)
    return 0.0 if at is None else max(0.0, now_s - epoch_s(at))


def _gates(pod: Json) -> list[str]:
    return [str(one.get("name")) for one in sequence(pod, "spec", "schedulingGates")]


def _reclaimable(workload: Workload, pods: dict[str, int]) -> Workload:
    listed = tuple(ReclaimablePod(name=name, count=count) for name, count in sorted(pods.items()))
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, reclaimable_pods=listed))


def _with(workload: Workload, type_: str, action: SetPodsReady | SetWaitingForPods, now_s: float) -> Workload:
    """The workload with a condition of that type as the action says it."""
    condition = Condition(
        type=type_,
        status=action.status,
        reason=action.reason,
        message=action.message,
        last_transition_time=status.moment(now_s),
    )
    conditions = with_condition(workload.status.conditions, condition)
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, conditions=conditions))
