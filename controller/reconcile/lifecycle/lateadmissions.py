"""Admissions that no decision of this controller is about: an earlier leader wrote them, and they came late."""

from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey


class LateAdmissions:
    """Workloads whose job must not start yet, though their object says that they are admitted: their quota may have
    gone to others. A workload leaves once a cycle has looked at it and, if that evicts it, the write of its eviction
    has ended.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: set[WorkloadKey] = set()

    def holds_back(self, key: WorkloadKey) -> bool:
        """Whether nobody is to hear yet of the workload, which the engine has taken in."""
        state = self._engine.state
        if key in state.notes.undecided:
            self._waiting.add(key)
        elif key not in state.unwritten.evictions:
            self._waiting.discard(key)
        return key in self._waiting

    def forget(self, key: WorkloadKey) -> None:
        """The workload is gone."""
        self._waiting.discard(key)

    def standing(self) -> list[WorkloadKey]:
        """Workloads that are held back no more, sorted by key: called after each cycle."""
        return [key for key in sorted(self._waiting) if not self.holds_back(key)]
