"""Detects a run that never settles: workloads that preempt each other in a circle would go on for ever."""

from typing import Final

from controller.insight.simulation.documents import InputError
from controller.scheduler.decisions.decisions import Admitted, Decisions, Pending
from controller.scheduler.model.resources import WorkloadKey

MOST_ENTRIES: Final = 1_000_000
"""Entries of a timeline, and cycles without an outcome at one moment: a run with more is taken to have no end."""
_NAMED: Final = 8


class UnsettledError(InputError):
    """The workloads that it names preempt each other for ever, or a run has no end."""


class Settling:
    """The guard of one moment: without time, arrivals and ends, no admission may lead back to an earlier state.

    ``often``: the number of times from which a recurring state counts as endless.
    """

    def __init__(self, often: int) -> None:
        self._often = often
        self._seen: dict[tuple[object, ...], list[int]] = {}
        self._moved: list[tuple[WorkloadKey, ...]] = []
        self._idle = 0

    def cycled(self, decisions: Decisions, state: tuple[object, ...], t: float) -> None:
        """Notes a cycle and the state after it. Raises UnsettledError."""
        if not decisions.changed:
            self._idle += 1
            if self._idle > MOST_ENTRIES:
                raise UnsettledError(f"at {t:g} s the engine goes on trying without an outcome: this is a bug")
            return
        self._idle = 0
        self._moved.append(tuple(decision.key for decision in decisions.made if not isinstance(decision, Pending)))
        if not any(isinstance(decision, Admitted) for decision in decisions.made):
            return
        times = self._seen.setdefault(state, [])
        times.append(len(self._moved))
        if len(times) >= self._often:
            named = sorted({key for keys in self._moved[times[-2] :] for key in keys})
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            raise UnsettledError(
                f"at {t:g} s these workloads preempt each other for ever: {', '.join(named[:_NAMED])}{more}"
                " (tessera.noEvictionCycles in --config prevents it)"
            )
