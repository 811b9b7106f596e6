"""So many objects a second change, by the hands of those who change them in a fleet: kubelets, agents, jobs, users.

Of twenty writes nine are a node's heartbeat, six an agent's news of its GPUs, three the end of a workload of two pods,
and two are new workloads.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from controller.cluster.watching.kinds import GPU_NODES, NODES, PODS, WORKLOADS
from hack.bench.fleet import objects
from hack.bench.fleet.shape import PENDING, Fleet, Running, Waiting
from kube.client import Client
from kube.errors import UnavailableError

AGENT: Final = "bench-fleet"
CONNECTIONS: Final = 32
_WHAT: Final = {"n": "node", "g": "gpus", "w": "new", "e": "end"}
TURN: Final = tuple(_WHAT[letter] for letter in "ngngnwngnengngnwng")
"""An end is three writes."""
END_WRITES: Final = 3


class _Nothing(Struct):
    """All that is wanted of an answer."""


@dataclass(frozen=True)
class Done:
    """``writes`` of that time, and by how much the last was late."""

    writes: int
    seconds: float
    late_s: float


class Changes:
    """``run`` as often as you like: each goes on where the last has stopped."""

    def __init__(self, client: Client, fleet: Fleet) -> None:
        self._client = client
        self._turns = itertools.cycle(TURN)
        self._fleet = fleet
        self._numbers = itertools.count()
        self._ends = _of_two_pods(fleet)
        self._new = itertools.count(fleet.pending)

    async def run(self, rate: float, stop: Callable[[], bool]) -> Done:
        """Until ``stop`` says so. Raises KubeError for a write that is refused; one that had no answer is let go."""
        begun_s, writes, late_s = time.monotonic(), 0, 0.0
        room = asyncio.Semaphore(CONNECTIONS)
        async with asyncio.TaskGroup() as tasks:
            while not stop():
                early_s = begun_s + writes / rate - time.monotonic()
                if early_s > 0:
                    await asyncio.sleep(early_s)
                late_s = max(0.0, -early_s)
                await room.acquire()
                count, work = self._next()
                tasks.create_task(_answered_or_not(work)).add_done_callback(lambda _: room.release())
                writes += count
        return Done(writes, time.monotonic() - begun_s, late_s)

    def _next(self) -> tuple[int, Coroutine[Any, Any, None]]:
        what, number = next(self._turns), next(self._numbers)
        at = number * 7 % self._fleet.nodes
        if what == "end" and (ending := next(self._ends, None)) is not None:
            return END_WRITES, self._end(ending)
        if what == "new":
            return 1, self._arrive(next(self._new))
        return 1, (self._tell_gpus(at, number) if what == "gpus" else self._beat(at))

    async def _beat(self, number: int) -> None:
        conditions = objects.node(number)["status"]["conditions"]
        beaten = [{**condition, "lastHeartbeatTime": now()} for condition in conditions]
        await self._patch(NODES, objects.node_name(number), None, {"conditions": beaten})

    async def _tell_gpus(self, number: int, turn: int) -> None:
        name = objects.node_name(number)
        holder = {"device": f"{name}-0", "namespace": "team-0000", "pod": f"pod-{turn}", "container": "main"}
        await self._patch(GPU_NODES, name, None, {"holders": [holder]})

    async def _end(self, ending: Running) -> None:
        """The pods, then the workload, as the job's controller would have it."""
        namespace = objects.team(ending.queue)
        for pod in objects.pods(ending):
            await self._patch(PODS, pod["metadata"]["name"], namespace, {"phase": "Succeeded"})
        workload = objects.running(ending)
        finished = {**objects.condition("Finished", "done", now()), "reason": "Succeeded"}
        conditions = [*workload["status"]["conditions"], finished]
        await self._patch(WORKLOADS, workload["metadata"]["name"], namespace, {"conditions": conditions})

    async def _arrive(self, number: int) -> None:
        queue = number % self._fleet.queues
        body = objects.pending(Waiting(number, queue, PENDING[0]))
        body["metadata"] = {key: body["metadata"][key] for key in ("name", "labels", "finalizers", "ownerReferences")}
        await self._client.create(WORKLOADS, body, _Nothing, namespace=objects.team(queue))

    async def _patch(self, resource: Any, name: str, namespace: str | None, status: objects.Json) -> None:
        part = None if resource is GPU_NODES else "status"
        await self._client.merge_patch(
            resource, name, {"status": status}, _Nothing, namespace=namespace, subresource=part
        )


async def _answered_or_not(work: Coroutine[Any, Any, None]) -> None:
    with suppress(UnavailableError):
        await work


def _of_two_pods(fleet: Fleet) -> Iterator[Running]:
    """Those that end: the last of each pair."""
    return (run for run in fleet.runs() if run.number % 4 == 3)  # noqa: PLR2004 - see ``shape``


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
