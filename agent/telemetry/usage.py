"""The use of each device by pod: readings, holders and processes' owners joined. Pure.

A GPU in MIG mode counts as several devices: itself, with the figures that only the whole board has, and its GPU
instances, with the figures that each of them has.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from agent.kubelet.containers import PodContainer
from agent.telemetry.allocation import NOBODY, GpuPart, Tenants, slices_of
from agent.telemetry.fields import (
    DEC_UTIL,
    ENC_UTIL,
    FB_USED,
    GPU_UTIL,
    GR_ENGINE_ACTIVE,
    MEM_COPY_UTIL,
    POWER,
    of_instances,
)
from agent.telemetry.reading.readings import GpuReading, InstanceReading, ProcessReading, Values
from agent.telemetry.shares import Attribution, DeviceUse, Figure, Split, attribute
from inventory.devices import Gpu, GpuUuid, NodeInventory

FIGURES = {
    Figure.SM: GPU_UTIL,
    Figure.COPY: MEM_COPY_UTIL,
    Figure.ENCODER: ENC_UTIL,
    Figure.DECODER: DEC_UTIL,
    Figure.MEMORY_MIB: FB_USED,
    Figure.POWER_W: POWER,
}
GPM, RATES = "gpm", "utilization"
"""The sources of a busy ratio: the engine's own measure (Hopper and newer, MIG too), or NVML's rates."""


class Busy(Struct, frozen=True):
    ratio: float
    source: str


class Usage(Struct, frozen=True):
    """The usage of one device. ``values`` are those that its own series show; ``profile`` is empty for a whole GPU."""

    gpu: Gpu
    place: GpuPart
    profile: str
    values: Values
    tenants: Tenants
    attribution: Attribution
    busy: Busy | None = None


def usages(
    node: NodeInventory,
    readings: Mapping[GpuUuid, GpuReading],
    tenancy: Mapping[GpuPart, Tenants],
    owners: Mapping[int, PodContainer],
) -> tuple[Usage, ...]:
    """The usage of every device that was read, by GPU index, each GPU before its instances."""
    every: list[Usage] = []
    for gpu in node.gpus:
        reading = readings.get(gpu.uuid)
        if reading is None:
            continue
        if reading.instances:
            every += _partitioned(gpu, reading, tenancy, owners)
        else:
            every.append(_whole(gpu, reading, tenancy, owners))
    return tuple(every)


def validate(found: Sequence[Usage], readings: Mapping[GpuUuid, GpuReading]) -> None:
    """Check that every split is whole, and that the power of a board and its instances together is what the board
    draws.
    """
    drawn: dict[GpuUuid, float] = {}
    for usage in found:
        usage.attribution.validate()
        split = usage.attribution.splits.get(Figure.POWER_W)
        if split is not None:
            drawn[usage.gpu.uuid] = drawn.get(usage.gpu.uuid, 0.0) + sum(split.pods.values()) + split.unattributed
    for uuid, watts in drawn.items():
        total = readings[uuid].values[POWER]
        assert abs(watts - total) <= 1e-6 * max(1.0, total), f"{uuid}: {watts} W of {total} W"


def _whole(
    gpu: Gpu, reading: GpuReading, tenancy: Mapping[GpuPart, Tenants], owners: Mapping[int, PodContainer]
) -> Usage:
    place = GpuPart(gpu.uuid)
    holders = tenancy.get(place, NOBODY)
    busy = _busy(reading.values)
    use = DeviceUse(
        totals=_totals(reading.values, busy),
        processes=reading.processes,
        owners=owners,
        holders=holders.holders,
        exclusive=holders.exclusive,
        sampled=reading.processes_sampled,
    )
    return Usage(gpu, place, "", reading.values, holders, attribute(use), busy)


def _partitioned(
    gpu: Gpu, reading: GpuReading, tenancy: Mapping[GpuPart, Tenants], owners: Mapping[int, PodContainer]
) -> list[Usage]:
    profiles = {mig.gi_id: mig for mig in gpu.mig_instances}
    weights, rest_weight = _power_weights(gpu, reading)
    all_weights = sum(weights.values()) + rest_weight
    total_w = reading.values.get(POWER)
    parts: list[Usage] = []
    given_w = 0.0
    for instance in reading.instances:
        part_w = None
        if total_w is not None and all_weights > 0:
            part_w = total_w * (weights[instance.gi_id] / all_weights)
            given_w += part_w
        # A pod that was given the whole GPU has all its instances.
        place = GpuPart(gpu.uuid, instance.gi_id)
        holders = tenancy.get(place) or tenancy.get(GpuPart(gpu.uuid), NOBODY)
        processes = tuple(process for process in reading.processes if process.gi_id == instance.gi_id)
        profile = profiles[instance.gi_id].profile if instance.gi_id in profiles else ""
        parts.append(_instance(gpu, instance, place, profile.rpartition("c.")[2], holders, processes, owners, part_w))
    values = {name: value for name, value in reading.values.items() if not of_instances(name)}
    board = Attribution()
    if total_w is not None:
        rest_w = max(0.0, total_w - given_w)
        board = Attribution({Figure.POWER_W: Split(total=rest_w, unattributed=rest_w, known=False)})
    busy = _busy(reading.values) or _busy_of_instances(gpu, reading)
    return [Usage(gpu, GpuPart(gpu.uuid), "", values, NOBODY, board, busy), *parts]


def _instance(
    gpu: Gpu,
    reading: InstanceReading,
    place: GpuPart,
    profile: str,
    holders: Tenants,
    processes: tuple[ProcessReading, ...],
    owners: Mapping[int, PodContainer],
    power_w: float | None,
) -> Usage:
    busy = _busy(reading.values)
    totals = _totals(reading.values, busy)
    if power_w is not None:
        totals[Figure.POWER_W] = power_w
    use = DeviceUse(
        totals=totals, processes=processes, owners=owners, holders=holders.holders, exclusive=holders.exclusive
    )
    return Usage(gpu, place, profile, reading.values, holders, attribute(use), busy)


def _totals(values: Values, busy: Busy | None) -> dict[Figure, float]:
    found = {figure: values[name] for figure, name in FIGURES.items() if name in values}
    if busy is not None:
        found[Figure.BUSY] = busy.ratio
    return found


def _busy(values: Values) -> Busy | None:
    if GR_ENGINE_ACTIVE in values:
        return Busy(values[GR_ENGINE_ACTIVE], GPM)
    if GPU_UTIL in values:
        return Busy(values[GPU_UTIL] / 100, RATES)
    return None


def _slices(gpu: Gpu) -> dict[int, int]:
    return {mig.gi_id: mig.gi_slices for mig in gpu.mig_instances}


def _busy_of_instances(gpu: Gpu, reading: GpuReading) -> Busy | None:
    """The board's busy ratio from its instances', each weighted by its slices; None where one of them does not tell."""
    slices = _slices(gpu)
    ratios = [(slices.get(instance.gi_id, 0), instance.values.get(GR_ENGINE_ACTIVE)) for instance in reading.instances]
    if any(ratio is None for _, ratio in ratios):
        return None
    return Busy(min(1.0, sum(n * (ratio or 0.0) for n, ratio in ratios) / slices_of(gpu)), GPM)


def _power_weights(gpu: Gpu, reading: GpuReading) -> tuple[dict[int, float], float]:
    """The estimated division of the board's power among its instances, and the rest that goes to none of them.

    The weights are slices times activity where GPM tells it, else slices: an idle slice and a busy one then look equal.
    """
    slices = _slices(gpu)
    by_size = {instance.gi_id: float(slices.get(instance.gi_id, 0)) for instance in reading.instances}
    ratios = {part.gi_id: part.values.get(GR_ENGINE_ACTIVE) for part in reading.instances}
    by_work = {gi_id: size * (ratios[gi_id] or 0.0) for gi_id, size in by_size.items()}
    if None not in ratios.values() and sum(by_work.values()) > 0:
        return by_work, 0.0
    return by_size, max(0.0, slices_of(gpu) - sum(by_size.values()))
