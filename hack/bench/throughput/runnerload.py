"""The load of Kueue's published performance runner, with its delays: what is done is told by five at a time.

Each class in each queue is a sequence of its own: it waits for its interval, creates, and waits for the answer. What
the runner does about a workload goes through one work queue for all: an admitted workload is looked at when its turn
comes, and once more when its run time is over if it is not yet; an evicted one gives its reservation back, whether its
run time is over or not. So an end is told when its turn comes, and holds its quota until then. A run is over when the
statuses of the ClusterQueues say that none is pending and none has a reservation.
"""

import asyncio
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from hack.bench.throughput.drainload import WORKLOADS, Condition, Load, Result, Status, Story, _Workload
from hack.bench.throughput.drainshape import Arrival, Class, Shape
from hack.bench.throughput.nullcontroller import CLUSTER_QUEUES
from kube.client import Client
from kube.clock import Clock, RateLimit
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Undecodable
from kube.writing.writes import Conflicted

WORKERS: Final = 5
"""As the published runner has for Workloads."""


class Limits(NamedTuple):
    """Of the client that tells of ends and gives reservations back; ``qps`` None: the workers alone."""

    qps: float | None = None
    burst: int = 100


NO_LIMIT: Final = Limits()


class QueueStatus(Struct, frozen=True, rename="camel"):
    pending_workloads: int = 0
    reserving_workloads: int = 0
    conditions: list[Condition] = []

    @property
    def is_done(self) -> bool:
        active = any(each.type == "Active" and each.status == "True" for each in self.conditions)
        return active and self.pending_workloads == 0 and self.reserving_workloads == 0


class _Queue(Struct, frozen=True):
    status: QueueStatus = QueueStatus()


@dataclass
class Ends:
    """``late_s``: of each end, from when the run time was over until the watch told of it. ``evicted_ended``: evictions
    of workloads whose run time was over by then; ``statuses_s``: from the last end to the statuses that say so.
    """

    late_s: list[float] = field(default_factory=list)
    evicted_ended: int = 0
    statuses_s: float = 0.0

    @property
    def median_late_s(self) -> float:
        return median(self.late_s)


class RunnerLoad(Load):
    """``statuses``: whether the controller writes those of ClusterQueues; else a run is over with its last end."""

    def __init__(
        self, client: Client, clock: Clock | None = None, *, limits: Limits = NO_LIMIT, statuses: bool = True
    ) -> None:
        self._statuses: dict[ObjectKey, QueueStatus] | None = {} if statuses else None
        super().__init__(client, clock)
        self._rate = (
            RateLimit(qps=limits.qps, burst=limits.burst, clock=self._clock) if limits.qps is not None else None
        )
        self._turns: dict[ObjectKey, None] = {}
        """Workloads that wait for their turn, in order. One that a worker has (``_busy``) waits for its end."""
        self._busy: set[ObjectKey] = set()
        self._ready = asyncio.Event()
        self._created_all = False
        self._last_end_s = 0.0
        self.ends = Ends()

    def _watched(self, client: Client) -> tuple[Reflector[Any], ...]:
        workloads = msgspec.json.Decoder(_Workload).decode
        self._workloads = self._mirror(client, WORKLOADS, lambda raw: workloads(raw).status, self._hear)
        if self._statuses is None:
            return (self._workloads,)
        queues = msgspec.json.Decoder(_Queue).decode
        return (
            self._workloads,
            self._mirror(client, CLUSTER_QUEUES, lambda raw: queues(raw).status, self._hear_queue),
        )

    async def run(self, shape: Shape, limit_s: float) -> Result:
        working = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        for task in working:
            task.add_done_callback(self._stopped_working)
        try:
            return await super().run(shape, limit_s)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    @property
    def waits_s(self) -> list[float]:
        """From created to first admitted, the shortest first."""
        stories = self._stories.values()
        return sorted(max(0.0, each.admitted_s - each.created_s) for each in stories if each.admitted_s is not None)

    # -- arrivals ----------------------------------------------------------------------------------------------------

    async def _arrive_all(self, shape: Shape, start_s: float) -> float:
        by_sequence: dict[tuple[str, Class], list[Arrival]] = {}
        for arrival in shape.arrivals():
            by_sequence.setdefault((arrival.queue, arrival.kind), []).append(arrival)
        async with asyncio.TaskGroup() as group:
            for arrivals in by_sequence.values():
                group.create_task(self._arrive_in_turn(arrivals))
        self._created_all = True
        self._look_whether_over()
        due_s = max(arrivals[-1].at_s + arrivals[-1].kind.interval_s for arrivals in by_sequence.values())
        return self._clock.monotonic() - start_s - due_s

    async def _arrive_in_turn(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            await asyncio.sleep(arrival.kind.interval_s)
            if self._over.is_set():
                return
            await (await self._arrive(arrival))

    # -- the work queue ----------------------------------------------------------------------------------------------

    def _follow(self, key: ObjectKey, story: Story, new: Any) -> None:
        status: Status = new.object
        if status.holds("Finished"):
            self._see_off(story)
            return
        admitted = status.holds("Admitted")
        if story.ending is not None and status.holds("Evicted"):
            self.ends.evicted_ended += self._clock.monotonic() >= story.started_s + story.kind.runtime_s
            self._stopped(story)
        elif admitted and not status.holds("Evicted") and story.ending is None:
            self._run(story, lambda: self._put_key(key))
        if admitted:
            self._put_key(key)

    def _put_key(self, key: ObjectKey) -> None:
        self._turns[key] = None
        self._ready.set()

    async def _work(self) -> None:
        while True:
            key = next((key for key in self._turns if key not in self._busy), None)
            if key is None:
                self._ready.clear()
                await self._ready.wait()
                continue
            del self._turns[key]
            self._busy.add(key)
            try:
                await self._reconcile(key, self._stories[key])
            finally:
                self._busy.discard(key)
                self._ready.set()

    async def _reconcile(self, key: ObjectKey, story: Story) -> None:
        entry = self._workloads.get(key)
        if entry is None or story.ended or not entry.object.holds("Admitted"):
            return
        evicted = entry.object.holds("Evicted")
        if not evicted and self._clock.monotonic() < story.started_s + story.kind.runtime_s:
            return  # its timer puts it again
        if self._rate is not None:
            await self._rate.take()
        if not evicted:
            story.ended = True
            await self._end(key)
        elif isinstance(await self._free(key, entry), Conflicted):
            self._put_key(key)

    def _stopped_working(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.tally.refuse(repr(error))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _see_off(self, story: Story) -> None:
        if not story.gone:
            story.gone = True
            self._left -= 1
            self._last_end_s = self._clock.monotonic()
            self.ends.late_s.append(self._last_end_s - story.started_s - story.kind.runtime_s)
            self._look_whether_over()

    def _hear_queue(self, change: Change[QueueStatus]) -> None:
        assert self._statuses is not None, "else nobody listens"
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                self._statuses[key] = new.object
                self._look_whether_over()
            case Undecodable():
                self.tally.refuse(str(change))

    def _look_whether_over(self) -> None:
        if not self._created_all or self._left > 0:
            return
        if self._statuses is None or all(status.is_done for status in self._statuses.values()):
            self.ends.statuses_s = self._clock.monotonic() - self._last_end_s
            self._over.set()
