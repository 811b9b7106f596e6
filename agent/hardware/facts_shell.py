"""What a GPU shows before its reset and after it, read on its own thread."""

from typing import Any

import pynvml

from agent.hardware.gpus import MIB, read_field, read_recovery_action
from agent.hardware.migchange import GpuMig, read_mig
from agent.hardware.query import ask, figure, must
from agent.health.verification import GpuFacts
from inventory.devices import Gpu


def read_facts(handle: Any, gpu: Gpu) -> tuple[GpuFacts, GpuMig]:
    """The facts, and the GPU's MIG instances. Raises GpuLost, DriverUnavailable, CallFailed."""
    mig = read_mig(handle)
    slowdown = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    facts = GpuFacts(
        memory_mib=must(pynvml.nvmlDeviceGetMemoryInfo, handle).total // MIB,
        recovery_action=read_recovery_action(handle),
        ecc_uncorrected=ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, uncorrected, pynvml.NVML_VOLATILE_ECC),
        links_down=tuple(
            link.link
            for link in gpu.nvlinks
            if link.known and ask(pynvml.nvmlDeviceGetNvLinkState, handle, link.link) == 0
        ),
        link_mbps=read_field(handle, pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
        pcie_width=figure(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        temperature_c=figure(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        slowdown_c=figure(pynvml.nvmlDeviceGetTemperatureThreshold, handle, slowdown),
        virtualization=figure(pynvml.nvmlDeviceGetVirtualizationMode, handle),
        persistence=bool(figure(pynvml.nvmlDeviceGetPersistenceMode, handle)),
        pids=read_pids(handle),
    )
    return facts, mig


def read_pids(handle: Any) -> tuple[int, ...]:
    """The processes that have a context on the GPU or on one of its instances. Raises as ``read_facts``."""
    kinds = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    return tuple(sorted({int(process.pid) for kind in kinds for process in ask(kind, handle) or ()}))
