"""A node that is full: eight GPUs cut into 56 MIG instances that are shared, 80 pods with a process each, all at work.

The agent is the real one, as a process of its own, under the kubelet stand-in and with a fake API server that knows
the pods; processes are files in a procfs of the load's own.
"""

import asyncio
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Self

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from kube.resources import NODES, PODS
from kube.testing.server import FakeApiServer

H100 = "NVIDIA H100 80GB HBM3"
RESOURCE = "nvidia.com/mig-1g.10gb"
GPUS, INSTANCES, PODS_ON_NODE = 8, 56, 80
CONFIG = f"""version: v1
flags: {{migStrategy: mixed}}
sharing: {{timeSlicing: {{resources: [{{name: {RESOURCE}, replicas: 2}}]}}}}
"""
FIRST_PID = 100_000


class FullNode:
    """Up from the first scrape that shows every pod until the block ends."""

    def __init__(self, folder: Path, *, interval_s: float = 15.0) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        cut = ", ".join(f"{gpu}: [{', '.join(['1g.10gb'] * 7)}]" for gpu in range(GPUS))
        enabled = ", ".join(str(gpu) for gpu in range(GPUS))
        fleet = folder / "fleet.yaml"
        fleet.write_text(
            f"nodes: [{{name: node-1, gpus: {GPUS}, product: {H100}, nvlink: full, "
            f"migEnabled: [{enabled}], mig: {{{cut}}}}}]\n"
        )
        self._processes = folder / "proc"
        self._pods: list[tuple[int, int]] = []
        """Number and GPU of each pod, oldest first."""
        self._api = FakeApiServer()
        self.kubelet = StandInKubelet(folder / "k")
        self.agent = AgentProcess(
            folder / "a",
            fleet,
            folder / "k",
            config=CONFIG,
            kubeconfig=str(folder / "kubeconfig"),
            flags=(
                *("--log-level", "warning"),
                *("--metrics-interval", f"{interval_s:g}"),
                *("--pid-root", str(self._processes)),
            ),
        )

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        self._api.create(NODES, "node-1")
        (self._folder / "kubeconfig").write_text(plain_kubeconfig(self._api.config.server))
        await self.kubelet.start()
        self.agent.start()
        await self.kubelet.wait_for(lambda: len(self._listed()) == 2 * INSTANCES, 60)
        self._serial = count()
        for _ in range(PODS_ON_NODE):
            await self._add_pod(next(self._serial))
        await self._until_shown()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.agent.stop()
        await self.kubelet.stop()
        await self._api.__aexit__(None, None, None)

    async def replace_pod(self) -> None:
        """The oldest pod ends, and another one comes."""
        number, gpu = self._pods.pop(0)
        name, pid = f"pod-{number}", FIRST_PID + number
        await asyncio.to_thread(lambda: self.agent.sim(gpu=gpu, end=pid))
        shutil.rmtree(self._processes / str(pid))
        self.kubelet.pods.pop(("default", name))
        self._api.delete(PODS, name, namespace="default")
        await self._add_pod(next(self._serial))

    def _listed(self) -> set[str]:
        endpoint = self.kubelet.endpoints.get(RESOURCE)
        return set() if endpoint is None else endpoint.healthy

    async def _add_pod(self, number: int) -> None:
        """A pod with a device, a container, a process in it, and what that process does on its instance."""
        name, container, pid = f"pod-{number}", f"{number:064x}", FIRST_PID + number
        grant = await self.kubelet.allocate(RESOURCE, 1, pod=name)
        (self._processes / str(pid)).mkdir(parents=True)
        (self._processes / str(pid) / "cgroup").write_text(f"0::/kubepods/burstable/pod{number:032x}/{container}\n")
        status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        status["containerStatuses"] = [{"name": "main", "containerID": f"containerd://{container}"}]  # type: ignore[assignment]
        body = {"metadata": {}, "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]}, "status": status}
        self._api.create(PODS, name, body, namespace="default")
        gpu, gi_id = await asyncio.to_thread(self._place, grant.devices[0].partition("::")[0])
        load = {"gi": gi_id, "ci": 0, "pid": pid, "smUtil": 0.4, "memUsedMiB": 1000 + number, "powerW": 50}
        await asyncio.to_thread(lambda: self.agent.sim(gpu=gpu, load=load))
        self._pods.append((number, gpu))

    def _place(self, uuid: str) -> tuple[int, int]:
        gpus = self.agent.report().node.gpus
        return next((gpu.index, mig.gi_id) for gpu in gpus for mig in gpu.mig_instances if mig.uuid == uuid)

    async def _until_shown(self) -> None:
        end = asyncio.get_running_loop().time() + 120
        while True:
            _, text = await asyncio.to_thread(self.agent.get, "/metrics")
            shown = set(re.findall(r'^tessera_pod_gpu_memory_used_bytes\{.*pod="([\w-]+)"', text, re.MULTILINE))
            if len(shown) == PODS_ON_NODE:
                return
            if asyncio.get_running_loop().time() > end:
                raise TimeoutError(f"{len(shown)} of {PODS_ON_NODE} pods shown")
            await asyncio.sleep(1)
