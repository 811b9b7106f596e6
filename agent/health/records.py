"""The record of one physical GPU: its open faults, a unit for itself and one for each MIG device on it."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from agent.health.states import Fault, FaultKey, FaultKind, HealthState, Transition
from agent.health.xids import FaultClass
from inventory.devices import Gpu, GpuUuid, MigUuid, RemoteType

HISTORY_LENGTH = 32
MAX_FAULTS = 64
"""The most open faults of a GPU. Further ones are merged into one that takes the whole GPU out: memory stays bounded,
and no fault is lost.
"""

_RANK = {
    FaultClass.NOTICE: 0,
    FaultClass.APPLICATION: 0,
    FaultClass.CONTAINED: 1,
    FaultClass.DEGRADED: 1,
    FaultClass.RESET: 2,
    FaultClass.REBOOT: 3,
    FaultClass.REPLACE: 4,
}


def worse(a: FaultClass, b: FaultClass) -> FaultClass:
    """The class that is harder to leave; ``a`` among equals."""
    return b if _RANK[b] > _RANK[a] else a


class DeviceRecord(Struct, kw_only=True):
    """One device with a state of its own: the GPU (``mig`` None) or a MIG device.

    ``HealthCore`` (``agent.health.machine``) alone writes one. ``since_s`` is when ``state`` was entered: the two
    change together. ``probation_since_s`` is None and ``clean_probes`` 0 in every state but PROBATION.
    """

    mig: MigUuid | None = None
    gi: int | None = None
    ci: int | None = None
    state: HealthState = HealthState.HEALTHY
    since_s: float = 0.0
    failed_probes: int = 0
    """Failed probes in a row; a good probe, a reset and a reboot set it back to 0. ``HealthCore`` counts them,
    ``_start_over`` resets them.
    """
    clean_probes: int = 0
    """Good probes of this probation; ``HealthCore`` counts them."""
    probation_since_s: float | None = None
    """The start of the present probation. ``HealthCore`` sets it anew after each further fault, and where the clock
    went back.
    """

    def restart_probation(self, now_s: float) -> None:
        self.probation_since_s = now_s
        self.clean_probes = 0


class GpuRecord(Struct, kw_only=True):
    """One physical GPU. Written by the core alone (``machine`` and ``intake``).

    ``units[0]`` is the GPU itself, each further unit a MIG device of the last discovery that could read it; no two have
    the same ``mig``. ``open`` is by each fault's own key, at most MAX_FAULTS and one that stands for the rest.
    A unit is Unhealthy exactly while a fault that blocks touches it, and has a probation clock exactly on Probation.
    """

    uuid: GpuUuid
    pci_bus_id: str = ""
    mig_enabled: bool = False
    switch_links: frozenset[int] = frozenset()
    ecc_seen: bool = False
    """Whether one sample with uncorrected errors has been seen that no XID explains; a second one confirms. ``ecc``
    sets it, and a sample without errors, a reset or a reboot clears it (``_start_over``).
    """
    open: dict[FaultKey, Fault] = field(default_factory=dict)
    units: list[DeviceRecord] = field(default_factory=lambda: [DeviceRecord()])
    history: list[Transition] = field(default_factory=list)

    def unit(self, mig: MigUuid | None) -> DeviceRecord | None:
        return next((unit for unit in self.units if unit.mig == mig), None)

    def hitting(self, unit: DeviceRecord) -> list[Fault]:
        """The open faults that touch ``unit``, worst first, oldest first among equals."""
        faults = [fault for fault in self.open.values() if fault.hits(unit.mig, unit.gi, unit.ci)]
        return sorted(faults, key=lambda fault: (-_RANK[fault.fault_class], fault.since_s, fault.key))

    @property
    def quiet(self) -> bool:
        """Whether no fault is open and all units are Healthy: then neither a good probe nor the clock can change a
        state.
        """
        return not self.open and all(unit.state is HealthState.HEALTHY for unit in self.units)

    def has(self, kinds: Iterable[FaultKind]) -> bool:
        wanted = set(kinds)
        return any(fault.kind in wanted for fault in self.open.values())

    def restart_probation(self, fault: Fault, now_s: float) -> None:
        """Start the probation of units again that the new fault touches."""
        for unit in self.units:
            if unit.state is HealthState.PROBATION and fault.hits(unit.mig, unit.gi, unit.ci):
                unit.restart_probation(now_s)

    def remember(self, transition: Transition) -> None:
        self.history.append(transition)
        del self.history[:-HISTORY_LENGTH]

    def follow(self, gpu: Gpu, now_s: float) -> None:
        """Take over from a discovery the PCI place, the switch links, and the MIG devices as units."""
        self.pci_bus_id = gpu.pci_bus_id
        self.mig_enabled = gpu.mig_enabled
        self.switch_links = frozenset(link.link for link in gpu.nvlinks if link.remote_type is RemoteType.SWITCH) or (
            self.switch_links if not gpu.readable else frozenset()
        )
        if not gpu.readable:
            return  # a lost GPU cannot list its instances: those it had keep their units
        self.units = [self.units[0], *self._instances(gpu, now_s)]
        here = {unit.mig for unit in self.units}
        for key in [key for key, fault in self.open.items() if fault.mig is not None and fault.mig not in here]:
            del self.open[key]

    def _instances(self, gpu: Gpu, now_s: float) -> Iterator[DeviceRecord]:
        known = {unit.mig: unit for unit in self.units[1:]}
        for mig in gpu.mig_instances:
            unit = known.get(mig.uuid)
            if unit is None:
                unit = DeviceRecord(mig=mig.uuid, since_s=now_s)
                # An instance made on a GPU that is on probation is on probation too.
                if self.units[0].state is HealthState.PROBATION:
                    unit.state = HealthState.PROBATION
                    unit.restart_probation(self.units[0].probation_since_s or now_s)
            unit.gi, unit.ci = mig.gi_id, mig.ci_id
            yield unit
