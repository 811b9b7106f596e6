"""A node on one loop: simulated GPUs behind pynvml, the kubelet stand-in, and the agent between them."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pynvml

import simulator
from agent.cluster.reporter import NoReporter, Reporter
from agent.config.load import load
from agent.config.settings import MpsSettings, Settings
from agent.daemon import Agent
from agent.hardware.driver import Driver
from agent.health.states import HealthState, Transition
from agent.kubelet.holders import Holder
from agent.mps.paths import device_paths
from agent.mps.runner import programs
from agent.nodestate import NodeState
from agent.process.tasks import SteadyClock
from agent.report import NodeReport
from deviceplugin.manager import ServerStatus
from deviceplugin.testing import Endpoint, StandInKubelet
from inventory.devices import DeviceId, GpuUuid, MigUuid
from kube.testing import eventually
from simulator.control import read_request
from simulator.simulation import Simulation
from tests.support.hang import HANG_S

GPU = "nvidia.com/gpu"
EAGER = "version: v1\nhealth: {probationSeconds: 0.1, probeIntervalSeconds: 0.1, probeTimeoutSeconds: 1}\n"


def fleet(gpus: int = 4, product: str = "NVIDIA A100-SXM4-40GB", more: str = "") -> str:
    """A fleet of one node."""
    return f"nodes:\n- name: node-1\n  gpus: {gpus}\n  product: {product}\n{more}"


@contextmanager
def mps_client(lab: "Lab", index: int) -> Iterator[tuple["subprocess.Popen[bytes]", bytes]]:
    """A program in a pod that has a context on the GPU, and what it was given, as JSON."""
    paths = device_paths(lab.state_dir / "mps", lab.uuid(index))
    words = programs(MpsSettings(), simulated=True).canary
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(paths.pipe)}
    with subprocess.Popen([*words, "--hold"], env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


class Notebook(NoReporter):
    """A reporter that remembers what it was told."""

    def __init__(self) -> None:
        self.transitions: list[Transition] = []
        self.problems: list[str] = []
        self.warnings: list[tuple[str, str, str]] = []
        self.notes: list[tuple[str, str, str]] = []
        self.publications = 0

    def publish(self, node_state: NodeState, holders: Mapping[DeviceId, Holder]) -> None:  # noqa: ARG002 - Reporter's
        node_state.validate()
        self.publications += 1

    def transition(self, change: Transition) -> None:
        self.transitions.append(change)

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def warning(self, reason: str, action: str, text: str) -> None:
        self.warnings.append((reason, action, text))

    def note(self, reason: str, action: str, text: str) -> None:
        self.notes.append((reason, action, text))


class Lab:
    """One simulated node below ``folder``. The hardware and the kubelet outlive the agent, as in life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubelet = StandInKubelet(folder / "kubelet")
        self.reporter = Notebook()
        self.flags: dict[str, str] = {}
        self.discoveries = 0
        """Of the agent that runs: those that have been taken in, and whose GPUs' XIDs are heard."""
        self._agent: Agent | None = None
        self._simulation: Simulation | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def agent(self) -> Agent:
        assert self._agent is not None, "no agent was started"
        return self._agent

    @property
    def simulation(self) -> Simulation:
        assert self._simulation is not None, "no hardware"
        return self._simulation

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    # Life

    def power_on(self, text: str) -> None:
        """Hardware as the fleet file says; the same again stays what it has become."""
        if self._simulation is not None:
            self._simulation.close()
        path = self.folder / "fleet.yaml"
        path.write_text(text)
        trees = self.state_dir / "simulated"
        self._simulation = simulator.install(
            path, "node-1", self.state_dir, sys_root=trees / "sys", proc_root=trees / "proc"
        )
        self._simulation.serve(self.state_dir / "sim.sock")

    def nvml_ends(self) -> None:
        """As the kernel does it at the death of a process: nothing of its NVML has a GPU open any more."""
        with contextlib.suppress(pynvml.NVMLError):
            while True:
                pynvml.nvmlShutdown()

    def settings(self, config: str = EAGER) -> Settings:
        """What the agent's own loader makes of that config file."""
        (self.folder / "config.yaml").write_text(config)
        return load(None, {}, self.all_flags).settings

    @property
    def all_flags(self) -> dict[str, str]:
        """The command line."""
        trees = self.state_dir / "simulated"
        return {
            "--config": str(self.folder / "config.yaml"),
            "--node-name": "node-1",
            "--kubelet-dir": str(self.folder / "kubelet"),
            "--state-dir": str(self.state_dir),
            "--cdi-dir": str(self.folder / "cdi"),
            "--metrics-address": "127.0.0.1:0",
            "--kubeconfig": "none",
            "--api-spread": "0",
            "--simulate": str(self.folder / "fleet.yaml"),
            "--sys-root": str(trees / "sys"),
            "--proc-root": str(trees / "proc"),
            **self.flags,
        }

    async def start(self, config: str = EAGER, reporter: Reporter | None = None) -> Agent:
        """Start the agent; it is not registered yet."""
        self.state_dir.mkdir(exist_ok=True)
        self._stop = asyncio.Event()
        self._agent = Agent(self.settings(config), reporter or self.reporter, SteadyClock())
        self._count_discoveries(self._agent)
        self._task = asyncio.create_task(self._agent.run(self._stop))
        return self._agent

    def _count_discoveries(self, agent: Agent) -> None:
        discover = agent.monitor._discover
        self.discoveries = 0

        async def counted(driver: Driver) -> None:
            await discover(driver)
            self.discoveries += 1

        agent.monitor._discover = counted  # type: ignore[method-assign] # nobody else tells when one is over

    async def look_again(self) -> None:
        """Have the agent discover everything once more."""
        before = self.discoveries
        self.agent.monitor.rescan()
        await self.until(lambda: self.discoveries > before)

    async def serve(self, text: str, config: str = EAGER, *, resource: str = GPU) -> Endpoint:
        """Hardware, kubelet and agent, up to the first list of ``resource``."""
        self.power_on(text)
        await self.kubelet.start()
        await self.start(config)
        return await self.listed(resource)

    async def listed(self, resource: str = GPU, *, discoveries: int = 1) -> Endpoint:
        """The endpoint of ``resource``, once it and all planned beside it have devices, after so many discoveries."""
        await self.until(
            lambda: self.discoveries >= discoveries and all(map(self._is_listed, {resource, *self._planned()}))
        )
        return self.endpoint(resource)

    def _planned(self) -> set[str]:
        return {one.name for one in self.agent.node_state.layout.resources}

    def _is_listed(self, resource: str) -> bool:
        endpoint = self.kubelet.endpoints.get(resource)
        return endpoint is not None and bool(endpoint.devices)

    async def shown(self) -> None:
        """The agent knows from the kubelet's List what every pod holds: nothing counts by the answer to Allocate."""
        holders, grants = self.agent.holders, self.agent.node_state.grants
        await self.until(lambda: set(holders.holders) == self.kubelet.held() and not grants.open, "what pods hold")

    async def restart(self, config: str = EAGER) -> Agent:
        await self.stop()
        return await self.start(config)

    async def stop(self) -> None:
        """As on SIGTERM. Raises what the agent raised."""
        task, self._task = self._task, None
        self._stop.set()
        if task is not None:
            await asyncio.wait_for(task, HANG_S)

    async def ended(self) -> BaseException | None:
        """Why the agent ended by itself."""
        assert self._task is not None
        task, self._task = self._task, None
        await asyncio.wait([task], timeout=HANG_S)
        return task.exception()

    async def close(self) -> None:
        try:
            await self.stop()
        finally:
            await self.kubelet.stop()
            self._end_daemons()
            if self._simulation is not None:
                self._simulation.close()

    def _end_daemons(self) -> None:
        """Those of MPS outlive their agent while a pod has their folder, and one may be starting: none is left."""
        root = self.state_dir / "mps"
        if not root.exists():
            return
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("CUDA_MPS_PIPE_DIRECTORY", "").startswith(f"{root}/"):
                    process.kill()

    # Doing and looking

    def sim(self, **order: Any) -> None:
        """An order as ``tessera sim`` sends it: ``sim(gpu=3, xid=79)``."""
        self.simulation.order(read_request(json.dumps(order), len(self.simulation.node.gpus)))

    def endpoint(self, resource: str = GPU) -> Endpoint:
        return self.kubelet.endpoints[resource]

    def uuid(self, index: int) -> GpuUuid:
        return GpuUuid(self.simulation.node.gpus[index].uuid)

    def on(self, index: int, resource: str = GPU) -> set[str]:
        """The device ids that are listed of that GPU."""
        return {one for one in self.endpoint(resource).devices if one.partition("::")[0] == self.uuid(index)}

    def down(self, resource: str = GPU) -> set[str]:
        """The device ids that are listed and not Healthy."""
        endpoint = self.endpoint(resource)
        return endpoint.devices.keys() - endpoint.healthy

    def state(self, index: int, mig: MigUuid | None = None) -> HealthState:
        return self.agent.node_state.health.state(self.uuid(index), mig).state

    def report(self) -> NodeReport:
        return self.agent.report()

    def server(self, resource: str = GPU) -> ServerStatus:
        return next(one for one in self.agent.manager.status() if one.resource == resource)

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Poll until it holds. Raises what the agent raised, if that ends first."""

        def holds() -> bool:
            if self._task is not None and self._task.done():
                self._task.result()
            return condition()

        await eventually(holds, within_s=HANG_S, what=what)

    async def restored(self, index: int) -> None:
        await self.until(lambda: self.state(index) is HealthState.HEALTHY, f"GPU {index} is not Healthy again")


@asynccontextmanager
async def laboratory(folder: Path) -> AsyncIterator[Lab]:
    lab = Lab(folder)
    try:
        yield lab
    finally:
        await lab.close()
