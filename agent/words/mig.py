"""Sentences about changes of a GPU's MIG layout: ``status.problems`` of the GpuNode, Events of its node, the mig.config
label.

``gpu`` is a GPU's name with its UUID, ``pods`` and ``what`` name what is in the way.
"""

from inventory.words.catalog import Kind, Place, said

_note = said(Place.NODE, Kind.NOTE)
_waiting = said(Place.NODE, Kind.WAITING)
_refusal = said(Place.NODE, Kind.REFUSAL)
_part = said(Place.NODE, Kind.PART)


@_refusal
def no_mig(gpu: str) -> str:
    return f"{gpu}: it cannot do MIG. Use another GPU in the layout, or no mode mig"


@_refusal
def does_not_fit(gpu: str, why: str) -> str:
    return f"{gpu}: {why}. Correct the profiles in the layout"


@_refusal
def busy(gpu: str, what: str) -> str:
    return f"{gpu}: {what}: nothing was changed. End them, or set whenBusy to wait or drain"


@_waiting
def waits_for_ends(gpu: str, what: str) -> str:
    return f"{gpu}: {what}: it is done when they end"


@_waiting
def being_evicted(gpu: str, what: str) -> str:
    return f"{gpu}: {what}: they are being evicted"


@_part
def layout_beside(what: str) -> str:
    return f"{what}, and the layout's own instances exist beside it"


@_part
def claims_beside(what: str) -> str:
    return f"{what}, and what claims hold exists beside it"


@_part
def instance_in_use(profile: str, start: object, holders: str) -> str:
    return f"{profile} at slice {start} is in use by {holders}"


@_part
def in_use(holders: str) -> str:
    return f"it is in use by {holders}"


@_waiting
def waits_for_holders(gpu: str, holders: str) -> str:
    return f"{gpu}: it is in use by {holders}"


@_waiting
def pods_keep_coming(gpu: str) -> str:
    return f"{gpu}: new pods keep taking the instances that are to be removed"


@_waiting
def holders_unknown(gpu: str) -> str:
    return f"{gpu}: {no_holders_told()}"


@_part
def no_holders_told() -> str:
    return "the kubelet does not report who holds its instances"


@_waiting
def holder_unknown(gpu: str) -> str:
    return f"{gpu}: the kubelet does not report who holds it"


@_waiting
def daemon_not_ended(gpu: str) -> str:
    return f"{gpu}: the MPS daemon of a device that is to be removed has not ended yet"


@_refusal
def reset_needed(gpu: str, mode: str, clients: str) -> str:
    return (
        f"{gpu}: MIG mode {mode} is pending: it needs a reset, and {clients} has the GPU open. "
        "End it; the change goes on then"
    )


@_refusal
def not_reset(gpu: str, mode: str) -> str:
    return f"{gpu}: MIG mode {mode} is pending: the driver could not reset the GPU. Reset it or reboot the node"


@_waiting
def not_in_time(gpu: str, seconds: str) -> str:
    return f"{gpu}: the change did not end within {seconds} s"


@_waiting
def taken_up_again(gpu: str, why: str) -> str:
    return f"{gpu}: {why}; it is taken up again"


@_part
def unwanted() -> str:
    return "that layout is no longer wanted"


@_part
def process_in_the_way(which: str) -> str:
    return f"a process runs on an instance that was to be removed ({which})"


@_part
def others_made() -> str:
    return "NVML shows other instances than were made"


@_waiting
def restored(gpu: str, why: str) -> str:
    return f"{gpu}: {why}; the former layout was restored"


@_waiting
def not_restored_in_use(gpu: str, why: str) -> str:
    return f"{gpu}: {why}; the former layout is not restored: what was made is in use"


@_waiting
def not_restored_unknown(gpu: str, why: str) -> str:
    return f"{gpu}: {why}; the former layout is not restored yet: {no_holders_told()}"


@_refusal
def not_restored_failed(gpu: str, why: str, failed: str) -> str:
    return f"{gpu}: {why}; the former layout is not restored either: {failed}. See the agent's log"


@_refusal
def not_restored(gpu: str, why: str) -> str:
    return f"{gpu}: {why}; the former layout could not be restored. See the agent's log"


@_refusal
def unknown_label(label: str, found: str, known: str) -> str:
    return f"{label}: found {found}, expected one of {known}"


@_refusal
def no_such_gpu(label: str, value: str, index: object) -> str:
    return f"{label}: {value}: there is no GPU {index}. Correct the configuration's devices, or use another one"


@_refusal
def layout_goes_first(label: str, value: str, index: object) -> str:
    return (
        f"{label}: {value} conflicts with the layout of GPU {index}, which takes precedence. "
        "Remove the label, or the GPU from the layout"
    )


@_note
def released(index: object, seconds: str) -> str:
    return f"GPU {index} is released for {seconds} s for a reset: no new pod gets it"


@_refusal
def released_open(index: object, seconds: str, clients: str) -> str:
    return f"{released(index, seconds)}; it is open by {clients}. End them before the reset"


@_note
def evicted(pod: str) -> str:
    return f"Pod {pod} is evicted: it holds a GPU or a part of one whose layout is being changed"


@_waiting
def not_evicted_yet(pod: str, why: str) -> str:
    return f"Pod {pod} holds a GPU or a part of one that is drained and is not evicted yet: {why}"
