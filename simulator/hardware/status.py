"""The simulated hardware as people read it: the answer to ``status``. Pure."""

from typing import Any

from simulator.boards import migstate
from simulator.hardware.hardware import GpuState, Hardware


def describe(hardware: Hardware, t: float) -> dict[str, Any]:
    """The node and its GPUs as plain data, at the clock's time ``t``."""
    return {
        "node": hardware.node,
        "bootId": hardware.boot_id,
        "clockSeconds": round(t, 3),
        "driver": "up" if hardware.driver_up else "down",
        "slow": hardware.slow,
        "failing": hardware.failing,
        "gpus": [_describe_gpu(i, gpu) for i, gpu in enumerate(hardware.gpus)],
    }


def _describe_gpu(index: int, gpu: GpuState) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "present": gpu.present,
        "lost": gpu.lost,
        "recoveryAction": gpu.recovery,
        "resets": gpu.epoch - 1,
        "toolResets": gpu.tool_resets,
        "persistence": gpu.persistence,
        "eccVolatileUncorrected": gpu.ecc.volatile_uncorrected,
        "rowRemapPending": gpu.remap.pending > 0,
        "rowRemapFailure": gpu.remap.failure,
        "nvlinksDown": list(gpu.links_down),
        "slow": gpu.slow,
        "failing": gpu.failing,
        "mig": [
            {
                "gi": gi.id,
                "profile": migstate.profile_of(gpu.board, gi).name,
                "start": gi.start,
                "size": migstate.profile_of(gpu.board, gi).size,
                "ci": [ci.id for ci in gi.computes],
                "uuids": [migstate.uuid(gpu.uuid, gi.id, ci.id) for ci in gi.computes],
            }
            for gi in gpu.mig.instances
        ]
        if gpu.mig.enabled
        else None,
        "pids": [load.pid for load in gpu.loads if load.pid is not None],
        "xids": [xid.xid for xid in gpu.xids],
    }
