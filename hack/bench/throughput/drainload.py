"""Drives the drain benchmark: creates workloads, finishes those that were admitted long enough, requeues evicted ones.

It stands in for the users and for the jobs, on the machine that also runs the API server and the controller under test,
so it is frugal: one watch, decoded no further than the conditions, and few connections that are always busy.

A run is over when the last end has been seen by the watch, as the published one is when the queues show no reservation:
the API server's delay in its watches belongs to the drain.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hack.bench.throughput.drainshape import API, COHORTS, PUBLISHED, QUEUES, Arrival, Class, Shape, workload
from kube.client import Client, Decode
from kube.clock import Backoff, Clock, SystemClock
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Undecodable
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Conflicted, Outcome, Verb, Write, Written

T = TypeVar("T")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", namespaced=True)
AGENT = "drain-generator"
ARRIVALS = COHORTS * QUEUES * len(PUBLISHED)
"""Creations under way at once: the published generator has one sequence for each class in each queue."""
ENDS = 32
"""Ends written at once: with 8 they waited for a connection, for 4 s at the end of a drain, and held their quota."""
CONNECTIONS = ARRIVALS + ENDS


class Condition(Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Admission(Struct, frozen=True):
    """That it is there is all that counts."""


class Status(Struct, frozen=True):
    conditions: list[Condition] = []
    admission: Admission | None = None

    def holds(self, kind: str) -> bool:
        return any(condition.type == kind and condition.status == "True" for condition in self.conditions)


class _Workload(Struct, frozen=True):
    status: Status = Status()


class _Nothing(Struct, frozen=True):
    """All that is wanted of an answer."""


@dataclass
class Story:
    """One workload on its way. Times are seconds of the clock."""

    kind: Class
    created_s: float
    admitted_s: float | None = None
    started_s: float = 0.0
    """When it was admitted last."""
    evictions: int = 0
    lost_s: float = 0.0
    """How long it ran before it was evicted, all times together."""
    ending: asyncio.TimerHandle | None = None
    ended: bool = False
    """Its end has been put; ``gone``: and seen."""
    gone: bool = False


@dataclass
class Result:
    wall_s: float
    waits_s: dict[str, float]
    """Average from created to first admitted, by class."""
    evictions: int
    lost_s: float
    """Run time that evicted workloads had behind them; ``lost_cpu_s``: times the cpus that they had."""
    lost_cpu_s: float
    late_s: float
    """How far the last creation was behind its time: the server was busy."""
    writes: int
    """Requests that the generator made."""
    cpu_s: float


@dataclass
class Tally:
    over: asyncio.Event
    writes: int = 0
    refusals: list[str] = field(default_factory=list)

    def attempted(self, _write: Write[Any], _latency_s: float, _status: int | None) -> None:
        self.writes += 1

    def finished(self, write: Write[Any], outcome: Outcome[Any], _waited_s: float) -> None:
        # A conflict in freeing an evicted workload comes again with the workload's next state.
        if not isinstance(outcome, Written) and not (isinstance(outcome, Conflicted) and write.slot == "free"):
            self.refuse(f"{write.verb.value} {write.name}: {outcome}")

    def refuse(self, why: str) -> None:
        """What should never happen has: the run is over."""
        self.refusals.append(why)
        self.over.set()


class Load:
    """One run of a shape. ``run`` returns when every workload has been seen to have ended."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._clock = clock = clock or SystemClock()
        self._over = asyncio.Event()
        self.tally = Tally(self._over)
        # Two writers: arrivals that queue up must not keep the ends of jobs waiting.
        tuning = Tuning(parallel=ARRIVALS, limit=ARRIVALS, field_owner=AGENT)
        self._creates = Writer(client, clock=clock, random=random.random, tuning=tuning, observer=self.tally)
        tuning = Tuning(parallel=ENDS, field_owner=AGENT)
        self._ends = Writer(client, clock=clock, random=random.random, tuning=tuning, observer=self.tally)
        self._stories: dict[ObjectKey, Story] = {}
        self._left = 0
        self._mirrors = self._watched(client)

    def _watched(self, client: Client) -> tuple[Reflector[Any], ...]:
        """What tells of starts and ends."""
        decode = msgspec.json.Decoder(_Workload).decode
        return (self._mirror(client, WORKLOADS, lambda raw: decode(raw).status, self._hear),)

    def _mirror(
        self, client: Client, resource: Resource, decode: Decode[T], hear: Callable[[Change[T]], None]
    ) -> Reflector[T]:
        backoff = Backoff(random=random.random)
        return Reflector(client, resource, decode, hear, clock=self._clock, backoff=backoff)

    async def run(self, shape: Shape, limit_s: float) -> Result:
        async with self._creates, self._ends:
            following = [asyncio.create_task(mirror.run()) for mirror in self._mirrors]
            for mirror in self._mirrors:
                await mirror.wait_synced()
            self._left = shape.workloads
            cpu_s, start_s = time.process_time(), self._clock.monotonic()
            try:
                async with asyncio.timeout(limit_s):
                    late_s = await self._arrive_all(shape, start_s)
                    await self._over.wait()
                    await self._ends.drain()
            except TimeoutError:
                raise TimeoutError(
                    f"{self._left} of {shape.workloads} workloads not ended in {limit_s:.0f} s"
                ) from None
            wall_s, cpu_s = self._clock.monotonic() - start_s, time.process_time() - cpu_s
            for task in following:
                task.cancel()
        if self.tally.refusals:
            raise RuntimeError(f"{len(self.tally.refusals)} writes were refused, e.g. {self.tally.refusals[0]}")
        stories = self._stories.values()
        return Result(
            wall_s=wall_s,
            waits_s=self._waits(),
            evictions=sum(story.evictions for story in stories),
            lost_s=sum(story.lost_s for story in stories),
            lost_cpu_s=sum(story.lost_s * story.kind.cpus for story in stories),
            late_s=max(0.0, late_s),
            writes=self.tally.writes,
            cpu_s=cpu_s,
        )

    def _waits(self) -> dict[str, float]:
        waits: dict[str, list[float]] = defaultdict(list)
        for story in self._stories.values():
            assert story.admitted_s is not None, "ended, so it was admitted"
            waits[story.kind.name].append(max(0.0, story.admitted_s - story.created_s))
        return {name: sum(waits_s) / len(waits_s) for name, waits_s in waits.items()}

    async def _arrive_all(self, shape: Shape, start_s: float) -> float:
        """Each at its time, however long others take. How far the last one is behind."""
        late_s = 0.0
        for arrival in shape.arrivals():
            if self._over.is_set():
                break
            due_s = start_s + arrival.at_s
            if (early_s := due_s - self._clock.monotonic()) > 0:
                await asyncio.sleep(early_s)
            await self._arrive(arrival)
            late_s = self._clock.monotonic() - due_s
        return late_s

    async def _arrive(self, arrival: Arrival) -> asyncio.Future[Outcome[_Nothing]]:
        """Once there is room for the request; what is returned is its outcome."""
        story = Story(arrival.kind, self._clock.monotonic())
        self._stories[ObjectKey(arrival.queue, arrival.name)] = story
        resource, body = self._born(arrival)
        write = Write(
            verb=Verb.CREATE,
            resource=resource,
            namespace=arrival.queue,
            name=arrival.name,
            body=body,
            kind=_Nothing,
        )
        outcome = await self._creates.submit(write)
        outcome.add_done_callback(lambda _: self._created(story))
        return outcome

    def _born(self, arrival: Arrival) -> tuple[Resource, dict[str, Any]]:
        """What a user creates."""
        return WORKLOADS, workload(arrival)

    def _created(self, story: Story) -> None:
        story.created_s = self._clock.monotonic()

    def _hear(self, change: Change[Status]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                if key in self._stories:
                    self._follow(key, self._stories[key], new)
            case Undecodable():
                self.tally.refuse(str(change))

    def _follow(self, key: ObjectKey, story: Story, new: CachedObject[Status]) -> None:
        status = new.object
        if status.holds("Finished"):
            self._see_off(story)
            return
        if story.ended:
            return
        if status.holds("Evicted") and status.admission is not None:
            if story.ending is not None:
                self._stopped(story)
            self._free(key, new)
        elif status.holds("Admitted") and story.ending is None:
            self._started(story, lambda: self._end(key))

    def _started(self, story: Story, end: Callable[[], object]) -> None:
        def over() -> None:
            story.ended = True
            end()

        self._run(story, over)

    def _run(self, story: Story, over: Callable[[], None]) -> None:
        """From now on it runs; ``over`` is called when its time is over, unless it is stopped before."""
        now_s = self._clock.monotonic()
        story.admitted_s = now_s if story.admitted_s is None else story.admitted_s
        story.started_s = now_s
        story.ending = asyncio.get_running_loop().call_later(story.kind.runtime_s, over)

    def _stopped(self, story: Story) -> None:
        assert story.ending is not None, "it ran"
        story.ending.cancel()
        story.ending = None
        story.evictions += 1
        story.lost_s += self._clock.monotonic() - story.started_s

    def _end(self, key: ObjectKey) -> "asyncio.Future[Outcome[_Nothing]]":
        """The job is done: what a job controller would say of it, in a field owner's name of its own."""
        now = _now()
        done = Condition("Finished", "True", "Succeeded", "Job finished successfully", now)
        body = {
            "apiVersion": API,
            "kind": "Workload",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": {"conditions": [done]},
        }
        return self._put(Verb.APPLY, WORKLOADS, key, body)

    def _free(self, key: ObjectKey, entry: CachedObject[Status]) -> "asyncio.Future[Outcome[_Nothing]]":
        """The job has stopped: its reservation goes. On condition that nothing has changed meanwhile."""
        now = _now()
        lost = {
            "QuotaReserved": Condition("QuotaReserved", "False", "Pending", "The workload was evicted", now),
            "Admitted": Condition("Admitted", "False", "NoReservation", "The workload has no reservation", now),
        }
        conditions = [lost.get(condition.type, condition) for condition in entry.object.conditions]
        body = {
            "metadata": {"resourceVersion": entry.resource_version},
            "status": {"admission": None, "conditions": conditions},
        }
        return self._put(Verb.MERGE_PATCH, WORKLOADS, key, body, slot="free")

    def _put(
        self, verb: Verb, resource: Resource, key: ObjectKey, body: Any, slot: str | None = None
    ) -> "asyncio.Future[Outcome[_Nothing]]":
        write = Write(
            verb=verb,
            resource=resource,
            namespace=key.namespace,
            name=key.name,
            subresource="status",
            body=body,
            kind=_Nothing,
            slot=slot,
        )
        return self._ends.put(write)

    def _see_off(self, story: Story) -> None:
        if not story.gone:
            story.gone = True
            self._left -= 1
            if self._left == 0:
                self._over.set()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
