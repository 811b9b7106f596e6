"""The workloads that one needs beside it: the minimum of its gang, and sisters that get quota with it.

Sisters are the waiting pods of a PodGroup of Kubernetes' own, of which kube-scheduler starts none while one has a
scheduling gate. Each is a workload by itself, and they name the PodGroup (``STARTS_WITH``). One that holds quota
needs none of the others; those that wait in one LocalQueue get it in one cycle, or none of them does.
"""

from typing import Final

from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.kueue.sisters import Sisters
from controller.scheduler.model.deviceclaims import ClaimKey
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo, sisters_of
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingState, PendingWorkload
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.state import minimums
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.intake import Shapes
from inventory.api.names import STARTS_WITH

_NO_LIMITS: Final = LimitSummary()
_TWO: Final = 2


class BesideOthers:
    """Answers ``controller.scheduler.kueue.sisters.Beside`` from the engine's state."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def waits_for(self, workload: Workload) -> WorkloadKey | None:
        return minimums.waits_for(self._state, workload)

    def sisters(self, entry: Entry, now_s: float) -> Sisters | None:
        state, pending = self._state, entry.pending
        if not state.workloads.together or pending is None:
            return None
        workload = pending.info.workload
        together = sisters_of(workload)
        if together is None:
            return None
        ready, absent = list[PendingWorkload](), 0
        for key in state.workloads.together.get(together, ()):
            holder = state.cluster.holders.get(key)
            if key == pending.key or (holder is not None and not holder.evicted):
                continue
            waiting = state.queues.get(key)
            if waiting is None or not _may_be_tried(waiting, now_s):
                absent += 1
            else:
                ready.append(waiting)
        ready.sort(key=lambda each: each.order())
        if not ready and not absent:
            return None
        paid, entries = _named(entry.incoming.info), list[Entry]()
        for each in ready:
            entries.append(Entry(self._incoming(each, entry.incoming.queue, paid), pending=each))
            paid |= _named(each.info)
        return Sisters(workload.metadata.annotations[STARTS_WITH], tuple(entries), absent)

    def _incoming(self, pending: PendingWorkload, queue: QueueState, paid: set[ClaimKey]) -> Incoming:
        """The sister as it is charged beside those before it, which have paid for these claims."""
        if paid.isdisjoint(_named(pending.info)):
            return pending.incoming(queue)
        state, workload = self._state, pending.info.workload
        made, _ = Shapes().pending_of(
            pending.key,
            workload,
            state.config,
            limits=state.cluster.limits.get(workload.metadata.namespace, _NO_LIMITS),
            overheads=state.defaults.overheads,
            claims=state.device_claims.beside(workload, paid),
        )
        return made.incoming(queue)

    def gang(self, entry: Entry) -> str:
        info = entry.incoming.info
        if not self._state.workloads.together or sum(pod_set.count for pod_set in info.pod_sets) < _TWO:
            return ""
        return info.workload.metadata.annotations.get(STARTS_WITH, "")

    def take(self, entry: Entry) -> None:
        if entry.pending is not None:
            self._state.queues.take(entry.pending)


def _named(info: WorkloadInfo) -> set[ClaimKey]:
    return set() if info.claims is None else {*info.claims.named}


def _may_be_tried(pending: PendingWorkload, now_s: float) -> bool:
    return pending.state in (PendingState.QUEUED, PendingState.PARKED) and pending.due_s <= now_s
