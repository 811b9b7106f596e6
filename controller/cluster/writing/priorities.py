"""The priority of Workloads follows the value of the WorkloadPriorityClass that they name.

Only a change of the value is followed: between two changes ``spec.priority`` may be set by hand.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.decode import KUEUE
from controller.objects.meta import is_true
from controller.objects.queues import WorkloadPriorityClass
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint

_GROUP: Final = KUEUE.partition("/")[0]
_BACKLOG: Final = 8
"""Writes under way above which no priority is written: admissions go first."""
_AGAIN_S: Final = 5.0


class Priorities:
    """Writes priorities. ``backlog``: the number of writes that are not done yet. ``_wanted``: the priority to be
    written, by workload.
    """

    def __init__(self, ledger: Ledger, writes: WorkloadWrites, *, backlog: Callable[[], int]) -> None:
        self._ledger = ledger
        self._writes = writes
        self._backlog = backlog
        self._wanted: dict[WorkloadKey, int] = {}
        self._not_before_s = 0.0

    @property
    def waiting(self) -> tuple[WorkloadKey, ...]:
        return tuple(self._wanted)

    def next_due_s(self, now_s: float) -> float | None:
        return max(self._not_before_s, now_s) if self._wanted else None

    def changed(self, old: WorkloadPriorityClass | None, new: WorkloadPriorityClass) -> None:
        if not changes_value(old, new):
            return
        for key in self._ledger:
            entry = self._ledger.get(key)
            if entry is not None and names_class(entry.workload, new.metadata.name):
                self._wanted[key] = new.value

    def write(self, now_s: float) -> None:
        """Writes the wanted priorities, as far as there is room; a refused one again after a while."""
        if now_s < self._not_before_s:
            return
        for key, value in list(self._wanted.items()):
            entry = self._ledger.get(key)
            if entry is None or entry.workload.spec.priority == value:
                del self._wanted[key]
            elif self._backlog() > _BACKLOG:
                return
            elif not entry.writing:
                spec = msgspec.structs.replace(entry.workload.spec, priority=value)
                after = msgspec.structs.replace(entry.workload, spec=spec)

                def then(result: Result, _why: str) -> None:
                    if result is Result.REFUSED:
                        self._not_before_s = now_s + _AGAIN_S

                self._writes.spec(entry, after, {"spec": {"priority": value}}, then, Failpoint.PRIORITY)


def changes_value(old: WorkloadPriorityClass | None, new: WorkloadPriorityClass) -> bool:
    """Whether the value of a class changed. A new class changes nothing: Workloads got its value when they were
    made.
    """
    return old is not None and old.value != new.value


def names_class(workload: Workload, name: str) -> bool:
    """Whether an unfinished workload has its priority from this class."""
    reference = workload.spec.priority_class_ref
    if reference is None or is_true(workload.status.conditions, reasons.FINISHED):
        return False
    return (reference.group, reference.kind, reference.name) == (_GROUP, "WorkloadPriorityClass", name)
