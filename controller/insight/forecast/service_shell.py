"""Forecasts of the engine, renewed as long as they are asked for, off the path of its decisions.

All work is done on the event loop in slices of a few milliseconds, and between two of them the loop has at least as
long for everything else. A thread would be no faster, since the interpreter runs one at a time, and what is learnt of
past forecasts would need locks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, NODES
from controller.insight.forecast.changes.changes import Change, admits, change_parts
from controller.insight.forecast.changes.never import pod_too_large
from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.repairtimes import Comebacks, node_facts
from controller.insight.forecast.shown import Foretold, brief, starts_again
from controller.messages import forecasts as words
from controller.messages.spans import starts
from controller.objects.workload import Workload
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from kube.clock import Clock, sleep
from kube.reading.reflector import Added, Changed, Removed

log = logging.getLogger(__name__)

T = TypeVar("T")

_SLICE_S: Final = 0.003
EVERY_S: Final = 5.0
"""The least time between two renewals; after long work as much longer as the work took."""
STALE_S: Final = 20.0
"""The time after which forecasts that nobody asked for are dropped: the next request waits for new ones."""
FIRST_S: Final = 5.0
"""The longest time that a request waits for a forecast."""
_REST: Final = 4.0
"""The pause after a renewal, and after work on a workload that is not in the engine yet, in multiples of what the work
took."""
_MOST_REST_S: Final = 2.0
"""The longest pause after work on a workload that is not in the engine yet: the next request has its answer within
``FIRST_S``."""
_LOOK_S: Final = 1.0
_KEPT: Final = 500
_MOST_ASKED: Final = 4
"""Requests about workloads that are not in the engine yet that are worked on or wait at a time."""


class BusyError(Exception):
    """Too many requests at once: try again."""


class Submitted(NamedTuple):
    """The forecast of a workload that is not in the engine yet. ``forecast`` None: its queue does not exist or admits
    nothing.

    ``starts``: the workload would be admitted at once, to quota of nodes that are large enough. ``sentence``: why it
    would not.
    """

    forecast: Forecast | None
    starts: bool
    sentence: str | None
    changes: tuple[Change, ...] = ()


class ForecastService:
    """A ``ChangeListener`` of one term. ``run`` until cancelled: it alone makes forecasts of pending workloads.

    ``_made_s`` is the time of ``_latest``; ``_made`` is set with each renewal and exchanged for a new one.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._forecaster = Forecaster()
        self._latest: dict[WorkloadKey, Forecast] = {}
        self._made_s = float("-inf")
        self._made = asyncio.Event()
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self._changes: dict[WorkloadKey, tuple[float, tuple[Change, ...]]] = {}
        self._one = asyncio.Lock()
        """Held by the task that works in slices: one at a time, so that the loop's other half stays free."""
        self._asking = 0
        self._turn = asyncio.Lock()
        """Held by a request about a workload that is not in the engine yet. Its holder may rest while renewals go
        on."""
        self._rests_until_s = float("-inf")

    def on_workload(self, workload: Workload, gone: bool) -> None:
        self._forecaster.observe(workload, gone=gone)

    def on_object(self, observed: ObjectChange) -> None:
        repairs = self._forecaster.repairs
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                repairs.set_gpu_node(key.name, entry.object.status, self._clock.wall())
            case Removed(key=key) if observed.resource == GPU_NODES:
                repairs.set_gpu_node(key.name, None, self._clock.wall())
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                repairs.set_node(key.name, node_facts(entry.object))
            case Removed(key=key) if observed.resource == NODES:
                repairs.set_node(key.name, None)

    def comebacks(self) -> Comebacks:
        """The GPUs in repair that are likely back some time."""
        return self._forecaster.repairs.comebacks(self._clock.wall())

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._hurry.clear()
            begun_s = self._clock.monotonic()
            try:
                async with self._one:
                    self._latest = await self._worked(self._forecaster.parts(self._engine, self._clock.wall()))
            except Exception:
                # A fault of forecasts must not end a term of decisions.
                log.exception("no forecasts could be made")
                self._latest = {}
            self._made_s = self._clock.monotonic()
            made, self._made = self._made, asyncio.Event()
            made.set()
            rest_s = _REST * (self._made_s - begun_s)
            # A workload that came after the last run need not wait for all of the pause.
            if await self._clock.wait(self._hurry, max(EVERY_S, rest_s)):
                await self._clock.wait(asyncio.Event(), rest_s)

    async def all(self) -> Mapping[WorkloadKey, Forecast]:
        """The forecasts of all pending workloads, not older than ``STALE_S``; empty if there are none in time."""
        self._asked.set()
        if not self._fresh():
            await self._next()
        return self._latest if self._fresh() else {}

    def latest(self) -> Mapping[WorkloadKey, Forecast]:
        """The forecasts of now, without waiting; they are renewed for the next request."""
        self._asked.set()
        return self._latest

    async def of(self, key: WorkloadKey, workload: Workload | None) -> Foretold:
        """The forecast of a pending workload, with the changes that would admit it now; empty for one that is not
        pending.
        """
        if self._engine.state.queues.get(key) is None:
            return Foretold()
        forecasts = await self.all()
        if key not in forecasts:
            self._hurry.set()
            await self._next()
            forecasts = self._latest
        changes = await self._changes_of(key, workload) if workload is not None and key in forecasts else ()
        return Foretold({key: forecasts[key]} if key in forecasts else {}, changes)

    async def starts_again(self, key: WorkloadKey, within_s: float) -> str:
        """When a workload that goes back to its queue is likely to start again, in words. Waits ``within_s`` for it to
        be pending; empty if it is not by then, and where nothing is known of its start.
        """
        until_s = self._clock.monotonic() + within_s
        while True:
            found = (await self.of(key, None)).forecasts.get(key)
            if found is not None:
                return starts(brief(found)) if found.from_s is not None or found.never is not None else ""
            if self._clock.monotonic() >= until_s:
                return ""
            await sleep(self._clock, _LOOK_S)

    async def again(self, key: WorkloadKey) -> str | None:
        """When a victim of preemption is likely to start again, as a sentence that may be kept; None for one that has
        no forecast yet, since its job still stops.
        """
        found = (await self.of(key, None)).forecasts.get(key)
        return None if found is None else starts_again(found)

    async def of_new(self, workload: Workload) -> Submitted:
        """The forecast of a workload if it came now. Raises BusyError, and TimeoutError if there is no forecast in
        time.
        """
        return await self.answered(lambda _: self._new_parts(workload))

    async def answered(self, question: Callable[[Forecaster], Parts[T]]) -> T:
        """The answer to a question about what is not in the engine yet, worked on in its turn. Raises BusyError, and
        TimeoutError if there is no answer in time.
        """
        if self._asking >= _MOST_ASKED:
            raise BusyError
        self._asking += 1
        try:
            async with asyncio.timeout(FIRST_S), self._turn:
                return await self._worked_new(question)
        finally:
            self._asking -= 1

    async def _worked_new(self, question: Callable[[Forecaster], Parts[T]]) -> T:
        await self._clock.wait(asyncio.Event(), max(0.0, self._rests_until_s - self._clock.monotonic()))
        async with self._one:
            begun_s = self._clock.monotonic()
            try:
                return await self._worked(question(self._forecaster))
            finally:
                ended_s = self._clock.monotonic()
                self._rests_until_s = ended_s + min(_MOST_REST_S, _REST * (ended_s - begun_s))

    def _new_parts(self, workload: Workload) -> Parts[Submitted]:
        engine, now_s = self._engine, self._clock.wall()
        asked = engine.as_pending(workload)
        record = engine.tried(asked, now_s, in_turns=True)
        yield
        forecast = yield from self._forecaster.of_parts(engine, asked, now_s, record)
        if admits(record) and (too_large := pod_too_large(engine, asked)) is not None:
            return Submitted(forecast, starts=False, sentence=words.admitted_in_vain(too_large.sentence))
        if admits(record):
            return Submitted(forecast, starts=True, sentence=None)
        changes = yield from change_parts(engine, workload, now_s, self._forecaster.ends_at(engine, now_s))
        said = sentence(record) if record is not None else None
        return Submitted(forecast, starts=False, sentence=said, changes=tuple(changes))

    async def _changes_of(self, key: WorkloadKey, workload: Workload) -> tuple[Change, ...]:
        known = self._changes.get(key)
        if known is not None and self._clock.monotonic() - known[0] < EVERY_S:
            return known[1]
        engine, now_s = self._engine, self._clock.wall()
        ends_at = self._forecaster.ends_at(engine, now_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S), self._one:
                changes = tuple(await self._worked(change_parts(engine, workload, now_s, ends_at)))
            self._changes.pop(key, None)
            if len(self._changes) >= _KEPT:
                del self._changes[next(iter(self._changes))]
            self._changes[key] = (self._clock.monotonic(), changes)
            return changes
        return ()

    def _fresh(self) -> bool:
        return self._clock.monotonic() - self._made_s < STALE_S

    async def _next(self) -> None:
        """Waits for the next renewal, for at most ``FIRST_S``."""
        self._asked.set()
        await self._clock.wait(self._made, FIRST_S)

    async def _worked(self, parts: Parts[T]) -> T:
        return await worked(parts)


async def worked(parts: Parts[T]) -> T:
    """The result of the work. It works for some milliseconds and then pauses as long."""
    while True:
        begun_s = time.perf_counter()
        try:
            while time.perf_counter() - begun_s < _SLICE_S:
                next(parts)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(time.perf_counter() - begun_s)
