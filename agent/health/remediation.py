"""The repair that a GPU's open faults call for, and the settings of repairs. Pure.

    open faults, whether NVML tells a recovery action -> wanted(...) -> Want

NVML's recovery action decides, and whether the GPU still answers; the XID does not. The fault table's class decides
only where NVML has no such field.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from agent.health.states import Fault, FaultKind
from agent.health.xids import FaultClass
from agent.words import repairs as words

UNANSWERED_S = 60.0
"""The seconds for which a GPU may leave its probes unanswered before a reboot is wanted: a reset needs a GPU that
answers."""

STEWARDS: Final = (
    "nvidia-persistenced",
    "nv-hostengine",
    "dcgm-exporter",
    "nv-fabricmanager",
    "nvidia-smi",
    "dcgmi",
)
"""Programs that have GPUs open without computing on them, unless the configuration names others."""
OFF_THE_BUS: Final = 79
"""The XID of a GPU that has fallen off the bus: it says more than that NVML calls the GPU lost."""
_SILENT = frozenset({FaultKind.PROBE, FaultKind.UNREADABLE})
_ABSENT = frozenset({FaultKind.REMOVED})
_BY_RECOVERY_ACTION = {1: "reset", 2: "reboot", 4: "reset", 6: "reboot", 7: "reboot"}
"""nvmlDeviceGpuRecoveryAction_t: GPU_RESET, NODE_REBOOT, DRAIN_AND_RESET, the reset of the PCIe bus (which a reboot
does), NODE_REBOOT. DRAIN_P2P (3) and the recovery of the IMEX domain (5) are no repair of this GPU; a value newer than
this table is left to a person."""


class ResetMode(StrEnum):
    """Whether a GPU is reset without a person: never; once nobody holds it; or so that the controller is asked to let
    the pods leave that hold it. Without an API server nobody is asked, and ``drain`` is ``when-free``.
    """

    NEVER = "never"
    WHEN_FREE = "when-free"
    DRAIN = "drain"


class RebootMode(StrEnum):
    """Whether the controller is asked for a reboot of the node where a repair wants one."""

    NEVER = "never"
    ASK = "ask"


class Remediation(Struct, frozen=True, kw_only=True):
    """The settings of repairs. A GPU whose reset failed ``attempts`` times wants a reboot; one that had the same fault
    ``retire_faults`` times within ``retire_within_s`` seconds is retired.

    ``stewards`` are names of processes that have GPUs open without computing on them: people are told to stop them.
    ``verify_command`` is run after a reset with that GPU alone visible, for at most ``verify_timeout_s`` seconds; empty
    for none.
    """

    reset: ResetMode = ResetMode.NEVER
    reboot: RebootMode = RebootMode.NEVER
    attempts: int = 2
    retire_faults: int = 5
    retire_within_s: float = 86400.0
    stewards: tuple[str, ...] = STEWARDS
    verify_command: tuple[str, ...] = ()
    verify_timeout_s: float = 30.0


class Action(StrEnum):
    """The repair that is wanted."""

    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"


class Want(Struct, frozen=True, kw_only=True):
    """The repair that the faults call for. ``reason`` is one CamelCase word, equal for the same fault; ``cause`` a
    sentence; ``since_s`` when the oldest fault that blocks began. ``due_s``: when silence alone will want more.
    ``absent``: the board is gone, and whatever was to be done about it is for another day.
    """

    action: Action = Action.NONE
    reason: str = ""
    cause: str = ""
    since_s: float = 0.0
    due_s: float | None = None
    absent: bool = False


def wanted(faults: Sequence[Fault], *, told: bool | None, now_s: float, there: bool = True) -> Want:
    """The repair of a GPU with these open faults. ``told``: whether its NVML tells a recovery action; None while that
    is not known yet. ``there``: whether a lost GPU is known to be listed still, as one is not that was taken out.

    A lost GPU that is there wants a reboot at once, a silent one after ``UNANSWERED_S``. A board that is to be
    replaced, or is gone, wants nothing that could be done here.
    """
    blocking = [fault for fault in faults if fault.blocks]
    if any(fault.kind in _ABSENT for fault in blocking):
        return Want(absent=True)
    if not blocking or any(fault.fault_class is FaultClass.REPLACE for fault in blocking):
        return Want()
    since_s = min(fault.since_s for fault in blocking)
    lost = next((fault for fault in blocking if fault.kind is FaultKind.LOST), None)
    silent = min((f for f in blocking if f.kind in _SILENT), key=lambda fault: (fault.since_s, fault.key), default=None)
    if lost is not None and there:
        off = next((fault for fault in blocking if fault.kind is FaultKind.XID and fault.code == OFF_THE_BUS), lost)
        return Want(action=Action.REBOOT, reason=off.reason, cause=off.cause, since_s=since_s)
    if (quiet := lost or silent) is not None:
        if now_s - quiet.since_s < UNANSWERED_S:
            return Want(due_s=quiet.since_s + UNANSWERED_S)
        return Want(action=Action.REBOOT, reason=quiet.reason, cause=quiet.cause, since_s=since_s)
    worst = _telling(blocking)
    return Want(action=_action(blocking, told=told), reason=worst.reason, cause=worst.cause, since_s=since_s)


def unrepaired(faults: Sequence[Fault], want: Want, *, stopped: bool, looked_s: float) -> str:
    """Why a GPU with these faults, which is taken out and has no repair, has none; empty where one is due, or where
    nothing can be said. ``stopped``: a person has ended it. ``looked_s``: when the GPU last answered a probe. What the
    driver asks for after a fault, and whether the GPU is lost, the next probe says.
    """
    blocking = [fault for fault in faults if fault.blocks]
    if not blocking or want.absent:
        return ""
    if stopped:
        return words.unrepaired_stopped()
    if want.action is not Action.NONE or want.due_s is not None:
        return ""
    if any(fault.fault_class is FaultClass.REPLACE for fault in blocking):
        return words.unrepaired_replace()
    if any(fault.since_s > looked_s for fault in blocking):
        return ""
    return words.unrepaired_no_reset()


def _action(blocking: Sequence[Fault], *, told: bool | None) -> Action:
    asked = next((fault for fault in blocking if fault.kind is FaultKind.RECOVERY_ACTION), None)
    if asked is not None:
        return Action(_BY_RECOVERY_ACTION.get(asked.code, "none"))
    if told is not False:
        return Action.NONE
    if any(fault.fault_class is FaultClass.REBOOT for fault in blocking):
        return Action.REBOOT
    return Action.RESET


def _telling(blocking: Sequence[Fault]) -> Fault:
    """The fault that names the trouble: an XID says more than what the driver measures after it."""
    return min(blocking, key=lambda fault: (fault.kind is not FaultKind.XID, fault.since_s, fault.key))
