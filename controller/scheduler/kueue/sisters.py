"""Sisters: workloads that wait, and get quota with another in the same cycle or not at all."""

from typing import NamedTuple, Protocol

from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.entry import Entry


class Sisters(NamedTuple):
    """The sisters of an entry. ``group``: what they have in common. ``absent``: the number of those that cannot be
    tried now.
    """

    group: str
    entries: tuple[Entry, ...] = ()
    absent: int = 0

    @property
    def total(self) -> int:
        """The number of workloads that get quota together, the entry among them."""
        return 1 + len(self.entries) + self.absent


class Beside(Protocol):
    """What a workload needs beside it."""

    def waits_for(self, workload: Workload) -> WorkloadKey | None:
        """The workload that must hold quota before this one."""

    def sisters(self, entry: Entry, now_s: float) -> Sisters | None:
        """The sisters that wait; None where the entry has none."""

    def gang(self, entry: Entry) -> str:
        """The PodGroup of whose pods the entry is the whole gang; empty where it is none."""

    def take(self, entry: Entry) -> None:
        """Take a sister out of its queue, to be decided on in the running cycle."""


class Nobody:
    """A ``Beside`` of workloads that need nothing beside them."""

    def waits_for(self, _workload: Workload) -> WorkloadKey | None:
        return None

    def sisters(self, _entry: Entry, _now_s: float) -> Sisters | None:
        return None

    def gang(self, _entry: Entry) -> str:
        return ""

    def take(self, _entry: Entry) -> None:
        raise NotImplementedError("a workload without sisters")
