"""The controller on a real API server that has a fleet's objects: its start, its work, and the death of its leader.

Two replicas, the whole controller as deployed but for webhooks, which need a Service. Nobody schedules, nothing owns
anything: the control plane is etcd and the API server, whose CPU is then what we and the changing objects cost.
"""

import asyncio
import math
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from msgspec import Struct

from controller.cluster.watching.catchup import newest_version
from controller.cluster.watching.kinds import TYPES, WORKLOADS
from hack.bench.fleet import objects, readings
from hack.bench.fleet.changing import AGENT, CONNECTIONS, Changes, Done
from hack.bench.fleet.seeding import seed
from hack.bench.fleet.shape import Fleet
from hack.bench.throughput.drain import apply_crds
from hack.bench.throughput.measuring import ROOT, cpu_s, established, machine_cpu_s, peak_mib, started
from hack.cluster import Cluster, Spec, waiting
from kube.client import Client
from kube.errors import UnavailableError
from kube.kubeconfig import from_kubeconfig

CRDS: Final = (ROOT / "charts/tessera/crds", ROOT / "charts/tessera/crds/gpunodes.tessera.dev.yaml")
OWN: Final = "tessera-system"
_CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "0"}
tessera: {policy: tessera}
"""
QUIET: Final = 0.25
"""Cores that a control plane with nothing to do may use."""
LIMIT_S: Final = 300.0
OVER_S: Final = 120.0
"""A fail-over that takes longer is none."""
_LOOK_S: Final = 0.25
PROFILE_S: Final = 20
"""Most of a start; the server ends a profile that takes longer than its requests may."""


@dataclass(frozen=True)
class Load:
    """A time in which objects changed, and what it cost: CPU seconds a second, bytes a second."""

    done: Done
    server_cpu: float
    leader_cpu: float = 0.0
    follower_cpu: float = 0.0
    leader_bytes: float = 0.0
    machine_cpu: float = 0.0
    decision_s: tuple[float, float] = (0.0, 0.0)
    """Median and 99th in a hundred."""
    cycle_s: float = 0.0
    """The 99th in a hundred."""
    decisions: float = 0.0


@dataclass(frozen=True)
class Start:
    """Seconds from the process' start, and CPU seconds until the first admission; bytes that came until then."""

    deciding_s: float
    admission_s: float
    cpu_s: float
    server_cpu_s: float
    received: int


@dataclass(frozen=True)
class Figures:
    fleet: Fleet
    seeded_s: float
    without: Load
    start: Start
    follower_s: float
    """Until the second replica knew everything."""
    under: Load
    peak_mib: float
    pss_mib: float
    follower_mib: float
    lease_s: float
    """From the leader's death until the other led; ``failover_s``: until its first decision was seen. Infinite where
    that has not been seen.
    """
    failover_s: float
    server_mib: float


class _Meta(Struct, frozen=True):
    name: str = ""


class _Condition(Struct, frozen=True):
    type: str
    status: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Workload(Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()

    @property
    def admitted(self) -> bool:
        return any(each.type == "Admitted" and each.status == "True" for each in self.status.conditions)


class Admissions:
    """The times (monotonic) at which a watch shows that a workload was admitted; open ``following``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: set[str] = set()
        self.at_s: list[float] = []

    async def follow(self) -> None:
        """Until cancelled. Raises KubeError."""
        version = await newest_version(self._client, WORKLOADS)
        decode = msgspec.json.Decoder(_Workload).decode
        while True:
            try:
                async for event in self._client.watch_decoded(WORKLOADS, decode, resource_version=version):
                    version = event.resource_version
                    if event.object is not None:
                        self._see(event.object)
            except UnavailableError:
                # The server sets up its cache of a kind when somebody first asks for it.
                await asyncio.sleep(_LOOK_S)

    def _see(self, found: _Workload) -> None:
        if found.admitted and found.metadata.name not in self._seen:
            self._seen.add(found.metadata.name)
            if found.metadata.name.startswith("pending-"):
                self.at_s.append(time.monotonic())

    def since(self, at_s: float) -> float | None:
        """The first one after that."""
        return next((each for each in self.at_s if each >= at_s), None)


@dataclass
class Replica:
    """A controller's process. ``port`` is that of its metrics."""

    process: psutil.Process
    port: int
    log: Path
    begun_s: float

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/readyz"
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's own number
        return False

    def logged(self, text: str) -> float | None:
        """Seconds after its start at which it logged that."""
        at = readings.logged_at(self.log.read_text(), text)
        return None if at is None else at - time.time() + time.monotonic() - self.begun_s

    def pss_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


class Bench:
    """One cluster of one fleet."""

    def __init__(
        self, cluster: Cluster, fleet: Fleet, folder: Path, rate: float, window_s: float, profile: Path | None = None
    ) -> None:
        self._profile = profile
        self._cluster = cluster
        self._fleet = fleet
        self._folder = folder
        self._rate = rate
        self._window_s = window_s
        self._watching: asyncio.Task[None] | None = None
        self.servers = [psutil.Process(cluster.state.processes[name].pid) for name in ("apiserver", "etcd")]

    def replica(self, name: str, stack: ExitStack) -> Replica:
        config, log, port = self._folder / "config.yaml", self._folder / f"{name}.log", _free_port()
        config.write_text(_CONFIG)
        words: tuple[str, ...] = (
            "--config",
            str(config),
            "--kubeconfig",
            str(self._cluster.kubeconfig),
            "--namespace",
            OWN,
        )
        words += ("--identity", name, "--metrics-address", f"127.0.0.1:{port}", "--web-address", "0")
        begun_s = time.monotonic()
        process = stack.enter_context(started(name, [sys.executable, "-m", "controller", *words], log))
        return Replica(process, port, log, begun_s)

    async def measure(self) -> Figures:
        config = from_kubeconfig(self._cluster.kubeconfig)
        begun_s = time.monotonic()
        await seed(self._cluster, objects.everything(self._fleet))
        await self._settle()
        seeded_s = time.monotonic() - begun_s
        _tell(f"{self._fleet.objects:,} objects are there after {seeded_s:.0f} s")
        agent = Client(config, user_agent=AGENT, timeout_s=60.0, connections=CONNECTIONS)
        with ExitStack() as stack:
            async with agent as client:
                return await self._measure(client, stack, seeded_s)

    async def _measure(self, client: Client, stack: ExitStack, seeded_s: float) -> Figures:
        changes, admissions = Changes(client, self._fleet), Admissions(client)
        without = await self._load(changes)
        _tell(f"without us the control plane takes {without.server_cpu:.2f} cores")
        watching = self._watching = asyncio.create_task(admissions.follow())
        await self._warm_up(client)  # the watch is open by then, before anybody is admitted
        profiling = asyncio.create_task(self._profiled(client))
        leader, start = await self._start(admissions, stack)
        await profiling
        _tell(f"the first admission after {start.admission_s:.1f} s")
        server_mib = peak_mib(self.servers[0])
        await self._until(lambda: _tried_all(leader), "the leader to have tried all")
        follower = self.replica("second", stack)
        await self._until(follower.ready, "the second replica to be ready")
        follower_s = time.monotonic() - follower.begun_s
        under = await self._load(changes, leader, follower)
        _tell(f"with us {under.server_cpu:.2f} cores")
        peak, pss, second = peak_mib(leader.process), leader.pss_mib(), peak_mib(follower.process)
        try:
            lease_s, failover_s = await self._fail_over(changes, admissions, leader, follower)
        except TimeoutError as error:
            _tell(str(error))
            lease_s = failover_s = math.inf
        watching.cancel()
        return Figures(
            self._fleet,
            seeded_s,
            without,
            start,
            follower_s,
            under,
            peak,
            pss,
            second,
            lease_s,
            failover_s,
            server_mib,
        )

    async def _start(self, admissions: Admissions, stack: ExitStack) -> tuple[Replica, Start]:
        server_s = sum(map(cpu_s, self.servers))
        leader = self.replica("first", stack)
        await self._until(lambda: admissions.since(leader.begun_s) is not None, "the first admission")
        first_s = admissions.since(leader.begun_s)
        assert first_s is not None, "waited for"
        deciding_s = leader.logged("deciding:")
        assert deciding_s is not None, "it has admitted"
        used_s, used_server_s = cpu_s(leader.process), sum(map(cpu_s, self.servers)) - server_s
        received = readings.received_bytes(leader.process.pid)
        return leader, Start(deciding_s, first_s - leader.begun_s, used_s, used_server_s, received)

    async def _profiled(self, client: Client) -> None:
        """Where the API server's CPU goes while the leader starts."""
        if self._profile is not None:
            taken = await client.text("/debug/pprof/profile", {"seconds": f"{PROFILE_S}"})
            await asyncio.to_thread(self._profile.write_bytes, taken)
            _tell(f"the API server's profile: go tool pprof -top {self._profile}")

    async def _load(self, changes: Changes, leader: Replica | None = None, follower: Replica | None = None) -> Load:
        """Objects change for the window."""
        replicas = [each for each in (leader, follower) if each is not None]
        before = [sum(map(cpu_s, self.servers)), *(cpu_s(each.process) for each in replicas)]
        metrics = leader.metrics() if leader is not None else ""
        received = readings.received_bytes(leader.process.pid) if leader is not None else 0
        machine_s = machine_cpu_s()
        done = await changes.run(self._rate, _after(self._window_s))
        after = [sum(map(cpu_s, self.servers)), *(cpu_s(each.process) for each in replicas)]
        spent = [(now - then) / done.seconds for then, now in zip(before, after, strict=True)]
        load = Load(done, spent[0], machine_cpu=(machine_cpu_s() - machine_s) / done.seconds)
        if leader is None:
            return load
        bytes_a_second = (readings.received_bytes(leader.process.pid) - received) / done.seconds
        decided, cycled = _decided(metrics, now := leader.metrics()), _cycled(metrics, now)
        return replace(
            load,
            leader_cpu=spent[1],
            follower_cpu=spent[2] if follower is not None else 0.0,
            leader_bytes=bytes_a_second,
            decision_s=(readings.quantile(decided, 0.5), readings.quantile(decided, 0.99)),
            cycle_s=readings.quantile(cycled, 0.99),
            decisions=max(decided.values()) / done.seconds,
        )

    async def _fail_over(
        self, changes: Changes, admissions: Admissions, leader: Replica, follower: Replica
    ) -> tuple[float, float]:
        """Objects change meanwhile. A write of the dead leader may be seen late: what counts is seen once the other
        leads.
        """
        over = False

        async def wait() -> tuple[float, float]:
            nonlocal over
            await asyncio.sleep(2.0)
            leader.process.kill()
            killed_s = time.monotonic()
            try:
                await self._until(lambda: follower.logged("deciding:") is not None, "the other to lead", OVER_S)
                led, decided = follower.logged("leading as"), follower.logged("deciding:")
                assert led is not None, "it decides"
                assert decided is not None, "waited for"
                from_s = follower.begun_s + decided
                await self._until(lambda: admissions.since(from_s) is not None, "its first decision", OVER_S)
                first_s = admissions.since(from_s)
                assert first_s is not None, "waited for"
                return follower.begun_s + led - killed_s, first_s - killed_s
            finally:
                over = True

        _, found = await asyncio.gather(changes.run(self._rate, lambda: over), wait())
        return found

    async def _warm_up(self, client: Client) -> None:
        """The API server caches a kind when it is first asked for it: one that has run for days has them all."""
        for resource in TYPES:
            while True:
                with suppress(UnavailableError):
                    await newest_version(client, resource)
                    break
                await asyncio.sleep(_LOOK_S)
        await self._settle()

    async def _settle(self) -> None:
        """Until the control plane is at rest: its caches have all that was written."""

        async def resting() -> bool:
            before_s = sum(map(cpu_s, self.servers))
            await asyncio.sleep(2.0)
            return (sum(map(cpu_s, self.servers)) - before_s) / 2.0 < QUIET

        async with asyncio.timeout(LIMIT_S):
            while not await resting():
                pass

    async def _until(self, holds: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while not await asyncio.to_thread(holds):
                    if self._watching is not None and self._watching.done():
                        self._watching.result()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"waited {limit_s:.0f} s for {what}") from None


def _decided(before: str, after: str) -> dict[float, float]:
    name = "tessera_decision_seconds"
    return readings.between(readings.buckets(before, name), readings.buckets(after, name))


def _cycled(before: str, after: str) -> dict[float, float]:
    name = "kueue_admission_attempt_duration_seconds"
    return readings.between(readings.buckets(before, name), readings.buckets(after, name))


def _tried_all(replica: Replica) -> bool:
    """It has decided nothing for three seconds. Statuses of what is pending are written for long after that."""

    def tried() -> float:
        return readings.total(replica.metrics(), "kueue_admission_attempts_total")

    before = tried()
    time.sleep(3.0)
    return tried() == before


def _after(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _tell(what: str) -> None:
    print(f"fleet: {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


@contextmanager
def control_plane(fleet: Fleet) -> Iterator[Cluster]:
    """etcd and an API server with the fleet's namespaces, and nobody else."""
    with Cluster.up("bench-fleet", Spec(nodes=(), apiserver_args=("--profiling=true",))) as cluster:
        for name in ("scheduler", "controller-manager"):
            psutil.Process(cluster.state.processes[name].pid).kill()
        apply_crds(cluster, *CRDS)
        _serve_one_version(cluster)
        names = [OWN, *map(objects.team, range(fleet.queues))]
        made: list[Any] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
        cluster.kubectl("create", "-f", "-", input="\n---\n".join(msgspec.json.encode(each).decode() for each in made))
        yield cluster


def _serve_one_version(cluster: Cluster) -> None:
    """Of each kind the version in which it is stored. For another the API server keeps a cache of its own, and asks the
    conversion webhook, which is not there, for all objects again and again.
    """
    crds = msgspec.json.decode(cluster.kubectl("get", "crd", "-o", "json"))
    for crd in crds["items"]:
        crd["spec"]["versions"] = [version for version in crd["spec"]["versions"] if version["storage"]]
        crd["spec"]["conversion"] = {"strategy": "None"}
    cluster.kubectl("replace", "-f", "-", input=msgspec.json.encode(crds).decode())
    waiting.until(lambda: established(cluster), "the CRDs to be established", timeout_s=60.0, every_s=0.3)


def run(fleet: Fleet, rate: float, window_s: float, profile: Path | None = None) -> Figures:
    """``profile``: a file for the API server's CPU profile of the leader's start."""
    with tempfile.TemporaryDirectory(prefix="tessera-fleet-") as folder, control_plane(fleet) as cluster:
        return asyncio.run(Bench(cluster, fleet, Path(folder), rate, window_s, profile).measure())
