"""GpuNodes as an agent would have written them, from the few fields that a test is about."""

from collections.abc import Mapping
from typing import Any

from controller.objects.decode import GpuNode, read_gpu_node

_DEVICE = {"product": "", "memoryMiB": 0, "pciBusId": ""}
_INSTANCE = {"profile": "", "gi": 0, "ci": 0, "memoryMiB": 0}
_PLACEMENT = {"profileId": 0, "slices": 0, "size": 0}


def full_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """``status`` with what an agent always writes added where it is left out."""
    return {
        "summary": {"gpus": len(status.get("devices", ())), "healthy": 0, "product": ""},
        **status,
        "devices": [_device(device) for device in status.get("devices", ())],
        "holders": [{"container": "c"} | holder for holder in status.get("holders", ())],
    }


def observed(name: str, **status: Any) -> GpuNode:
    """The GpuNode of the node ``name``; ``status``: its fields on the wire. Raises DecodeError as reading does."""
    return read_gpu_node({"metadata": {"name": name}, "status": full_status(status)})


def _device(device: Mapping[str, Any]) -> dict[str, Any]:
    made = {**_DEVICE, **device}
    mig = device.get("mig")
    if mig:
        made["mig"] = {
            "enabled": True,
            **mig,
            "instances": [_INSTANCE | instance for instance in mig.get("instances", ())],
            "placements": [_PLACEMENT | placement for placement in mig.get("placements", ())],
        }
    return made
