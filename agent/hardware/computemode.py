"""A GPU's compute mode, set and given back through NVML on a thread of its own: a GPU that hangs hangs no other's
calls.
"""

import contextlib
from enum import IntEnum

import pynvml

from agent.hardware.query import CallFailed, NvmlError, must, text
from agent.hardware.worker import GpuWorker


class ComputeMode(IntEnum):
    """The values of nvmlComputeMode_t that can still be set."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


class ComputeModes:
    """Sets compute modes. Each call has an NVML session of its own: none stays open to block a reset."""

    def __init__(self) -> None:
        self._workers: dict[str, GpuWorker] = {}

    async def exchange(self, gpu: str, mode: ComputeMode) -> ComputeMode:
        """Set a GPU's mode; return the one it had. Raises CallFailed, one line."""
        worker = self._workers.get(gpu) or self._workers.setdefault(gpu, GpuWorker(f"mode-{gpu[-4:]}"))

        def exchange() -> int:
            must(pynvml.nvmlInit)
            try:
                handle = must(pynvml.nvmlDeviceGetHandleByUUID, gpu)
                before = int(must(pynvml.nvmlDeviceGetComputeMode, handle))
                if before != mode:
                    must(pynvml.nvmlDeviceSetComputeMode, handle, int(mode))
                return before
            finally:
                must(pynvml.nvmlShutdown)

        try:
            return ComputeMode(await worker.call(exchange))
        except (NvmlError, ValueError) as failed:
            raise CallFailed(f"compute mode {mode.name} cannot be set: {failed}") from None


def read_compute_modes() -> list[tuple[str, int]]:
    """UUID and compute mode of each GPU, read in a session of its own; empty where NVML cannot be read."""
    found: list[tuple[str, int]] = []
    try:
        must(pynvml.nvmlInit)
    except NvmlError:
        return found
    try:
        for index in range(must(pynvml.nvmlDeviceGetCount)):
            with contextlib.suppress(NvmlError):
                handle = must(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = text(must(pynvml.nvmlDeviceGetUUID, handle))
                found.append((uuid, int(must(pynvml.nvmlDeviceGetComputeMode, handle))))
    finally:
        must(pynvml.nvmlShutdown)
    return found
