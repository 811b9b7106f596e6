"""Reads a GPU's MIG state in full, takes one step of a plan, and sets the mode. Runs on the GPU's own thread.

Steps name a GPU instance by its first memory slice and a compute instance by its place: the driver chooses the ids, and
the same step can be tried again after a crash. A handle is asked for anew in each call.
"""

from collections.abc import Callable, Iterator
from ctypes import byref, c_uint
from enum import Enum
from typing import Any

import pynvml
from msgspec import Struct, structs

from agent.hardware.migs import mig_handles, read_profiles
from agent.hardware.query import CallFailed, DriverUnavailable, GpuLost, ask, must, text, translate
from failpoints import points
from failpoints.names import Failpoint
from inventory.devices import MigProfile, MigUuid
from inventory.mig.parts import Part
from inventory.mig.plan import Compute, CreateCompute, CreateInstance, DestroyCompute, DestroyInstance, Existing, Step

WHOLE_GPU = 0xFFFFFFFF
MAX_INSTANCES = 16


class InUseError(CallFailed):
    """A process or pod uses the instance that was to be removed."""


class NoRoomError(CallFailed):
    """The driver has no room for the instance that was to be made."""


class Process(Struct, frozen=True):
    """A process on the GPU. ``gi`` and ``ci`` are None where it has the whole GPU."""

    pid: int
    gi: int | None = None
    ci: int | None = None


class GpuMig(Struct, frozen=True):
    """A GPU's MIG as NVML tells it. ``busy`` in ``instances`` is from processes alone; the caller adds pods.

    ``uuids`` are those of the MIG devices, by (GPU instance id, compute instance id).
    """

    capable: bool
    enabled: bool = False
    pending: bool = False
    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[Existing, ...] = ()
    uuids: dict[tuple[int, int], MigUuid] = {}
    processes: tuple[Process, ...] = ()

    def held(self, held: frozenset[str]) -> tuple[Existing, ...]:
        """The instances; one whose MIG device is in ``held`` is in use too."""
        return tuple(
            structs.replace(
                instance,
                computes=tuple(
                    structs.replace(each, busy=each.busy or self.uuids.get((instance.gi_id, each.ci_id)) in held)
                    for each in instance.computes
                ),
            )
            for instance in self.instances
        )

    def devices(self, instance: Existing) -> tuple[MigUuid, ...]:
        """The MIG devices of one GPU instance."""
        found = (self.uuids.get((instance.gi_id, each.ci_id)) for each in instance.computes)
        return tuple(uuid for uuid in found if uuid is not None)


class ModeChange(Enum):
    """The outcome of setting the mode."""

    DONE = "done"
    IN_USE = "in use"
    RESET_NEEDED = "reset needed"


def read_mig(handle: Any) -> GpuMig:
    """Read all of the GPU's MIG, half-made instances too. Raises GpuLost, DriverUnavailable, CallFailed."""
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None:
        return GpuMig(capable=False)
    enabled, pending = (word == pynvml.NVML_DEVICE_MIG_ENABLE for word in mode)
    profiles = read_profiles(handle)
    processes = tuple(_processes(handle))
    if not enabled:
        return GpuMig(capable=True, pending=pending, profiles=profiles, processes=processes)
    instances = tuple(
        _existing(gi, profile, processes)
        for profile in profiles
        for gi in _list(pynvml.nvmlDeviceGetGpuInstances, handle, profile.profile_id, pynvml.c_nvmlGpuInstance_t)
    )
    uuids = dict(_uuids(handle))
    if not {gi for gi, _ in uuids} <= {instance.gi_id for instance in instances}:
        # Without the right to look at instances, NVML lists none: nothing may be planned from that.
        raise CallFailed("NVML shows MIG devices whose GPU instances may not be looked at: is the agent root?")
    return GpuMig(
        capable=True,
        enabled=True,
        pending=pending,
        profiles=profiles,
        instances=tuple(sorted(instances, key=lambda word: word.start)),
        uuids=uuids,
        processes=processes,
    )


def _list(function: Callable[..., Any], parent: Any, profile_id: int, kind: Any) -> list[Any]:
    """Handles of the instances of one profile; empty where the driver has no such profile."""
    count = c_uint(MAX_INSTANCES)
    array = (kind * MAX_INSTANCES)()
    return [] if ask(function, parent, profile_id, array, byref(count)) is None else list(array[: count.value])


def _existing(gi: Any, profile: MigProfile, processes: tuple[Process, ...]) -> Existing:
    info = must(pynvml.nvmlGpuInstanceGetInfo, gi)
    mine = [process for process in processes if process.gi == info.id]
    computes = tuple(_compute(ci, mine) for ci in _computes(gi))
    known = {each.ci_id for each in computes}
    return Existing(
        gi_id=info.id,
        profile=profile.name,
        start=info.placement.start,
        size=info.placement.size,
        computes=computes,
        busy=any(process.ci not in known for process in mine),
    )


def _computes(gi: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        profile = ask(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, number, 0)
        if profile is not None:
            yield from _list(pynvml.nvmlGpuInstanceGetComputeInstances, gi, profile.id, pynvml.c_nvmlComputeInstance_t)


def _compute(ci: Any, processes: list[Process]) -> Compute:
    info = must(pynvml.nvmlComputeInstanceGetInfo_v2, ci)
    busy = any(process.ci == info.id for process in processes)
    return Compute(info.id, Part(info.placement.start, info.placement.size), busy)


def _uuids(handle: Any) -> Iterator[tuple[tuple[int, int], MigUuid]]:
    for _, mig in mig_handles(handle):
        key = (must(pynvml.nvmlDeviceGetGpuInstanceId, mig), must(pynvml.nvmlDeviceGetComputeInstanceId, mig))
        yield key, MigUuid(text(must(pynvml.nvmlDeviceGetUUID, mig)))


def _processes(handle: Any) -> Iterator[Process]:
    for function in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        for process in ask(function, handle) or ():
            gi, ci = (
                None if v in (WHOLE_GPU, None) else int(v) for v in (process.gpuInstanceId, process.computeInstanceId)
            )
            yield Process(pid=int(process.pid), gi=gi, ci=ci)


def set_mode(handle: Any, *, enabled: bool) -> ModeChange:
    """Ask for the mode; where it needs a reset NVML tries one. Raises InUseError where instances are in the way."""
    mode = pynvml.NVML_DEVICE_MIG_ENABLE if enabled else pynvml.NVML_DEVICE_MIG_DISABLE
    points.before(Failpoint.MIG_MODE)
    activation = _change(pynvml.nvmlDeviceSetMigMode, handle, mode)
    points.after(Failpoint.MIG_MODE)
    if activation == pynvml.NVML_SUCCESS:
        current, _ = must(pynvml.nvmlDeviceGetMigMode, handle)
        return ModeChange.DONE if current == mode else ModeChange.RESET_NEEDED
    return ModeChange.IN_USE if activation == pynvml.NVML_ERROR_IN_USE else ModeChange.RESET_NEEDED


def set_mode_alone(uuid: str, *, enabled: bool) -> ModeChange:
    """Like ``set_mode``, in a session of its own: with no other session open in this process the agent does not hold
    the GPU.
    """
    must(pynvml.nvmlInit)
    try:
        return set_mode(must(pynvml.nvmlDeviceGetHandleByUUID, uuid), enabled=enabled)
    finally:
        must(pynvml.nvmlShutdown)


def take(handle: Any, step: Step) -> None:
    """Take one step of a plan. Raises InUseError, NoRoomError, CallFailed, GpuLost, DriverUnavailable."""
    if isinstance(step, CreateInstance):
        _create_instance(handle, step)
        return
    gi = _instance_at(handle, step.start)
    if isinstance(step, CreateCompute):
        _create_compute(gi, step.part)
    elif isinstance(step, DestroyInstance):
        points.before(Failpoint.GPU_INSTANCE_DESTROYED)
        _change(pynvml.nvmlGpuInstanceDestroy, gi)
        points.after(Failpoint.GPU_INSTANCE_DESTROYED)
    elif isinstance(step, DestroyCompute):
        for ci in list(_computes(gi)):
            info = must(pynvml.nvmlComputeInstanceGetInfo_v2, ci)
            if Part(info.placement.start, info.placement.size) == step.part:
                points.before(Failpoint.COMPUTE_INSTANCE_DESTROYED)
                _change(pynvml.nvmlComputeInstanceDestroy, ci)
                points.after(Failpoint.COMPUTE_INSTANCE_DESTROYED)


def _create_instance(handle: Any, step: CreateInstance) -> None:
    profile = next((offered for offered in read_profiles(handle) if offered.name == step.profile), None)
    if profile is None:
        raise CallFailed(f"the driver no longer offers {step.profile}")
    place = pynvml.c_nvmlGpuInstancePlacement_t(step.start, step.size)
    points.before(Failpoint.GPU_INSTANCE)
    _change(pynvml.nvmlDeviceCreateGpuInstanceWithPlacement, handle, profile.profile_id, byref(place))
    points.after(Failpoint.GPU_INSTANCE)


def _instance_at(handle: Any, start: int) -> Any:
    for profile in read_profiles(handle):
        for gi in _list(pynvml.nvmlDeviceGetGpuInstances, handle, profile.profile_id, pynvml.c_nvmlGpuInstance_t):
            if must(pynvml.nvmlGpuInstanceGetInfo, gi).placement.start == start:
                return gi
    raise CallFailed(f"there is no GPU instance at slice {start}")


def _create_compute(gi: Any, part: Part) -> None:
    profile_id = None
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = ask(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gi, number, 0)
        if info is not None and info.sliceCount == part.slices:
            profile_id = info.id
            break
    if profile_id is None:
        raise CallFailed(f"the GPU instance offers no compute instance of {part.slices} slices")
    place = pynvml.c_nvmlComputeInstancePlacement_t(part.start, part.slices)
    points.before(Failpoint.COMPUTE_INSTANCE)
    try:
        pynvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(gi, profile_id, byref(place))
    except pynvml.NVMLError as error:
        if error.value not in (
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
        ):
            raise _refusal(error, "nvmlGpuInstanceCreateComputeInstanceWithPlacement") from None
        # Older drivers have no places for compute instances; the place that they choose is read back.
        _change(pynvml.nvmlGpuInstanceCreateComputeInstance, gi, profile_id)
    points.after(Failpoint.COMPUTE_INSTANCE)


def _change(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise _refusal(error, function.__name__) from None


def _refusal(error: Any, name: str) -> CallFailed | GpuLost | DriverUnavailable:
    if error.value == pynvml.NVML_ERROR_IN_USE:
        return InUseError(f"{name}: {error}")
    if error.value == pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES:
        return NoRoomError(f"{name}: {error}")
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return CallFailed(f"{name}: {error}: the agent must be root on its node to change MIG")
    return translate(error, name)  # type: ignore[return-value] # one of the two others or CallFailed
