"""Takes steps of single workloads outside of cycles: when a workload or its queues change, and when one is due.

One step is written before the next is computed: ``reconcile`` does nothing while a write is under way, and is called
again when it is done.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.reconcile.lifecycle import lifecycle
from controller.reconcile.lifecycle.duetimes import DueTimes
from controller.reconcile.lifecycle.lifecycle import Step
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint

_REFUSED_PAUSE_S: Final = 5.0


class LifecycleController:
    """Takes steps. ``stepped`` is called with each step that has been written. ``begin`` comes first."""

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
        self._due = DueTimes()
        self._begun_s = 0.0

    def begin(self, now_s: float) -> None:
        """Notes that the term decides from now on."""
        self._begun_s = now_s
        rules = self._config.wait_for_pods_ready
        looking = None if rules is None else msgspec.structs.replace(rules, looks_since_s=now_s)
        self._config = msgspec.structs.replace(self._config, wait_for_pods_ready=looking)

    def reconcile(self, key: WorkloadKey, now_s: float) -> None:
        """Takes the workload's next step, or notes when there may be one."""
        entry = self._ledger.get(key)
        if entry is None:
            self._due.set(key, None)
            return
        if entry.writing or key in self._engine.state.unwritten.admissions:
            return
        queues = lifecycle.led_since(lifecycle.queue_policies(self._engine, entry.workload), self._begun_s)
        step = lifecycle.step(entry.workload, queues, self._config, now_s)
        if step is None:
            self._due.set(key, lifecycle.due_s(entry.workload, self._config, queues))
        else:
            self._take(entry, step, now_s)

    def reconcile_due(self, now_s: float) -> None:
        for key in self._due.due(now_s):
            self.reconcile(key, now_s)

    def next_due_s(self) -> float | None:
        return self._due.next_s()

    def forget(self, key: WorkloadKey) -> None:
        self._due.set(key, None)

    def _take(self, entry: LedgerEntry, step: Step, now_s: float) -> None:
        before, key = entry.workload, WorkloadKey(entry.workload.key)

        def then(result: Result, _: str) -> None:
            if result is Result.WRITTEN:
                self._stepped(step)
            elif result is Result.REFUSED:
                self._due.set(key, now_s + _REFUSED_PAUSE_S)

        if step.deactivate:
            after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, active=False))
            self._writes.spec(entry, after, {"spec": {"active": False}}, then, Failpoint.DEACTIVATED)
        else:
            self._writes.status(entry, step.after, then, Failpoint.LIFECYCLE)
