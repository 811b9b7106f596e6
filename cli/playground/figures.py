"""The measurements of the simulated GPUs: busy ratio, memory and temperature, by the simulator's boards. Pure.

A GPU to which the fleet file gives a load has that; any other works while a pod holds it, and rests otherwise.
"""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final
from zlib import crc32

from controller.people.history.figures import Figures
from controller.people.history.queries import figures
from simulator.boards.loads import Load
from simulator.boards.telemetry import activity
from simulator.fleet.fleet import GpuSpec, NodeSpec

_MEAN: Final = 0.8
_SWING: Final = 0.18
_PERIOD_S: Final = 600.0
"""The length in seconds of the waves in which a held GPU's busy ratio swings by ``_SWING`` about ``_MEAN``."""
_MEMORY: Final = 0.75
"""The part of a GPU's memory that a job fills."""


def measured(spec: NodeSpec, held: AbstractSet[str], silent: AbstractSet[str], t_s: float) -> dict[str, Figures]:
    """The figures, by UUID, of the GPUs of a node that answer. ``held``: those that a pod has; ``t_s``: seconds since
    the fleet began.
    """
    found = [(gpu, tuple(_loads(spec, gpu, held, t_s))) for gpu in spec.gpus if gpu.present and gpu.uuid not in silent]
    now = {gpu.uuid: activity(loads, gpu.product, gpu.product.power_w[2], t_s) for gpu, loads in found}
    return figures(
        {
            "busy": [({"UUID": uuid}, each.sm) for uuid, each in now.items()],
            "used": [({"UUID": uuid}, each.mem_used_mib) for uuid, each in now.items()],
            "temperature": [({"UUID": uuid}, each.temperature_c) for uuid, each in now.items()],
        }
    )


def _loads(spec: NodeSpec, gpu: GpuSpec, held: AbstractSet[str], t_s: float) -> Iterator[Load]:
    given = [load for load in spec.loads if load.gpu == gpu.index]
    yield from given
    if not given and gpu.uuid in held:
        phase = crc32(gpu.uuid.encode()) / 2**32
        share = _MEAN + _SWING * math.sin(2 * math.pi * (t_s / _PERIOD_S + phase))
        yield Load(gpu=gpu.index, sm_util=((0.0, share),), mem_used_mib=((0.0, _MEMORY * gpu.memory_mib),))
