"""What the agent costs and how fast it answers, from outside, under the kubelet stand-in: on simulated GPUs,
and its start and idling on a C library too (``library``).

Where the same run has something to compare with there is a ratio: Allocate against a gRPC handler that does nothing.
Bytecode is compiled before, and is the image's: see ``hack/image/leanbytecode.py``.
"""

import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self

import grpc
import grpc.aio

from deviceplugin.testing import HANG_S, StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from hack.bench.compiled import as_in_the_image
from hack.bench.node import library
from hack.bench.table import Row, show
from kube.resources import NODES
from kube.testing.server import FakeApiServer
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc

GPU = "nvidia.com/gpu"
CALLS = 2000
BUSY = 4
STARTS = 5
FAULTS = 20
IDLE_S = 20.0
FLEET = "nodes: [{{name: node-1, gpus: {gpus}, product: {product}, nvlink: {nvlink}{more}}}]\n"
A100 = "NVIDIA A100-SXM4-80GB"
REPLICAS = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n"
MIXED = "version: v1\nflags: {migStrategy: mixed}\n"
SLICES = ", ".join(f"{gpu}: [{', '.join(['1g.10gb'] * 7)}]" for gpu in range(8))
MIG = f", migEnabled: [0, 1, 2, 3, 4, 5, 6, 7], mig: {{{SLICES}}}"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        folder = Path(name)
        rows = [await _starts(folder / "start")]
        rows += await library.rows(folder / "library")
        rows += await _calls(folder / "calls")
        rows += await _searching(folder / "search")
        for title, more, config in (
            ("8 GPUs", "", None),
            ("8 GPUs x 10 replicas", "", REPLICAS),
            ("56 MIG instances", MIG, MIXED),
        ):
            rows += await _footprint(folder / title.replace(" ", "-"), title, more, config)
    show("The agent", rows)


class Bench:
    """An agent under a stand-in kubelet, until the block ends."""

    def __init__(
        self,
        folder: Path,
        *,
        gpus: int = 8,
        product: str = A100,
        nvlink: str | list[list[int]] = "full",
        more: str = "",
        config: str | None = None,
        kubeconfig: str = "none",
    ) -> None:
        folder.mkdir(parents=True)
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET.format(gpus=gpus, product=product, nvlink=nvlink, more=more))
        self.kubelet = StandInKubelet(folder / "k")
        self.agent = AgentProcess(
            folder / "a",
            fleet,
            folder / "k",
            config=config,
            kubeconfig=kubeconfig,
            flags=("--log-level", "warning"),
            environment=as_in_the_image(),
        )

    async def __aenter__(self) -> Self:
        await self.kubelet.start()
        self.agent.start()
        await self.kubelet.wait_for(self._listed, HANG_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.agent.stop()
        await self.kubelet.stop()

    def _listed(self) -> bool:
        return any(endpoint.healthy for endpoint in self.kubelet.endpoints.values())


async def _starts(folder: Path) -> Row:
    async with Bench(folder / "compiles"):
        pass
    times, cpu_s = [], []
    for number in range(STARTS):
        start = time.monotonic()
        async with Bench(folder / str(number)) as bench:
            times.append(time.monotonic() - start)
            cpu_s.append(bench.agent.cpu_s())
    found = f"{statistics.median(times):.2f} s, of CPU {statistics.median(cpu_s):.2f} s"
    return Row("start of the process to registered and listed", found, "0.4 s")


async def _calls(folder: Path) -> list[Row]:
    async with Bench(folder) as bench:
        endpoint = bench.kubelet.endpoints[GPU]
        devices = sorted(endpoint.devices)
        allocate = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices[:1])])
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=devices, allocation_size=4)
        prefer = pb.PreferredAllocationRequest(container_requests=[asked])
        async with _empty(folder / "empty.sock") as empty:
            calls = (lambda: endpoint.stub.Allocate(allocate), lambda: empty.Allocate(allocate))
            idle = await _in_turn(*calls)
            async with _busy(BUSY):
                busy = await _in_turn(*calls)
        preferred = await _timed(lambda: endpoint.stub.GetPreferredAllocation(prefer))
        faults = await _faults(bench)
    return [
        latency("Allocate", idle[0], "p99 3 ms"),
        _ratio("Allocate against an empty gRPC handler, in turn", idle, ""),
        _ratio(f"  the same beside {BUSY} busy processes", busy, "p99 2 x"),
        latency("GetPreferredAllocation, 4 of 8", preferred, "p50 5 ms"),
        latency("XID to ListAndWatch update (order to the simulator included)", faults, "p50 50 ms"),
    ]


async def _searching(folder: Path) -> list[Row]:
    """The worst case: 16 GPUs with links of no order, right after the start, while preferred sets are worked out."""
    draw = random.Random(16)
    matrix = [[0] * 16 for _ in range(16)]
    for i in range(16):
        for j in range(i):
            matrix[i][j] = matrix[j][i] = draw.choice((0, 0, 1, 2))
    async with Bench(folder, gpus=16, nvlink=matrix, product="Tesla V100-SXM3-32GB") as bench:
        endpoint = bench.kubelet.endpoints[GPU]
        devices = sorted(endpoint.devices)
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=devices, allocation_size=5)
        search = endpoint.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]))
        allocate = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices[:1])])
        start = time.perf_counter()
        await search
        first = time.perf_counter() - start
        meanwhile = await _timed(lambda: endpoint.stub.Allocate(allocate), CALLS // 4)
    return [
        Row(
            "GetPreferredAllocation, 5 of 16, arbitrary links, right after the start",
            f"{first * 1000:.0f} ms",
            "400 ms",
        ),
        latency("Allocate while the tables of such a node fill", meanwhile, ""),
    ]


async def _timed(call: Callable[[], Awaitable[object]], count: int = CALLS) -> list[float]:
    for _ in range(count // 10):
        await call()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    return times


async def _serve_empty(path: str) -> None:
    async def nothing(_request: object, _context: object) -> pb.AllocateResponse:
        return pb.AllocateResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        nothing,
        request_deserializer=pb.AllocateRequest.FromString,
        response_serializer=pb.AllocateResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {"Allocate": handler}),)
    )
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await server.wait_for_termination()


async def _in_turn(
    one: Callable[[], Awaitable[object]], other: Callable[[], Awaitable[object]]
) -> tuple[list[float], list[float]]:
    """Both in turn, so that what else the machine does falls on both alike."""
    await _timed(one, CALLS // 10)
    await _timed(other, CALLS // 10)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        for call, into in zip((one, other), times, strict=True):
            start = time.perf_counter()
            await call()
            into.append(time.perf_counter() - start)
    return times


@contextlib.asynccontextmanager
async def _empty(path: Path) -> AsyncIterator["pb_grpc.DevicePluginAsyncStub"]:
    """The same call on a handler that does nothing, in a process of its own, as the agent is."""
    words = f"import asyncio; from hack.bench.node.agent import _serve_empty as s; asyncio.run(s({str(path)!r}))"
    async with _running(words), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
        yield pb_grpc.DevicePluginStub(channel)


@contextlib.asynccontextmanager
async def _busy(count: int) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(_running("while True: pass"))
        yield


@contextlib.asynccontextmanager
async def _running(program: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _faults(bench: Bench) -> list[float]:
    endpoint = bench.kubelet.endpoints[GPU]
    times = []
    bench.agent.sim(status=True)  # the first order imports its code
    for number in range(FAULTS):
        gpu = number % 8
        uuid = sorted(endpoint.devices)[gpu]
        start = time.perf_counter()
        await asyncio.to_thread(bench.agent.sim, gpu=gpu, xid=48)
        await bench.kubelet.wait_for(lambda uuid=uuid: uuid not in endpoint.healthy, 10)  # type: ignore[misc]
        times.append(time.perf_counter() - start)
        if gpu == 7:  # noqa: PLR2004 - the last of them: all are bad now
            for index in range(8):
                await asyncio.to_thread(bench.agent.sim, gpu=index, reset=True)
            await bench.kubelet.wait_for(lambda: len(endpoint.healthy) == 8, 60)  # noqa: PLR2004
    return times


async def _footprint(folder: Path, title: str, more: str, config: str | None) -> list[Row]:
    async with FakeApiServer() as api:
        folder.mkdir(parents=True)
        kubeconfig = folder / "kubeconfig"
        api.create(NODES, "node-1")
        kubeconfig.write_text(plain_kubeconfig(api.config.server))
        async with Bench(folder / "b", more=more, config=config, kubeconfig=str(kubeconfig)) as bench:
            bench.agent.get("/metrics")
            await asyncio.sleep(5)  # past its start, into its idling
            before = bench.agent.cpu_s()
            await asyncio.sleep(IDLE_S)
            share = (bench.agent.cpu_s() - before) / IDLE_S
            bench.agent.get("/metrics")
            rss, own = bench.agent.rss_mib(), bench.agent.own_mib()
    return [
        Row(f"resident memory, {title} (API server and metrics on)", f"{rss:.1f} MiB", "64 MiB"),
        Row("  of which are no pages of files", f"{own:.1f} MiB", ""),
        Row(f"CPU while idle, {title}", f"{share * 100:.2f} % of a core", "0.5 %"),
    ]


def _ratio(what: str, times: tuple[Sequence[float], Sequence[float]], target: str) -> Row:
    ours, empty = map(sorted, times)
    p50 = statistics.median(ours) / statistics.median(empty)
    p99 = ours[int(len(ours) * 0.99)] / empty[int(len(empty) * 0.99)]
    return Row(what, f"p50 {p50:.2f} x, p99 {p99:.2f} x", target)


def latency(what: str, times: Sequence[float], target: str) -> Row:
    ordered = sorted(times)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return Row(what, f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms", target)


if __name__ == "__main__":
    asyncio.run(main())
