"""MIG mode, MIG devices and the profiles on offer."""

from typing import Any

from msgspec.structs import replace

from simulator.boards import migstate
from simulator.boards.loads import CLIENT
from simulator.boards.migprofiles import MigProfile
from simulator.hardware.hardware import GpuState
from simulator.nvml import codes
from simulator.nvml.arguments import Handle, HandleKind, check_version, number, put, put_fields, put_handle, put_list
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, on_device

GPU_PROFILES = 0x12
"""The value of NVML_GPU_INSTANCE_PROFILE_COUNT."""

GPU_PROFILE_INFO_V2 = 0x02000098

NO_ID_SPACE = 0xFF


@on_device()
def nvmlDeviceGetMigMode(device: Device, current: Any, pending: Any) -> None:
    device.need(device.product.mig)
    put(current, int(device.state.mig.enabled))
    put(pending, int(device.state.mig.pending))


@on_device()
def nvmlDeviceSetMigMode(device: Device, mode: Any, activation: Any) -> None:
    """Set the pending mode, and the current one too where no use of the GPU prevents it.

    Ampere needs a reset for it, which NVML does at once unless anything has the GPU open: a process, another NVML
    client, events that this process listens to. Later architectures only require that no process runs.
    """
    device.need(device.product.mig)
    wanted = number(mode)
    if wanted not in (0, 1):
        raise NvmlError(codes.INVALID_ARGUMENT)
    on = wanted == 1
    if device.state.mig.instances and not on:
        raise NvmlError(codes.IN_USE)
    blocked = _held(device) if device.product.architecture.mig_mode_persists else _running(device)

    def step(gpu: GpuState, _: float) -> GpuState:
        return replace(gpu, mig=replace(gpu.mig, pending=on, enabled=gpu.mig.enabled if blocked else on))

    differs = device.state.mig.enabled != on
    device.change(step)
    put(activation, codes.IN_USE if blocked and differs else codes.SUCCESS)


def _running(device: Device) -> bool:
    return any(load.pid and load.type != CLIENT for load in device.state.loads)


def _held(device: Device) -> bool:
    listened = (registration for events in device.session.simulation.sets for registration in events.registrations())
    return any(load.pid for load in device.state.loads) or (device.index, device.state.epoch) in listened


@on_device()
def nvmlDeviceGetMaxMigDeviceCount(device: Device, count: Any) -> None:
    put(count, max((profile.count for profile in device.product.mig), default=0))


@on_device("own")
def nvmlDeviceIsMigDeviceHandle(device: Device, is_mig: Any) -> None:
    put(is_mig, int(device.is_mig))


@on_device()
def nvmlDeviceGetMigDeviceHandleByIndex(device: Device, index: Any, handle: Any) -> None:
    device.need(device.product.mig)
    wanted = number(index)
    if wanted >= max(profile.count for profile in device.product.mig):
        raise NvmlError(codes.INVALID_ARGUMENT)
    devices = device.state.mig.devices()
    if wanted >= len(devices):
        raise NvmlError(codes.NOT_FOUND)
    serial = devices[wanted][1].serial
    put_handle(handle, Handle(HandleKind.MIG_DEVICE, device.index, device.state.epoch, serial))


@on_device("own")
def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: Device, handle: Any) -> None:
    device.instance  # noqa: B018 - INVALID_ARGUMENT for a whole GPU
    put_handle(handle, device.gpu_handle)


@on_device("own")
def nvmlDeviceGetGpuInstanceId(device: Device, gi_id: Any) -> None:
    device.need(device.product.mig)
    put(gi_id, device.instance[0].id)


@on_device("own")
def nvmlDeviceGetComputeInstanceId(device: Device, ci_id: Any) -> None:
    device.need(device.product.mig)
    put(ci_id, device.instance[1].id)


@on_device("own")
def nvmlDeviceGetAttributes_v2(device: Device, attributes: Any) -> None:
    device.need(device.is_mig)
    _, ci = device.instance
    profile = device.profile
    put_fields(
        attributes,
        multiprocessorCount=profile.sms * ci.slices // profile.slices,
        sharedCopyEngineCount=profile.copy_engines,
        sharedDecoderCount=profile.decoders,
        sharedEncoderCount=0,
        sharedJpegCount=profile.jpegs,
        sharedOfaCount=profile.ofas,
        gpuInstanceSliceCount=profile.slices,
        computeInstanceSliceCount=ci.slices,
        memorySizeMB=profile.memory_mib,
    )


def by_enum(device: Device, wanted: int) -> MigProfile:
    """The profile of an NVML_GPU_INSTANCE_PROFILE_* number."""
    if wanted not in range(GPU_PROFILES):
        raise NvmlError(codes.INVALID_ARGUMENT)
    profile = next((p for p in device.product.mig if p.enum == wanted), None)
    if profile is None:
        raise NvmlError(codes.NOT_SUPPORTED)
    return profile


def by_id(device: Device, profile_id: Any) -> MigProfile:
    """The profile of an id that profile info gave."""
    device.need(device.product.mig)
    profile = device.product.mig_profile_by_id(number(profile_id))
    if profile is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    return profile


def _put_profile(info: Any, profile: MigProfile, **more: str) -> None:
    put_fields(
        info,
        id=profile.id,
        isP2pSupported=0,
        sliceCount=profile.slices,
        instanceCount=profile.count,
        multiprocessorCount=profile.sms,
        copyEngineCount=profile.copy_engines,
        decoderCount=profile.decoders,
        encoderCount=0,
        jpegCount=profile.jpegs,
        ofaCount=profile.ofas,
        memorySizeMB=profile.memory_mib,
        **more,
    )


@on_device()
def nvmlDeviceGetGpuInstanceProfileInfo(device: Device, profile: Any, info: Any) -> None:
    _put_profile(info, by_enum(device, number(profile)))


@on_device()
def nvmlDeviceGetGpuInstanceProfileInfoV(device: Device, profile: Any, info: Any) -> None:
    check_version(info, GPU_PROFILE_INFO_V2)
    found = by_enum(device, number(profile))
    _put_profile(info, found, name=f"MIG {found.name}")


@on_device()
def nvmlDeviceGetGpuInstanceProfileInfoByIdV(device: Device, profile_id: Any, info: Any) -> None:
    check_version(info, GPU_PROFILE_INFO_V2)
    found = by_id(device, profile_id)
    _put_profile(info, found, name=f"MIG {found.name}")


@on_device()
def nvmlDeviceGetGpuInstancePossiblePlacements_v2(device: Device, profile_id: Any, array: Any, count: Any) -> None:
    profile = by_id(device, profile_id)
    put_list(count, array, [(start, profile.size) for start in profile.starts], write_placement)


def write_placement(array: Any, i: int, placement: tuple[int, int]) -> None:
    """A writer for ``put_list``: an array of placements."""
    array[i].start, array[i].size = placement


@on_device()
def nvmlDeviceGetGpuInstanceRemainingCapacity(device: Device, profile_id: Any, count: Any) -> None:
    profile = by_id(device, profile_id)
    device.need(device.state.mig.enabled)
    put(count, migstate.remaining(device.product, profile, device.state.mig.instances))
