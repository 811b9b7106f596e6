"""A node for a scene: a real agent on simulated GPUs, the kubelet's stand-in beside it, and what both have said."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from deviceplugin.testing import Grant, StandInKubelet
from hack.planted.nets.nodejudge import Finding, Hand, Told, by_history, two_shapes
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import podresources_v1_pb2 as pr
from simulator import client

ROOT: Final = Path(__file__).resolve().parents[3]
NODE: Final = "node-1"
PRODUCT: Final = "NVIDIA A100-SXM4-40GB"
MEMORY_MIB: Final = 40960
GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
START_S: Final = 90.0
"""So long at most until an agent is there, on a machine that others keep busy."""
PROMISED_S: Final = 30.0
"""What is promised within five seconds is missed after so many."""
LOOK_S: Final = 0.05
CALL_S: Final = 60.0
PROBATION_S: Final = 4.0
HEALTH: Final = f"""\
version: v1
health: {{probationSeconds: {PROBATION_S:g}, cleanProbes: 1, probeIntervalSeconds: 0.2, probeTimeoutSeconds: 60}}
"""

Json = dict[str, Any]


class CannotJudgeError(Exception):
    """The scene could not be played: nothing is known of what it is about."""


class Kubelet(StandInKubelet):
    """Notes what it is told. While ``gate`` is set, a List after the first ``free`` is answered when the gate opens, as
    of the time it came. ``lists`` counts them.
    """

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        super().__init__(folder)
        self.told: list[Told] = []
        self.lists = 0
        self.gate: asyncio.Event | None = None
        self.free = 0
        self._clock = clock

    def hands(self) -> tuple[Hand, ...]:
        return tuple(
            Hand(f"{namespace}/{name}", grant.resource, device)
            for (namespace, name), grants in self.pods.items()
            for grant in grants
            for device in grant.devices
        )

    def now(self) -> Told:
        devices = {name: dict(endpoint.devices) for name, endpoint in self.endpoints.items()}
        return Told(self._clock(), devices, self.hands())

    async def _tell(self) -> None:
        self.told.append(self.now())
        await super()._tell()

    def close_gate(self, *, free: int = 0) -> None:
        self.gate, self.free = asyncio.Event(), self.lists + free

    def open_gate(self) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.set()

    async def List(self, request: object, context: object) -> pr.ListPodResourcesResponse:  # noqa: N802 - gRPC's name
        answer = await super().List(request, context)
        self.lists += 1
        gate = self.gate if self.lists > self.free else None
        if gate is not None:
            await gate.wait()
        return answer


class Node:
    """``record`` has lines of docs/audit.md; ``replicas``: how many hands a GPU takes, where the layout says so."""

    def __init__(self, folder: Path, fleet: str, kubeconfig: str = "none") -> None:
        self.folder = folder
        self.kubelet = Kubelet(folder / "kubelet", self.now_s)
        self.record: list[Json] = []
        self.replicas: dict[str, int] = {}
        self.parents: dict[str, str] = {}
        self.kubeconfig = kubeconfig
        self._began_s = time.monotonic()
        self._process: asyncio.subprocess.Process | None = None
        (folder / "fleet.yaml").write_text(fleet)

    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    # The agent

    async def start(self, config: str) -> None:
        self.configure(config)
        words = [sys.executable, "-m", "agent.main", "--simulate", str(self.folder / "fleet.yaml")]
        words += ["--config", str(self.folder / "config.yaml"), "--kubelet-dir", str(self.folder / "kubelet")]
        words += ["--state-dir", str(self.folder / "state"), "--cdi-dir", str(self.folder / "cdi")]
        words += ["--node-name", NODE, "--metrics-address", "none", "--kubeconfig", self.kubeconfig]
        words += ["--api-spread", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self.folder / "agent.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *words, cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    def configure(self, config: str) -> None:
        """Another file in one step, as a ConfigMap's are swapped."""
        new = self.folder / ".new.yaml"
        new.write_text(config)
        new.replace(self.folder / "config.yaml")

    def reload(self, config: str) -> None:
        """Another file, and the signal to read it."""
        self.configure(config)
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(1)

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # The hardware

    async def sim(self, **order: Any) -> Json:
        try:
            return await asyncio.to_thread(client.order, self.folder / "state", order)
        except client.OrderRefusedError as refused:
            raise CannotJudgeError(f"the simulator: {refused}") from None

    async def gpus(self) -> list[Json]:
        """As the simulator has them now; what has changed goes into the record."""
        found: list[Json] = (await self.sim(status=True))["status"]["gpus"]
        self.note_hardware(found)
        return found

    def note_hardware(self, found: Iterable[Json]) -> None:
        gpus: list[Json] = []
        for board in found:
            mig = [{"uuid": uuid, "profile": one["profile"]} for one in board["mig"] or () for uuid in one["uuids"]]
            self.parents.update({str(one["uuid"]): board["uuid"] for one in mig})
            replicas, resets = self.replicas.get(board["uuid"], 1), board.get("toolResets", 0)
            gpus.append({"uuid": board["uuid"], "mig": mig, "replicas": replicas, "resets": resets})
        before = [line["gpus"] for line in self.record if line["source"] == "hardware"]
        if before[-1:] != [gpus]:
            self._note(source="hardware", gpus=gpus)

    # The kubelet

    async def admit(self, resource: str, count: int, pod: str) -> Grant:
        """Raises LookupError (too few free) and AioRpcError (refused)."""
        grant = await self.kubelet.allocate(resource, count, pod=pod)
        self.note_grant(pod, grant)
        return grant

    def note_grant(self, pod: str, grant: Grant) -> None:
        self._note(
            source="kubelet", call="Allocate", pod=f"default/{pod}", resource=grant.resource, devices=[*grant.devices]
        )

    def note_claim(self, call: str, claim: str, devices: Iterable[str] = ()) -> None:
        self._note(source="kubelet", call=call, claim=f"team/{claim}", devices=[*devices])

    async def allocate_together(self, resource: str, parts: Iterable[Iterable[str]]) -> list[Grant]:
        """One Allocate for several containers."""
        chosen = [tuple(part) for part in parts]
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=part) for part in chosen]
        )
        answer = await self.kubelet.endpoints[resource].stub.Allocate(request, timeout=CALL_S)
        return [Grant(resource, *each) for each in zip(chosen, answer.container_responses, strict=True)]

    def _note(self, **line: Any) -> None:
        self.record.append({"t": self.now_s(), "node": NODE, **line})

    # Waiting

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = START_S) -> None:
        """Raises CannotJudgeError where it does not come."""
        if not await self.comes(condition, within_s):
            raise CannotJudgeError(f"{what}: not within {within_s:g} s")

    async def comes(self, condition: Callable[[], bool], within_s: float = PROMISED_S) -> bool:
        """Whether it holds in time. Raises CannotJudgeError where the agent ends meanwhile."""

        async def asked() -> bool:
            return condition()

        return await self.becomes(asked, within_s)

    async def becomes(self, condition: Callable[[], Awaitable[bool]], within_s: float = PROMISED_S) -> bool:
        end_s = time.monotonic() + within_s
        while not await condition():
            if time.monotonic() >= end_s:
                return False
            if self._process is not None and self._process.returncode is not None:
                raise CannotJudgeError(f"the agent ended with {self._process.returncode}: {self._last_words()}")
            await asyncio.sleep(LOOK_S)
        return True

    async def offered(self, wanted: dict[str, int], within_s: float = PROMISED_S) -> bool:
        """Whether so many of each resource are Healthy in time."""
        return await self.comes(lambda: all(self.healthy(name) == count for name, count in wanted.items()), within_s)

    def healthy(self, resource: str) -> int:
        endpoint = self.kubelet.endpoints.get(resource)
        return 0 if endpoint is None else len(endpoint.healthy)

    def is_healthy(self, device: str) -> bool:
        return self.kubelet.now().is_healthy(device)

    def _last_words(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")[-300:].strip()

    # The end

    def findings(self) -> list[Finding]:
        """What is wrong of any scene."""
        return [*two_shapes(self.kubelet.told, self.parents), *by_history(self.record, self.now_s())]

    async def close(self) -> None:
        await self.kill()
        await self.kubelet.stop()
        self._end_daemons()

    def _end_daemons(self) -> None:
        """Those of MPS outlive their agent."""
        root = self.folder / "state" / "mps"
        if not root.exists():
            return
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("CUDA_MPS_PIPE_DIRECTORY", "").startswith(f"{root}/"):
                    process.kill()


def fleet(gpus: int, product: str) -> str:
    return f"nodes:\n- name: {NODE}\n  gpus: {gpus}\n  product: {product}\n"


def layout(*entries: str) -> str:
    """The configuration with these entries."""
    return HEALTH + ("layout:\n" + "".join(f"- {entry}\n" for entry in entries) if entries else "")


@asynccontextmanager
async def node(folder: Path, gpus: int, kubeconfig: str = "none", *, product: str = PRODUCT) -> AsyncIterator[Node]:
    folder.mkdir(parents=True)
    scene = Node(folder, fleet(gpus, product), kubeconfig)
    await scene.kubelet.start()
    try:
        yield scene
    finally:
        await scene.close()
