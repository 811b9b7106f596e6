"""Probes a GPU's health with cheap reads only, on the GPU's own thread."""

from typing import Any

import pynvml
from msgspec import Struct

from agent.hardware.gpus import handle_of, read_recovery_action
from agent.hardware.migs import mig_handles
from agent.hardware.query import CallFailed, GpuLost, ask, must, text
from inventory.devices import Gpu, GpuUuid, MigUuid


class Probe(Struct, frozen=True):
    """The values that one probe read; None where this GPU does not tell.

    ``energy_mj`` restarts at a reset. ``mig_uuids`` are the instances that exist (None when MIG mode is off),
    ``mig_errors`` those of the last discovery that did not answer as themselves, with why.
    """

    recovery_action: int | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    nvlinks_down: tuple[int, ...] = ()
    energy_mj: int | None = None
    mig_uuids: tuple[str, ...] | None = None
    mig_errors: dict[MigUuid, str] = {}
    mig_answered: tuple[MigUuid, ...] = ()


class Look(Struct, frozen=True):
    """A probe, and the handle it was made with: another one than before after a reset."""

    probe: Probe
    handle: Any
    renewed: bool


def look(handle: Any, gpu: Gpu) -> Look:
    """Probe the GPU; where the old handle is dead, take a new one and probe through that.

    Raises GpuLost when a new handle does not help, DriverUnavailable, CallFailed.
    """
    if handle is not None:
        try:
            return Look(read(handle, gpu), handle, renewed=False)
        except GpuLost:
            pass
    fresh = renew(gpu.uuid)
    return Look(read(fresh, gpu), fresh, renewed=True)


def works(handle: Any) -> bool:
    """Whether the handle still names a living GPU. Raises DriverUnavailable."""
    try:
        must(pynvml.nvmlDeviceGetMemoryInfo, handle)
    except GpuLost:
        return False
    except CallFailed:
        return True
    return True


def renew(uuid: GpuUuid) -> Any:
    """A new handle for a GPU whose old one is dead. Raises GpuLost when the GPU is gone from NVML's list too."""
    try:
        return handle_of(uuid)
    except CallFailed as gone:
        raise GpuLost(str(gone)) from None


def read(handle: Any, gpu: Gpu) -> Probe:
    """The values of one probe, read through ``handle``. The UUID is read first: an index may name another GPU
    by now.
    """
    found = text(must(pynvml.nvmlDeviceGetUUID, handle))
    if found != gpu.uuid:
        raise GpuLost(f"the handle of {gpu.uuid} now names {found}")
    must(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle) if gpu.mig_capable else None
    mig_on = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    answers = _probe_instances(handle) if mig_on else {}
    known = {mig.uuid for mig in gpu.mig_instances}
    return Probe(
        recovery_action=read_recovery_action(handle),
        ecc_uncorrected=ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failure=None if rows is None else bool(rows[3]),
        nvlinks_down=tuple(
            link.link
            for link in gpu.nvlinks
            if link.known and ask(pynvml.nvmlDeviceGetNvLinkState, handle, link.link) == 0
        ),
        energy_mj=ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        mig_uuids=tuple(answers) if mig_on else None,
        mig_errors={mig: error for mig, error in answers.items() if error is not None and mig in known},
        mig_answered=tuple(mig for mig, error in answers.items() if error is None and mig in known),
    )


def _probe_instances(handle: Any) -> dict[MigUuid, str | None]:
    """Why each instance failed, None where it did not. Each is asked as itself: its parent's answers say nothing about
    it.
    """
    answers: dict[MigUuid, str | None] = {}
    for _, mig in mig_handles(handle):
        uuid = MigUuid(text(must(pynvml.nvmlDeviceGetUUID, mig)))
        try:
            must(pynvml.nvmlDeviceGetMemoryInfo, mig)
        except CallFailed as failed:
            answers[uuid] = str(failed)
        else:
            answers[uuid] = None
    return answers
