"""The meaning of each XID for a GPU's health, as a table of data that can be read, argued about and overridden.

Source, unless a row says otherwise: NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors), its "immediate
action": RESTART_APP -> application, IGNORE -> notice or degraded, RESET_GPU and the NVLink workflows -> reset,
RESTART_VM -> reboot. The rows 13 31 43 45 68 109 are what NVIDIA's device plugin ignores as well.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class FaultClass(StrEnum):
    """What a fault does to health, and what takes it away again.

    ========== ============ ==================================================
    class      device is    goes when
    ========== ============ ==================================================
    notice     untouched    (never opens)
    application untouched   (never opens): the program's own fault
    contained  Suspect      a reset or a reboot is observed
    degraded   Suspect      a reset or a reboot is observed
    reset      Unhealthy    a reset or a reboot is observed, then probation
    reboot     Unhealthy    a reboot is observed, then probation
    replace    Unhealthy    the board is gone
    ========== ============ ==================================================

    Faults that are measured rather than reported (NVLink down, a pending remap, the driver's recovery action, a failing
    probe) also go when the measurement is good again.
    """

    NOTICE = "notice"
    APPLICATION = "application"
    CONTAINED = "contained"
    DEGRADED = "degraded"
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"

    @property
    def opens(self) -> bool:
        """Whether a fault of this class becomes an open fault at all."""
        return self not in (FaultClass.NOTICE, FaultClass.APPLICATION)

    @property
    def blocks(self) -> bool:
        """Whether a device with such a fault is Unhealthy (else it is Suspect, still advertised)."""
        return self in (FaultClass.RESET, FaultClass.REBOOT, FaultClass.REPLACE)


class XidScope(StrEnum):
    """The smallest part of a GPU that an XID can hit. ``instance``: a GI/CI named in the event narrows it. ``gpu``:
    never narrowed.
    """

    PROCESS = "process"
    INSTANCE = "instance"
    GPU = "gpu"


CATALOGUE = "NVIDIA XID catalogue"
PLUGIN = "NVIDIA XID catalogue; ignored by NVIDIA's device plugin"
MEMORY = "NVIDIA GPU memory error management"
OLDER = "NVIDIA XID catalogue for older GPUs"


class XidRule(Struct, frozen=True):
    """One row: ``name`` says what happened, ``action`` what a person should do, ``source`` its document."""

    xid: int
    name: str
    fault_class: FaultClass
    scope: XidScope
    action: str
    source: str = CATALOGUE


_RESTART = "restart the application"
_RESET = "reset the GPU"
_RESET_LATER = "reset the GPU when convenient"
_NONE = "none"
_NVLINK5 = "reset the GPU; the registers that tell a harmless case are not in NVML"


def _rows(
    xids: Iterable[int], name: str, fault_class: FaultClass, scope: XidScope, action: str, source: str = CATALOGUE
) -> list[XidRule]:
    return [XidRule(xid, name, fault_class, scope, action, source) for xid in xids]


_A, _N, _C, _D = FaultClass.APPLICATION, FaultClass.NOTICE, FaultClass.CONTAINED, FaultClass.DEGRADED
_R, _B, _X = FaultClass.RESET, FaultClass.REBOOT, FaultClass.REPLACE
_P, _I, _G = XidScope.PROCESS, XidScope.INSTANCE, XidScope.GPU

_ROWS: tuple[XidRule, ...] = (
    XidRule(8, "GPU stopped processing", _A, _P, _RESTART),
    XidRule(11, "invalid or corrupted push buffer stream", _A, _P, _RESTART),
    XidRule(13, "graphics engine exception", _A, _P, "check the application, e.g. for out-of-bounds access", PLUGIN),
    XidRule(14, "test error", _N, _P, _NONE),
    XidRule(25, "invalid or illegal push buffer stream", _A, _P, _RESTART),
    XidRule(31, "GPU memory page fault", _A, _P, "check the application for illegal addresses", PLUGIN),
    XidRule(32, "invalid or corrupted push buffer stream (PBDMA)", _A, _P, _RESTART),
    XidRule(37, "driver firmware error", _N, _P, _NONE),
    XidRule(38, "driver firmware error (watchdog)", _N, _P, "report it if it repeats"),
    *_rows((39, 40, 41, 70, 71, 72, 75, 76, 77, 85), "copy engine exception", _A, _P, _RESTART),
    XidRule(43, "GPU stopped processing: the application's channel was reset", _A, _P, _RESTART, PLUGIN),
    XidRule(44, "graphics engine fault during context switch", _N, _P, "report it if it repeats"),
    XidRule(45, "preemptive cleanup after an earlier error", _A, _P, "look at the XID before it", PLUGIN),
    XidRule(46, "GPU stopped processing (timeout)", _R, _I, _RESET),
    XidRule(48, "double bit ECC error", _R, _I, _RESET, MEMORY),
    XidRule(54, "auxiliary power is not connected", _D, _G, "check power cables and seating"),
    XidRule(56, "display engine error", _R, _G, _RESET, OLDER),
    XidRule(57, "error programming the video memory interface", _R, _G, _RESET, OLDER),
    XidRule(58, "unstable video memory interface", _R, _G, _RESET, OLDER),
    XidRule(60, "video processor exception", _A, _P, _RESTART),
    XidRule(61, "internal micro-controller breakpoint", _R, _G, _RESET, OLDER),
    XidRule(62, "internal micro-controller halt", _R, _G, _RESET),
    XidRule(63, "memory row remapped or page retired: takes effect at the next reset", _C, _G, _RESET_LATER, MEMORY),
    XidRule(64, "memory row remapping or page retirement failed", _X, _G, "have the board replaced", MEMORY),
    XidRule(66, "illegal register access by the driver", _N, _P, _NONE),
    XidRule(67, "driver firmware verification violation", _N, _P, "report it if it repeats"),
    XidRule(68, "video decoder exception", _A, _P, _RESTART, PLUGIN),
    XidRule(69, "graphics engine class error", _A, _P, _RESTART),
    XidRule(74, "NVLink error", _R, _G, "reset the GPU; check the link if it repeats"),
    XidRule(79, "GPU has fallen off the bus", _R, _G, "reboot the node, or reset the GPU where its bus allows it"),
    XidRule(80, "corrupted data sent to the GPU", _A, _P, _RESTART),
    *_rows((82, *range(99, 106)), "JPEG engine exception", _A, _P, _RESTART),
    *_rows((83, 84, 88, 89, 96, 97, 98), "video decoder exception", _A, _P, _RESTART),
    *_rows((86, 139), "optical flow engine exception", _A, _P, _RESTART),
    XidRule(92, "high rate of single bit ECC errors", _D, _G, "watch the ECC counters"),
    XidRule(93, "InfoROM wear limit exceeded", _N, _G, _NONE),
    XidRule(94, "contained memory error", _C, _I, "restart the application; reset the GPU when convenient", MEMORY),
    XidRule(95, "uncontained memory error", _R, _G, _RESET, MEMORY),
    *_rows((106, 107), "SMBPBI test message", _N, _G, _NONE),
    *_rows((108, 137), "NVLink translation error reported for a remote GPU", _N, _P, "look at the remote GPU's XIDs"),
    XidRule(109, "context switch timeout", _A, _P, "restart the application; reset the GPU if it repeats", PLUGIN),
    XidRule(110, "security fault", _R, _G, _RESET),
    XidRule(119, "GSP firmware did not answer", _R, _G, "reset the GPU; power cycle the node if it persists"),
    XidRule(120, "GSP firmware error", _R, _G, "reset the GPU; power cycle the node if it persists"),
    XidRule(121, "corrected error on the link to the CPU (C2C)", _D, _G, _RESET_LATER),
    *_rows((122, 123, 124), "SPI access by the power management unit failed", _D, _G, _RESET_LATER, OLDER),
    XidRule(125, "InfoROM file system error", _D, _G, _RESET_LATER, OLDER),
    *_rows(range(126, 136), "copy engine exception", _A, _P, _RESTART),
    XidRule(136, "NVLink training failed", _R, _G, _RESET),
    XidRule(140, "unrecovered ECC error", _R, _I, _RESET),
    XidRule(141, "fast path error", _N, _P, _NONE),
    XidRule(142, "video encoder exception", _R, _I, _RESET),
    XidRule(143, "GPU initialisation failed", _R, _G, _RESET),
    *_rows((144, 145, 146, 149, 150), "NVLink 5 error", _R, _G, _NVLINK5),
    *_rows((147, 148), "NVLink 5 event", _N, _G, _NONE),
    XidRule(151, "confidential computing key rotation failed", _B, _G, "reboot the node"),
    XidRule(154, "the driver's recovery action changed", _N, _G, "none: the action itself is read and counts"),
    XidRule(155, "NVLink software defined error", _R, _G, _RESET),
    XidRule(156, "GPU resource retired: takes effect at the next reset", _R, _G, _RESET),
    XidRule(157, "retiring a GPU resource failed", _D, _G, "contact support"),
    XidRule(158, "fatal GPU timeout", _R, _G, _RESET),
    XidRule(160, "channel retired", _N, _P, _NONE),
    XidRule(161, "retiring a channel failed", _N, _P, _NONE),
)

XIDS: dict[int, XidRule] = {row.xid: row for row in _ROWS}
assert len(XIDS) == len(_ROWS), "an XID has two rows"

UNKNOWN_XID_NAME = "unknown to this version's table"


def unknown_rule(xid: int, fault_class: FaultClass) -> XidRule:
    """The rule of an XID without a row (docs/decisions: an unknown XID takes the device out until a reset)."""
    return XidRule(xid, UNKNOWN_XID_NAME, fault_class, XidScope.INSTANCE, "look it up in NVIDIA's XID catalogue", "")
