"""Workloads with quota for whose pods the second pass has found no place.

The engine tries them again and again by the clock, and at once when nodes have changed or places are free. In virtual
time the clock alone changes nothing: a run in which nothing else is to come has ended.
"""

from collections.abc import Iterator

from controller.messages import statuses as words
from controller.scheduler.decisions.decisions import SecondPassFailed
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey


class SecondPasses:
    """Failed passes. A run tells of each failure, and of each workload that is placed or holds no quota any more."""

    def __init__(self) -> None:
        self._failed: dict[WorkloadKey, tuple[SecondPassFailed, int]] = {}
        """The last failure, with the engine's count of changes then."""

    def failed(self, decision: SecondPassFailed, engine: Engine) -> None:
        self._failed[decision.key] = (decision, engine.state.changes)

    def over(self, key: WorkloadKey) -> None:
        self._failed.pop(key, None)

    def pointless(self, engine: Engine) -> frozenset[WorkloadKey]:
        """Those that would fail again, as nothing has changed since they did."""
        changes = engine.state.changes
        return frozenset(key for key, (_, failed_at) in self._failed.items() if failed_at == changes)

    def waiting(self) -> Iterator[tuple[WorkloadKey, str, str]]:
        """Each that waits, with the reason and a sentence."""
        for key, (decision, _) in self._failed.items():
            yield key, *_why(decision)

    def cause(self, key: WorkloadKey) -> tuple[str, str] | None:
        """Why the workload waits: reason and sentence; None for one whose pass has not failed."""
        known = self._failed.get(key)
        return None if known is None else _why(known[0])


def _why(decision: SecondPassFailed) -> tuple[str, str]:
    message = words.without_places(decision.holder.cluster_queue, sentence(decision.record))
    return str(PendingReason.TOPOLOGY_PLACEMENT_FAILED), message
