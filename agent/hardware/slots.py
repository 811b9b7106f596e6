"""One GPU index of NVML: its threads, and the handle and GPU last found there."""

from collections.abc import Callable
from typing import Any

from agent.hardware.worker import GpuWorker, XidEvent
from inventory.devices import Gpu


class Slot:
    """An index with its thread, and the handle and GPU last found there.

    ``Driver`` alone writes ``handle`` and ``gpu``, on the event loop and after a call has returned: threads get those
    of their call. ``handle`` is NVML's for the open session: None before the first read, and once the session is closed
    or NVML lists fewer GPUs. ``gpu`` is what the last read gave; None as long. A GPU known from before that cannot be
    read has a ``gpu`` and no ``handle``.
    """

    def __init__(self, index: int, on_event: Callable[["Slot", XidEvent], None]) -> None:
        self.index = index
        self.handle: Any = None
        self.gpu: Gpu | None = None
        self.worker = GpuWorker(f"gpu{index}", lambda event: on_event(self, event))
        self._changes: GpuWorker | None = None

    @property
    def changes(self) -> GpuWorker:
        """A second thread, for calls that take long or may hang: the GPU's probes and events go on meanwhile."""
        if self._changes is None:
            self._changes = GpuWorker(f"gpu{self.index}-mig")
        return self._changes
