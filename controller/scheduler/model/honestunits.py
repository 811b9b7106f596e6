"""The worth of GPU resources in memory and compute, however GPUs are cut and shared.

    nvidia.com/gpu, nvidia.com/mig-3g.40gb, nvidia.com/gpu.shared, tessera.dev/gpu-percent
        -> tessera.dev/gpu-memory-gib, tessera.dev/gpu-compute-slices

A ClusterQueue may cover these units beside the plain counts, or in their place: four 7g.80gb then do not cost the same
as four 1g.10gb. Amounts are exact fractions; the charge of one pod is rounded up once, as its sum.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from controller.scheduler.model.resources import ResourceName
from inventory.api.names import GPU_COMPUTE_SLICES, GPU_MEMORY_GIB, GPU_PERCENT

MEMORY_GIB: Final = ResourceName(GPU_MEMORY_GIB)
COMPUTE_SLICES: Final = ResourceName(GPU_COMPUTE_SLICES)
UNITS: Final = frozenset({MEMORY_GIB, COMPUTE_SLICES})

GPU: Final = "nvidia.com/gpu"
SHARED: Final = ".shared"
_MIG: Final = re.compile(r"nvidia\.com/mig-(\d{1,2})g\.(\d{1,4})gb([.-](?!shared$)[a-z.-]+?)?(\.shared)?")
_WHOLE: Final = Fraction(1)
_PERCENTS: Final = 100


class HonestUnits(msgspec.Struct, frozen=True):
    """What one whole GPU of the fleet has, and how many containers share a ``.shared`` resource. A MIG profile's name
    says its memory and its slices; every other resource is a fraction of the whole GPU.
    """

    memory_gib: Fraction
    compute_slices: int = 7
    shared_replicas: int = 1

    def of(self, name: str) -> Mapping[ResourceName, Fraction]:
        """The worth of one unit of a resource; empty for what is no GPU resource."""
        found = _MIG.fullmatch(name)
        if found is not None:
            part = Fraction(1, self.shared_replicas) if found[4] else _WHOLE
            return {MEMORY_GIB: int(found[2]) * part, COMPUTE_SLICES: int(found[1]) * part}
        share = self._share(name)
        return (
            {} if share is None else {MEMORY_GIB: self.memory_gib * share, COMPUTE_SLICES: self.compute_slices * share}
        )

    def _share(self, name: str) -> Fraction | None:
        """The fraction of a GPU that one unit is; None for what is no GPU resource."""
        if name == GPU:
            return _WHOLE
        if name == GPU + SHARED:
            return Fraction(1, self.shared_replicas)
        return Fraction(1, _PERCENTS) if name == GPU_PERCENT else None


def is_charged_in_units(name: str) -> bool:
    """Whether ``HonestUnits`` knows the worth of the resource."""
    return name in (GPU, GPU + SHARED, GPU_PERCENT) or _MIG.fullmatch(name) is not None


def undeclared(asked: Iterable[ResourceName], declared: Mapping[ResourceName, int]) -> tuple[ResourceName, ...]:
    """The resources for which a queue that has quota for ``declared`` would need quota too. Units that it does not
    cover are ignored, and where it covers a unit the plain counts need no quota.
    """
    names = tuple(asked)
    in_units = any(name in UNITS and name in declared for name in names)
    return tuple(
        name
        for name in names
        if name not in declared and name not in UNITS and not (in_units and is_charged_in_units(name))
    )
