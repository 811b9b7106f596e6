"""A GPU's compute mode, set and given back through NVML on a thread of its own: a GPU that hangs hangs no other's
calls.
"""

import contextlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pynvml

from agent.hardware.query import CallFailed, NvmlError, must, text
from agent.hardware.worker import GpuWorker
from failpoints import points
from failpoints.names import Failpoint


class ComputeMode(IntEnum):
    """The values of nvmlComputeMode_t that can still be set."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class ComputeModes:
    """Sets compute modes. Each call has an NVML session of its own: none stays open to block a reset."""

    def __init__(self) -> None:
        self._workers: dict[str, GpuWorker] = {}

    async def read(self, gpu: str) -> ComputeMode:
        """Read a GPU's mode. Raises CallFailed, one line."""
        return await self._call(gpu, "cannot be read", _read)

    async def set(self, gpu: str, mode: ComputeMode) -> None:
        """Set a GPU's mode. Raises CallFailed, one line."""

        def change(handle: Any) -> ComputeMode:
            if _read(handle) != mode:
                points.before(Failpoint.COMPUTE_MODE)
                must(pynvml.nvmlDeviceSetComputeMode, handle, int(mode))
                points.after(Failpoint.COMPUTE_MODE)
            return mode

        await self._call(gpu, f"{mode.name} cannot be set", change)

    async def _call(self, gpu: str, what: str, function: Callable[[Any], ComputeMode]) -> ComputeMode:
        worker = self._workers.get(gpu) or self._workers.setdefault(gpu, GpuWorker(f"mode-{gpu[-4:]}"))

        def call() -> ComputeMode:
            must(pynvml.nvmlInit)
            try:
                return function(must(pynvml.nvmlDeviceGetHandleByUUID, gpu))
            finally:
                must(pynvml.nvmlShutdown)

        try:
            return await worker.call(call)
        except (NvmlError, ValueError) as failed:
            raise CallFailed(f"compute mode {what}: {failed}") from None


def _read(handle: Any) -> ComputeMode:
    return ComputeMode(int(must(pynvml.nvmlDeviceGetComputeMode, handle)))


def read_compute_modes() -> list[tuple[str, int]]:
    """UUID and compute mode of each GPU, read in a session of its own; empty where NVML cannot be read."""
    modes: list[tuple[str, int]] = []
    try:
        must(pynvml.nvmlInit)
    except NvmlError:
        return modes
    try:
        for index in range(must(pynvml.nvmlDeviceGetCount)):
            with contextlib.suppress(NvmlError):
                handle = must(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = text(must(pynvml.nvmlDeviceGetUUID, handle))
                modes.append((uuid, int(must(pynvml.nvmlDeviceGetComputeMode, handle))))
    finally:
        must(pynvml.nvmlShutdown)
    return modes
