"""Processes on a GPU: process lists and utilisation samples, from the loads that carry a pid."""

from typing import Any

from simulator.boards.loads import Load, value_at
from simulator.boards.telemetry import MEMORY_UTIL_SHARE
from simulator.hardware.hardware import WHOLE_GPU
from simulator.nvml import codes
from simulator.nvml.arguments import check_version, number, put, put_list, target
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, alias, on_device

MIB = 2**20
PERCENT = 100
SAMPLE_US = 100_000
"""The time in microseconds between two samples of processes."""

UTILIZATION_V1 = 0x01000018


def _processes(device: Device, kind: str) -> list[Load]:
    loads = [load for load in device.state.loads if load.pid is not None and load.type == kind]
    if device.is_mig:
        gi, ci = device.instance
        loads = [load for load in loads if (load.gi, load.ci or 0) == (gi.id, ci.id)]
    return loads


def _put_processes(device: Device, kind: str, count: Any, array: Any) -> None:
    mig = device.state.mig.enabled

    def write(infos: Any, i: int, load: Load) -> None:
        infos[i].pid = load.pid
        infos[i].usedGpuMemory = round(value_at(load.mem_used_mib, device.t)) * MIB
        infos[i].gpuInstanceId = load.gi if mig and load.gi is not None else WHOLE_GPU
        infos[i].computeInstanceId = (load.ci or 0) if mig and load.gi is not None else WHOLE_GPU

    processes = _processes(device, kind)
    if array is not None and target(count).value < len(processes):
        put(count, len(processes))
        raise NvmlError(codes.INSUFFICIENT_SIZE)
    put_list(count, array, processes, write, ask=codes.INSUFFICIENT_SIZE)


@on_device("own")
def nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Any, array: Any) -> None:
    _put_processes(device, "compute", count, array)


@on_device("own")
def nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: Any, array: Any) -> None:
    _put_processes(device, "graphics", count, array)


@on_device("own")
def nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: Any, array: Any) -> None:
    _put_processes(device, "mps", count, array)


alias("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3")
alias("nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3")
alias("nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3")


def _samples(device: Device, last_seen_us: int) -> tuple[int, list[Load]]:
    """The newest sample's time, and the processes in it. Raises NOT_FOUND when the caller has seen it."""
    device.refuse_mig_mode()
    stamp = int((device.session.hardware.created + device.t) * 1e6) // SAMPLE_US * SAMPLE_US
    loads = [load for load in device.state.loads if load.pid is not None]
    if not loads or stamp <= last_seen_us:
        raise NvmlError(codes.NOT_FOUND)
    return stamp, loads


def _write_sample(device: Device, sample: Any, load: Load, stamp: int) -> None:
    sm = value_at(load.sm_util, device.t)
    memory = MEMORY_UTIL_SHARE * sm if load.mem_util is None else value_at(load.mem_util, device.t)
    sample.pid = load.pid
    sample.timeStamp = stamp
    sample.smUtil = round(sm * PERCENT)
    sample.memUtil = round(memory * PERCENT)
    sample.encUtil = round(value_at(load.enc_util, device.t) * PERCENT)
    sample.decUtil = round(value_at(load.dec_util, device.t) * PERCENT)


@on_device()
def nvmlDeviceGetProcessUtilization(device: Device, array: Any, count: Any, last_seen: Any) -> None:
    stamp, loads = _samples(device, number(last_seen))

    def write(samples: Any, i: int, load: Load) -> None:
        _write_sample(device, samples[i], load, stamp)

    put_list(count, array, loads, write, ask=codes.INSUFFICIENT_SIZE)


@on_device()
def nvmlDeviceGetProcessesUtilizationInfo(device: Device, info: Any) -> None:
    check_version(info, UTILIZATION_V1)
    struct = target(info)
    stamp, loads = _samples(device, struct.lastSeenTimeStamp)
    room = struct.processSamplesCount
    struct.processSamplesCount = len(loads)
    if not struct.procUtilArray or room < len(loads):
        raise NvmlError(codes.INSUFFICIENT_SIZE)
    for i, load in enumerate(loads):
        _write_sample(device, struct.procUtilArray[i], load, stamp)
        struct.procUtilArray[i].jpgUtil = round(value_at(load.jpg_util, device.t) * PERCENT)
        struct.procUtilArray[i].ofaUtil = round(value_at(load.ofa_util, device.t) * PERCENT)


@on_device()
def nvmlDeviceGetAccountingMode(device: Device, mode: Any) -> None:
    del device
    put(mode, 0)
