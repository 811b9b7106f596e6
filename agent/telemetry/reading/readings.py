"""The figures of one pass over NVML. ``values`` are by field name (see ``fields``), without those a board does not
give.
"""

from msgspec import Struct

from inventory.devices import GpuUuid

Values = dict[str, float]
Texts = dict[str, str]


class ProcessReading(Struct, frozen=True):
    """One process on one GPU, or on one instance of it.

    ``memory_mib`` is None where the driver does not tell. ``sm``, ``copy``, ``encoder`` and ``decoder`` are weights:
    sums of utilisation samples since the last pass, comparable only among the processes of one GPU.
    """

    pid: int
    gi_id: int | None = None
    memory_mib: float | None = None
    sm: float = 0.0
    copy: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


class InstanceReading(Struct, frozen=True):
    """One GPU instance of a GPU in MIG mode."""

    gi_id: int
    values: Values


class GpuReading(Struct, frozen=True):
    """One GPU, read in one go at ``at_s`` (monotonic). ``first``: there is no earlier sample to compare with, so there
    are no GPM figures.

    ``processes_sampled`` tells whether the driver gave utilisation by process; ``links_up`` how many of the ``links``
    NVLinks that were ever up are up now. ``texts`` are values for labels, by field name.
    """

    uuid: GpuUuid
    at_s: float
    values: Values
    instances: tuple[InstanceReading, ...] = ()
    processes: tuple[ProcessReading, ...] = ()
    processes_sampled: bool = False
    links: int = 0
    links_up: int = 0
    first: bool = False
    texts: Texts = {}
