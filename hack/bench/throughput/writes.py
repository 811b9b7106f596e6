"""What a write costs, and how many a second go through: ``python -m hack.bench writes``.

Against a server that answers at once (what our side costs), then against a real API server, where the client shares the
machine with it: small objects by each verb, and the status of Workloads, which is what the controller writes, the first
one of each by both verbs that it uses.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from aiohttp import web
from msgspec import Raw, Struct, structs

from controller.cluster.watching.kinds import reader
from controller.cluster.writing.mergepatch import status_body, status_patch
from controller.objects.meta import Condition
from controller.objects.quantity import parse_quantity
from controller.objects.workload import NO_STATUS, Admission, PodSetAssignment, Workload, WorkloadStatus
from hack.bench.table import Row, show
from hack.bench.throughput.drain import CRDS, prepare
from hack.bench.throughput.drainload import WORKLOADS
from hack.bench.throughput.drainshape import API, Arrival, shape, workload
from kube.client import Client, Selection
from kube.clock import SystemClock
from kube.config import ClusterConfig
from kube.kubeconfig import from_kubeconfig
from kube.objects import Metadata
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Verb, Write, Written

COUNT = 2000
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
NAMESPACE = "default"
_PART = 100


class _Nothing(Struct):
    pass


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench writes", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--crds", type=Path, default=CRDS, help="folder of the kueue.x-k8s.io CRDs (default: the chart's)"
    )
    options = parser.parse_args(words)
    rows = asyncio.run(_echo())
    show("Writes against a server that answers at once", rows)
    show("Writes against a real API server on the same machine", _real(options.crds))


async def _echo() -> list[Row]:
    words = (sys.executable, "-c", "from hack.bench.throughput.writes import serve_echo; serve_echo()")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        config = ClusterConfig(server=f"http://127.0.0.1:{port}")
        return [await _measured("apply", config, None, _config_maps(Verb.APPLY))]
    finally:
        process.terminate()
        await process.wait()


def serve_echo() -> None:
    """A server that answers every request with an empty object, and prints its port."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"{}", content_type="application/json")

    async def serve() -> None:
        runner = web.AppRunner(_app(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


def _app(answer: Callable[[web.Request], Awaitable[web.Response]]) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def _real(crds: Path) -> list[Row]:
    from hack.cluster import Cluster, Spec

    with Cluster.up("bench-writes", Spec(nodes=())) as cluster:
        prepare(cluster, shape(0.01), crds)
        servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
        config = from_kubeconfig(cluster.kubeconfig)

        async def measure() -> list[Row]:
            rows = [
                await _measured(f"ConfigMap, {verb.value}", config, servers, _config_maps(verb))
                for verb in (Verb.CREATE, Verb.MERGE_PATCH, Verb.JSON_PATCH, Verb.APPLY)
            ]
            await _spent(config, None, [_create(f"one-{number}") for number in range(COUNT)])
            rows += [
                await _measured(f"Workload status, {verb.value}", config, servers, _statuses(verb, turn))
                for turn, verb in enumerate((Verb.APPLY, Verb.MERGE_PATCH, Verb.JSON_PATCH, Verb.APPLY))
            ]
            return rows + await _first_statuses(config, servers)

        return asyncio.run(measure())


class _Spent(NamedTuple):
    """``wall_s`` and processor time: ours, and the server's where it was watched."""

    writes: int
    wall_s: float
    own_s: float
    server_s: float


async def _measured(
    what: str, config: ClusterConfig, servers: Sequence[psutil.Process] | None, writes: Sequence[Write[_Nothing]]
) -> Row:
    return _row(what, [await _spent(config, servers, writes)])


def _row(what: str, parts: Sequence[_Spent]) -> Row:
    count, wall_s, own_s, server_s = (sum(column) for column in zip(*parts, strict=True))
    measured = f"{count / wall_s:.0f} a second, {own_s / count * 1000:.2f} ms CPU each"
    if server_s:
        measured += f", the server's {server_s / count * 1000:.1f} ms"
    return Row(what, measured, "")


async def _spent(
    config: ClusterConfig, servers: Sequence[psutil.Process] | None, writes: Sequence[Write[_Nothing]]
) -> _Spent:
    async with (
        Client(config, timeout_s=30.0, user_agent="bench-writes") as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(limit=64)) as writer,
    ):
        start_s, own_s, server_s = time.monotonic(), time.process_time(), _cpu_s(servers or ())
        futures = [await writer.submit(write) for write in writes]
        await writer.drain()
        spent = _Spent(
            len(writes),
            time.monotonic() - start_s,
            time.process_time() - own_s,
            _cpu_s(servers or ()) - server_s,
        )
    bad = [outcome for future in futures if not isinstance(outcome := future.result(), Written)]
    if bad:
        raise RuntimeError(f"{len(bad)} writes failed, e.g. {bad[0]}")
    return spent


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def _config_maps(verb: Verb) -> list[Write[_Nothing]]:
    def body(number: int) -> Any:
        value = f"{verb.value}-{number}"
        if verb is Verb.JSON_PATCH:
            return [{"op": "replace", "path": "/data/value", "value": value}]
        head = {} if verb is Verb.MERGE_PATCH else {"apiVersion": "v1", "kind": "ConfigMap"}
        return {**head, "metadata": {"name": f"one-{number}", "namespace": NAMESPACE}, "data": {"value": value}}

    return [
        Write(
            verb=verb, resource=CONFIG_MAPS, namespace=NAMESPACE, name=f"one-{number}", body=body(number), kind=_Nothing
        )
        for number in range(COUNT)
    ]


def _create(name: str, **metadata: Any) -> Write[_Nothing]:
    body = workload(Arrival(0, NAMESPACE, name, shape(1).classes[0]))
    body["metadata"] |= metadata
    return Write(verb=Verb.CREATE, resource=WORKLOADS, namespace=NAMESPACE, name=name, body=body, kind=_Nothing)


async def _first_statuses(config: ClusterConfig, servers: Sequence[psutil.Process]) -> list[Row]:
    """Admissions of workloads that are made for it, with the metadata of a job's, as the controller writes them.

    By turns in small parts, so that whatever else the machine does is the same for both verbs.
    """
    async with Client(config) as client:
        owner = await client.get(CONFIG_MAPS, "one-0", Metadata, namespace=NAMESPACE)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one-0", "uid": owner.metadata.uid}
        metadata = {
            "labels": {"kueue.x-k8s.io/job-uid": owner.metadata.uid},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        }
        await _spent(config, None, [_create(f"first-{number}", **metadata) for number in range(2 * COUNT)])
        found = await client.list_all(WORKLOADS, Raw, Selection(namespace=NAMESPACE))
    read = reader(Workload)
    made = [each for each in (read(bytes(raw)) for raw in found.items) if each.metadata.name.startswith("first-")]
    parts: dict[Verb, list[_Spent]] = {Verb.UPDATE: [], Verb.MERGE_PATCH: []}
    for at in range(0, len(made), _PART):
        verb = Verb.MERGE_PATCH if at // _PART % 2 else Verb.UPDATE
        writes = [_first_status(verb, each) for each in made[at : at + _PART]]
        parts[verb].append(await _spent(config, servers, writes))
    return [_row(f"Workload status, {verb.value}, first", spent) for verb, spent in parts.items()]


def _first_status(verb: Verb, before: Workload) -> Write[_Nothing]:
    if before.status is not NO_STATUS:
        raise RuntimeError(f"{before.key} has a status already")
    cpu = {"cpu": parse_quantity("1")}
    assigned = PodSetAssignment(name="main", flavors={"cpu": "default"}, resource_usage=cpu, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assigned,))
    now = datetime.now(UTC)
    conditions = tuple(
        Condition(type=type_, status="True", reason=type_, message="It fits", last_transition_time=now)
        for type_ in ("QuotaReserved", "Admitted")
    )
    after = structs.replace(before, status=WorkloadStatus(admission=admission, conditions=conditions))
    return Write(
        verb=verb,
        resource=WORKLOADS,
        namespace=NAMESPACE,
        name=before.metadata.name,
        subresource="status",
        body=status_body(before, after) if verb is Verb.UPDATE else status_patch(before, after),
        kind=_Nothing,
    )


def _statuses(verb: Verb, turn: int) -> list[Write[_Nothing]]:
    """A condition that all say anew; the first apply makes it."""
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": f"turn {turn}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    head: dict[str, Any] = {} if verb is Verb.MERGE_PATCH else {"apiVersion": API, "kind": "Workload"}
    body: Any = {**head, "status": {"conditions": [condition]}}
    if verb is Verb.JSON_PATCH:
        body = [{"op": "replace", "path": "/status/conditions/0", "value": condition}]
    return [
        Write(
            verb=verb,
            resource=WORKLOADS,
            namespace=NAMESPACE,
            name=f"one-{number}",
            subresource="status",
            body=body,
            kind=_Nothing,
        )
        for number in range(COUNT)
    ]
