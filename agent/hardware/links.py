"""The link matrix from what each GPU says about its own ends. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from inventory.devices import Gpu, RemoteType
from inventory.links import UNKNOWN_LINK, Link, LinkMatrix, PcieLevel


def link_matrix(gpus: Sequence[Gpu], ancestors: Mapping[tuple[int, int], int]) -> LinkMatrix:
    """Links of every pair, in the order of ``gpus``.

    ``ancestors`` holds nvmlGpuTopologyLevel_t by positions (i, j) with i < j; a missing pair is an unknown distance. A
    direct link counts when both ends see it, a switch lane up to the smaller of the two GPUs' counts.
    """
    direct = [Counter(link.remote_pci_bus_id for link in gpu.nvlinks if link.active) for gpu in gpus]
    lanes = [sum(1 for link in g.nvlinks if link.active and link.remote_type is RemoteType.SWITCH) for g in gpus]

    def pair(i: int, j: int) -> Link:
        level = ancestors.get((min(i, j), max(i, j)))
        return Link(
            pcie=PcieLevel(level) if level in set(PcieLevel) else None,
            nvlinks=min(direct[i][gpus[j].pci_bus_id], direct[j][gpus[i].pci_bus_id]),
            nvswitch=min(lanes[i], lanes[j]),
        )

    n = len(gpus)
    return tuple(tuple(UNKNOWN_LINK if i == j else pair(i, j) for j in range(n)) for i in range(n))
