"""The ``change.MigHardware`` of a real (or simulated) GPU: NVML through the monitor's session, and the GPU's other
users.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from agent.hardware.migchange import GpuMig, ModeChange, read_mig, set_mode, set_mode_alone, take
from agent.hardware.monitor import GpuMonitor
from inventory.devices import Gpu
from inventory.mig.plan import Step

READ_TIMEOUT_S = 15.0
STEP_TIMEOUT_S = 30.0
MODE_TIMEOUT_S = 60.0
"""The time limit in seconds of a change of mode: a reset takes seconds, and more on machines with many GPUs."""
HURRY_S = 5.0
"""The seconds of hurried calls after the last step, for the discovery of the new instances."""
MAX_CLIENTS = 8


class NvmlMig:
    """MIG of one GPU. ``may_close``: the agent's NVML session may be closed for a change of mode."""

    def __init__(self, monitor: GpuMonitor, gpu: Gpu, proc_root: Path, *, may_close: bool) -> None:
        self._monitor = monitor
        self._gpu = gpu
        self._proc_root = proc_root
        self._may_close = may_close

    async def read(self) -> GpuMig:
        return await self._monitor.on_gpu(self._gpu.uuid, read_mig, READ_TIMEOUT_S)

    async def take(self, step: Step) -> None:
        self._monitor.hurry(HURRY_S)
        await self._monitor.on_gpu(self._gpu.uuid, lambda handle: take(handle, step), STEP_TIMEOUT_S)

    async def set_mode(self, *, enabled: bool) -> ModeChange:
        uuid = self._gpu.uuid
        self._monitor.hurry(HURRY_S)
        change = await self._monitor.on_gpu(uuid, lambda handle: set_mode(handle, enabled=enabled), MODE_TIMEOUT_S)
        if change is ModeChange.DONE or not self._may_close:
            return change
        return await self._monitor.alone(lambda: set_mode_alone(uuid, enabled=enabled), MODE_TIMEOUT_S)

    def clients(self) -> Sequence[str]:
        return open_by(self._proc_root, f"/dev/nvidia{self._gpu.minor}", but=os.getpid())


def open_by(proc_root: Path, device: str, *, but: int) -> list[str]:
    """The processes that have a device file open, as ``name (pid)``. Processes that may not be looked at are
    left out.
    """
    clients: list[str] = []
    for process in proc_root.glob("[0-9]*"):
        if process.name != str(but) and _has_open(process, device):
            clients.append(f"{_name(process)} ({process.name})")
        if len(clients) >= MAX_CLIENTS:
            break
    return sorted(clients)


def _has_open(process: Path, device: str) -> bool:
    try:
        return any(str(link.readlink()) == device for link in (process / "fd").iterdir())
    except OSError:
        return False


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"
