"""The health state machine: ``HealthCore.apply(event, now_s)`` takes an event and gives back the transitions.

Each physical GPU has the set of its open faults. The state of each device on it (the GPU offered whole, each MIG
device) follows from the faults that touch it, its probes and the clock handed in, and from nothing else: a later
harmless XID cannot erase an earlier fatal one, because nothing overwrites. Replicas share their device's state.

``now_s`` is in seconds of any clock that goes on over a restart of the process (unix time, CLOCK_BOOTTIME).
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from agent.health.checkpoint import HealthSnapshot, freeze, thaw, validate
from agent.health.events import (
    BootChanged,
    EccSample,
    Event,
    NvLinkSample,
    ProbeFailed,
    ProbeOk,
    ProbeReason,
    RecoveryAction,
    RemapSample,
    Removed,
    ResetObserved,
    Tick,
    Unreadable,
    Verified,
    XidSeen,
)
from agent.health.intake import (
    Report,
    ecc,
    lost,
    nvlink,
    probe_failed,
    recovery_action,
    remap,
    removed,
    unreadable,
    xid,
)
from agent.health.records import MAX_FAULTS, DeviceRecord, GpuRecord, worse
from agent.health.settings import HealthSettings
from agent.health.states import DeviceHealth, Fault, FaultKind, HealthState, Transition
from agent.health.xids import FaultClass
from agent.words import health as words
from inventory.devices import Gpu, GpuUuid, MigUuid


class _Why(Struct, frozen=True):
    """The reason for a step towards Healthy; steps away from it are explained by their faults, with the action
    to take.
    """

    reason: str
    cause: str
    action: str = ""


_NOTHING = _Why("Recovered", words.nothing_wrong())


class HealthCore:
    """The health of all GPUs of one node. Not thread-safe; its owner calls it from one place.

    ``_records`` holds a record for each GPU that was discovered or that an XID named, until another board is in its
    place. After each event the states of its GPU are again those that faults, probes and the clock give. No GPU in
    ``_held`` passes its probation: its repair has not got so far.
    """

    def __init__(self, settings: HealthSettings | None = None) -> None:
        self.settings = settings or HealthSettings()
        self._records: dict[GpuUuid, GpuRecord] = {}
        self._held: frozenset[GpuUuid] = frozenset()
        self.revision = 0
        """The number of faults that events have opened and ended: a fault may come and go without any transition."""

    # -- the GPUs that exist ---------------------------------------------------------------------------------------

    def discovered(self, gpus: Iterable[Gpu], now_s: float) -> tuple[Transition, ...]:
        """Take in a full discovery: new GPUs are tracked, missing ones taken out, records of replaced boards dropped.

        A board is replaced when its place on the PCI bus holds another UUID: only then do ``replace`` faults end.
        """
        present = list(gpus)
        here = {gpu.uuid for gpu in present}
        taken = {gpu.pci_bus_id for gpu in present}
        changes: list[Transition] = []
        for record in list(self._records.values()):
            if record.uuid in here:
                continue
            if record.pci_bus_id in taken:
                self.forget(record.uuid)
            elif not record.has([FaultKind.REMOVED]):
                changes += self.apply(Removed(record.uuid), now_s)
        for gpu in present:
            changes += self.track(gpu, now_s)
        return tuple(changes)

    def track(self, gpu: Gpu, now_s: float) -> tuple[Transition, ...]:
        """Track ``gpu`` with its present MIG devices. A GPU that could not be read is taken out until it can be."""
        record = self._records.get(gpu.uuid)
        if record is None:
            record = self._records[gpu.uuid] = GpuRecord(uuid=gpu.uuid, units=[DeviceRecord(since_s=now_s)])
        record.follow(gpu, now_s)
        if not gpu.readable:
            self._open(record, unreadable(), now_s)
        elif record.has([FaultKind.REMOVED]):
            # The driver lists a board again once it has begun with it anew: that is no less than a reset.
            self._clear(record, [FaultKind.REMOVED, FaultKind.LOST])
            self._reset(record, now_s)
        if gpu.readable:
            self._clear(record, [FaultKind.UNREADABLE])
        return self._settle(record, now_s, _Why("GpuBack", words.back()))

    def forget(self, gpu: GpuUuid) -> None:
        """Drop the record of ``gpu``, ``replace`` faults included: the board is gone for good."""
        self._records.pop(gpu, None)

    # -- events --------------------------------------------------------------------------------------------------

    def apply(self, event: Event, now_s: float) -> tuple[Transition, ...]:
        """Take in one event; return the transitions it caused, in the order of GPUs and their devices. Never raises."""
        match event:
            case Tick():
                return self._settle_all(now_s, _NOTHING)
            case BootChanged():
                self._rebooted(now_s)
                return self._settle_all(now_s, _Why("Rebooted", words.rebooted()))
        record = self._records.get(event.gpu)
        if record is not None and isinstance(event, Verified):
            return self._verified(record, event.since_s, now_s)
        if record is None:
            if not isinstance(event, XidSeen):
                return ()
            # The XID came before discovery named the GPU: its fault is kept.
            record = self._records[event.gpu] = GpuRecord(uuid=event.gpu, units=[DeviceRecord(since_s=now_s)])
        return self._settle(record, now_s, self._take(record, event, now_s))

    def _reset(self, record: GpuRecord, now_s: float) -> None:
        self._drop(record, [fault for fault in record.open.values() if fault.cleared_by_reset()])
        _start_over(record, now_s)

    def _rebooted(self, now_s: float) -> None:
        for record in self._records.values():
            self._drop(record, [fault for fault in record.open.values() if fault.cleared_by_reboot()])
            _start_over(record, now_s)

    def _take(self, record: GpuRecord, event: Event, now_s: float) -> _Why:
        """Open and clear faults as ``event`` says."""
        match event:
            case XidSeen():
                self._open(record, xid(event, self.settings, mig_enabled=record.mig_enabled), now_s)
            case ProbeOk():
                return self._probe_ok(record, event)
            case ProbeFailed():
                self._probe_failed(record, event, now_s)
            case EccSample():
                self._open(record, ecc(event, record, self.settings), now_s)
            case RemapSample():
                if not event.pending:
                    self._clear(record, [FaultKind.REMAP_PENDING])
                for part in remap(event, self.settings):
                    self._open(record, part, now_s)
                return _Why("RowRemapped", words.remapped())
            case NvLinkSample():
                report = nvlink(event, record, self.settings)
                self._measure(record, FaultKind.NVLINK, report, now_s)
                return _Why("NvLinkUp", words.links_up())
            case RecoveryAction():
                self._measure(record, FaultKind.RECOVERY_ACTION, recovery_action(event), now_s)
                return _Why("RecoveryActionNone", words.no_recovery_asked())
            case ResetObserved():
                self._reset(record, now_s)
                return _Why("ResetObserved", words.reset())
            case Removed() | Unreadable():
                self._open(record, removed() if isinstance(event, Removed) else unreadable(event.detail), now_s)
        return _NOTHING

    def _probe_ok(self, record: GpuRecord, event: ProbeOk) -> _Why:
        unit = record.unit(event.mig)
        if unit is not None:
            unit.failed_probes = 0
            if unit.state is HealthState.PROBATION:
                unit.clean_probes += 1
            self._drop(record, [f for f in record.open.values() if f.kind is FaultKind.PROBE and f.mig == event.mig])
        return _Why("ProbeOk", words.answers())

    def _probe_failed(self, record: GpuRecord, event: ProbeFailed, now_s: float) -> None:
        if event.reason is ProbeReason.LOST:
            self._open(record, lost(event.detail), now_s)
            return
        unit = record.unit(event.mig)
        if unit is None or not self.settings.enabled:
            return
        unit.failed_probes += 1
        # A unit on probation needs one failure only.
        limit = 1 if unit.state is HealthState.PROBATION else self.settings.failed_probes
        self._open(record, probe_failed(event, confirmed=unit.failed_probes >= limit), now_s)

    # -- the set of open faults ----------------------------------------------------------------------------------

    def _open(self, record: GpuRecord, report: Report | None, now_s: float) -> None:
        """Add a fault, or count another report of it. A report that explains nothing away never lowers a class."""
        if report is None or not report.fault_class.opens:
            return
        if not self.settings.enabled and report.kind is not FaultKind.REMOVED:
            return
        fault = report.fault(now_s)
        known = record.open.get(fault.key)
        if known is None and len(record.open) >= MAX_FAULTS:
            fault = report.overflow().fault(now_s)
            known = record.open.get(fault.key)
        if known is not None:
            fault = replace(
                fault,
                fault_class=worse(known.fault_class, fault.fault_class),
                since_s=known.since_s,
                count=known.count + 1,
            )
        record.open[fault.key] = fault
        self.revision += known is None
        # A sample read once more is no news; an XID sent once more is.
        if known is None or fault.fault_class is not known.fault_class or fault.kind is FaultKind.XID:
            record.restart_probation(fault, now_s)

    def _measure(self, record: GpuRecord, kind: FaultKind, report: Report | None, now_s: float) -> None:
        """Take in a measured condition: its fault ends when it is not measured, and is no worse than it is measured
        now.
        """
        known = next((fault for fault in record.open.values() if fault.kind is kind), None)
        if report is None or not report.fault_class.opens:
            self._clear(record, [kind])
        elif known is not None:
            record.open[known.key] = replace(known, fault_class=report.fault_class)
        self._open(record, report, now_s)

    def _clear(self, record: GpuRecord, kinds: Iterable[FaultKind]) -> None:
        wanted = set(kinds)
        self._drop(record, [fault for fault in record.open.values() if fault.kind in wanted])

    def _drop(self, record: GpuRecord, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.revision += record.open.pop(fault.key, None) is not None

    # -- states --------------------------------------------------------------------------------------------------

    def _settle_all(self, now_s: float, why: _Why) -> tuple[Transition, ...]:
        return tuple(change for record in self._records.values() for change in self._settle(record, now_s, why))

    def _settle(self, record: GpuRecord, now_s: float, why: _Why) -> tuple[Transition, ...]:
        """Bring each unit to the state that its faults, probes and the clock give."""
        if record.quiet:
            return ()
        changes = [self._step(record, unit, now_s, why) for unit in record.units]
        return tuple(change for change in changes if change is not None)

    def _step(self, record: GpuRecord, unit: DeviceRecord, now_s: float, why: _Why) -> Transition | None:
        faults = record.hitting(unit)
        old, new = unit.state, self._state(record, unit, faults, now_s)
        if new is old:
            return None
        passed = old is HealthState.PROBATION and new is not HealthState.UNHEALTHY
        if new in (HealthState.UNHEALTHY, HealthState.SUSPECT) and not passed:
            why = _explain(faults, new)
        elif passed:
            why = _Why(
                "ProbationPassed",
                words.passed_probation(unit.clean_probes, f"{now_s - (unit.probation_since_s or now_s):.1f}"),
            )
        if new is HealthState.PROBATION:
            unit.restart_probation(now_s)
        else:
            unit.probation_since_s = None
            unit.clean_probes = 0
        return self._enter(record, unit, new, why, now_s)

    def _verified(self, record: GpuRecord, since_s: float, now_s: float) -> tuple[Transition, ...]:
        """Begin the whole probation of each unit that no fault keeps out, unless it has begun since ``since_s``."""
        changes: list[Transition] = []
        for unit in record.units:
            if unit.state.advertised_healthy and now_s - since_s < self.settings.probation_s:
                why = _Why("Verified", words.verified())
                changes.append(self._enter(record, unit, HealthState.PROBATION, why, now_s))
                unit.restart_probation(since_s)
            elif unit.state is HealthState.PROBATION and (unit.probation_since_s or 0.0) < since_s:
                unit.restart_probation(since_s)
        return tuple(changes)

    def hold(self, gpus: Iterable[GpuUuid]) -> None:
        """Let these GPUs, and no others, stay on probation however long it has lasted."""
        self._held = frozenset(gpus)

    def _enter(self, record: GpuRecord, unit: DeviceRecord, new: HealthState, why: _Why, now_s: float) -> Transition:
        change = Transition(
            gpu=record.uuid,
            mig=unit.mig,
            old=unit.state,
            new=new,
            reason=why.reason,
            cause=why.cause,
            action=why.action,
            at_s=now_s,
            age_s=max(0.0, now_s - unit.since_s),
        )
        unit.state, unit.since_s = new, now_s
        record.remember(change)
        return change

    def _state(self, record: GpuRecord, unit: DeviceRecord, faults: list[Fault], now_s: float) -> HealthState:
        if any(fault.blocks for fault in faults):
            return HealthState.UNHEALTHY
        if unit.state is HealthState.UNHEALTHY:
            return HealthState.PROBATION
        held = record.uuid in self._held
        if unit.state is HealthState.PROBATION and (held or not self._passed(unit, now_s)):
            return HealthState.PROBATION
        return HealthState.SUSPECT if faults else HealthState.HEALTHY

    def _passed(self, unit: DeviceRecord, now_s: float) -> bool:
        since_s = unit.probation_since_s
        if since_s is None or now_s < since_s:
            # The clock went back: the whole time is waited for again, rather than for ever.
            unit.probation_since_s = since_s = now_s
        return now_s - since_s >= self.settings.probation_s and unit.clean_probes >= self.settings.clean_probes

    def next_deadline_s(self) -> float | None:
        """The time at which a Tick could end a probation that has its probes; None when no clock is running."""
        ends = [
            unit.probation_since_s + self.settings.probation_s
            for record in self._records.values()
            if record.uuid not in self._held
            for unit in record.units
            if unit.probation_since_s is not None and unit.clean_probes >= self.settings.clean_probes
        ]
        return min(ends, default=None)

    # -- queries -------------------------------------------------------------------------------------------------

    def state(self, gpu: GpuUuid, mig: MigUuid | None = None) -> DeviceHealth:
        """The state and faults of a device. A device that is not tracked is Unhealthy: nothing is known in its
        favour.
        """
        record = self._records.get(gpu)
        unit = record.unit(mig) if record is not None else None
        if record is None or unit is None:
            return DeviceHealth(state=HealthState.UNHEALTHY, since_s=0.0)
        return DeviceHealth(
            state=unit.state,
            since_s=unit.since_s,
            faults=tuple(record.hitting(unit)),
            clean_probes=unit.clean_probes,
        )

    def gpus(self) -> tuple[GpuUuid, ...]:
        return tuple(self._records)

    def faults(self, gpu: GpuUuid) -> tuple[Fault, ...]:
        """All open faults of the GPU, whichever devices they touch, oldest first."""
        record = self._records.get(gpu)
        return tuple(sorted(record.open.values(), key=lambda f: (f.since_s, f.key))) if record is not None else ()

    def lost(self) -> tuple[GpuUuid, ...]:
        """The GPUs that NVML called lost, and that were not reset since."""
        return tuple(record.uuid for record in self._records.values() if record.has([FaultKind.LOST]))

    def history(self, gpu: GpuUuid) -> tuple[Transition, ...]:
        """The GPU's last transitions and its MIG devices', oldest first."""
        record = self._records.get(gpu)
        return tuple(record.history) if record is not None else ()

    # -- configuration and checkpoint ----------------------------------------------------------------------------

    def reconfigure(self, settings: HealthSettings, now_s: float) -> tuple[Transition, ...]:
        """Take new settings: open faults are judged by the new table; those that it calls harmless are cleared."""
        self.settings = settings
        for record in self._records.values():
            for key, fault in list(record.open.items()):
                fault_class = _judged(fault, settings)
                if fault_class.opens:
                    record.open[key] = replace(fault, fault_class=fault_class)
                else:
                    del record.open[key]
        return self._settle_all(now_s, _Why("Reconfigured", words.no_fault_any_more()))

    def snapshot(self) -> HealthSnapshot:
        """A copy of all records, in stable order."""
        return HealthSnapshot(tuple(freeze(record) for record in self._records.values()))

    def restore(self, snapshot: HealthSnapshot, *, same_boot: bool, now_s: float) -> tuple[Transition, ...]:
        """Restore a checkpoint in place of all records; after another boot, the faults that a reboot clears are
        cleared.
        """
        self._records = {gpu.uuid: thaw(gpu) for gpu in snapshot.gpus}
        return () if same_boot else self.apply(BootChanged(), now_s)

    def validate(self) -> None:
        """Recompute the invariants of every GPU (see ``checkpoint.validate``)."""
        for record in self._records.values():
            validate(record)


def _start_over(record: GpuRecord, now_s: float) -> None:
    """Restart, after a reset or reboot, the counters that restart with the GPU, and a probation."""
    record.ecc_seen = False
    for unit in record.units:
        unit.failed_probes = 0
        if unit.state is HealthState.PROBATION:
            unit.restart_probation(now_s)


def _explain(faults: list[Fault], state: HealthState) -> _Why:
    """The newest fault that by itself gives ``state``: it has just happened."""
    telling = [fault for fault in faults if fault.blocks is (state is HealthState.UNHEALTHY)]
    newest = max(telling, key=lambda fault: (fault.last_s, fault.since_s))
    return _Why(newest.reason, newest.cause, newest.action)


def _judged(fault: Fault, settings: HealthSettings) -> FaultClass:
    """The class that ``settings`` give to a fault that is already open."""
    if fault.kind is FaultKind.REMOVED:
        return fault.fault_class
    if not settings.enabled:
        return FaultClass.NOTICE
    match fault.kind:
        case FaultKind.XID:
            return settings.rule(fault.code).fault_class
        case FaultKind.REMAP_PENDING:
            return settings.row_remap_pending
        case FaultKind.REMAP_FAILURE:
            return settings.row_remap_failure
        case FaultKind.ECC if not settings.ecc_uncorrected.opens:
            return FaultClass.NOTICE
    # Links and ECC are judged by the new settings with their next sample.
    return fault.fault_class
