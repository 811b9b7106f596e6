"""Sentences about settings that could not be carried out on a node, and events there: ``status.problems`` of the
GpuNode, Events.

``place`` is a file or an object with its line.
"""

from inventory.words.catalog import Kind, Place, said

_note = said(Place.NODE, Kind.NOTE)
_waiting = said(Place.NODE, Kind.WAITING)
_refusal = said(Place.NODE, Kind.REFUSAL)
_part = said(Place.NODE, Kind.PART)
_claim = said(Place.CLAIM, Kind.NOTE)


@_note
def devices_ready() -> str:
    return "All wanted devices are registered with the kubelet and probed"


@_waiting
def not_probed() -> str:
    return "No GPU has been probed yet"


@_note
def gpus_healthy() -> str:
    return "All GPUs are handed out"


@_part
def in_repair() -> str:
    return "in repair"


@_part
def and_more(gpus: object) -> str:
    return f"; and {gpus} more"


@_refusal
def last_config_stands(problem: str) -> str:
    return f"Config rejected, the last good one stands in: {problem}. Correct it; it is read again"


@_refusal
def old_config_stays(problem: str) -> str:
    return f"Config rejected, the old one stays: {problem}. Correct it; it is read again"


@_waiting
def config_unreadable(problem: str) -> str:
    return f"Config cannot be read, what was in use stays: {problem}. It is read again until it can be"


@_note
def no_state(problem: str) -> str:
    return (
        f"State folder: {problem}. Devices are served without it: a restart forgets what the agent knows, and no MIG "
        "layout is changed and no claim prepared. See that the folder can be written"
    )


@_refusal
def collectors_rejected(problem: str) -> str:
    return f"Collectors file rejected, the fields stay as they are: {problem}. Correct it; it is read again"


@_refusal
def collector_left_out(line: str) -> str:
    return f"Collectors file: a line is left out: {line}. Correct it, or take it out"


@_refusal
def collectors_left_out(line: str, more: object) -> str:
    return f"Collectors file: a line is left out: {line} (and {more} more). Correct them, or take them out"


@_refusal
def several_layouts(names: str) -> str:
    return f"The GpuLayouts {names} all select this node, expected one: the last good layout stays"


@_refusal
def bad_layout(problem: str) -> str:
    return f"{problem}: the last good layout stays. Correct the GpuLayout"


@_refusal
def layout_not_applied(problem: str) -> str:
    return f"{problem}: the layout is not applied. Correct the layout"


@_refusal
def mode_refused(source: str, gpu: str, mode: str, pods: str) -> str:
    return (
        f"{source}: {gpu} is to be {mode} and is held by {pods}: the layout is not applied until they are gone. "
        "End them, or set whenBusy to drain"
    )


@_waiting
def mode_waits(source: str, gpu: str, mode: str, pods: str) -> str:
    return f"{source}: {gpu} is to be {mode} and is held by {pods}: it waits for them, and no other container gets it"


@_waiting
def mode_drains(source: str, gpu: str, mode: str, pods: str) -> str:
    return f"{source}: {gpu} is to be {mode} and is held by {pods}: they are to be evicted"


@_refusal
def no_channel(path: str) -> str:
    return f"Requested IMEX channel {path} does not exist (imex.required), expected a character device"


@_refusal
def no_spec(problem: str) -> str:
    return f"No CDI spec: {problem}. No container can be given a device. See driver.driverRoot and the agent's log"


@_refusal
def no_capabilities(gpu: object, instance: object, profile: str) -> str:
    return (
        f"GPU {gpu} MIG {instance} ({profile}): neither /proc/driver/nvidia/capabilities nor "
        "/proc/driver/nvidia-caps/mig-minors names its capability files, so that no container could use it. "
        "See that the agent sees the host's /proc"
    )


@_refusal
def label_set_back(label: str, writer: str) -> str:
    return f"Label {label}, written by {writer}, conflicts with the agent; it is set back. See that one writes it"


@_refusal
def label_left(label: str, writer: str) -> str:
    return f"Label {label}, written by {writer}, conflicts with the agent; it is left as it is. See that one writes it"


@_waiting
def daemon_lost(daemon: str, device: str, why: str, pods: str) -> str:
    return f"{daemon} ({device}): {why}: its clients in {pods} have lost it; it is being restarted"


@_waiting
def idle_daemon_lost(daemon: str, device: str, why: str) -> str:
    return f"{daemon} ({device}): {why}: no pod was its client; it is being restarted"


@_refusal
def no_claims_served(problem: str) -> str:
    return f"Mode dra: cannot serve claims: {problem}. See that the agent may write below the kubelet's plugin folders"


@_refusal
def refused_by_kubelet(driver: str, error: str) -> str:
    return f"Mode dra: the kubelet refuses {driver}: {error}. See the kubelet's version and its log"


@_refusal
def no_claims_api() -> str:
    return (
        "Mode dra: the API server does not serve resource.k8s.io/v1, expected Kubernetes 1.34 or later with the API on"
    )


@_refusal
def no_counters() -> str:
    return (
        "Mode dra: the API server does not keep sharedCounters of slices (gate DRAPartitionableDevices), expected "
        "Kubernetes 1.36, or 1.35 with the gate on: no MIG instance by claim"
    )


@_refusal
def no_shares() -> str:
    return (
        "Mode dra: the API server does not keep shares of devices (gate DRAConsumableCapacity), expected "
        "Kubernetes 1.36, or 1.35 with the gate on: GPUs with shares are not given out"
    )


@_refusal
def field_dropped(field: str) -> str:
    return f"Mode dra: the API server dropped {field} of devices, expected its feature gate on"


@_refusal
def statuses_not_kept() -> str:
    return (
        "Mode dra: the API server does not keep status.devices of ResourceClaims, expected the gate "
        "DRAResourceClaimDeviceStatus on: claims do not say how their devices fare"
    )


@_refusal
def statuses_refused(error: str) -> str:
    return (
        f"Mode dra: status.devices of ResourceClaims cannot be written, claims are served without: {error}. "
        "See the agent's rights"
    )


@_claim
def device_absent() -> str:
    return "The device is not on the node"
