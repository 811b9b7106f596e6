"""Jobs whose pods are real objects, from created to running and to their end: the load of ``volcano-jobs``.

The generator creates them, and once all run it tells their pods to succeed. What makes the pods, binds them, plays them
and counts them are the controllers under test, the scheduler and kwok.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from controller.cluster.watching.kinds import JOBS, PODS
from controller.foreign.jobs.reconcile_shell import JOBS as VOLCANO_JOBS
from hack.bench.throughput.drainload import AGENT, Tally
from hack.bench.throughput.drainshape import API
from hack.bench.throughput.jobshape import QUEUE, Json
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from kube.client import Client, Selection
from kube.clock import Backoff, SystemClock
from kube.reading.reflector import Added, Change, Changed, Reflector, Undecodable
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Verb, Write

TEAM: Final = "team"
PODS_OF_A_JOB: Final = 4
PARALLEL: Final = 32
"""Writes of the generator that are under way at once."""


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Phase(Struct, frozen=True):
    phase: str = ""


class Status(Struct, frozen=True):
    """Of a batch Job ``ready`` and ``conditions``, of a Volcano Job ``running`` and ``state``."""

    ready: int = 0
    running: int = 0
    state: _Phase = _Phase()
    conditions: list[_Condition] = []


class _Job(Struct, frozen=True):
    status: Status = Status()


class _Named(Struct, frozen=True):
    name: str


class _Pod(Struct, frozen=True):
    metadata: _Named
    status: _Phase = _Phase()


class _Nothing(Struct, frozen=True):
    """All that is wanted of an answer."""


class Lived(NamedTuple):
    """A kind of job: what a user writes, and how its status says that all pods run, and that it has ended well."""

    resource: Resource
    spec: Json
    runs: Callable[[Status], bool]
    ended: Callable[[Status], bool]

    def body(self, name: str) -> Json:
        metadata = {"name": name, "namespace": TEAM, "labels": {QUEUE: TEAM}}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            "spec": self.spec,
        }


def _template() -> Json:
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"requests": {"cpu": "1"}},
    }
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


BATCH: Final = Lived(
    JOBS,
    {"suspend": True, "parallelism": PODS_OF_A_JOB, "completions": PODS_OF_A_JOB, "template": _template()},
    lambda status: status.ready == PODS_OF_A_JOB,
    lambda status: any((each.type, each.status) == ("Complete", "True") for each in status.conditions),
)
VOLCANO: Final = Lived(
    VOLCANO_JOBS,
    {
        "minAvailable": PODS_OF_A_JOB,
        "queue": "default",
        "maxRetry": 3,
        "tasks": [{"name": "main", "replicas": PODS_OF_A_JOB, "template": _template()}],
    },
    lambda status: status.state.phase == "Running" and status.running == PODS_OF_A_JOB,
    lambda status: status.state.phase == "Completed",
)
LIVED: Final = {"batch": BATCH, "volcano": VOLCANO}


def setting(jobs: int) -> Iterable[Json]:
    """One queue with room for all of them."""
    yield {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    quota = {"name": "cpu", "nominalQuota": str(jobs * PODS_OF_A_JOB)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": TEAM}, "spec": spec}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    meta = {"name": TEAM, "namespace": TEAM}
    yield {"apiVersion": API, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": TEAM}}


class Result(NamedTuple):
    """``running_s``: from the first creation until all run; ``ending_s``: from then until all have ended.

    ``writes`` and ``cpu_s`` are the generator's.
    """

    running_s: float
    ending_s: float
    writes: int
    cpu_s: float


class PodJobs:
    """One run of jobs of a kind. ``run`` returns when all have been seen to have ended; names begin with ``prefix``.

    ``_left`` has those of which ``_awaited`` was never true; ``_all`` is set while it is empty.
    """

    def __init__(self, client: Client, kind: Lived, jobs: int, prefix: str = "train") -> None:
        self._client = client
        self._kind = kind
        self._names = tuple(f"{prefix}-{number}" for number in range(jobs))
        self._known: dict[str, Status] = {}
        self._left: set[str] = set()
        self._awaited = kind.runs
        self._all = asyncio.Event()
        self.tally = Tally(self._all)

    async def run(self, limit_s: float) -> Result:
        clock = SystemClock()
        decode, backoff = msgspec.json.Decoder(_Job).decode, Backoff(random=random.random)
        jobs = Reflector(self._client, self._kind.resource, decode, self._hear, clock=clock, backoff=backoff)
        tuning = Tuning(parallel=PARALLEL, field_owner=AGENT)
        writer = Writer(self._client, clock=clock, random=random.random, tuning=tuning, observer=self.tally)
        following = asyncio.create_task(jobs.run())
        try:
            async with asyncio.timeout(limit_s), writer:
                await jobs.wait_synced()
                cpu_s, start_s = time.process_time(), clock.monotonic()
                for name in self._names:
                    _write(writer, Verb.CREATE, self._kind.resource, name, self._kind.body(name))
                await self._until(self._kind.runs)
                running_s = clock.monotonic() - start_s
                for name in await self._running_pods():
                    _write(writer, Verb.MERGE_PATCH, PODS, name, {"metadata": {"annotations": {COMPLETE_AFTER: "0s"}}})
                await self._until(self._kind.ended)
                ending_s = clock.monotonic() - start_s - running_s
                await writer.drain()
        finally:
            following.cancel()
        return Result(running_s, ending_s, self.tally.writes, time.process_time() - cpu_s)

    async def _until(self, holds: Callable[[Status], bool]) -> None:
        """Return when that has been true of each job at some moment. RuntimeError where a write was refused."""
        self._awaited, self._left = holds, set(self._names)
        self._all.clear()
        for name in self._names:
            self._look(name)
        await self._all.wait()
        if self.tally.refusals:
            raise RuntimeError(f"{len(self.tally.refusals)} writes were refused, e.g. {self.tally.refusals[0]}")

    def _hear(self, change: Change[_Job]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                self._known[key.name] = new.object.status
                self._look(key.name)
            case Undecodable():
                self.tally.refuse(str(change))

    def _look(self, name: str) -> None:
        known = self._known.get(name)
        if known is not None and self._awaited(known):
            self._left.discard(name)
            if not self._left:
                self._all.set()

    async def _running_pods(self) -> list[str]:
        found = (await self._client.list_all(PODS, _Pod, Selection(namespace=TEAM))).items
        return [pod.metadata.name for pod in found if pod.status.phase == "Running"]


def _write(writer: Writer, verb: Verb, resource: Resource, name: str, body: Json) -> None:
    writer.put(Write(verb=verb, resource=resource, namespace=TEAM, name=name, body=body, kind=_Nothing))
