"""The reasons why a ResourceClaim is not prepared, which the kubelet writes into an Event of the pod.

``claim`` is its namespace and name, ``where`` a config or a device of it. Values are cut: they come from whoever makes
claims.
"""

from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.CLAIM_EVENTS, Kind.REFUSAL)
_waiting = said(Place.CLAIM_EVENTS, Kind.WAITING)


@_waiting
def given_back() -> str:
    return "The claim was given back meanwhile"


@_waiting
def no_api_server() -> str:
    return "The agent has not reached the API server yet"


@_refusal
def gone(claim: object) -> str:
    return f"{claim}: found none of this name, expected the claim of the pod"


@_refusal
def replaced(claim: object, found: str, expected: str) -> str:
    return f"{claim}: found uid {found}, expected {expected}: the claim was replaced"


@_refusal
def not_allocated(claim: object) -> str:
    return f"{claim}: status.allocation: found none, expected devices"


@_refusal
def nothing_of_driver(claim: object, driver: str) -> str:
    return f"{claim}: status.allocation: found no device of {driver}, expected one at least"


# -- devices -----------------------------------------------------------------------------------------------------------


@_refusal
def held(device: str, holder: str, uid: str) -> str:
    return f"Device {device} is held by ResourceClaim {holder} ({uid}). End its pods, or wait until they have ended"


@_refusal
def overlapping(claim: object, one: str, other: str) -> str:
    return f"{claim}: found {one} and {other}, expected no overlap of the two"


@_refusal
def not_offered(device: str, pool: str) -> str:
    return f"Device {device} of pool {pool}: found none that is given out by claim, expected one of this node"


@_refusal
def withheld(device: str, problem: str) -> str:
    return f"Device {device}: {problem}. See the GpuNode of the node"


@_refusal
def no_device_files(device: str) -> str:
    return f"Device {device} has no device files. See the agent's log"


# -- shares and MPS ----------------------------------------------------------------------------------------------------


@_refusal
def share_of_several(claim: object, gpus: object) -> str:
    return f"{claim}: found a share and {gpus} GPUs, expected one: a process is a client of one MPS daemon"


@_refusal
def share_too_large(claim: object, gpu: str, found: str, most: str) -> str:
    return f"{claim}: found {found} of GPU {gpu} in all claims, expected {most} at most: one that ends may have some"


@_refusal
def bad_memory_share(where: str, found: object) -> str:
    return f"{where}: consumedCapacity.memory: found {found!r:.80}, expected 1Mi or more"


@_refusal
def bad_percent_share(where: str, name: str, found: object, most: object) -> str:
    return f"{where}: consumedCapacity.{name}: found {found!r:.80}, expected 1 to {most}"


@_refusal
def mps_under_mps(claim: object) -> str:
    return f"{claim}: sharing.strategy: found MPS, expected none: a share of a GPU is under MPS already"


@_refusal
def several_instances(claim: object, found: object) -> str:
    return f"{claim}: found {found} MIG instances under one MPS daemon, expected one"


# -- configs -----------------------------------------------------------------------------------------------------------


@_refusal
def bad_parameters(driver: str, problem: str) -> str:
    return f"Opaque parameters of {driver}: {problem}. Correct the claim or its class"


@_refusal
def bad_config(where: str, kind: object, problem: str) -> str:
    return f"{where}: {kind!r:.80}: {problem}. Correct the claim or its class"


@_refusal
def bad_memory_limit(where: str, found: object, expected: str) -> str:
    return f"{where}: found {found!r:.80}, expected {expected}"


@_refusal
def bad_version(where: str, found: object, expected: str) -> str:
    return f"{where}: apiVersion: found {found!r:.80}, expected {expected}"


@_refusal
def bad_kind(where: str, found: object, expected: str) -> str:
    return f"{where}: kind: found {found!r:.80}, expected {expected}"


@_refusal
def kind_not_served(where: str, found: str, expected: str, why: str) -> str:
    return f"{where}: kind: found {found}, expected {expected}: {why}"


@_refusal
def kind_of_another(where: str, found: object, expected: str, allocated: str) -> str:
    return f"{where}: kind: found {found}, expected {expected}: {allocated} was allocated"


@_refusal
def time_slices_with_mps(where: str) -> str:
    return f"{where}.timeSlicingConfig: found with strategy MPS, expected none"


@_refusal
def mps_with_time_slices(where: str) -> str:
    return f"{where}.mpsConfig: found with strategy TimeSlicing, expected none"


@_refusal
def users_by_claim(where: str) -> str:
    return f"{where}.mpsConfig.multiUser: found true, expected none: the agent's mps.multiUser says it"


@_refusal
def interval_not_served(where: str, found: str) -> str:
    return f"{where}.timeSlicingConfig.interval: found {found}, expected Default: NVML has no call that sets another"
