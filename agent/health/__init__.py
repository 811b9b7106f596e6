"""The health of every device, decided without I/O: what NVML reported goes in, transitions come out.

``HealthCore`` is the state machine, ``xids`` the table of what each XID means, ``settings`` what an administrator may
change, ``events`` what the shell can tell it. The shell (the agent) owns probes, timers, logs, Events and metrics.
"""

from agent.health.checkpoint import HealthSnapshot
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
    XidSeen,
)
from agent.health.faults import Fault, FaultKind
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings, XidOverride
from agent.health.states import DeviceHealth, HealthState, Transition
from agent.health.xids import FaultClass, XidRule, XidScope

__all__ = [
    "BootChanged",
    "DeviceHealth",
    "EccSample",
    "Event",
    "Fault",
    "FaultClass",
    "FaultKind",
    "HealthCore",
    "HealthSettings",
    "HealthSnapshot",
    "HealthState",
    "NvLinkSample",
    "ProbeFailed",
    "ProbeOk",
    "ProbeReason",
    "RecoveryAction",
    "RemapSample",
    "Removed",
    "ResetObserved",
    "Tick",
    "Transition",
    "Unreadable",
    "XidOverride",
    "XidRule",
    "XidScope",
    "XidSeen",
]
