"""A GPU's health as the checkpoint holds it, and the invariants that hold before and after."""

from msgspec import Struct
from msgspec.structs import replace

from agent.health.records import HISTORY_LENGTH, DeviceRecord, GpuRecord
from agent.health.states import Fault, HealthState, Transition
from inventory.devices import GpuUuid


class GpuSnapshot(Struct, frozen=True, kw_only=True):
    """One GPU of a ``HealthSnapshot``."""

    uuid: GpuUuid
    pci_bus_id: str
    mig_enabled: bool
    switch_links: tuple[int, ...]
    ecc_seen: bool
    faults: tuple[Fault, ...]
    units: tuple[DeviceRecord, ...]
    history: tuple[Transition, ...]


class HealthSnapshot(Struct, frozen=True):
    """The core's whole state, for the checkpoint (msgspec encodes it)."""

    gpus: tuple[GpuSnapshot, ...] = ()
    version: int = 1


def freeze(record: GpuRecord) -> GpuSnapshot:
    """A copy of ``record`` that later events do not touch."""
    return GpuSnapshot(
        uuid=record.uuid,
        pci_bus_id=record.pci_bus_id,
        mig_enabled=record.mig_enabled,
        switch_links=tuple(sorted(record.switch_links)),
        ecc_seen=record.ecc_seen,
        faults=tuple(record.open.values()),
        units=tuple(replace(unit) for unit in record.units),
        history=tuple(record.history),
    )


def thaw(gpu: GpuSnapshot) -> GpuRecord:
    """A record equal to the one that ``freeze`` was given."""
    return GpuRecord(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        mig_enabled=gpu.mig_enabled,
        switch_links=frozenset(gpu.switch_links),
        ecc_seen=gpu.ecc_seen,
        open={fault.key: fault for fault in gpu.faults},
        units=[replace(unit) for unit in gpu.units] or [DeviceRecord()],
        history=list(gpu.history),
    )


def validate(record: GpuRecord) -> None:
    """Recompute the invariants: each state is what its faults allow, clocks run only on probation."""
    assert record.units, "a GPU without a unit for itself"
    assert record.units[0].mig is None, "the first unit is not the GPU"
    assert len({unit.mig for unit in record.units}) == len(record.units), "a device has two units"
    assert all(key == fault.key for key, fault in record.open.items()), "a fault is filed under a wrong key"
    assert all(fault.fault_class.opens for fault in record.open.values()), "a harmless fault is open"
    assert len(record.history) <= HISTORY_LENGTH, "the history is not bounded"
    for unit in record.units:
        _validate_unit(record, unit)


def _validate_unit(record: GpuRecord, unit: DeviceRecord) -> None:
    faults = record.hitting(unit)
    blocked = any(fault.blocks for fault in faults)
    name = f"{record.uuid} {unit.mig or ''}"
    assert blocked == (unit.state is HealthState.UNHEALTHY), f"{name} is {unit.state}, blocked: {blocked}"
    on_probation = unit.state is HealthState.PROBATION
    assert on_probation == (unit.probation_since_s is not None), f"{name}: a probation clock without probation"
    assert on_probation or unit.clean_probes == 0, f"{name} counts clean probes outside probation"
    if unit.state is HealthState.HEALTHY:
        assert not faults, f"{name} is Healthy with open faults"
    if unit.state is HealthState.SUSPECT:
        assert faults, f"{name} is Suspect without a reason"
