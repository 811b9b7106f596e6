"""What a prepared claim is to its containers: CDI device ids, the spec that they stand in, the kubelet's answer. Pure.

The spec of a claim stands on its own: driver files and device files are in it, so that a claim's containers need no
other file. Its name and its ids have the claim's UID: a runtime keeps the specs that it has read, and reads again only
for an id that it does not know.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agent.dra.ledger import GivenDevice, Prepared
from deviceplugin.cdi import Spec

CDI_VENDOR: Final = "k8s.gpu.nvidia.com"
CDI_CLASS: Final = "claim"
FILE_PREFIX: Final = f"{CDI_VENDOR}-{CDI_CLASS}_"


def cdi_device(uid: str, device: str) -> str:
    """The device's name in the claim's spec."""
    return f"{uid}-{device}"


def cdi_id(uid: str, device: str) -> str:
    """The fully qualified name that the kubelet hands to the runtime."""
    return f"{CDI_VENDOR}/{CDI_CLASS}={cdi_device(uid, device)}"


def file_name(uid: str) -> str:
    """The claim's spec file below the CDI folder."""
    return f"{FILE_PREFIX}{uid}.json"


def claim_of(file: str) -> str | None:
    """The UID in a spec file's name; None for a file that is no claim's."""
    return file.removeprefix(FILE_PREFIX).removesuffix(".json") if file.startswith(FILE_PREFIX) else None


def claim_spec(claim: Prepared, gpus: Spec, unit: Callable[[GivenDevice], str | None]) -> Spec:
    """The claim's spec, from ``gpus``: the node's own, whose devices are named by UUID. ``unit`` is a device's UUID.

    Raises KeyError for a device that the node's spec does not have.
    """
    edits: Mapping[str, Any] = {device["name"]: device["containerEdits"] for device in gpus["devices"]}
    return {
        "cdiVersion": gpus["cdiVersion"],
        "kind": f"{CDI_VENDOR}/{CDI_CLASS}",
        "devices": [
            {"name": cdi_device(claim.uid, device.device), "containerEdits": edits[unit(device) or device.device]}
            for device in _each_once(claim.devices)
        ],
        "containerEdits": gpus["containerEdits"],
    }


def _each_once(devices: Iterable[GivenDevice]) -> Iterable[GivenDevice]:
    """A device may stand for several requests: with admin access it can be given again."""
    return {device.device: device for device in devices}.values()
