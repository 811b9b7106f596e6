"""One term of leadership: changes from the watches into the engine, its decisions to the API server.

    watches -> Inbox -> Core.run -> Engine.put, Engine.cycle -> DecisionWriter, PendingConditions -> Writer
                                    LifecycleController, QueueStatuses, Finalizers, WorkloadRetention -> Writer

A term begins with an empty engine and takes everything from the objects. It may begin before its replica leads: the
engine follows, nothing is decided or written, listeners hear nothing, and they hear of all objects once the replica
leads. The term runs in one task and never blocks for long: after a slice of work it pauses, so that answers, renewals
of the lease and probes get their turn.
"""

import asyncio
import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.inbox import Inbox, ObjectChange
from controller.cluster.watching.kinds import CLUSTER_QUEUES, COHORTS, DECIDING, FOREIGN_QUEUES, LOCAL_QUEUES, WORKLOADS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.decisionwriter import DecisionWriter
from controller.cluster.writing.finalizers import KINDS as FINALIZED
from controller.cluster.writing.finalizers import Finalizers
from controller.cluster.writing.holdtimes import HoldTimes
from controller.cluster.writing.pace import Pace
from controller.cluster.writing.priorities import Priorities
from controller.cluster.writing.queuestatus import QueueStatuses
from controller.cluster.writing.retention import WorkloadRetention
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.messages import statuses
from controller.objects.meta import KubernetesObject
from controller.objects.queues import (
    WorkloadPriorityClass,
)
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.affected import affected_by, asks
from controller.reconcile.lifecycle.lateadmissions import LateAdmissions
from controller.reconcile.lifecycle.lifecycle import Step
from controller.reconcile.lifecycle.lifecycle_shell import LifecycleController
from controller.reconcile.lifecycle.pendingcause import gates_of, is_uncounted
from controller.reconcile.lifecycle.pendingconditions_shell import PendingConditions
from controller.scheduler.decisions.decisions import Decision, Decisions, Event, Pending
from controller.scheduler.decisions.reasons import EventType
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.resources import LocalQueueKey, WorkloadKey
from controller.scheduler.state.intake import WorkloadPhase, standing
from kube.client import Client
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writer import Writer

log = logging.getLogger(__name__)

_SLICE: Final = 64
"""Changes that are taken in without a pause."""
_SLICE_S: Final = 0.02
"""The time for which cycles go on without a pause."""
_AHEAD: Final = 16
"""The number of writes that may wait while more is decided: a decision that is made later knows of workloads that came
meanwhile."""
_STEP_S: Final = 30.0
"""The step against the monotonic clock from which the wall clock counts as set: both drift apart by far less in a
term."""
_CHECK_S: Final = 300.0
"""Seconds between two checks of the engine's sums."""
_PAUSE_S: Final = 0.001
"""A pause long enough for the event loop to poll its sockets: a pause of zero would only let other callbacks run."""
_LONGEST_S: Final = 30.0
_QUEUE_KINDS: Final = (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, *FOREIGN_QUEUES)


class CoreObserver(Protocol):
    """Counts what happens and publishes Events. Must not block or raise."""

    def cycled(self, decisions: Decisions, seconds: float) -> None: ...
    def carried_out(self, decision: Decision, after: Workload) -> None: ...
    def stepped(self, step: Step) -> None: ...
    def changed(self, before: Workload | None, after: Workload) -> None: ...
    def events(self, events: tuple[Event, ...]) -> None: ...
    def drifted(self, why: str, *, sound: bool) -> None:
        """Notes that sums differed from their parts and were computed anew. ``sound``: they agree now."""


class ChangeListener(Protocol):
    """Hears of changes after the engine has taken them in. Must not block or raise."""

    def on_workload(self, workload: Workload, gone: bool) -> None:
        """A Workload was created or changed, by the watch or by a write of this controller; or it is ``gone``."""

    def on_object(self, observed: ObjectChange) -> None:
        """An object of another kind was created, changed or deleted."""


class Core:
    """The core of a term. ``ledger`` is empty. ``known``: all objects that the watches show now, those first that
    others need.

    ``engine`` and ``ledger`` are for reading. The core alone puts objects into the engine and runs its cycles; it and
    its WorkloadWrites alone write the ledger. The two agree: each new state in the ledger is put into the engine in the
    same call (``_changed``, ``_gone``). ``loaded`` is set once everything that existed at the start has been taken in.
    """

    def __init__(
        self,
        config: ControllerConfig,
        client: Client,
        writer: Writer,
        *,
        clock: Clock,
        observer: CoreObserver,
        pace: Pace,
        ledger: Ledger,
        known: Callable[[], Iterable[ObjectChange]],
    ) -> None:
        self._switch = config.switch
        self.engine = Engine(config.engine)
        self.ledger = ledger
        self.inbox = Inbox(clock, batch_s=lambda: pace.batch_s(config.batch_events_s, clock.wall()))
        self.writes = WorkloadWrites(
            client, writer, self.ledger, changed=self._changed, gone=self._gone, freed=self._freed
        )
        self._clock = clock
        self._writer = writer
        self._observer = observer
        self._known = known
        self._listeners: list[ChangeListener] = []
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of callbacks: the time by the monotonic clock, a number that breaks ties, and the callback."""
        self._call_number = 0
        self.hold_times = HoldTimes(config.hold_evictions_s, config.hold_evictions_at_most_s, pace)
        self.decisions = DecisionWriter(
            self.engine,
            self.ledger,
            self.writes,
            observer,
            now=clock.wall,
            monotonic=clock.monotonic,
            later=self._later,
            hold_s=lambda eviction, waited_s: self.hold_times.hold_s(
                eviction, waited_s, clock.wall(), clock.monotonic()
            ),
        )
        self.lifecycle = LifecycleController(config, self.engine, self.ledger, self.writes, stepped=observer.stepped)
        self.pending_conditions = PendingConditions(
            self.engine,
            self.ledger,
            self.writes,
            config.pending_reports,
            pace=pace,
            backlog=self._backlog,
            publish=observer.events,
        )
        self.statuses = QueueStatuses(self.engine, writer.put, pace=pace, backlog=self._backlog)
        self.finalizers = Finalizers(self.engine, writer.put)
        self.retention = WorkloadRetention(config.retention, self.ledger, writer.put)
        self.priorities = Priorities(self.ledger, self.writes, backlog=self._backlog)
        self._sampling_s = (
            config.engine.admission_fair_sharing.sampling_interval_s if config.engine.admission_fair_sharing else None
        )
        self._sample_s = 0.0
        self._use_sampling_s = config.engine.queue_usage.interval_s if config.engine.queue_usage else None
        self._use_sample_s = 0.0
        self._ahead_s = clock.wall() - clock.monotonic()
        """The difference between the clock and the monotonic one; ``_look_at_clock`` alone writes it."""
        self._check_s = math.inf
        """The time of the next check of all of the engine's sums: after a change that may have been taken in by
        half."""
        self._part_s = clock.wall() + _CHECK_S
        """The time of the next check of one part of the sums; ``_parts`` has the parts that are left."""
        self._parts = 0
        self.loaded = asyncio.Event()
        self._may_lead = False
        self._leads = False
        """Whether the core decides; ``_follow`` alone sets it, once."""
        self._untold: deque[ObjectChange] = deque()
        """Objects that existed when this replica began to lead, and that listeners have not heard of yet."""
        self._to_reconcile: dict[WorkloadKey, None] = {}
        """Workloads that may have a next step, in order: the same changes lead to the same writes."""
        self._late = LateAdmissions(self.engine)
        self._uncounted: set[WorkloadKey] = set()
        """Workloads that are held back because their claims of devices cannot be counted; ``_changed`` and ``_gone``
        write it."""

    def subscribe(self, listener: ChangeListener) -> None:
        """Adds a listener, before ``lead``: it hears of all objects that exist then, and of all changes after."""
        self._listeners.append(listener)

    def decide_for(self, systems: Collection[System]) -> None:
        """Mirrors the Queues of these systems, and those that each system has without an object. To be called before
        ``run``.
        """
        for system in sorted(systems):
            self.engine.imply(system, self._clock.wall(), self._switch(system).adoption)

    # -- the task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            while True:
                if self.step():
                    await asyncio.sleep(_PAUSE_S)
                else:
                    await self.inbox.gather(self._idle_s() if self._leads else _LONGEST_S)
        finally:
            self.writes.close()

    def lead(self) -> None:
        """Decides and writes from now on, and tells listeners. To be called once, when all of the first lists are in
        the inbox.
        """
        self._may_lead = True
        self.inbox.wake()

    def count(self, units: Mapping[LocalQueueKey, str]) -> None:
        """Take the sentences on units for the statuses of LocalQueues."""
        self.statuses.counted(units)
        self.inbox.wake()

    def step(self) -> bool:
        """Does one round without waiting. Returns whether there is more to do at once."""
        if not self._leads:
            return self._follow()
        worked = self._take_in() | self._decide()
        self._do_what_is_due()
        return worked

    def _follow(self) -> bool:
        """Takes in changes, for the engine alone. Once this replica leads and all has been heard, all objects are told
        to listeners.
        """
        now_s = self._clock.wall()
        self._hear_some(now_s)
        if len(self.inbox) > 0:
            return True
        self.engine.follow(now_s)
        if not self._may_lead:
            return False
        self._leads = True
        self._untold = deque(self._known())
        self.lifecycle.begin(now_s)
        return True

    def _take_in(self) -> bool:
        """Takes in changes, then the steps of their workloads. Returns whether more has come meanwhile.

        Changes wait until listeners have heard of all objects that existed before them.
        """
        now_s = self._clock.wall()
        if self._untold:
            self._introduce(now_s)
        else:
            self._hear_some(now_s)
        keys, self._to_reconcile = self._to_reconcile, {}
        for key in keys:
            if not self.decisions.resume(key):
                self.lifecycle.reconcile(key, now_s)
        return len(self.inbox) > 0 or len(self._untold) > 0

    def _hear_some(self, now_s: float) -> None:
        for observed in self.inbox.take(_SLICE):
            try:
                self._hear(observed, now_s)
            except Exception:
                # An object that the engine fails on must not end the term for all others. It may have been taken in by
                # half: the sums are checked before anything more is decided.
                log.exception("%s %s could not be taken in", observed.resource.kind, observed.change)
                self._check_s = now_s

    def _introduce(self, now_s: float) -> None:
        """Tells listeners of some of the objects that existed when this replica began to lead: the engine has them."""
        for _ in range(min(_SLICE, len(self._untold))):
            observed = self._untold.popleft()
            try:
                self._tell_of(observed, now_s, all_anew=True)
            except Exception:
                log.exception("%s %s could not be told", observed.resource.kind, observed.change)

    def _decide(self) -> bool:
        """Runs cycles for one slice. Returns whether there is more to decide now."""
        if self._untold:
            # Decisions need the engine alone. Changes that wait count as changes that a watch has not brought yet.
            if self._check_s < math.inf:
                return False
        elif len(self.inbox) > 0:
            return False  # everything that is known goes in first, so that fewer decisions are taken back
        else:
            self._check(self._clock.wall())
            self.loaded.set()
        engine, started_s = self.engine, self._clock.monotonic()
        while self._writer.pending < _AHEAD:
            now_s = self._clock.wall()
            if engine.settled(now_s):
                return False
            begun_s = self._clock.monotonic()
            decisions = engine.cycle(now_s)
            ended_s = self._clock.monotonic()
            self._observer.cycled(decisions, ended_s - begun_s)
            for decision in decisions.made:
                if isinstance(decision, Pending):
                    self.pending_conditions.decided(decision, now_s)
                else:
                    self.decisions.submit(decision)
            for key in self._late.standing():
                if (entry := self.ledger.get(key)) is not None:
                    self._tell_listeners(entry.workload, gone=False)
            if ended_s - started_s > _SLICE_S:
                return True
        return False

    def _look_at_clock(self, now_s: float) -> None:
        """Enqueues all workloads after the machine's clock was set: if it was put back, steps that were due soon would
        otherwise be due in hours.
        """
        ahead_s = now_s - self._clock.monotonic()
        if abs(ahead_s - self._ahead_s) > _STEP_S:
            log.warning("the clock was put %+.0f s: all workloads are looked at anew", ahead_s - self._ahead_s)
            self._to_reconcile |= dict.fromkeys(self.ledger)
            self._ahead_s = ahead_s
            self.inbox.wake()

    def _do_what_is_due(self) -> None:
        now_s = self._clock.wall()
        self._look_at_clock(now_s)
        while self._calls and self._calls[0][0] <= self._clock.monotonic():
            heapq.heappop(self._calls)[2]()
            self.inbox.wake()  # it may have changed what there is to decide
        self.lifecycle.reconcile_due(now_s)
        self._sample(now_s)
        self.pending_conditions.write(now_s)
        self.statuses.write(now_s)
        self.retention.delete(now_s)
        self.priorities.write(now_s)
        if self.finalizers.waiting:
            self.finalizers.release()

    def _sample(self, now_s: float) -> None:
        if self._sampling_s is not None and now_s >= self._sample_s:
            self._sample_s = now_s + min(self._sampling_s, _LONGEST_S)
            self.statuses.sampled(self.engine.sample_usage(now_s))
        if self._use_sampling_s is not None and now_s >= self._use_sample_s:
            self._use_sample_s = now_s + min(self._use_sampling_s, _LONGEST_S)
            self.statuses.recorded(self.engine.sample_queues(now_s), now_s)

    def _check(self, now_s: float) -> None:
        """Checks the engine's sums. A sum that has drifted is a bug, and nothing more is decided by it: all sums are
        computed anew.

        The inbox is empty: everything that the watches show has been taken in, and no older state of it is to come. All
        parts at once take seconds if a hundred thousand workloads wait, and nothing is decided meanwhile: so each has
        its turn every ``_CHECK_S``.
        """
        if now_s < min(self._check_s, self._part_s):
            return
        audits = self.engine.audits()
        if now_s >= self._check_s:
            self._check_s = math.inf
        else:
            self._part_s = now_s + _CHECK_S / len(audits)
            audits = (audits[self._parts % len(audits)],)
            self._parts += 1
        try:
            for audit in audits:
                audit()
        except Exception as error:
            log.exception("the engine's sums have drifted: all are made anew from the objects")
            self._rebuild(now_s, str(error))

    def _rebuild(self, now_s: float, why: str) -> None:
        for given, error in self.engine.rebuild(self._objects(), now_s):
            log.error("%s %s could not be taken in: %s", type(given).__name__, given.key.lstrip("/"), error)
        sound = True
        try:
            self.engine.validate()
        except Exception:
            sound = False
            log.exception("the engine's sums differ from their parts still")
        self._to_reconcile |= dict.fromkeys(self.ledger)
        self._observer.drifted(why, sound=sound)

    def _objects(self) -> Iterator[KubernetesObject]:
        """All objects that the engine decides by; the newest state of Workloads, because this controller's writes may
        be ahead of the watch.
        """
        for observed in self._known():
            known = observed.resource in DECIDING and observed.resource is not WORKLOADS
            if known and isinstance(observed.change, Added):
                yield observed.change.new.object
        for entry in self.ledger.values():
            yield entry.workload

    def _idle_s(self) -> float:
        """Seconds until the next due time."""
        now_s = self._clock.wall()
        times = [
            self.engine.next_wakeup_s(),
            self.lifecycle.next_due_s(),
            self.pending_conditions.next_due_s(now_s),
            self.statuses.next_due_s(now_s),
            self.retention.next_due_s(),
            self.priorities.next_due_s(now_s),
            now_s + self._calls[0][0] - self._clock.monotonic() if self._calls else None,
            self._sample_s if self._sampling_s is not None else None,
            self._use_sample_s if self._use_sampling_s is not None else None,
        ]
        soonest_s = min((time for time in times if time is not None), default=now_s + _LONGEST_S)
        return min(max(soonest_s - now_s, 2 * _PAUSE_S), _LONGEST_S)

    # -- changes -------------------------------------------------------------------------------------------------------

    def _hear(self, observed: ObjectChange, now_s: float) -> None:
        """Takes in a change: the engine hears of it first, then all others."""
        resource, change = observed.resource, observed.change
        if resource is WORKLOADS:
            if isinstance(change, Removed):
                self._gone(WorkloadKey(change.old.object.key), change.old.uid)
            elif isinstance(change, Added | Changed):
                self._see(change.new.object)
            return
        if resource in DECIDING:
            match change:
                case Added(new=entry) | Changed(new=entry):
                    self.engine.put(entry.object, now_s)
                case Removed(key=key):
                    self.engine.drop(DECIDING[resource], key.namespace, key.name, now_s)
        if self._leads:
            self._tell_of(observed, now_s)

    def _tell_of(self, observed: ObjectChange, now_s: float, *, all_anew: bool = False) -> None:
        """Tells listeners of an object of any kind, which the engine has. ``all_anew``: every workload is told as well,
        so that the affected ones need not be searched.
        """
        resource, change = observed.resource, observed.change
        if resource is WORKLOADS:
            if isinstance(change, Added) and (kept := self.ledger.get(WorkloadKey(change.new.object.key))) is not None:
                self._tell_of_workload(None, kept.workload, now_s)
            return
        if resource in DECIDING:
            match change:
                case Added(new=entry) | Changed(new=entry):
                    old = change.old.object if isinstance(change, Changed) else None
                    self._told(resource, entry.object, old)
                    if not all_anew and (old is None or asks(old) != asks(entry.object)):
                        self._to_reconcile |= dict.fromkeys(affected_by(entry.object, self.ledger, self._uncounted))
                case Removed(key=key, old=entry):
                    self._told_gone(resource, key, entry.object)
            self.decisions.held.queues_changed()
        for listener in self._listeners:
            listener.on_object(observed)

    def _told_gone(self, resource: Resource, key: ObjectKey, last: KubernetesObject) -> None:
        self._to_reconcile |= dict.fromkeys(affected_by(last, self.ledger, self._uncounted))
        if resource in _QUEUE_KINDS:
            self.statuses.gone(resource, key.namespace, key.name)
        if resource in FINALIZED:
            self.finalizers.gone(resource, key.name)

    def _told(self, resource: Resource, given: KubernetesObject, old: KubernetesObject | None) -> None:
        if resource in _QUEUE_KINDS:
            self.statuses.observed(resource, given)
        if resource in FINALIZED:
            self.finalizers.observed(resource, given)
        if isinstance(given, WorkloadPriorityClass) and isinstance(old, WorkloadPriorityClass | None):
            self.priorities.changed(old, given)

    def _see(self, workload: Workload) -> None:
        known = self.ledger.get(WorkloadKey(workload.key))
        if known is not None and known.uid != workload.metadata.uid:
            self._gone(WorkloadKey(workload.key), known.uid)
            known = None
        before = known.workload if known is not None else None
        if self.ledger.observe(workload) is not None:
            self._changed(before, workload)

    def _changed(self, before: Workload | None, workload: Workload) -> None:
        """Handles a new state of the workload in the ledger, by the watch or by a write of this controller; the engine
        gets it here.
        """
        key, now_s = WorkloadKey(workload.key), self._clock.wall()
        if self._leads:
            self._observer.changed(before, workload)
            self.hold_times.endings.observed(before, workload, self._clock.monotonic())
        try:
            self.engine.put(workload, now_s)
        except Exception:
            log.exception("workload %s could not be taken in", key)
            self._check_s = now_s
        if self._leads:
            self._tell_of_workload(before, workload, now_s)

    def _tell_of_workload(self, before: Workload | None, workload: Workload, now_s: float) -> None:
        key = WorkloadKey(workload.key)
        self.retention.observed(workload)
        (self._uncounted.add if is_uncounted(workload) else self._uncounted.discard)(key)
        if not self._late.holds_back(key):
            self._tell_listeners(workload, gone=False)
        gates = self.engine.state.config.gates
        if before is not None and gates_of(before, gates) and not gates_of(workload, gates):
            self._observer.events((Event(key, EventType.NORMAL, "AdmissionGateCleared", statuses.gate_cleared()),))
        where = standing(workload, self.engine.state.config)
        if where in (WorkloadPhase.PENDING, WorkloadPhase.HELD_BACK):
            self.pending_conditions.arrived(workload, now_s)
        else:
            self.pending_conditions.forget(key)
        if where in (WorkloadPhase.FINISHED, WorkloadPhase.HELD_BACK):
            self.decisions.held.settled(key)
        if where is WorkloadPhase.FINISHED:
            self.lifecycle.forget(key)
        else:
            self._to_reconcile[key] = None
        self.inbox.wake()

    def _gone(self, key: WorkloadKey, uid: str) -> None:
        entry = self.ledger.forget(key, uid)
        if entry is None:
            return
        namespace, _, name = key.partition("/")
        self.engine.drop(Workload, namespace, name, self._clock.wall())
        if not self._leads:
            return
        self._uncounted.discard(key)
        self.hold_times.endings.ended(key, self._clock.monotonic())
        self.decisions.held.settled(key)
        self.pending_conditions.forget(key)
        self.lifecycle.forget(key)
        self._late.forget(key)
        self._tell_listeners(entry.workload, gone=True)
        self.inbox.wake()

    def _freed(self, key: WorkloadKey, result: Result) -> None:
        """Handles the end of a write of the workload. A step that was refused is not taken again at once."""
        if result is Result.REFUSED:
            self.decisions.resume(key)
        else:
            self._to_reconcile[key] = None
        self.inbox.wake()

    def _tell_listeners(self, workload: Workload, *, gone: bool) -> None:
        for listener in self._listeners:
            listener.on_workload(workload, gone)

    # -- what the parts share ----------------------------------------------------------------------------------------

    def _backlog(self) -> int:
        return self._writer.pending

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._call_number += 1
        heapq.heappush(self._calls, (self._clock.monotonic() + seconds, self._call_number, call))
        self.inbox.wake()
