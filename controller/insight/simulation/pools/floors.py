"""The part of a queue's GPUs that must stay on demand, by the annotation ``ON_DEMAND_FLOOR`` of its object.

A workload of such a queue may go to spot nodes only if the queue keeps its part though all of the workload's GPUs go
there: on demand >= floor x (on demand + spot + the workload's). So the first workload of a queue goes on demand. Pure.
"""

from collections.abc import Iterable, Mapping

import msgspec

from controller.scheduler.flavors.spot import may_take_spot
from controller.scheduler.model.resources import WorkloadKey


class _Holds(msgspec.Struct):
    """GPUs that a queue's workloads hold."""

    on_demand: float = 0.0
    spot: float = 0.0


class Floors:
    """The floors of all queues and what their workloads hold. ``floors``: by queue, those above 0. ``queues_of``: the
    queues of each workload that have one.
    """

    def __init__(self, floors: Mapping[str, float], queues_of: Mapping[WorkloadKey, tuple[str, ...]]) -> None:
        self._floors = floors
        self._queues_of = queues_of
        self._holds = {name: _Holds() for name in floors}
        self._held: dict[WorkloadKey, _Holds] = {}

    def concerned(self) -> Iterable[WorkloadKey]:
        return self._queues_of.keys()

    def take(self, key: WorkloadKey, on_demand: float, spot: float) -> None:
        """The workload has got its nodes: GPUs of both kinds."""
        self.give_back(key)
        if key in self._queues_of:
            self._held[key] = _Holds(on_demand, spot)
            self._count(key, self._held[key], 1)

    def give_back(self, key: WorkloadKey) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._count(key, held, -1)

    def may_take_spot(self, key: WorkloadKey, gpus: float) -> bool:
        """Whether a workload that asks for so many GPUs may go to spot nodes now."""
        for name in self._queues_of.get(key, ()):
            holds = self._holds[name]
            if not may_take_spot(self._floors[name], on_demand=holds.on_demand, spot=holds.spot, gpus=gpus):
                return False
        return True

    def _count(self, key: WorkloadKey, held: _Holds, sign: int) -> None:
        for name in self._queues_of[key]:
            self._holds[name].on_demand += sign * held.on_demand
            self._holds[name].spot += sign * held.spot

    def validate(self) -> None:
        """Recomputes what the queues hold. AssertionError for a difference."""
        for name, holds in self._holds.items():
            own = [held for key, held in self._held.items() if name in self._queues_of[key]]
            for kept, counted in (
                (holds.on_demand, sum(held.on_demand for held in own)),
                (holds.spot, sum(held.spot for held in own)),
            ):
                assert abs(kept - counted) < 1e-6, f"queue {name} holds {counted}, kept {kept}"  # noqa: PLR2004
