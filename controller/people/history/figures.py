"""What was measured of GPUs and MIG instances."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Figures(NamedTuple):
    """Measurements of one GPU or MIG instance: ``busy`` as a share of 1 now and ``peak`` its most of the last hour,
    memory in MiB, temperature in degrees Celsius.
    """

    busy: float | None = None
    used_mib: float | None = None
    peak: float | None = None
    temperature_c: int | None = None


NONE: Final = Figures()
FiguresOf = Mapping[str, Figures]
"""The figures of GPUs and MIG instances by UUID."""
