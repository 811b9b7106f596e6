"""The events that the shell can tell the health core. Events carry no times: each is applied with the time at which it
was learned.
"""

from enum import StrEnum

from msgspec import Struct

from inventory.devices import GpuUuid, MigUuid

WHOLE_GPU = 0xFFFFFFFF
"""NVML's value of gpuInstanceId and computeInstanceId in an event that concerns the whole GPU."""


class ProbeReason(StrEnum):
    """The way in which a probe failed: NVML said GPU_IS_LOST, did not answer in time, or gave another error."""

    LOST = "lost"
    TIMEOUT = "timeout"
    ERROR = "error"


class XidSeen(Struct, frozen=True):
    """An NVML XID event. ``gi`` and ``ci`` None (or 0xFFFFFFFF) where the event names none."""

    gpu: GpuUuid
    xid: int
    gi: int | None = None
    ci: int | None = None


class ProbeOk(Struct, frozen=True):
    """A device answered. ``mig`` is set for a MIG device probed as itself: its parent's answer says nothing
    about it.
    """

    gpu: GpuUuid
    mig: MigUuid | None = None


class ProbeFailed(Struct, frozen=True):
    """A device failed a probe. With ``mig`` None it is the GPU itself, and all devices on it."""

    gpu: GpuUuid
    mig: MigUuid | None = None
    reason: ProbeReason = ProbeReason.ERROR
    detail: str = ""


class EccSample(Struct, frozen=True):
    """Uncorrected ECC errors since the last reset (NVML's volatile counter)."""

    gpu: GpuUuid
    volatile_uncorrected: int


class RemapSample(Struct, frozen=True):
    """Row remapping as nvmlDeviceGetRemappedRows shows it: a remap waits for a reset; a remap has failed."""

    gpu: GpuUuid
    pending: bool = False
    failure: bool = False


class NvLinkSample(Struct, frozen=True):
    """The links that should be up and are not; empty when all are well."""

    gpu: GpuUuid
    down: tuple[int, ...] = ()


class RecoveryAction(Struct, frozen=True):
    """The driver's NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: nvmlDeviceGpuRecoveryAction_t, 0 is none."""

    gpu: GpuUuid
    value: int


class ResetObserved(Struct, frozen=True):
    """The GPU was reset: old handles are lost, new ones work, no recovery action is left, volatile counters restarted.

    The core never infers this: a GPU that answers again has not thereby been reset.
    """

    gpu: GpuUuid


class Verified(Struct, frozen=True):
    """The GPU passed its verification after a reset at ``since_s``: its probation begins then, whatever it was before.

    Telling it once more changes nothing.
    """

    gpu: GpuUuid
    since_s: float


class BootChanged(Struct, frozen=True):
    """The node has another boot id than the faults were seen under."""


class Unreadable(Struct, frozen=True):
    """The driver as a whole does not answer, as ``detail`` says: no GPU can be read or probed. A discovery ends it."""

    gpu: GpuUuid
    detail: str


class Removed(Struct, frozen=True):
    """The GPU is no longer there: hot-removed. ``HealthCore.track`` says that it is back."""

    gpu: GpuUuid


class Tick(Struct, frozen=True):
    """Time has passed. The event is needed at ``HealthCore.next_deadline_s()``."""


Event = (
    XidSeen
    | ProbeOk
    | ProbeFailed
    | EccSample
    | RemapSample
    | NvLinkSample
    | RecoveryAction
    | ResetObserved
    | Verified
    | BootChanged
    | Removed
    | Unreadable
    | Tick
)
