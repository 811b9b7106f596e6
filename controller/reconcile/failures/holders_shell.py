"""Pods that hold GPUs: their policies, how their gangs are requeued, and when these start again.

All that takes GPUs from pods shares it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from controller.cluster.config.settings import OnGpuFailure
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.workloadwrites import Then, WorkloadWrites
from controller.jobs.framework.podview import workload_of
from controller.messages import repairs as words
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.decode import KUEUE
from controller.objects.meta import is_true
from controller.reconcile.failures.gpufailures import Victim
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.model.resources import WorkloadKey
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import ON_GPU_FAILURE
from kube.client import Client
from kube.clock import Clock, sleep
from kube.fencing import fenced
from kube.objects import ObjectReference
from kube.resources import PODS

log = logging.getLogger(__name__)

FORETOLD_S: Final = 120.0
"""The time for which a gang's return to its queue is awaited: until then its pods end."""
_LOOK_S: Final = 1.0


class Foretelling:
    """Tells of gangs that lost their GPUs when they are likely to start again, by an Event of the Workload.

    ``starts_again`` is asked once the gang is in its queue again: one that was requeued, and one whose evicted pod took
    it there. A gang that goes on with another pod has nothing told. ``_tasks`` has one task a workload.
    """

    def __init__(
        self,
        ledger: Ledger,
        starts_again: Callable[[WorkloadKey, float], Awaitable[str]],
        tell: Callable[[ObjectReference, str, str, str], None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._starts_again = starts_again
        self._tell = tell
        self._clock = clock
        self._tasks: dict[WorkloadKey, asyncio.Task[None]] = {}

    def begin(self, key: WorkloadKey, cause: str, reason: str) -> None:
        """Foretell a workload's start; ``cause`` and ``reason`` are the Event's."""
        if key not in self._tasks:
            task = self._tasks[key] = asyncio.create_task(self._foretell(key, cause, reason))
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def end(self) -> None:
        for task in (*self._tasks.values(),):
            task.cancel()

    async def _foretell(self, key: WorkloadKey, cause: str, reason: str) -> None:
        until_s = self._clock.monotonic() + FORETOLD_S
        while (entry := self._ledger.get(key)) is not None and runs(entry):
            if self._clock.monotonic() >= until_s:
                return
            await sleep(self._clock, _LOOK_S)
        if entry is None:
            return
        try:
            when = await self._starts_again(key, until_s - self._clock.monotonic())
        except Exception:
            log.exception("workload %s: nobody knows when it starts again", key)
            return
        if when:
            self._tell(about_workload(entry), "Normal", reason, words.drain_starts_again(cause, str(key), when))


def victim(pod: Pod, usual: OnGpuFailure, ledger: Ledger) -> tuple[Victim | None, str]:
    """The pod with its policy, ``usual`` where it has none, and what is wrong with its annotation in a line. None for a
    pod that is over or leaves already.
    """
    if pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp is not None:
        return None, ""
    annotation, policy, invalid = pod.metadata.annotations.get(ON_GPU_FAILURE), usual, ""
    if annotation is not None:
        try:
            policy = OnGpuFailure(annotation)
        except ValueError:
            policies = ", ".join(OnGpuFailure)
            invalid = f"{ON_GPU_FAILURE}: found {annotation[:63]!r}, expected {policies}; policy {policy} applies"
    workload = workload_of(pod)
    entry = ledger.current(workload) if workload is not None else None
    known = WorkloadKey(entry.workload.key) if entry is not None else None
    return Victim(uid=pod.metadata.uid, policy=policy, workload=known), invalid


def runs(entry: LedgerEntry) -> bool:
    """Whether the workload is admitted, and neither evicted nor over."""
    conditions = entry.workload.status.conditions
    over = (reasons.EVICTED, reasons.FINISHED, reasons.DEACTIVATION_TARGET)
    return is_true(conditions, reasons.ADMITTED) and not any(is_true(conditions, type_) for type_ in over)


def requeue(
    writes: WorkloadWrites, entry: LedgerEntry, note: str, then: Then, failpoint: Failpoint, *, now_s: float
) -> None:
    """Evicts the workload, so that its whole gang goes back to its queue. No write of it may be under way."""
    after = evicted(entry.workload, reasons.NODE_FAILURES, note, now_s=now_s)
    writes.status(entry, after, then, failpoint)


TOO_MANY: Final = 429
"""The status by which the API server says that a PodDisruptionBudget does not allow an eviction now."""


async def evict(client: Client, pod: str, uid: str, failpoint: Failpoint, *, may_write: Callable[[], bool]) -> None:
    """Evicts the pod ``namespace/name`` of this uid by the Eviction API, which PodDisruptionBudgets may refuse. Raises
    NotFoundError where it is gone, KubeError with the status TOO_MANY where it is refused.

    The writer is not used: it takes a refusal for an API server that is overloaded, and would pause every other write.
    """
    namespace, _, name = pod.partition("/")
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    with fenced(may_write):
        points.before(failpoint)
        await client.create(PODS, body, msgspec.Raw, name=name, namespace=namespace, subresource="eviction")
        points.after(failpoint)


def about_pod(pod: str, uid: str) -> ObjectReference:
    """``pod``: ``namespace/name``."""
    namespace, _, name = pod.partition("/")
    return ObjectReference("v1", "Pod", name, uid, namespace)


def about_workload(entry: LedgerEntry) -> ObjectReference:
    meta = entry.workload.metadata
    return ObjectReference(KUEUE, "Workload", meta.name, meta.uid, meta.namespace)
