"""A model of an API server that is at its limit, in this process and on virtual time.

All requests under way share its cores: with ``k`` of them on ``n`` cores each goes on at ``min(1, n / k)`` of the speed
that it has alone. A watch gets each write with a delay, a longer one while the server is busy, and always in order.
Costs are spread by random numbers that are handed in, so that runs differ as they do on a real machine.
"""

import asyncio
import heapq
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from hack.bench.throughput.virtual import LoopClock, stamp
from kube.client import EVERYTHING, Client, Decode, Selection, WatchEvent
from kube.config import ClusterConfig
from kube.errors import ConflictError, KubeError, NotFoundError
from kube.resources import Resource
from kube.testing.server import parse_path

T = TypeVar("T")
Object = dict[str, Any]


class Costs(NamedTuple):
    """``write_s``: CPU of one write, watches included, as measured on two cores (see docs/benchmarks.md); ``away_s``:
    what a request takes beside CPU. ``lag``: of a write's time the part that its watches take once more.
    """

    write_s: float = 0.008
    read_s: float = 0.001
    away_s: float = 0.003
    cores: float = 2.0
    lag: float = 0.25
    spread: float = 0.5
    """Costs differ by so much of themselves to either side."""


class Cores:
    """Processor sharing: ``work`` returns once so many seconds of CPU have been given to it."""

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._given_s = 0.0
        """CPU that each who was there from the start has got."""
        self._at_s = 0.0
        self._ends: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ids = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self.busy_s = 0.0

    async def work(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._go_on()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._ends, (self._given_s + seconds, next(self._ids), future))
        self._wait()
        await future

    def _go_on(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._ends:
            used_s = (now_s - self._at_s) * min(self._cores, len(self._ends))
            self.busy_s += used_s
            self._given_s += used_s / len(self._ends)
        self._at_s = now_s

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._ends:
            left_s = max(0.0, self._ends[0][0] - self._given_s) * max(1.0, len(self._ends) / self._cores)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._done)

    def _done(self) -> None:
        self._go_on()
        while self._ends and self._ends[0][0] <= self._given_s + 1e-9:
            future = heapq.heappop(self._ends)[2]
            if not future.done():
                future.set_result(None)
        self._wait()


class BusyServer:
    """Objects by path. ``writes`` counts requests that change something, by who makes them; ``random``: 0 to 1."""

    def __init__(self, costs: Costs, random: Callable[[], float]) -> None:
        self.cores = Cores(costs.cores)
        self.writes: Counter[str] = Counter()
        self._costs = costs
        self._random = random
        self._clock = LoopClock()
        self._objects: dict[str, dict[str, Object]] = {}
        self._watches: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._told_s = 0.0
        self._version = 100

    def put(self, resource: Resource, given: Object) -> None:
        """Be there from the start."""
        meta = given["metadata"]
        self._store("ADDED", resource.path(), self._born(given), f"{meta.get('namespace', '')}/{meta['name']}", 0.0)

    def watch(self, collection: str) -> asyncio.Queue[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches.setdefault(collection, []).append(queue)
        return queue

    async def call(self, who: str, method: str, path: str, body: Any, content_type: str) -> bytes:
        begun_s = self._clock.monotonic()
        cost_s = self._costs.read_s if method == "GET" else self._costs.write_s
        await asyncio.sleep(self._costs.away_s / 2)
        await self.cores.work(cost_s * (1 + self._costs.spread * (2 * self._random() - 1)))
        if method != "GET":
            self.writes[who] += 1
        answer = self._serve(method, path, body, content_type, begun_s)
        await asyncio.sleep(self._costs.away_s / 2)
        return answer

    # -- what is there -----------------------------------------------------------------------------------------------

    def _serve(self, method: str, path: str, body: Any, content_type: str, begun_s: float) -> bytes:
        if path == "/apis":
            return b'{"groups": []}'
        collection, namespace, name = parse_path(path)
        objects = self._objects.setdefault(collection, {})
        if method == "GET" and name is None:
            return json.dumps(
                {"metadata": {"resourceVersion": str(self._version)}, "items": [*objects.values()]}
            ).encode()
        name = name or body["metadata"]["name"]
        key = f"{namespace}/{name}"
        if method == "POST":
            body["metadata"]["namespace"] = namespace
            return self._store("ADDED", collection, self._born(body), key, begun_s)
        if key not in objects:
            raise NotFoundError(f"{path} not found", status=404, reason="NotFound")
        before = objects[key]
        if method == "GET":
            return json.dumps(before).encode()
        _check(before, body.get("metadata", {}))
        if method == "PUT":
            after = before | {"status": body["status"]}
        elif "apply" in content_type:
            after = before | {"status": _applied(before.get("status", {}), body["status"])}
        else:
            after = _merged(before, body)
        return self._store("MODIFIED", collection, after, key, begun_s)

    def _born(self, given: Object) -> Object:
        born = {"uid": f"uid-{self._version}", "creationTimestamp": stamp(self._clock.wall()), "generation": 1}
        return given | {"metadata": given["metadata"] | born}

    def _store(self, type_: str, collection: str, given: Object, key: str, begun_s: float) -> bytes:
        self._version += 1
        given = given | {"metadata": given["metadata"] | {"resourceVersion": str(self._version)}}
        self._objects.setdefault(collection, {})[key] = given
        raw = json.dumps(given).encode()
        if watches := self._watches.get(collection):
            now_s = self._clock.monotonic()
            self._told_s = max(self._told_s, now_s + self._costs.lag * (now_s - begun_s))
            line = b'{"type":"%s","object":%s}' % (type_.encode(), raw)
            loop = asyncio.get_running_loop()
            for queue in watches:
                loop.call_at(self._told_s, queue.put_nowait, line)
        return raw


class BusyClient(Client):
    """A ``Client`` of that server: what makes requests of calls is the real one's."""

    def __init__(self, server: BusyServer, who: str, connections: int) -> None:
        super().__init__(ClusterConfig(server="http://busy"), clock=LoopClock(), connections=connections)
        self._server = server
        self._who = who
        self._free = asyncio.Semaphore(connections)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,  # noqa: ARG002 - the real one's
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",  # noqa: ARG002 - the answer is JSON
        within: Any = None,  # noqa: ARG002 - the real one's
    ) -> bytes:
        given = json.loads(msgspec.json.encode(body)) if body is not None else {}
        async with self._free:
            return await self._server.call(self._who, method, path, given, content_type)

    async def watch_decoded(
        self,
        resource: Resource,
        decode: Decode[T],
        *,
        resource_version: str,  # noqa: ARG002 - nothing happens between a list and its watch here
        selection: Selection = EVERYTHING,  # noqa: ARG002 - no caller selects here
        timeout_s: int = 300,  # noqa: ARG002 - watches do not end
    ) -> AsyncGenerator[WatchEvent[T]]:
        queue = self._server.watch(resource.path())
        while True:
            found = json.loads(line := await queue.get())
            version = found["object"]["metadata"]["resourceVersion"]
            raw = line[line.index(b'"object":') + 9 : -1]
            yield WatchEvent(type=found["type"], resource_version=version, object=decode(raw))


def _check(before: Object, meta: Object) -> None:
    version = meta.get("resourceVersion")
    if version is not None and version != before["metadata"]["resourceVersion"]:
        raise ConflictError("the object has been modified", status=409, reason="Conflict")


def _applied(before: Object, wanted: Object) -> Object:
    """Apply a body of conditions alone, which are a map by type."""
    if wanted.keys() != {"conditions"}:
        raise KubeError("this server applies conditions only", status=415)
    conditions = {condition["type"]: condition for condition in (*before.get("conditions", ()), *wanted["conditions"])}
    return before | {"conditions": list(conditions.values())}


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
