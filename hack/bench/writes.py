"""What a write costs, and how many a second go through: ``python -m hack.bench writes``.

Against a server that answers at once (what our side costs), then against a real API server, where the client shares the
machine with it: small objects by each verb, and the status of Workloads, which is what the controller writes.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web
from msgspec import Struct

from hack.bench.drain import CRDS, prepare
from hack.bench.drainload import WORKLOADS
from hack.bench.drainshape import API, Arrival, shape, workload
from hack.bench.table import Row, show
from kube.client import Client
from kube.clock import SystemClock
from kube.config import ClusterConfig, from_kubeconfig
from kube.resources import Resource
from kube.writer import Tuning, Writer
from kube.writes import Verb, Write, Written

COUNT = 2000
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
NAMESPACE = "default"


class _Nothing(Struct):
    pass


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.bench writes", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--crds", type=Path, default=CRDS, help="folder of the kueue.x-k8s.io CRDs (default: the chart's)"
    )
    options = parser.parse_args(words)
    rows = asyncio.run(_echo())
    show("Writes against a server that answers at once", rows)
    show("Writes against a real API server on the same machine", _real(options.crds))


async def _echo() -> list[Row]:
    words = (sys.executable, "-c", "from hack.bench.writes import serve_echo; serve_echo()")
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
        servers = [psutil.Process(cluster.state.processes[one].pid) for one in ("apiserver", "etcd")]
        config = from_kubeconfig(cluster.kubeconfig)

        async def measure() -> list[Row]:
            rows = [
                await _measured(f"ConfigMap, {verb.value}", config, servers, _config_maps(verb))
                for verb in (Verb.CREATE, Verb.MERGE_PATCH, Verb.JSON_PATCH, Verb.APPLY)
            ]
            await _measured("", config, None, [_create(number) for number in range(COUNT)])
            rows += [
                await _measured(f"Workload status, {verb.value}", config, servers, _statuses(verb, turn))
                for turn, verb in enumerate((Verb.APPLY, Verb.MERGE_PATCH, Verb.JSON_PATCH, Verb.APPLY))
            ]
            return rows

        return asyncio.run(measure())


async def _measured(
    what: str, config: ClusterConfig, servers: Sequence[psutil.Process] | None, writes: Sequence[Write[_Nothing]]
) -> Row:
    async with (
        Client(config, timeout_s=30.0, user_agent="bench-writes") as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(limit=64)) as writer,
    ):
        start_s, cpu_s, server_s = time.monotonic(), time.process_time(), _cpu_s(servers or ())
        futures = [await writer.submit(write) for write in writes]
        await writer.drain()
        took_s, cpu_s, server_s = (
            time.monotonic() - start_s,
            time.process_time() - cpu_s,
            _cpu_s(servers or ()) - server_s,
        )
    bad = [outcome for future in futures if not isinstance(outcome := future.result(), Written)]
    if bad:
        raise RuntimeError(f"{what}: {len(bad)} writes failed, e.g. {bad[0]}")
    measured = f"{len(writes) / took_s:.0f} a second, {cpu_s / len(writes) * 1000:.2f} ms CPU each"
    if servers:
        measured += f", the server's {server_s / len(writes) * 1000:.1f} ms"
    return Row(what, measured, "")


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


def _create(number: int) -> Write[_Nothing]:
    arrival = Arrival(0, NAMESPACE, f"one-{number}", shape(1).classes[0])
    return Write(
        verb=Verb.CREATE,
        resource=WORKLOADS,
        namespace=NAMESPACE,
        name=arrival.name,
        body=workload(arrival),
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
