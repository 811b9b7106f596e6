"""The workloads that one needs beside it: the minimum of its gang, and sisters that get quota with it.

Sisters are the waiting pods of a PodGroup of Kubernetes' own, of which kube-scheduler starts none while one has a
scheduling gate. Each is a workload by itself, and they name the PodGroup (``STARTS_WITH``). One that holds quota
needs none of the others; those that wait in one LocalQueue get it in one cycle, or none of them does.
"""

from controller.objects.workload import Workload
from controller.scheduler.kueue.sisters import Sisters
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import sisters_of
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingState, PendingWorkload
from controller.scheduler.state import minimums
from controller.scheduler.state.enginestate import EngineState
from inventory.api.names import STARTS_WITH


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
        entries = tuple(Entry(each.incoming(entry.incoming.queue), pending=each) for each in ready)
        return Sisters(workload.metadata.annotations[STARTS_WITH], entries, absent)

    def take(self, entry: Entry) -> None:
        if entry.pending is not None:
            self._state.queues.take(entry.pending)


def _may_be_tried(pending: PendingWorkload, now_s: float) -> bool:
    return pending.state in (PendingState.QUEUED, PendingState.PARKED) and pending.due_s <= now_s
