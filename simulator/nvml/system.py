"""The start and end of a session, texts of errors, and the driver."""

import ctypes
from typing import Any

from simulator.nvml import codes
from simulator.nvml.arguments import number, put, put_fields, put_list, put_text, write_handle
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Session, alias, bare, on_system

LIBRARY_PREFIX = "12."
"""The first part of NVML's own version, the CUDA major version; the driver's follows."""


@bare
def nvmlInitWithFlags(session: Session, _flags: Any = 0) -> None:
    session.delay("nvmlInit")
    session.delay("nvmlInitWithFlags")
    if not session.hardware.driver_up:
        raise NvmlError(codes.DRIVER_NOT_LOADED)
    with session.lock:
        session.initialised += 1


alias("nvmlInit_v2", "nvmlInitWithFlags")
alias("nvmlInit", "nvmlInitWithFlags")


@bare
def nvmlShutdown(session: Session) -> None:
    session.delay("nvmlShutdown")
    with session.lock:
        if not session.initialised:
            raise NvmlError(codes.UNINITIALIZED)
        session.initialised -= 1
        if session.initialised:
            return
        sets = frozenset(session.event_sets.values())
        session.event_sets.clear()
        session.samples.clear()
        session.simulation.sets = session.simulation.sets - sets
        session.simulation.opened = frozenset()
    for events in sets:
        events.free()


@bare
def nvmlErrorString(_session: Session, code: Any) -> bytes:
    return codes.TEXTS.get(number(code), "Unknown Error").encode()


@on_system
def nvmlSystemGetDriverVersion(session: Session, buffer: Any, length: Any) -> None:
    put_text(buffer, length, session.simulation.driver_version)


@on_system
def nvmlSystemGetNVMLVersion(session: Session, buffer: Any, length: Any) -> None:
    put_text(buffer, length, LIBRARY_PREFIX + session.simulation.driver_version)


@on_system
def nvmlSystemGetCudaDriverVersion(session: Session, version: Any) -> None:
    put(version, session.simulation.fleet.cuda)


alias("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")


@on_system
def nvmlSystemGetDriverBranch(session: Session, info: Any, _length: Any) -> None:
    major = session.simulation.driver_version.split(".")[0]
    put_fields(info, branch=f"r{major}_00")


@on_system
def nvmlSystemGetProcessName(session: Session, pid: Any, name: Any, length: Any) -> None:
    wanted = number(pid)
    for gpu in session.hardware.gpus:
        for load in gpu.loads:
            if load.pid == wanted:
                text = load.name or f"process-{wanted}"
                put_text(name, length, text[: number(length) - 1])
                return
    raise NvmlError(codes.NOT_FOUND)


@on_system
def nvmlSystemGetHicVersion(_session: Session, count: Any, _array: Any) -> None:
    put(count, 0)


@on_system
def nvmlUnitGetCount(_session: Session, count: Any) -> None:
    put(count, 0)


@on_system
def nvmlGetExcludedDeviceCount(_session: Session, count: Any) -> None:
    put(count, 0)


@on_system
def nvmlSystemGetTopologyGpuSet(session: Session, cpu: Any, count: Any, array: Any) -> None:
    from simulator.nvml.devices import CPUS_PER_NUMA

    numa = number(cpu) // CPUS_PER_NUMA
    near = [i for i in session.present() if session.simulation.node.gpus[i].numa_node == numa]
    put_list(count, array, [session.open_gpu(i) for i in near], write_handle)


@on_system
def nvmlSystemGetConfComputeState(_session: Session, state: Any) -> None:
    if not isinstance(getattr(state, "_obj", None), ctypes.Structure):
        raise NvmlError(codes.INVALID_ARGUMENT)
    raise NvmlError(codes.NOT_SUPPORTED)
