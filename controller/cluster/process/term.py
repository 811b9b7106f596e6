"""One term of leadership, from the first event to the last write. A term follows before it leads: see ``Term.run``."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.metrics.observing import Counting
from controller.cluster.process.controllers import NamedTask, ProcessContext, TermControllers, own_lease
from controller.cluster.process.unitcounts_shell import count_units
from controller.cluster.watching.catchup import catch_up
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import WORKLOADS, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.events import EventPublisher
from controller.cluster.writing.pace import Pace
from controller.core import Core
from controller.insight.forecast.service_shell import ForecastService
from controller.jobs.framework.settings import DevicePlan
from controller.objects.workload import Workload
from controller.reconcile.jobshell.clusterobjects import default_priority
from controller.reconcile.jobshell.watched import JobKinds
from controller.reconcile.lifecycle.lifecycle import Step
from controller.scheduler.decisions.decisions import Decision, Decisions, Event
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import System
from inventory.api.names import CONTROLLER
from kube.client import Client
from kube.clock import Backoff, Clock, RateLimit
from kube.resources import Resource
from kube.writing.events import EventRecorder
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Outcome, Write

log = logging.getLogger(__name__)

WRITES_AT_ONCE: Final = 16
"""Writes under way, and so decisions ahead of what is written: if the API server takes a second for each, eight at a
time would be eight admissions a second."""
DRAIN_S = 0.5


class _Observer:
    """Counts what the core does and publishes its Events. Events about the controller itself regard its Lease."""

    def __init__(
        self, counting: Counting, events: EventPublisher, pace: Pace, ledger: Ledger, clock: Clock, own_namespace: str
    ) -> None:
        self._counting = counting
        self._events = events
        self._about = own_lease(own_namespace)
        self._pace = pace
        self._ledger = ledger
        self._clock = clock

    def cycled(self, decisions: Decisions, seconds: float) -> None:
        self._counting.cycled(decisions, seconds)

    def carried_out(self, decision: Decision, after: Workload) -> None:
        self._counting.carried_out(decision, after)
        self._pace.carried_out(self._clock.wall())
        self.events(decision.events())

    def stepped(self, step: Step) -> None:
        self.events(step.events)

    def changed(self, before: Workload | None, after: Workload) -> None:
        self._counting.changed(before, after)

    def drifted(self, why: str, *, sound: bool) -> None:
        self._counting.drifted(sound=sound)
        after = "they agree again" if sound else "they still differ; please report this"
        note = f"The engine's sums had drifted and were rebuilt from the objects: {after}: {why}"
        self._events.publish(self._about, "Warning", "EngineRebuilt", note)

    def events(self, events: tuple[Event, ...]) -> None:
        self._events.publish_all(events, self._ledger)


class _WriteObserver:
    """Counts writes; their latency goes to the pace."""

    def __init__(self, counting: Counting, pace: Pace, clock: Clock) -> None:
        self._counting = counting
        self._pace = pace
        self._clock = clock

    def attempted(self, write: Write[Any], latency_s: float, status: int | None) -> None:
        self._pace.answered(latency_s, self._clock.wall())
        self._counting.attempted(write, latency_s, status)

    def finished(self, write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:
        self._counting.finished(write, outcome, waited_s)


@dataclass(frozen=True)
class Replica:
    """The replica of a term. ``me`` holds the leases, ``namespace`` is the controller's own. ``raws``: Workloads' JSON,
    for the controllers of jobs and pods; None runs the core alone. ``kinds``: queued kinds of jobs, ``owned``: kinds
    that they make between themselves and pods. ``systems``: the systems whose Queues are mirrored.
    """

    me: str
    namespace: str
    raws: RawWorkloads | None
    kinds: JobKinds = field(default_factory=dict)
    owned: tuple[Resource, ...] = ()
    systems: frozenset[System] = frozenset()


@dataclass(frozen=True)
class Running:
    """The parts of a term that decides, for metrics and explanations."""

    core: Core
    writer: Writer
    events: EventPublisher
    forecasts: ForecastService


class Term:
    """One term. ``run`` until cancelled. ``running`` is None before the term decides and after it; ``may_write`` tells
    whether this replica still leads. ``device_plan``: the GPUs meant for each pod; the engine's by default.
    """

    def __init__(
        self,
        config: ControllerConfig,
        client: Client,
        feeds: Feeds,
        counting: Counting,
        *,
        clock: Clock,
        replica: Replica,
        may_write: Callable[[], bool],
        device_plan: DevicePlan | None = None,
    ) -> None:
        self._config = config
        self._client = client
        self._feeds = feeds
        self._counting = counting
        self._clock = clock
        self._replica = replica
        self._may_write = may_write
        self._device_plan = device_plan
        self.running: Running | None = None
        self._core: Core | None = None
        self._introduced = False

    async def run(self, leads: asyncio.Event | None = None) -> None:
        """Runs the term. The engine takes in all that the watches show from the first list on; once ``leads`` is set,
        and all that a former leader may have written is known, it decides. Without ``leads`` it decides as soon as all
        is known.
        """
        limits = self._config.client
        rate = RateLimit(qps=limits.qps, burst=limits.burst, clock=self._clock) if limits.qps is not None else None
        pace = Pace()
        writer = Writer(
            self._client,
            clock=self._clock,
            random=random.random,
            tuning=Tuning(parallel=WRITES_AT_ONCE),
            rate=rate,
            may_write=self._may_write,
            observer=_WriteObserver(self._counting, pace, self._clock),
        )
        backoff = Backoff(random=random.random)
        recorder = EventRecorder(
            self._client, controller=CONTROLLER, instance=self._replica.me, clock=self._clock, backoff=backoff
        )
        events = EventPublisher(recorder, self._clock, pace)
        ledger = Ledger()
        observer = _Observer(self._counting, events, pace, ledger, self._clock, self._replica.namespace)
        async with writer:
            core = Core(
                self._config,
                self._client,
                writer,
                clock=self._clock,
                observer=observer,
                pace=pace,
                ledger=ledger,
                known=self._feeds.known,
            )
            core.decide_for(self._replica.systems)
            self._core = core
            tasks = [asyncio.create_task(core.run(), name="core"), asyncio.create_task(recorder.run(), name="events")]
            known = asyncio.create_task(self._until_all_is_known(core, leads), name="follow")
            try:
                await asyncio.wait([*tasks, known], return_when=asyncio.FIRST_COMPLETED)
                if not any(task.done() for task in tasks):
                    known.result()
                    tasks += self._decide(core, writer, events)
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._feeds.silence()
                self.running = self._core = None
                await _end([*tasks, known])
            for task in tasks:
                if not task.cancelled():
                    task.result()

    @property
    def engine(self) -> Engine | None:
        """The engine while the term runs, whether it decides or follows; None while it has not taken in all that is
        known.
        """
        core = self._core
        return core.engine if core is not None and self._introduced and len(core.inbox) == 0 else None

    async def _until_all_is_known(self, core: Core, leads: asyncio.Event | None) -> None:
        """Waits until this replica leads, and the core has been given at least what existed when it began to."""
        await self._feeds.introduce(core.inbox.put)
        self._introduced = True
        if leads is not None:
            await leads.wait()
        await catch_up(self._client, self._feeds[WORKLOADS], self._clock)

    def _decide(self, core: Core, writer: Writer, events: EventPublisher) -> list[asyncio.Task[None]]:
        """The tasks beside the core once this replica leads. All of them hear of changes before the core decides."""
        forecasts = ForecastService(core.engine, self._clock)
        core.subscribe(forecasts)
        self.running = Running(core, writer, events, forecasts)
        tasks = [asyncio.create_task(forecasts.run(), name="forecasts")]
        priority = partial(default_priority, self._feeds)
        tasks.append(asyncio.create_task(count_units(core, forecasts, priority, self._clock), name="units"))
        tasks += [asyncio.create_task(work, name=name) for name, work in self._controllers(self.running)]
        core.lead()
        log.info("deciding: %d workloads", len(self._feeds[WORKLOADS]))
        return tasks

    def _controllers(self, running: Running) -> Iterator[NamedTask]:
        replica, core = self._replica, running.core
        if replica.raws is None:
            return iter(())
        context = ProcessContext(
            self._config,
            self._client,
            self._feeds,
            replica.raws,
            self._clock,
            own_namespace=replica.namespace,
            kinds=replica.kinds,
            owned=replica.owned,
            systems=replica.systems,
        )
        controllers = TermControllers(
            context,
            core,
            running.writer,
            running.events,
            running.forecasts,
            counting=self._counting,
            device_plan=self._device_plan or core.engine.device_plan,
        )
        return controllers.start()


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
