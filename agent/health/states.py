"""Open faults of a GPU, the four states of a device, and the core's account of a change between them.

A fault stays open until its own rule ends it.
"""

from enum import StrEnum

from msgspec import Struct

from agent.health.xids import FaultClass
from inventory.devices import GpuUuid, MigUuid


class FaultKind(StrEnum):
    """The source of a fault."""

    XID = "xid"
    LOST = "lost"
    UNREADABLE = "unreadable"
    PROBE = "probe"
    ECC = "ecc"
    REMAP_PENDING = "remap-pending"
    REMAP_FAILURE = "remap-failure"
    NVLINK = "nvlink"
    RECOVERY_ACTION = "recovery-action"
    REMOVED = "removed"
    OVERFLOW = "overflow"


MEASURED = frozenset(
    {
        FaultKind.PROBE,
        FaultKind.REMAP_PENDING,
        FaultKind.NVLINK,
        FaultKind.RECOVERY_ACTION,
        FaultKind.REMOVED,
        FaultKind.UNREADABLE,
    }
)
"""Kinds that are a present condition, not an event of the past: they go when the condition is measured to be gone."""

REASONS = {
    FaultKind.LOST: "GpuLost",
    FaultKind.UNREADABLE: "GpuUnreadable",
    FaultKind.PROBE: "ProbeFailed",
    FaultKind.ECC: "EccUncorrected",
    FaultKind.REMAP_PENDING: "RowRemapPending",
    FaultKind.REMAP_FAILURE: "RowRemapFailure",
    FaultKind.NVLINK: "NvLinkDown",
    FaultKind.RECOVERY_ACTION: "RecoveryAction",
    FaultKind.REMOVED: "GpuRemoved",
    FaultKind.OVERFLOW: "TooManyFaults",
}


class FaultKey(Struct, frozen=True, order=True):
    """The identity of a fault: two reports with equal keys are one fault. -1 stands for all instances, "" for no MIG
    device (so that keys order).
    """

    kind: FaultKind
    code: int = 0
    gi: int = -1
    ci: int = -1
    mig: MigUuid = MigUuid("")


class Fault(Struct, frozen=True, kw_only=True):
    """One open fault of a physical GPU, which touches the whole GPU, one GPU instance, one compute instance or one MIG
    device.
    """

    kind: FaultKind
    fault_class: FaultClass
    since_s: float
    last_s: float
    cause: str
    source: str
    code: int = 0
    """The XID, or the value of the driver's recovery action."""
    gi: int | None = None
    ci: int | None = None
    mig: MigUuid | None = None
    action: str = ""
    count: int = 1

    @property
    def key(self) -> FaultKey:
        return FaultKey(
            kind=self.kind,
            # A changed recovery action is another report of the same fault.
            code=self.code if self.kind is FaultKind.XID else 0,
            gi=-1 if self.gi is None else self.gi,
            ci=-1 if self.ci is None else self.ci,
            mig=self.mig or MigUuid(""),
        )

    @property
    def blocks(self) -> bool:
        return self.fault_class.blocks

    @property
    def reason(self) -> str:
        """The fault as one CamelCase word: ``Xid79``, ``GpuLost`` ..."""
        return f"Xid{self.code}" if self.kind is FaultKind.XID else REASONS[self.kind]

    def hits(self, mig: MigUuid | None, gi: int | None, ci: int | None) -> bool:
        """Whether the fault touches the device ``mig`` = (``gi``, ``ci``), or with ``mig`` None the GPU offered whole.

        A GPU offered whole is only as good as all of it, so every fault touches it.
        """
        if mig is None:
            return True
        if self.mig is not None:
            return self.mig == mig
        return (self.gi is None or self.gi == gi) and (self.ci is None or self.ci == ci)

    def cleared_by_reset(self) -> bool:
        if self.kind in (FaultKind.REMOVED, FaultKind.UNREADABLE):
            return False  # discovery says when that is over
        # A reset is observed only once no recovery action is left: it has been read again by then.
        if self.kind is FaultKind.RECOVERY_ACTION:
            return True
        return self.kind is not FaultKind.PROBE and self.fault_class not in (FaultClass.REBOOT, FaultClass.REPLACE)

    def cleared_by_reboot(self) -> bool:
        absent = self.kind in (FaultKind.REMOVED, FaultKind.UNREADABLE)
        return not absent and self.fault_class is not FaultClass.REPLACE


class HealthState(StrEnum):
    """Healthy and Suspect are advertised Healthy to kubelet, Unhealthy and Probation are advertised Unhealthy."""

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    UNHEALTHY = "Unhealthy"
    PROBATION = "Probation"

    @property
    def advertised_healthy(self) -> bool:
        return self in (HealthState.HEALTHY, HealthState.SUSPECT)


class Transition(Struct, frozen=True, kw_only=True):
    """One device changed state at ``at_s``, after ``age_s`` seconds in the old one.

    ``reason`` is one CamelCase word for Events and metric labels, ``cause`` a sentence for people, ``action`` what one
    should do about it, empty for nothing.
    """

    gpu: GpuUuid
    mig: MigUuid | None
    old: HealthState
    new: HealthState
    reason: str
    cause: str
    action: str = ""
    at_s: float
    age_s: float


class DeviceHealth(Struct, frozen=True, kw_only=True):
    """The health of one device. ``faults`` are those that touch it, worst first, oldest first among equals."""

    state: HealthState
    since_s: float
    faults: tuple[Fault, ...] = ()
    clean_probes: int = 0
    """The number of good answers in a row since Probation began."""

    @property
    def advertised_healthy(self) -> bool:
        return self.state.advertised_healthy

    @property
    def reason(self) -> str:
        """The causes of the state in a few words; empty when no fault touches the device."""
        return "; ".join(fault.cause for fault in self.faults)
