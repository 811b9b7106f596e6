"""The processes on a GPU, and their use of it, from NVML's lists and samples. They are read on the GPU's own thread."""

from typing import Any

import pynvml
from msgspec import Struct, structs

from agent.hardware.query import ABSENT, CallFailed, figure, translate
from agent.telemetry.reading.readings import ProcessReading

MIB = 1 << 20
MOST = 512
"""The most processes of one GPU that are told apart, those with the most memory first. The others have no pod."""
NO_INSTANCE = 0xFFFFFFFF
MOST_PERCENT = 100

_LISTS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)


class Samples(Struct, frozen=True):
    """Utilisation weights by pid as (sm, copy, encoder, decoder), and the newest sample's time stamp (NVML's, us)."""

    weights: dict[int, tuple[float, float, float, float]]
    newest_us: int


def read(handle: Any, samples: Samples | None) -> tuple[ProcessReading, ...]:
    """All processes on the GPU or its instances, with their weights. Raises GpuLost, DriverUnavailable."""
    memory: dict[tuple[int, int | None], float | None] = {}
    for listing in _LISTS:
        for context in figure(listing, handle) or ():
            gi_id = None if context.gpuInstanceId in (None, NO_INSTANCE) else int(context.gpuInstanceId)
            memory_mib = None if context.usedGpuMemory is None else context.usedGpuMemory / MIB
            key = (int(context.pid), gi_id)
            # A process with both kinds of contexts is in two lists, with the same memory.
            memory[key] = _larger(memory.get(key), memory_mib)
    processes = {key: ProcessReading(pid=key[0], gi_id=key[1], memory_mib=mib) for key, mib in memory.items()}
    for pid, (sm, copy, encoder, decoder) in (samples.weights if samples else {}).items():
        base = processes.get((pid, None)) or ProcessReading(pid=pid)
        processes[pid, None] = structs.replace(base, sm=sm, copy=copy, encoder=encoder, decoder=decoder)
    if len(processes) > MOST:
        return tuple(sorted(processes.values(), key=lambda context: -(context.memory_mib or 0.0))[:MOST])
    return tuple(processes.values())


def read_samples(handle: Any, since_us: int) -> Samples | None:
    """The utilisation by process since the time stamp; None where the driver does not give it (MIG mode, old boards).

    NVML leaves out samples of idle moments, so that a process's weight is the sum of its samples and not their mean.
    Raises GpuLost, DriverUnavailable.
    """
    try:
        raw = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            return Samples({}, since_us)  # no process ran
        failed = translate(error, "nvmlDeviceGetProcessUtilization")
        if error.value in ABSENT or isinstance(failed, CallFailed):
            return None
        raise failed from None
    weights: dict[int, tuple[float, float, float, float]] = {}
    newest_us = since_us
    for sample in raw:
        # An entry that the driver left unwritten is not a sample, and its time stamp would hide later ones.
        if (
            sample.timeStamp <= since_us
            or max(sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) > MOST_PERCENT
        ):
            continue
        newest_us = max(newest_us, int(sample.timeStamp))
        sm, copy, encoder, decoder = weights.get(sample.pid, (0.0, 0.0, 0.0, 0.0))
        weights[sample.pid] = (
            sm + sample.smUtil,
            copy + sample.memUtil,
            encoder + sample.encUtil,
            decoder + sample.decUtil,
        )
    return Samples(weights, newest_us)


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
