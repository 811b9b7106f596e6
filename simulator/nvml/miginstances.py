"""GPU instances and compute instances: create, list, describe, destroy."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from simulator.boards import faults, migstate
from simulator.boards.migprofiles import ComputeProfile, compute_profiles
from simulator.boards.migstate import BusyError, GpuInstance, MigError, MigState, NoRoomError
from simulator.hardware import hardware as hw
from simulator.hardware.hardware import GpuState, Hardware, Notice
from simulator.nvml import codes
from simulator.nvml.arguments import (
    Handle,
    HandleKind,
    as_pointer,
    check_version,
    number,
    put,
    put_fields,
    put_handle,
    put_list,
    target,
    write_handle,
)
from simulator.nvml.codes import NvmlError
from simulator.nvml.mig import by_id, write_placement
from simulator.nvml.session import Device, on_compute_instance, on_device, on_gpu_instance

COMPUTE_PROFILES = 0x9
"""The value of NVML_COMPUTE_INSTANCE_PROFILE_COUNT."""

COMPUTE_PROFILE_INFO_V2 = 0x02000088


def _change(device: Device, step: Callable[[MigState], MigState]) -> MigState:
    """Change the GPU's instances, tell event sets, return the new state. Raises the code of an operation that the rules
    refuse.
    """
    if device.state.recovery:
        raise NvmlError(codes.RESET_REQUIRED)
    after: list[MigState] = []

    def change(hardware: Hardware, _: float) -> hw.Outcome:
        gpu: GpuState = hardware.gpus[device.index]
        mig = step(gpu.mig)
        after.append(mig)
        notice = Notice(gpu=device.index, epoch=gpu.epoch, kind=faults.EVENT_MIG_CONFIG)
        return hw.with_gpu(hardware, device.index, replace(gpu, mig=mig)), (notice,)

    try:
        device.session.simulation.change(change)
    except NoRoomError as error:
        raise NvmlError(codes.INSUFFICIENT_RESOURCES) from error
    except BusyError as error:
        raise NvmlError(codes.IN_USE) from error
    except MigError as error:
        raise NvmlError(codes.INVALID_ARGUMENT) from error
    return after[0]


def _gi_handle(device: Device, gi: GpuInstance) -> Handle:
    return Handle(HandleKind.GPU_INSTANCE, device.index, device.state.epoch, gi.serial)


def _create_gpu_instance(device: Device, profile_id: Any, start: int | None, handle: Any) -> None:
    profile = by_id(device, profile_id)
    device.need(device.state.mig.enabled)
    target(handle)
    after = _change(device, lambda mig: migstate.create_gpu_instance(mig, device.product, profile, start))
    put_handle(handle, _gi_handle(device, after.instances[-1]))


@on_device()
def nvmlDeviceCreateGpuInstance(device: Device, profile_id: Any, handle: Any) -> None:
    _create_gpu_instance(device, profile_id, None, handle)


@on_device()
def nvmlDeviceCreateGpuInstanceWithPlacement(device: Device, profile_id: Any, placement: Any, handle: Any) -> None:
    where = target(placement)
    if where.size != by_id(device, profile_id).size:
        raise NvmlError(codes.INVALID_ARGUMENT)
    _create_gpu_instance(device, profile_id, where.start, handle)


@on_device()
def nvmlDeviceGetGpuInstances(device: Device, profile_id: Any, array: Any, count: Any) -> None:
    profile = by_id(device, profile_id)
    device.need(device.state.mig.enabled)
    found = [_gi_handle(device, gi) for gi in device.state.mig.instances if gi.profile == profile.id]
    put_list(count, array, found, write_handle)


@on_device()
def nvmlDeviceGetGpuInstanceById(device: Device, gi_id: Any, handle: Any) -> None:
    device.need(device.state.mig.enabled)
    gi = device.state.mig.instance(number(gi_id))
    if gi is None:
        raise NvmlError(codes.NOT_FOUND)
    put_handle(handle, _gi_handle(device, gi))


@on_gpu_instance
def nvmlGpuInstanceGetInfo(device: Device, info: Any) -> None:
    gi = _gi(device)
    struct = target(info)
    struct.device = as_pointer(type(struct.device), device.gpu_handle)
    put_fields(info, id=gi.id, profileId=gi.profile)
    struct.placement.start, struct.placement.size = gi.start, device.profile.size


@on_gpu_instance
def nvmlGpuInstanceDestroy(device: Device) -> None:
    gi = _gi(device)
    if any(load.pid and load.gi == gi.id for load in device.state.loads):
        raise NvmlError(codes.IN_USE)
    _change(device, lambda mig: migstate.destroy_gpu_instance(mig, _still(mig, gi)))


def _gi(device: Device) -> GpuInstance:
    assert device.gi is not None
    return device.gi


def _still(mig: MigState, gi: GpuInstance) -> GpuInstance:
    """The instance as it is now that the change has the lock: another thread may have been there first."""
    found = next((other for other in mig.instances if other.serial == gi.serial), None)
    if found is None:
        raise MigError(f"GPU instance {gi.id} is gone")
    return found


def _compute_by_enum(device: Device, wanted: int) -> ComputeProfile:
    if wanted not in range(COMPUTE_PROFILES):
        raise NvmlError(codes.INVALID_ARGUMENT)
    found = next((p for p in compute_profiles(device.profile.slices) if p.enum == wanted), None)
    if found is None:
        raise NvmlError(codes.NOT_SUPPORTED)
    return found


def _compute_by_id(device: Device, profile_id: Any) -> ComputeProfile:
    found = migstate.compute_profile(device.profile.slices, number(profile_id))
    if found is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    return found


def _put_compute_profile(device: Device, info: Any, profile: ComputeProfile, **more: str) -> None:
    whole = device.profile
    put_fields(
        info,
        id=profile.enum,
        sliceCount=profile.slices,
        instanceCount=profile.count,
        multiprocessorCount=whole.sms * profile.slices // whole.slices,
        sharedCopyEngineCount=whole.copy_engines,
        sharedDecoderCount=whole.decoders,
        sharedEncoderCount=0,
        sharedJpegCount=whole.jpegs,
        sharedOfaCount=whole.ofas,
        **more,
    )


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstanceProfileInfo(device: Device, profile: Any, engine: Any, info: Any) -> None:
    if number(engine) != 0:
        raise NvmlError(codes.INVALID_ARGUMENT)
    _put_compute_profile(device, info, _compute_by_enum(device, number(profile)))


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstanceProfileInfoV(device: Device, profile: Any, engine: Any, info: Any) -> None:
    check_version(info, COMPUTE_PROFILE_INFO_V2)
    if number(engine) != 0:
        raise NvmlError(codes.INVALID_ARGUMENT)
    found = _compute_by_enum(device, number(profile))
    part = "" if found.slices == device.profile.slices else f"{found.slices}c."
    _put_compute_profile(device, info, found, name=f"MIG {part}{device.profile.name}")


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstanceRemainingCapacity(device: Device, profile_id: Any, count: Any) -> None:
    put(count, migstate.remaining_compute(_compute_by_id(device, profile_id), _gi(device)))


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    device: Device, profile_id: Any, array: Any, count: Any
) -> None:
    profile = _compute_by_id(device, profile_id)
    free = migstate.free_compute_starts(profile, _gi(device))
    put_list(count, array, [(start, profile.slices) for start in free], write_placement)


def _create_compute_instance(device: Device, profile_id: Any, start: int | None, handle: Any) -> None:
    profile = _compute_by_id(device, profile_id)
    target(handle)
    gi = _gi(device)
    whole = device.profile.slices
    after = _change(
        device, lambda mig: migstate.create_compute_instance(mig, _still(mig, gi), profile, start, whole=whole)
    )
    serial = _still(after, gi).computes[-1].serial
    put_handle(handle, Handle(HandleKind.COMPUTE_INSTANCE, device.index, device.state.epoch, serial))


@on_gpu_instance
def nvmlGpuInstanceCreateComputeInstance(device: Device, profile_id: Any, handle: Any) -> None:
    _create_compute_instance(device, profile_id, None, handle)


@on_gpu_instance
def nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    device: Device, profile_id: Any, placement: Any, handle: Any
) -> None:
    where = target(placement)
    if where.size != _compute_by_id(device, profile_id).slices:
        raise NvmlError(codes.INVALID_ARGUMENT)
    _create_compute_instance(device, profile_id, where.start, handle)


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstances(device: Device, profile_id: Any, array: Any, count: Any) -> None:
    profile = _compute_by_id(device, profile_id)
    handles = [
        Handle(HandleKind.COMPUTE_INSTANCE, device.index, device.state.epoch, ci.serial)
        for ci in _gi(device).computes
        if ci.profile == profile.enum
    ]
    put_list(count, array, handles, write_handle)


@on_gpu_instance
def nvmlGpuInstanceGetComputeInstanceById(device: Device, ci_id: Any, handle: Any) -> None:
    ci = next((ci for ci in _gi(device).computes if ci.id == number(ci_id)), None)
    if ci is None:
        raise NvmlError(codes.NOT_FOUND)
    put_handle(handle, Handle(HandleKind.COMPUTE_INSTANCE, device.index, device.state.epoch, ci.serial))


@on_compute_instance
def nvmlComputeInstanceGetInfo_v2(device: Device, info: Any) -> None:
    gi, ci = device.instance
    struct = target(info)
    for field, handle in (("device", device.gpu_handle), ("gpuInstance", _gi_handle(device, gi))):
        setattr(struct, field, as_pointer(type(getattr(struct, field)), handle))
    put_fields(info, id=ci.id, profileId=ci.profile)
    struct.placement.start, struct.placement.size = ci.start, ci.slices


@on_compute_instance
def nvmlComputeInstanceDestroy(device: Device) -> None:
    gi, ci = device.instance
    if any(load.pid and (load.gi, load.ci or 0) == (gi.id, ci.id) for load in device.state.loads):
        raise NvmlError(codes.IN_USE)
    _change(device, lambda mig: migstate.destroy_compute_instance(mig, _still(mig, gi), ci))
