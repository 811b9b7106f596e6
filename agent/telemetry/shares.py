"""Each pod's use of a device. Pure arithmetic: a device's figures are split, never added up from parts.

Processes' samples do not add up to the device's figure (each is a mean over its own moments), so the device's figure is
divided in their proportion. The use of no known pod is ``unattributed``: the parts and this rest always add up to the
whole.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from agent.kubelet.containers import PodContainer
from agent.telemetry.reading.readings import ProcessReading

TOLERANCE = 1e-6


class Figure(StrEnum):
    """A figure that is divided among pods."""

    SM = "sm"
    COPY = "copy"
    ENCODER = "encoder"
    DECODER = "decoder"
    MEMORY_MIB = "memory_mib"
    BUSY = "busy"
    POWER_W = "power_w"


class Split(Struct, frozen=True):
    """One figure of a device by pod. ``known`` is False where no sample tells the pods apart: then all of it is the
    rest.
    """

    total: float
    pods: dict[PodContainer, float] = {}
    unattributed: float = 0.0
    known: bool = True

    def validate(self) -> None:
        """Check that parts and rest are the whole, that none is negative, and that without knowledge there are no
        parts.
        """
        parts = sum(self.pods.values()) + self.unattributed
        assert abs(parts - self.total) <= TOLERANCE * max(1.0, abs(self.total)), f"{parts} is not {self.total}"
        assert all(part >= 0 for part in self.pods.values()), "a negative part"
        assert self.unattributed >= 0, "a negative rest"
        assert self.known or not self.pods, "parts of an unknown total"


class DeviceUse(Struct, frozen=True):
    """The use of a GPU or a GPU instance during one pass, as far as attribution needs it.

    ``totals`` has no key for a figure that the device does not give. ``exclusive``: its one holder has it for itself.
    ``sampled``: the driver gave utilisation by process.
    """

    totals: Mapping[Figure, float]
    processes: Sequence[ProcessReading] = ()
    owners: Mapping[int, PodContainer] = {}
    holders: tuple[PodContainer, ...] = ()
    exclusive: bool = False
    sampled: bool = False


class Attribution(Struct, frozen=True):
    """Every figure of a device by pod. ``active`` says for each pod whether it did something; None where that is
    unknown.

    ``occupied``: NVML lists a process on the device.
    """

    splits: dict[Figure, Split] = field(default_factory=dict)
    active: dict[PodContainer, bool | None] = field(default_factory=dict)
    occupied: bool = False

    @property
    def pods(self) -> tuple[PodContainer, ...]:
        return tuple(sorted(self.active))

    def validate(self) -> None:
        """Check that every split is whole, and names no pod that the device does not have."""
        for split in self.splits.values():
            split.validate()
            assert split.pods.keys() <= self.active.keys(), "a part for a pod that is not there"


_WEIGHTS: dict[Figure, Callable[[ProcessReading], float]] = {
    Figure.SM: lambda reading: reading.sm,
    Figure.COPY: lambda reading: reading.copy,
    Figure.ENCODER: lambda reading: reading.encoder,
    Figure.DECODER: lambda reading: reading.decoder,
    Figure.BUSY: lambda reading: reading.sm,
    Figure.POWER_W: lambda reading: reading.sm,
}
ACTIVE_RATIO = 0.001
"""The ratio, a mean over the whole interval, above which a device counts as active; one query a second of a small model
is more.
"""
ACTIVE_PERCENT = 1.0
"""The percent from which a device counts as active: the smallest that NVML's rates can show."""


def attribute(use: DeviceUse) -> Attribution:
    """Divide the device's figures among its pods."""
    if use.exclusive and len(use.holders) == 1:
        return _exclusive(use, use.holders[0])
    names = {*use.holders, *(use.owners[process.pid] for process in use.processes if process.pid in use.owners)}
    splits: dict[Figure, Split] = {}
    for figure, total in use.totals.items():
        if figure is Figure.MEMORY_MIB:
            splits[figure] = _memory(total, use, names)
        elif use.sampled:
            splits[figure] = _in_proportion(figure, total, use, names)
        else:
            splits[figure] = Split(total=total, unattributed=total, known=False)
    active = {name: _ran(use, name) if use.sampled else None for name in names}
    return Attribution(splits, active, occupied=bool(use.processes))


def _exclusive(use: DeviceUse, holder: PodContainer) -> Attribution:
    splits = {figure: Split(total=total, pods={holder: total}) for figure, total in use.totals.items()}
    return Attribution(splits, {holder: is_active(use.totals)}, occupied=bool(use.processes))


def is_active(totals: Mapping[Figure, float]) -> bool | None:
    """Whether the device did anything since the last pass; None where it does not tell."""
    percents = [totals[figure] for figure in (Figure.SM, Figure.ENCODER, Figure.DECODER) if figure in totals]
    busy = totals.get(Figure.BUSY)
    if busy is None and not percents:
        return None
    return (busy or 0.0) > ACTIVE_RATIO or any(value >= ACTIVE_PERCENT for value in percents)


def _ran(use: DeviceUse, name: PodContainer) -> bool:
    mine = (process for process in use.processes if use.owners.get(process.pid) == name)
    return any(process.sm > 0 or process.encoder > 0 or process.decoder > 0 for process in mine)


def _in_proportion(figure: Figure, total: float, use: DeviceUse, names: set[PodContainer]) -> Split:
    weight = _WEIGHTS[figure]
    weights = dict.fromkeys(sorted(names), 0.0)
    others = 0.0
    for process in use.processes:
        owner = use.owners.get(process.pid)
        if owner is None:
            others += weight(process)
        else:
            weights[owner] += weight(process)
    return divide(total, weights, others)


def divide(total: float, weights: Mapping[PodContainer, float], others: float) -> Split:
    """Divide ``total`` in proportion to the weights; the rest is the part of ``others``. Without any weight all is the
    rest.
    """
    whole = sum(weights.values()) + others
    if whole <= 0 or total <= 0:
        return Split(total=total, pods=dict.fromkeys(weights, 0.0), unattributed=total)
    pods = {name: total * (weight / whole) for name, weight in weights.items()}
    return Split(total=total, pods=pods, unattributed=max(0.0, total - sum(pods.values())))


def _memory(total: float, use: DeviceUse, names: set[PodContainer]) -> Split:
    """The memory of each pod. It is counted, not divided; where the processes' figures exceed the device's they are
    scaled down to it.

    Two processes that share memory both show it, and lists and total are not read at one instant.
    """
    pods = dict.fromkeys(sorted(names), 0.0)
    others, unknown = 0.0, False
    for process in use.processes:
        owner = use.owners.get(process.pid)
        unknown = unknown or process.memory_mib is None
        if owner is None:
            others += process.memory_mib or 0.0
        else:
            pods[owner] += process.memory_mib or 0.0
    if unknown and not any(pods.values()):
        return Split(total=total, unattributed=total, known=False)
    if sum(pods.values()) + others > total:
        return divide(total, pods, others)
    return Split(total=total, pods=pods, unattributed=total - sum(pods.values()))
