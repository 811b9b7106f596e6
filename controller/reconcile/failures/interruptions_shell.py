"""Evicts workloads whose nodes are taken away, live: whole, and before the first of their pods is gone.

A gang that loses one pod has stopped; its other pods would hold their GPUs until somebody notices. So at the notice the
workload is evicted, with its place in the line: its pods get their time to write a checkpoint, and the sooner it queues
again, the sooner its next nodes are on their way.
"""

import logging
from collections.abc import Callable, Collection
from typing import Any

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import NODES, PODS
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.watching.workqueue import ActionFailedError, NotYetError, WorkQueue
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites, outcome_of
from controller.jobs.framework.podview import workload_of
from controller.messages import statuses as words
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.decode import DecodeError, decode
from controller.reconcile.failures.holders_shell import about_workload, runs
from controller.reconcile.failures.interruptions import Interruptions
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.client import Client, Selection
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed

log = logging.getLogger(__name__)


class InterruptionController:
    """``hear`` takes changes of nodes; ``run``, from when all Workloads are known, works until cancelled. ``tell``
    records an Event: about what, type, reason, note. ``served`` hears of nodes that leave with pods of workloads.
    """

    def __init__(
        self,
        taints: Collection[str],
        client: Client,
        ledger: Ledger,
        writes: WorkloadWrites,
        *,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
        served: Callable[[str], None],
    ) -> None:
        self.interruptions = Interruptions(taints)
        self._client = client
        self._ledger = ledger
        self._writes = writes
        self._clock = clock
        self._tell = tell
        self._served = served
        self._queue = WorkQueue[ObjectKey]("node that leaves", self.reconcile)

    def hear(self, observed: ObjectChange) -> None:
        if observed.resource != NODES:
            return
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry):
                if self.interruptions.set_node(key.name, entry.object):
                    self._queue.put(key)
            case Removed(key=key):
                self.interruptions.set_node(key.name, None)

    async def run(self) -> None:
        await self._queue.run()

    async def reconcile(self, key: ObjectKey) -> None:
        """Evicts the workloads with pods on the node. Raises ActionFailedError and KubeError."""
        sign = self.interruptions.sign(key.name)
        if not sign:
            return
        listed = await self._client.list_all(
            PODS, dict[str, Any], Selection(field_selector=f"spec.nodeName={key.name}")
        )
        concerned: dict[WorkloadKey, LedgerEntry] = {}
        serves = False
        for raw in listed.items:
            try:
                pod = decode(raw, Pod)
            except DecodeError as error:
                log.warning("a pod of node %s cannot be read: %s", key.name, error)
                continue
            named = workload_of(pod) if pod.status.phase not in ENDED_PHASES else None
            entry = self._ledger.current(named) if named is not None else None
            serves |= entry is not None
            if entry is not None and runs(entry):
                concerned[WorkloadKey(entry.workload.key)] = entry
        if serves:
            self._served(key.name)
        waits = [await self._evict(entry, key.name, sign) for entry in concerned.values()]
        if any(waits):
            raise NotYetError("workloads of it are being written")

    async def _evict(self, entry: LedgerEntry, node: str, sign: str) -> bool:
        """Returns whether another write of the workload has to come first."""
        if entry.writing:
            return True
        note = words.node_leaves(node, sign)
        after = evicted(entry.workload, reasons.NODE_INTERRUPTED, note, now_s=self._clock.wall())
        result, why = await outcome_of(lambda then: self._writes.status(entry, after, then, Failpoint.NODE_INTERRUPTED))
        if result is Result.WRITTEN:
            self._tell(about_workload(entry), "Normal", f"EvictedDueTo{reasons.NODE_INTERRUPTED}", note)
        elif result not in (Result.UNCHANGED, Result.GONE):
            raise ActionFailedError(why)
        return False
