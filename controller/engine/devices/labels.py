"""What the labels of GPU feature discovery say of a node whose GPUs no agent reports."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.engine.model.devicerequest import DeviceAsk

PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
"""MiB of each GPU."""
_SUFFIXES: Final = ("-SHARED", "-MIG-")
_DIGITS: Final = 12


class Said(NamedTuple):
    """``product`` is empty and ``memory_mib`` 0 where nothing is said."""

    product: str
    memory_mib: int

    def may_be(self, ask: DeviceAsk) -> bool:
        """False where the node's GPUs are others than those that are asked for."""
        fine = not ask.product or not self.product or self._is(ask.product)
        return fine and (not self.memory_mib or self.memory_mib >= ask.min_memory_mib)

    def _is(self, product: str) -> bool:
        rest = self.product.removeprefix(product)
        return not rest or (rest != self.product and rest.startswith(_SUFFIXES))


def said(labels: Mapping[str, str]) -> Said | None:
    product, memory = labels.get(PRODUCT, ""), labels.get(MEMORY, "")
    number = int(memory) if memory.isascii() and memory.isdigit() and len(memory) <= _DIGITS else 0
    return Said(product, number) if product or number else None
