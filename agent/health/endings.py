"""The end of a state in which a device is not handed out, in words, from the faults that keep it there. Pure.

The machine has the rules themselves; docs/health.md has them as tables.
"""

from agent.health.settings import HealthSettings
from agent.health.states import DeviceHealth, Fault, FaultKind, HealthState
from agent.health.xids import FaultClass
from agent.words import health as words

_MEASURED = {
    FaultKind.PROBE: words.answers,
    FaultKind.UNREADABLE: words.until_readable,
    FaultKind.REMOVED: words.until_back,
    FaultKind.REMAP_PENDING: words.until_remapped,
    FaultKind.NVLINK: words.until_links,
    FaultKind.RECOVERY_ACTION: words.until_no_recovery,
}
_BY_CLASS = {FaultClass.REBOOT: words.until_reboot, FaultClass.REPLACE: words.until_replaced}


def ends_when(health: DeviceHealth, settings: HealthSettings) -> str:
    """The words that follow "until"; empty for a device that is handed out."""
    if health.advertised_healthy:
        return ""
    if health.state is HealthState.PROBATION:
        return words.until_passed(f"{settings.probation_s:g}", settings.clean_probes)
    keeping = [fault for fault in health.faults if fault.blocks] or health.faults
    return words.until_all(tuple(dict.fromkeys(map(_end, keeping))))


def _end(fault: Fault) -> str:
    measured = _MEASURED.get(fault.kind)
    if measured is not None:
        return measured()
    return _BY_CLASS.get(fault.fault_class, words.until_reset)()
