"""``python -m hack.bench beside``: what the agent costs beside the peer that it replaces, measured in turn.

    agent          on a C library with 8 GPUs; API server, probes as the chart has them, a scrape each 15 s
    empty handler  of the same Python gRPC server, in a process of its own, with the agent's answer as its payload
    peer           NVIDIA's device plugin, where PEER= or --peer has its path: on the same library, in a mount
                   namespace in which its constant folder is the kubelet stand-in's

Every figure is a ratio to what was measured in the same minute: calls alternate, starts alternate, all rest at once.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import psutil
from msgspec import Struct

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from hack.bench.compiled import as_in_the_image
from hack.bench.table import Row, show
from hack.foreignnvml import compile_stub
from kube.resources import NODES
from kube.testing.server import FakeApiServer
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc

GPU: Final = "nvidia.com/gpu"
NODE: Final = "node-1"
GPUS: Final = 8
BUSY: Final = 4
PAUSE_S: Final = 0.005
"""Between two calls: a kubelet's come one by one."""
LOOK_S: Final = 0.002
SETTLE_S: Final = 15.0
"""From the list to the rest: what the start leaves to be done is done."""
PROBES_S: Final = {"/healthz": 10.0, "/readyz": 5.0, "/metrics": 15.0}
"""Paths that are asked, and how often: the chart's probes and the usual scrape."""
BOOKMARKS_S: Final = 60.0
PEER_FOLDER: Final = "/var/lib/kubelet/device-plugins"
BARE: Final = "import grpc.aio"
Call = Callable[[], Awaitable[object]]


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: PEER=/opt/nvidia-device-plugin .venv/bin/python -m hack.bench beside --calls 500",
    )
    parser.add_argument("--peer", default=os.environ.get("PEER", ""), help="the peer's program (default: PEER=)")
    parser.add_argument("--calls", type=int, default=2000, help="of each kind (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=7, help="of each (default: %(default)s)")
    parser.add_argument("--rest", type=float, default=120.0, help="seconds of rest (default: %(default)s)")
    options = parser.parse_args(words)
    asyncio.run(measure(options.peer, options.calls, options.starts, options.rest))


async def measure(peer: str, calls: int, starts: int, rest_s: float) -> None:
    """Start, rest and calls; each table with the load beside which it was measured."""
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        folder = Path(name)
        await asyncio.to_thread(compile_stub, folder, f"-DGPUS={GPUS}")
        async with _running("hack.bench.node.beside", "api") as api:
            server = await _line(api)
            sides = [Side(folder, "agent", server=server), *([Side(folder, "peer", program=peer)] if peer else [])]
            show_loaded("The start", await _starts(sides, starts))
            async with contextlib.AsyncExitStack() as stack:
                for side in sides:
                    await stack.enter_async_context(side.served())
                show_loaded("At rest", await _rest(sides, rest_s))
                idle = await _calls(sides, calls)
                show_loaded("Calls", idle)
                async with contextlib.AsyncExitStack() as busy:
                    for _ in range(BUSY):
                        await busy.enter_async_context(_running("hack.bench.node.beside", "busy"))
                    show_loaded(f"Calls beside {BUSY} more busy processes", await _calls(sides, calls))


def show_loaded(title: str, rows: Sequence[Row]) -> None:
    """The rows under the title, with the machine's load of the last minute."""
    show(f"{title} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)", rows)


@dataclass
class Side:
    """One program and a kubelet stand-in of its own."""

    folder: Path
    name: str
    server: str = ""
    program: str = ""
    turns: int = 0
    kubelet: StandInKubelet = field(init=False)
    process: psutil.Process = field(init=False)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """It runs, and its kubelet has its first list."""
        self.turns += 1
        place = self.folder / f"{self.name}-{self.turns}"
        (place / "orders").mkdir(parents=True)
        self.kubelet = StandInKubelet(place / "k")
        await self.kubelet.start()
        try:
            async with self._peer(place) if self.program else self._agent(place):
                async with asyncio.timeout(60):
                    while not (self.endpoint_there and self.kubelet.endpoints[GPU].healthy):  # noqa: ASYNC110 - timed
                        await asyncio.sleep(LOOK_S)
                yield
        finally:
            await self.kubelet.stop()

    @property
    def endpoint_there(self) -> bool:
        return GPU in self.kubelet.endpoints

    @property
    def stub(self) -> "pb_grpc.DevicePluginAsyncStub":
        return self.kubelet.endpoints[GPU].stub

    def cpu_s(self) -> float:
        """CPU time so far, with that of children that have ended."""
        times = self.process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)

    def rss_mib(self) -> float:
        return float(self.process.memory_info().rss) / 2**20

    def _environment(self, place: Path) -> Mapping[str, str]:
        return {
            **as_in_the_image(),
            "LD_LIBRARY_PATH": str(self.folder),
            "TESSERA_STUB_DIR": str(place / "orders"),
            "TESSERA_STUB_STEP_MS": "1000",
        }

    @contextlib.asynccontextmanager
    async def _agent(self, place: Path) -> AsyncIterator[None]:
        kubeconfig = place / "kubeconfig"
        kubeconfig.write_text(plain_kubeconfig(self.server))
        agent = AgentProcess(
            place / "a",
            None,
            place / "k",
            node_name=NODE,
            kubeconfig=str(kubeconfig),
            flags=("--log-level", "warning"),
            environment=self._environment(place),
        )
        agent.start()
        assert agent.process is not None, "it was started"
        self.process = psutil.Process(agent.process.pid)
        asking = [asyncio.create_task(_ask(agent, path, every_s)) for path, every_s in PROBES_S.items()]
        try:
            yield
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await asyncio.to_thread(agent.stop)

    @contextlib.asynccontextmanager
    async def _peer(self, place: Path) -> AsyncIterator[None]:
        script = f'mount --make-rprivate / && mount --bind "$0" {PEER_FOLDER} && exec "$1"'
        made = _made(Path(PEER_FOLDER))
        words = ("unshare", "-m", "sh", "-c", script, str(place / "k/device-plugins"), self.program)
        with (place / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*words, env=self._environment(place), stdout=log, stderr=log)
        self.process = psutil.Process(process.pid)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            for each in made:
                each.rmdir()


def _made(folder: Path) -> list[Path]:
    """The folders that were not there, the innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


async def _ask(agent: AgentProcess, path: str, every_s: float) -> None:
    """As the kubelet and Prometheus do; one that comes too early for an answer is asked again."""
    while True:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(agent.get, path)
        await asyncio.sleep(every_s)


# -- what is measured ------------------------------------------------------------------------------------------------


async def _starts(sides: Sequence[Side], count: int) -> list[Row]:
    spent_s: dict[str, list[float]] = {side.name: [] for side in sides}
    bare: list[float] = []
    for turn in range(count + 1):
        imports = await asyncio.to_thread(_import_s)
        for side in sides:
            async with side.served():
                cpu_s = side.cpu_s()
            if turn:  # the first compiles what is not compiled yet
                spent_s[side.name].append(cpu_s)
        if turn:
            bare.append(imports)
    base = statistics.median(bare)
    rows = [Row(f'CPU of python -c "{BARE}"', f"{base:.2f} s", "")]
    for name, times in spent_s.items():
        middle = statistics.median(times)
        target = "2.5 x" if name == "agent" else ""
        rows.append(Row(f"CPU from start to listed, {name}", f"{middle:.2f} s, {middle / base:.1f} x", target))
    return rows


def _import_s() -> float:
    """CPU of the import alone, s, with the image's bytecode."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", BARE], dict(as_in_the_image()))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise OSError(f"{BARE}: found exit status {status}, expected 0")
    return usage.ru_utime + usage.ru_stime


async def _rest(sides: Sequence[Side], rest_s: float) -> list[Row]:
    await asyncio.sleep(SETTLE_S)
    before, began_s = [side.cpu_s() for side in sides], time.monotonic()
    await asyncio.sleep(rest_s)
    took_s, rows = time.monotonic() - began_s, []
    for side, cpu_s in zip(sides, before, strict=True):
        share = (side.cpu_s() - cpu_s) / took_s
        target = "0.3 %" if side.name == "agent" else ""
        rows.append(Row(f"CPU at rest, {side.name}", f"{share * 100:.2f} % of a core", target))
        rows.append(Row(f"resident memory, {side.name}", f"{side.rss_mib():.1f} MiB", ""))
    return rows


async def _calls(sides: Sequence[Side], count: int) -> list[Row]:
    devices = sorted(sides[0].kubelet.endpoints[GPU].devices)
    allocate = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices[:1])])
    answer = await sides[0].stub.Allocate(allocate)
    async with _handler(sides[0].folder, answer) as empty:
        calls: dict[str, Call] = {"empty": lambda: empty.Allocate(allocate)}
        for side in sides:
            calls[f"Allocate, {side.name}"] = lambda side=side: side.stub.Allocate(_of(side, 1))  # type: ignore[misc]
        for side in sides:
            calls[f"GetPreferredAllocation 4 of 8, {side.name}"] = lambda side=side: (  # type: ignore[misc]
                side.stub.GetPreferredAllocation(_preferring(side))
            )
        times = await in_turn(calls, count)
    base = times.pop("empty")
    rows = [Row("Allocate, the empty handler", f"p50 {base.p50_ms:.1f} ms, p99 {base.p99_ms:.1f} ms", "")]
    for what, found in times.items():
        measured = f"p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms; p99 {found.p99_ms / base.p99_ms:.1f} x"
        target = "" if not what.endswith("agent") else "p99 2 x" if what.startswith("Allocate") else "p50 5 ms"
        rows.append(Row(what, measured, target))
    return rows


def _of(side: Side, count: int) -> pb.AllocateRequest:
    devices = sorted(side.kubelet.endpoints[GPU].devices)[:count]
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices)])


def _preferring(side: Side) -> pb.PreferredAllocationRequest:
    devices = sorted(side.kubelet.endpoints[GPU].devices)
    asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=devices, allocation_size=4)
    return pb.PreferredAllocationRequest(container_requests=[asked])


class Times(Struct, frozen=True):
    """Of one kind of call."""

    p50_ms: float
    p99_ms: float


def times_of(taken_s: Sequence[float]) -> Times:
    """Of calls that took so long. Of 100 the p99 is the longest but one."""
    ordered = sorted(taken_s)
    return Times(statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99) - 1] * 1000)


async def in_turn(calls: Mapping[str, Call], count: int, pause_s: float = PAUSE_S) -> dict[str, Times]:
    """Each of them ``count`` times, in turn, so that what else the machine does falls on all alike."""
    taken: dict[str, list[float]] = {what: [] for what in calls}
    for turn in range(-count // 10, count):
        for what, call in calls.items():
            await asyncio.sleep(pause_s)
            began_s = time.perf_counter()
            await call()
            if turn >= 0:  # the first ones warm up
                taken[what].append(time.perf_counter() - began_s)
    return {what: times_of(all_s) for what, all_s in taken.items()}


# -- the processes beside --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _handler(folder: Path, answer: pb.AllocateResponse) -> AsyncIterator["pb_grpc.DevicePluginAsyncStub"]:
    path = folder / f"empty-{time.monotonic_ns()}.sock"
    payload = answer.SerializeToString().hex()
    async with _running("hack.bench.node.beside", "handler", str(path), payload) as process:
        await _line(process)
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 20)
            yield pb_grpc.DevicePluginStub(channel)


@contextlib.asynccontextmanager
async def _running(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, env=as_in_the_image(), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> str:
    """The first line that it prints: it is ready."""
    assert process.stdout is not None, "a pipe"
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def _serve_api() -> None:
    async with FakeApiServer() as api:
        api.create(NODES, NODE)
        print(api.config.server, flush=True)
        while True:  # as a real one: a watch without bookmarks counts as one that brings no news
            await asyncio.sleep(BOOKMARKS_S)
            api.bookmark()


async def _serve_handler(path: str, payload: str) -> None:
    answer = pb.AllocateResponse.FromString(bytes.fromhex(payload))

    async def nothing(_request: object, _context: object) -> pb.AllocateResponse:
        return answer

    handler = grpc.unary_unary_rpc_method_handler(
        nothing,
        request_deserializer=pb.AllocateRequest.FromString,
        response_serializer=pb.AllocateResponse.SerializeToString,
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", {"Allocate": handler})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["api"]:
            asyncio.run(_serve_api())
        case ["handler", path, payload]:
            asyncio.run(_serve_handler(path, payload))
        case ["busy"]:
            _spin()
