"""GPUs of the fleet by state, for /metrics: the states are those that the page shows."""

from collections import Counter
from collections.abc import Iterable, Mapping

from controller.insight.forecast.parts import Parts
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from inventory.gpustates import GpuState, counted, state_of

_PART = 200
"""Nodes between two pauses: a few milliseconds where all have changed."""


class GpuCounts:
    """Counts GPUs. ``_kept``: counts of each node by its name, with the two objects that they were made of: a node is
    counted anew only when one of these is another object.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Node | None, GpuNode, Mapping[GpuState, int]]] = {}

    def read(self, nodes: Iterable[Node], gpu_nodes: Iterable[GpuNode]) -> Parts[Mapping[GpuState, int]]:
        by_name = {each.metadata.name: each for each in nodes}
        entries: dict[str, tuple[Node | None, GpuNode, Mapping[GpuState, int]]] = {}
        sums: Counter[GpuState] = Counter()
        for number, gpu_node in enumerate(tuple(gpu_nodes)):
            name = gpu_node.metadata.name
            node, entry = by_name.get(name), self._kept.get(name)
            if entry is None or entry[0] is not node or entry[1] is not gpu_node:
                entry = (node, gpu_node, _of_node(node, gpu_node))
            entries[name] = entry
            sums.update(entry[2])
            if number % _PART == _PART - 1:
                yield
        self._kept = entries
        return sums


def _of_node(node: Node | None, gpu_node: GpuNode) -> Mapping[GpuState, int]:
    held = {holder.physical for holder in gpu_node.status.holders}
    takes = node is not None and node.takes_pods
    return counted(state_of(device, held, takes_pods=takes) for device in gpu_node.status.devices)
