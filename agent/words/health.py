"""Sentences about a device's health: Events of its node, ``status.devices[].health`` of the GpuNode.

The names of XIDs, and what each asks of a person, stand in the table of ``agent.health.xids``.
"""

from inventory.words.catalog import Kind, Place, plural, said

_note = said(Place.HEALTH, Kind.NOTE)
_refusal = said(Place.HEALTH, Kind.REFUSAL)
_part = said(Place.HEALTH, Kind.PART)


@_note
def changed(device: str, old: str, new: str, seconds: str, cause: str) -> str:
    return f"{device}: {old} -> {new} after {seconds} s: {cause}"


@_refusal
def worsened(device: str, old: str, new: str, seconds: str, cause: str, action: str) -> str:
    """Like ``changed``, with an action that somebody can take."""
    return f"{device}: {old} -> {new} after {seconds} s: {cause}. To do: {action}"


@_note
def program_at_fault(number: object, gpus: int, program: str) -> str:
    return f"XID {number} came on {plural(gpus, 'GPU')} under {program}: the program is at fault, not the GPUs"


@_refusal
def gpu_suspect(device: str, number: object, programs: str) -> str:
    return (
        f"{device}: XID {number} came under {programs}, and under none of them on another GPU: the GPU is suspect. "
        "To do: run a diagnosis on it"
    )


@_part
def xid(number: object, name: str) -> str:
    return f"XID {number}: {name}"


@_part
def xid_in_instance(number: object, name: str, gi: object) -> str:
    return f"XID {number}: {name} in GPU instance {gi}"


@_part
def xid_in_compute_instance(number: object, name: str, gi: object, ci: object) -> str:
    return f"XID {number}: {name} in GPU instance {gi}, compute instance {ci}"


@_part
def no_answer(detail: str) -> str:
    return f"NVML did not answer in time{_in_brackets(detail)}"


@_part
def error_answered(detail: str) -> str:
    return f"NVML answered with an error{_in_brackets(detail)}"


@_part
def lost(detail: str) -> str:
    return f"the GPU is lost{_in_brackets(detail)}"


@_part
def unreadable() -> str:
    return "discovery cannot read the GPU"


@_part
def removed() -> str:
    return "the GPU is gone: it was removed"


@_part
def uncorrected(errors: object) -> str:
    return f"{plural(errors, 'uncorrected memory error')} since the last reset"


@_part
def remap_pending() -> str:
    return "a memory row remap waits for a reset"


@_part
def remap_failed() -> str:
    return "a memory row remap failed"


@_part
def links_down(links: str) -> str:
    return f"NVLink {links} down"


@_part
def switch_links_down(links: str) -> str:
    return f"NVLink {links} down (to an NVSwitch)"


@_part
def recovery_asked(number: object, action: str) -> str:
    return f"the driver asks for a recovery action ({number}): {action}"


@_part
def more_faults(last: str) -> str:
    return f"more faults than are listed, the last: {last}"


@_part
def nothing_wrong() -> str:
    return "nothing is wrong any more"


@_part
def back() -> str:
    return "the GPU is there again"


@_part
def rebooted() -> str:
    return "the node was rebooted"


@_part
def remapped() -> str:
    return "no row remap is pending any more"


@_part
def links_up() -> str:
    return "all NVLinks are up again"


@_part
def no_recovery_asked() -> str:
    return "the driver asks for no recovery action any more"


@_part
def reset() -> str:
    return "a reset was observed"


@_part
def verified() -> str:
    return "it was reset, and passed its verification"


@_part
def answers() -> str:
    return "it answers again"


@_part
def passed_probation(probes: object, seconds: str) -> str:
    return f"{probes} clean probes in {seconds} s of probation"


@_part
def no_fault_any_more() -> str:
    return "the configuration no longer counts it as a fault"


@_part
def until_passed(seconds: str, probes: object) -> str:
    return f"it has done well for {seconds} s and {probes} probes"


@_part
def until_readable() -> str:
    return "it can be read again"


@_part
def until_back() -> str:
    return "it is there again"


@_part
def until_remapped() -> str:
    return "its row remap is done"


@_part
def until_links() -> str:
    return "its NVLinks are up again"


@_part
def until_no_recovery() -> str:
    return "the driver asks for no recovery action"


@_part
def until_reset() -> str:
    return "the GPU is reset or the node rebooted"


@_part
def until_reboot() -> str:
    return "the node is rebooted"


@_part
def until_replaced() -> str:
    return "the board is replaced"


@_part
def until_all(ends: tuple[str, ...]) -> str:
    return " and ".join(ends)


def _in_brackets(detail: str) -> str:
    return f" ({detail})" if detail else ""
