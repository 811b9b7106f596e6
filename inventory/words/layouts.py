"""Sentences about problems of a layout on a node, and devices that are not advertised: on the GpuNode, in Events, by
``tessera layout``.

``where`` is the file and line of an entry, or empty. ``gpu`` is a GPU's name with its UUID or product.
"""

from inventory.words.catalog import Kind, Place, plural, said

_refusal = said(Place.LAYOUT, Kind.REFUSAL)
_waiting = said(Place.LAYOUT, Kind.WAITING)
_part = said(Place.LAYOUT, Kind.PART)


def _at(where: str) -> str:
    return f"{where}: " if where else ""


@_refusal
def named_twice(where: str, gpus: str, gpu: str, other: str) -> str:
    return f"{_at(where)}gpus: {gpus}: {gpu} is named by {other} too, expected once"


@_refusal
def stands_twice(where: str, gpus: str, gpu: str) -> str:
    return f"{_at(where)}gpus: {gpus}: {gpu} stands twice, expected once"


@_refusal
def no_such_gpu(where: str, gpus: str, indexes: str, products: str) -> str:
    return f"{_at(where)}gpus: {gpus}: no such GPU, this node has the GPUs {indexes} ({products}), expected one of them"


@_refusal
def no_gpu(where: str, gpus: str) -> str:
    return f"{_at(where)}gpus: {gpus}: this node has no GPU, expected one"


@_refusal
def too_few(where: str, gpus: str, found: object, expected: object) -> str:
    return f"{_at(where)}gpus: {gpus}: found {found} such GPUs that no other entry has, expected {expected}"


@_refusal
def different_products(where: str, gpus: str, products: str) -> str:
    return f"{_at(where)}gpus: {gpus}: oneDaemon: found the products {products}, expected one"


@_refusal
def no_mig(where: str, gpu: str) -> str:
    return f"{_at(where)}{gpu} cannot do MIG, expected one that can"


@_refusal
def unknown_profile(where: str, gpu: str, profile: str, known: str) -> str:
    return f"{_at(where)}{gpu}: profiles: found {profile}, expected some of {known}"


@_refusal
def too_many(where: str, gpu: str, count: object, profile: str, most: object) -> str:
    return f"{_at(where)}{gpu}: profiles: found {count} of {profile}, expected {most} at most"


@_refusal
def impossible(where: str, gpu: str, why: str) -> str:
    return f"{_at(where)}{gpu}: profiles: {why}. Correct them"


@_refusal
def too_many_clients(where: str, gpu: str, found: object, most: object) -> str:
    return f"{_at(where)}{gpu}: found {found} MPS clients, expected {most} at most"


@_refusal
def too_much_memory(where: str, gpu: str, found_mib: object, most_mib: object) -> str:
    return f"{_at(where)}{gpu}: clients: found {found_mib} MiB of memory, expected at most the GPU's {most_mib} MiB"


@_refusal
def two_placements() -> str:
    return "Fractional GPUs of one node: found the placements packed and spread, expected one for all of them"


@_part
def not_together(profiles: str) -> str:
    return f"{profiles} do not fit together on this GPU"


@_part
def no_profile(profile: str, known: str) -> str:
    return f"{profile} is no profile of this GPU, which has {known}"


@_part
def no_compute(profile: str, whole: str, slices: object) -> str:
    return f"{profile}: {whole} has no compute instances of {plural(slices, 'slice')}"


@_refusal
def no_gpu_pattern(gpu: str) -> str:
    return f"{gpu} matches no pattern of resources.gpus: it is not advertised. Create a pattern for it"


@_refusal
def no_mig_pattern(index: object, profile: str) -> str:
    return f"GPU {index}: {profile} matches no pattern of resources.mig: it is not advertised. Create a pattern for it"


@_refusal
def part_only(index: object, profile: str, uuid: str) -> str:
    return f"GPU {index}: {profile} ({uuid}) is a part of a GPU instance and gets no resource, expected a whole one"


@_refusal
def empty_mig(gpu: str) -> str:
    return f"{gpu} has MIG mode on and no instance: nothing of it is advertised. Create some, or turn the mode off"


@_refusal
def single_whole(indexes: str) -> str:
    return (
        f"Nothing is advertised with migStrategy single: GPUs {indexes} have MIG mode off while others have it on, "
        "expected it on"
    )


@_refusal
def single_empty(indexes: str) -> str:
    return f"Nothing is advertised with migStrategy single: GPUs {indexes} have no MIG instance, expected some on each"


@_refusal
def single_mixed(profiles: str) -> str:
    return f"Nothing is advertised with migStrategy single: found the profiles {profiles}, expected one"


@_refusal
def list_too_long(resource: str, found: object, fits: object, mib: object) -> str:
    return (
        f"{resource} is not advertised: found {plural(found, 'replica')}, expected {fits} at most on this node: "
        f"the kubelet takes a list of {mib} MiB. Ask for fewer"
    )


@_refusal
def no_device_shared(resource: str) -> str:
    return f"Sharing of {resource}: no device of this node is selected. Correct its devices, or take it out"


@_waiting
def mig_still_on(gpu: str) -> str:
    return f"{gpu} still has MIG mode on: nothing of it is advertised until it is off"


@_waiting
def not_cut_yet(gpu: str, profiles: str) -> str:
    return f"{gpu} is to have the MIG instances {profiles}, which are not there yet"
