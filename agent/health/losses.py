"""Whether a GPU that NVML calls lost is still on the node, or was taken out. Pure.

    ProbeFailed(LOST) -> heard; a discovery -> discovered -> there

NVML says of a board that was taken out what it says of one that has fallen off the bus. Only a discovery that began
after the loss tells them apart: it no longer lists the one, and lists the other without being able to read it.
"""

from collections.abc import Iterable

from inventory.devices import Gpu, GpuUuid


class Losses:
    """The lost GPUs of one node. ``_since`` has the number of discoveries that had begun when each was heard to be
    lost; ``_there`` are those of them that a later discovery has listed, and could not read.
    """

    def __init__(self) -> None:
        self._since: dict[GpuUuid, int] = {}
        self._there: set[GpuUuid] = set()

    def heard(self, gpu: GpuUuid, discoveries: int) -> bool:
        """Take that the GPU is lost after so many discoveries have begun. True where another one has to be made."""
        if gpu in self._since:
            return False
        self._since[gpu] = discoveries
        return True

    def discovered(self, gpus: Iterable[Gpu], discoveries: int) -> None:
        """Take the result of the last of so many discoveries. A GPU that it could read is lost only if that is heard
        anew.
        """
        later = {gpu for gpu, began in self._since.items() if discoveries > began}
        found = {gpu.uuid: gpu.readable for gpu in gpus}
        for gpu in later:
            if found.get(gpu) is False:
                self._there.add(gpu)
            else:
                self.over(gpu)

    def over(self, gpu: GpuUuid) -> None:
        """Take that the GPU is not lost any more."""
        self._since.pop(gpu, None)
        self._there.discard(gpu)

    def there(self, gpu: GpuUuid) -> bool:
        """Whether the GPU is lost, and known to be listed still."""
        return gpu in self._there

    def validate(self) -> None:
        """Recompute the invariants."""
        assert self._there <= self._since.keys(), "a GPU is there without having been lost"
