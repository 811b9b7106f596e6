"""Which GPUs have come to life anew since somebody last asked: what only a reset does to a GPU. Pure.

The evidence is in handles: one that worked is dead and another one works, or NVML called the GPU lost and now hands out
a handle that works. A GPU that was merely late, or whose handle is another one for no such reason, proves nothing.
"""

from collections.abc import Iterable

from inventory.ids import GpuUuid


class Renewals:
    """Filled by discovery and probes, over sessions; ``take`` empties it."""

    def __init__(self) -> None:
        self._lost: set[GpuUuid] = set()
        self._renewed: set[GpuUuid] = set()

    def lost(self, gpu: GpuUuid) -> None:
        """NVML says that the GPU is lost."""
        self._lost.add(gpu)

    def answered(self, gpu: GpuUuid, *, old_handle_works: bool | None) -> None:
        """The GPU answers; the handle used before still works, or not, or (None) there was none."""
        if old_handle_works is False or (old_handle_works is None and gpu in self._lost):
            self._renewed.add(gpu)
        self._lost.discard(gpu)

    def keep(self, gpus: Iterable[GpuUuid]) -> None:
        """These are all there are: one that was removed and comes back has not thereby been reset."""
        here = set(gpus)
        self._lost &= here
        self._renewed &= here

    def take(self, gpu: GpuUuid) -> bool:
        """Whether the GPU was renewed since it was last asked about."""
        renewed = gpu in self._renewed
        self._renewed.discard(gpu)
        return renewed
