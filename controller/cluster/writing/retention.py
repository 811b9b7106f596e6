"""Deletes Workloads that ended, or were deactivated, as long ago as the configuration says."""

import heapq
from collections.abc import Callable
from typing import Any

from controller.cluster.config.settings import Retention
from controller.cluster.watching.kinds import WORKLOADS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.stampedwrites import stamped_write
from controller.objects.meta import epoch_s, find_condition
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.writing.writes import Verb, Write

_BY_US = "DeactivatedDueTo"


class WorkloadRetention:
    """Deletes Workloads when their time is over. ``put`` sends a write."""

    def __init__(self, rules: Retention, ledger: Ledger, put: Callable[[Write[Any]], Any]) -> None:
        self._rules = rules
        self._ledger = ledger
        self._put = put
        self._due: list[tuple[float, WorkloadKey, str]] = []

    def observed(self, workload: Workload) -> None:
        due_s = deletion_s(workload, self._rules)
        if due_s is not None and workload.metadata.deletion_timestamp is None:
            heapq.heappush(self._due, (due_s, WorkloadKey(workload.key), workload.metadata.uid))

    def next_due_s(self) -> float | None:
        return self._due[0][0] if self._due else None

    def delete(self, now_s: float) -> None:
        while self._due and self._due[0][0] <= now_s:
            _, key, uid = heapq.heappop(self._due)
            entry = self._ledger.get(key)
            if entry is None or entry.uid != uid or entry.workload.metadata.deletion_timestamp is not None:
                continue
            due_s = deletion_s(entry.workload, self._rules)
            if due_s is not None and due_s <= now_s:
                meta = {"namespace": entry.workload.metadata.namespace, "name": entry.workload.metadata.name}
                self._put(
                    stamped_write(Verb.DELETE, WORKLOADS, meta, uid, Failpoint.WORKLOAD_EXPIRED, slot="retention")
                )


def deletion_s(workload: Workload, rules: Retention) -> float | None:
    """Seconds since 1970 at which the workload may be deleted; None for one that stays."""
    conditions = workload.status.conditions
    finished = find_condition(conditions, reasons.FINISHED)
    if finished is not None and finished.status == "True":
        return (
            None if rules.after_finished_s is None else epoch_s(finished.last_transition_time) + rules.after_finished_s
        )
    evicted = find_condition(conditions, reasons.EVICTED)
    deactivated = evicted is not None and evicted.status == "True" and evicted.reason.startswith(_BY_US)
    if not deactivated or workload.spec.active or evicted is None or rules.after_deactivated_s is None:
        return None
    return epoch_s(evicted.last_transition_time) + rules.after_deactivated_s
