"""The connection of two GPUs of one node, as scores that add up.

Scores follow go-gpuallocator's table (PCIe distance 10 to 60, plus 100 for each NVLink), extended as HAMi does: a pair
whose links end at NVSwitches counts the lanes both ends have into the switches. The link count decides: it outweighs
any PCIe distance.
"""

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

NVLINK_SCORE = 100


class PcieLevel(IntEnum):
    """The nearest common ancestor of two GPUs on PCIe: the values of NVML's nvmlGpuTopologyLevel_t."""

    PSB = 0
    PIX = 10
    PXB = 20
    PHB = 30
    NODE = 40
    SYS = 50


PCIE_SCORE = {
    PcieLevel.PSB: 60,
    PcieLevel.PIX: 50,
    PcieLevel.PXB: 40,
    PcieLevel.PHB: 30,
    PcieLevel.NODE: 20,
    PcieLevel.SYS: 10,
}


class Link(Struct, frozen=True):
    """The connection of one pair of GPUs.

    ``pcie`` is None where NVML could not say. ``nvlinks`` counts active direct links, ``nvswitch`` the lanes that both
    have into NVSwitches (the smaller of the two counts).
    """

    pcie: PcieLevel | None = None
    nvlinks: int = 0
    nvswitch: int = 0

    @property
    def score(self) -> int:
        """The pair's score: higher is closer; 0 when no connection is known."""
        near = 0 if self.pcie is None else PCIE_SCORE[self.pcie]
        return near + NVLINK_SCORE * (self.nvlinks + self.nvswitch)

    @property
    def label(self) -> str:
        """The pair in the notation of ``nvidia-smi topo -m``: ``NV12``, or the PCIe level, or ``?``."""
        lanes = self.nvlinks + self.nvswitch
        if lanes:
            return f"NV{lanes}"
        return "?" if self.pcie is None else self.pcie.name


UNKNOWN_LINK = Link()
LinkMatrix = tuple[tuple[Link, ...], ...]
"""An n x n matrix in the order of the node's GPUs; symmetric; the diagonal means nothing."""

ScoreMatrix = tuple[tuple[int, ...], ...]
"""An n x n matrix of pair scores; symmetric; diagonal 0."""


def scores(links: Sequence[Sequence[Link]]) -> ScoreMatrix:
    """Pair scores of a link matrix. Where the two directions disagree the lower one counts."""
    n = len(links)
    return tuple(tuple(0 if i == j else min(links[i][j].score, links[j][i].score) for j in range(n)) for i in range(n))
