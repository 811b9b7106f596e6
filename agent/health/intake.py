"""Turns an event into the fault it reports, if any: the part of the rules that looks at one event alone."""

from collections.abc import Iterator

from msgspec import Struct

from agent.health.events import (
    WHOLE_GPU,
    EccSample,
    NvLinkSample,
    ProbeFailed,
    ProbeReason,
    RecoveryAction,
    RemapSample,
    XidSeen,
)
from agent.health.records import GpuRecord
from agent.health.settings import HealthSettings
from agent.health.states import Fault, FaultKind
from agent.health.xids import FaultClass, XidScope
from agent.words import health as words
from inventory.devices import MigUuid

MEMORY_XIDS = frozenset({48, 63, 64, 94, 95, 140})
"""XIDs that come with an uncorrected memory error and say what it means, more exactly than the counter does."""

RECOVERY_ACTIONS: dict[int, tuple[FaultClass, str]] = {
    1: (FaultClass.RESET, "reset the GPU"),
    2: (FaultClass.REBOOT, "reboot the node"),
    3: (FaultClass.DEGRADED, "drain peer-to-peer traffic"),
    4: (FaultClass.RESET, "drain peer-to-peer traffic and reset the GPU"),
    5: (FaultClass.DEGRADED, "recover the IMEX domain"),
    6: (FaultClass.RESET, "reset the GPU's PCIe bus"),
    7: (FaultClass.REBOOT, "reboot the node"),
}
"""The class and advice for each nvmlDeviceGpuRecoveryAction_t but NONE (nvml.h): GPU_RESET, NODE_REBOOT,
DRAIN_P2P, ...
"""


class Report(Struct, frozen=True, kw_only=True):
    """One report of a fault, not yet filed."""

    kind: FaultKind
    fault_class: FaultClass
    cause: str
    source: str
    code: int = 0
    gi: int | None = None
    ci: int | None = None
    mig: MigUuid | None = None
    action: str = ""

    def fault(self, now_s: float) -> Fault:
        return Fault(
            kind=self.kind,
            fault_class=self.fault_class,
            since_s=now_s,
            last_s=now_s,
            cause=self.cause,
            source=self.source,
            code=self.code,
            gi=self.gi,
            ci=self.ci,
            mig=self.mig,
            action=self.action,
        )

    def overflow(self) -> "Report":
        """The report that stands for this one when a GPU has too many open faults to list."""
        return Report(
            kind=FaultKind.OVERFLOW,
            fault_class=FaultClass.RESET,
            cause=words.more_faults(self.cause),
            source=self.source,
            action="reset the GPU",
        )


def xid(event: XidSeen, settings: HealthSettings, *, mig_enabled: bool) -> Report:
    """The report of an XID by its rule. GI and CI count only where there are instances, and only for XIDs that one can
    own.
    """
    rule = settings.rule(event.xid)
    gi = _instance_id(event.gi) if mig_enabled and rule.scope is not XidScope.GPU else None
    ci = _instance_id(event.ci) if gi is not None else None
    return Report(
        kind=FaultKind.XID,
        fault_class=rule.fault_class,
        cause=_in_words(event.xid, rule.name, gi, ci),
        source=rule.source,
        code=event.xid,
        gi=gi,
        ci=ci,
        action=rule.action,
    )


def _in_words(number: int, name: str, gi: int | None, ci: int | None) -> str:
    if gi is None:
        return words.xid(number, name)
    if ci is None:
        return words.xid_in_instance(number, name, gi)
    return words.xid_in_compute_instance(number, name, gi, ci)


def _instance_id(value: int | None) -> int | None:
    return None if value is None or value < 0 or value >= WHOLE_GPU else value


def probe_failed(event: ProbeFailed, *, confirmed: bool) -> Report:
    """The report of a failed probe: Suspect at first, Unhealthy once confirmed, over with the next good answer."""
    say = words.no_answer if event.reason is ProbeReason.TIMEOUT else words.error_answered
    return Report(
        kind=FaultKind.PROBE,
        fault_class=FaultClass.RESET if confirmed else FaultClass.DEGRADED,
        cause=say(event.detail),
        source="probe",
        mig=event.mig,
    )


def lost(detail: str) -> Report:
    """The report that NVML says GPU_IS_LOST. A later answer proves nothing: only a reset or the GPU's return clears
    this.
    """
    return Report(
        kind=FaultKind.LOST,
        fault_class=FaultClass.RESET,
        cause=words.lost(detail),
        source="NVML",
        action="reset the GPU or reboot the node",
    )


def unreadable(cause: str = "") -> Report:
    """The report that discovery got no handle to the GPU. It is a measured fault: a handle that comes back ends it."""
    return Report(
        kind=FaultKind.UNREADABLE,
        fault_class=FaultClass.RESET,
        cause=cause or words.unreadable(),
        source="discovery",
        action="reset the GPU or reboot the node",
    )


def removed() -> Report:
    return Report(
        kind=FaultKind.REMOVED,
        fault_class=FaultClass.RESET,
        cause=words.removed(),
        source="discovery",
        action="bring the GPU or its driver back",
    )


def ecc(event: EccSample, record: GpuRecord, settings: HealthSettings) -> Report | None:
    """The report of uncorrected memory errors, if any. An open memory XID says more exactly what happened and where:
    then the errors add nothing.

    The counter can be read before the XID arrives: one sample makes Suspect, the next one confirms.
    """
    if event.volatile_uncorrected <= 0:
        record.ecc_seen = False
        return None
    fault_class = settings.ecc_uncorrected
    explained = any(f.kind is FaultKind.XID and f.code in MEMORY_XIDS for f in record.open.values())
    if fault_class.blocks and (explained or not record.ecc_seen):
        fault_class = FaultClass.CONTAINED
    record.ecc_seen = True
    return Report(
        kind=FaultKind.ECC,
        fault_class=fault_class,
        cause=words.uncorrected(event.volatile_uncorrected),
        source="NVML ECC counter",
        action="reset the GPU",
    )


def remap(event: RemapSample, settings: HealthSettings) -> Iterator[Report]:
    """The reports of row remapping (nvmlDeviceGetRemappedRows)."""
    if event.pending:
        yield Report(
            kind=FaultKind.REMAP_PENDING,
            fault_class=settings.row_remap_pending,
            cause=words.remap_pending(),
            source="NVML remapped rows",
            action="reset the GPU when convenient",
        )
    if event.failure:
        yield Report(
            kind=FaultKind.REMAP_FAILURE,
            fault_class=settings.row_remap_failure,
            cause=words.remap_failed(),
            source="NVML remapped rows",
            action="have the board replaced",
        )


def nvlink(event: NvLinkSample, record: GpuRecord, settings: HealthSettings) -> Report | None:
    """The report of NVLinks that are down, if any. A link to an NVSwitch has no fallback; a direct link falls back to
    PCIe.
    """
    if not event.down:
        return None
    down = sorted(set(event.down))
    switched = bool(record.switch_links & set(down))
    return Report(
        kind=FaultKind.NVLINK,
        fault_class=settings.nvswitch_link_down if switched else settings.nvlink_down,
        cause=(words.switch_links_down if switched else words.links_down)(", ".join(map(str, down))),
        source="NVML link state",
        action="reset the GPU; check bridge, switch or cable",
    )


def recovery_action(event: RecoveryAction) -> Report | None:
    """The report of the recovery action that the driver asks for, if any. A value newer than this table counts as a
    reset.
    """
    if event.value == 0:
        return None
    fault_class, action = RECOVERY_ACTIONS.get(event.value, (FaultClass.RESET, "see the driver's documentation"))
    return Report(
        kind=FaultKind.RECOVERY_ACTION,
        fault_class=fault_class,
        cause=words.recovery_asked(event.value, action),
        source="NVML recovery action",
        code=event.value,
        action=action,
    )
