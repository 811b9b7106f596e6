"""Reads a GPU's MIG geometry: the profiles it offers with their placements, and the instances that exist."""

import math
from ctypes import byref, c_uint
from typing import Any

import pynvml

from agent.hardware.query import ask, field, must, text
from inventory.devices import Engines, MigInstance, MigProfile, MigUuid

EIGHTHS = 8
GIB = 1 << 30
MIB = 1 << 20


def read_profiles(handle: Any) -> tuple[MigProfile, ...]:
    """Every GPU instance profile this GPU offers, by NVML's enumeration; a profile that NVML does not know is
    skipped.
    """
    found = (_profile(handle, number) for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
    return tuple(profile for profile in found if profile is not None)


def _profile(handle: Any, number: int) -> MigProfile | None:
    info = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
    if info is None:
        return None
    starts, size = _placements(handle, info.id)
    return MigProfile(
        name=field(info, "name").removeprefix("MIG ").strip(),
        profile_id=info.id,
        slices=info.sliceCount,
        size=size,
        starts=starts,
        max_count=info.instanceCount,
        memory_mib=info.memorySizeMB,
        multiprocessors=info.multiprocessorCount,
        engines=Engines(
            copy=info.copyEngineCount,
            decoder=info.decoderCount,
            encoder=info.encoderCount,
            jpeg=info.jpegCount,
            ofa=info.ofaCount,
        ),
    )


def _placements(handle: Any, profile_id: int) -> tuple[tuple[int, ...], int]:
    """The start slots and the size, in memory slices. The first call counts, the second fills."""
    count = c_uint(0)
    if ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile_id, None, byref(count)) is None:
        return (), 0
    places = (pynvml.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    if ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, profile_id, places, byref(count)) is None:
        return (), 0
    used = places[: count.value]
    return tuple(sorted(place.start for place in used)), max((place.size for place in used), default=0)


def read_instances(handle: Any) -> tuple[MigInstance, ...]:
    """The MIG devices that exist now, by index. Raises as ``query.must``."""
    profiles = {profile.profile_id: profile for profile in read_profiles(handle)}
    total_bytes = must(pynvml.nvmlDeviceGetMemoryInfo, handle).total
    return tuple(_instance(handle, mig, index, profiles, total_bytes) for index, mig in mig_handles(handle))


def mig_handles(handle: Any) -> list[tuple[int, Any]]:
    """Index and handle of each MIG device that exists now."""
    count = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = ((index, ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)) for index in range(count))
    return [(index, mig) for index, mig in found if mig is not None]


def _instance(handle: Any, mig: Any, index: int, profiles: dict[int, MigProfile], total_bytes: int) -> MigInstance:
    gi_id = must(pynvml.nvmlDeviceGetGpuInstanceId, mig)
    attributes = must(pynvml.nvmlDeviceGetAttributes_v2, mig)
    info = _gpu_instance_info(handle, gi_id)
    profile = None if info is None else profiles.get(info.profileId)
    gi_slices, ci_slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    name = profile.name if profile is not None else profile_name(gi_slices, attributes.memorySizeMB, total_bytes)
    return MigInstance(
        uuid=MigUuid(text(must(pynvml.nvmlDeviceGetUUID, mig))),
        index=index,
        gi_id=gi_id,
        ci_id=must(pynvml.nvmlDeviceGetComputeInstanceId, mig),
        profile=name if ci_slices == gi_slices else f"{ci_slices}c.{name}",
        gi_slices=gi_slices,
        ci_slices=ci_slices,
        memory_mib=attributes.memorySizeMB,
        multiprocessors=attributes.multiprocessorCount,
        engines=Engines(
            copy=attributes.sharedCopyEngineCount,
            decoder=attributes.sharedDecoderCount,
            encoder=attributes.sharedEncoderCount,
            jpeg=attributes.sharedJpegCount,
            ofa=attributes.sharedOfaCount,
        ),
        start=None if info is None else info.placement.start,
        size=None if info is None else info.placement.size,
    )


def _gpu_instance_info(handle: Any, gi_id: int) -> Any | None:
    instance = ask(pynvml.nvmlDeviceGetGpuInstanceById, handle, gi_id)
    return None if instance is None else ask(pynvml.nvmlGpuInstanceGetInfo, instance)


def profile_name(gi_slices: int, memory_mib: int, total_bytes: int) -> str:
    """A profile's text where NVML gives none: memory as eighths of the card, rounded up, times its GiB, rounded up."""
    fraction = math.ceil(memory_mib * MIB / total_bytes * EIGHTHS) / EIGHTHS
    # Halves go up, as NVML's do; ``round`` would take them to the even number.
    return f"{gi_slices}g.{math.floor(fraction * math.ceil(total_bytes / GIB) + 0.5)}gb"
