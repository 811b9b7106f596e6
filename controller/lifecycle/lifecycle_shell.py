"""Steps of single workloads outside of cycles: asked for when a workload or its queues change, and when time has come.

One step is written before the next is asked for: ``look`` does nothing while a write is under way, and is called again
when it is done.
"""

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from controller.config.settings import ControllerConfig
from controller.engine.conditions.status import checks_for
from controller.engine.engine import Engine
from controller.engine.model.resources import ClusterQueueName, FlavorName, LocalQueueKey, WorkloadKey
from controller.lifecycle import lifecycle
from controller.lifecycle.lifecycle import Step, Surroundings
from controller.objects.workload import Workload
from controller.watching.ledger import Kept, Ledger
from controller.writing.workloadwrites import Result, WorkloadWrites

_REFUSED_PAUSE_S: Final = 5.0


class Lives:
    """``stepped``: a step has been written."""

    def __init__(
        self,
        config: ControllerConfig,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        *,
        stepped: Callable[[Step], None],
    ) -> None:
        self._config = config.engine
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._stepped = stepped
        self._due: list[tuple[float, WorkloadKey]] = []
        self._due_of: dict[WorkloadKey, float] = {}

    def look(self, key: WorkloadKey, now_s: float) -> None:
        """Take the workload's next step, or note when to look again."""
        kept = self._ledger.get(key)
        if kept is None:
            self._due_of.pop(key, None)
            return
        if kept.writing or key in self._engine.state.assumed:
            return
        around = self._around(kept.workload)
        step = lifecycle.step(kept.workload, around, self._config, now_s)
        if step is None:
            self._note(key, lifecycle.due_s(kept.workload, self._config))
        else:
            self._take(kept, step, now_s)

    def look_due(self, now_s: float) -> None:
        while (due_s := self.next_due_s()) is not None and due_s <= now_s:
            _, key = heapq.heappop(self._due)
            del self._due_of[key]
            self.look(key, now_s)

    def next_due_s(self) -> float | None:
        while self._due:
            due_s, key = self._due[0]
            if self._due_of.get(key) == due_s:
                return due_s
            heapq.heappop(self._due)
        return None

    def forget(self, key: WorkloadKey) -> None:
        self._due_of.pop(key, None)

    def _take(self, kept: Kept, step: Step, now_s: float) -> None:
        before, key = kept.workload, WorkloadKey(kept.workload.key)

        def then(result: Result, _: str) -> None:
            if result is Result.WRITTEN:
                self._stepped(step)
            elif result is Result.REFUSED:
                self._note(key, now_s + _REFUSED_PAUSE_S)

        if step.deactivate:
            after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, active=False))
            self._writes.spec(kept, after, {"spec": {"active": False}}, then)
        else:
            self._writes.status(kept, step.after, then)

    def _note(self, key: WorkloadKey, due_s: float | None) -> None:
        if due_s is None:
            self._due_of.pop(key, None)
        elif self._due_of.get(key) != due_s:
            self._due_of[key] = due_s
            heapq.heappush(self._due, (due_s, key))

    def _around(self, workload: Workload) -> Surroundings:
        cluster = self._engine.state.cluster
        local = cluster.local_queues.get(LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}"))
        admission = workload.status.admission
        name = admission.cluster_queue if admission is not None else local.spec.cluster_queue if local else ""
        queue = cluster.queues.get(ClusterQueueName(name))
        checks: tuple[str, ...] = ()
        if queue is not None and admission is not None:
            flavors = {FlavorName(flavor) for one in admission.pod_set_assignments for flavor in one.flavors.values()}
            checks = checks_for(queue.object, flavors)
        elif admission is not None:
            # Its ClusterQueue is gone: what it asked for stays as it is.
            checks = tuple(state.name for state in workload.status.admission_checks)
        return Surroundings(
            cluster_queue_stop="None" if queue is None else queue.policies.stop,
            local_queue_stop="None" if local is None else local.spec.stop_policy or "None",
            checks=checks,
        )
