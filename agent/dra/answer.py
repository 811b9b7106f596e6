"""A prepared claim as its containers see it: CDI device ids, the spec that they stand in, the kubelet's answer. Pure.

The spec of a claim stands on its own: driver files and device files are in it, so that a claim's containers need no
other file. Its name and its ids have the claim's UID: a runtime keeps the specs that it has read, and reads again only
for an id that it does not know.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from agent.dra.daemons import daemon_of
from agent.dra.ledger import GivenDevice, Prepared
from agent.mps.clients import ClientCaps, client_settings
from deviceplugin.cdi import Spec

CDI_CLASS: Final = "claim"


def cdi_device(uid: str, device: GivenDevice) -> str:
    """The device's name in the claim's spec. It ends with the share's id where the device is a share: a claim may have
    two shares of one device, for two of its containers.
    """
    share = f"-{device.share_id}" if device.share is not None else ""
    return f"{uid}-{device.device}{share}"


def cdi_vendor(driver: str) -> str:
    """The CDI vendor of a driver. Each driver has its own: two on one node must not take each other's specs for
    theirs.
    """
    return f"k8s.{driver}"


def cdi_id(driver: str, uid: str, device: GivenDevice) -> str:
    """The fully qualified name that the kubelet hands to the runtime."""
    return f"{cdi_vendor(driver)}/{CDI_CLASS}={cdi_device(uid, device)}"


def file_prefix(driver: str) -> str:
    """The prefix of the names of the driver's spec files."""
    return f"{cdi_vendor(driver)}-{CDI_CLASS}_"


def file_name(driver: str, uid: str) -> str:
    """The claim's spec file below the CDI folder."""
    return f"{file_prefix(driver)}{uid}.json"


def earlier_file_name(driver: str, uid: str) -> str:
    """The name that NVIDIA's driver gives the spec file of the same claim."""
    return f"{file_prefix(driver)}{uid}.yaml"


def claim_of(driver: str, file: str) -> str | None:
    """The UID in a spec file's name; None for a file that is not a claim's of this driver."""
    prefix = file_prefix(driver)
    return file.removeprefix(prefix).removesuffix(".json") if file.startswith(prefix) else None


def claim_spec(
    driver: str, claim: Prepared, gpus: Spec, unit: Callable[[GivenDevice], str | None], mps_root: Path
) -> Spec:
    """The claim's spec. ``gpus`` is the node's own spec, whose devices are named by UUID; ``unit`` gives a device's
    UUID. A share brings the environment and mounts of its GPU's MPS daemon, below ``mps_root``, and its limits there.

    Raises KeyError for a device that the node's spec does not have.
    """
    edits: Mapping[str, Any] = {device["name"]: device["containerEdits"] for device in gpus["devices"]}
    return {
        "cdiVersion": gpus["cdiVersion"],
        "kind": f"{cdi_vendor(driver)}/{CDI_CLASS}",
        "devices": [
            {
                "name": cdi_device(claim.uid, device),
                "containerEdits": _under_mps(edits[unit(device) or device.device], claim, device, unit, mps_root),
            }
            for device in _each_once(claim.devices)
        ],
        "containerEdits": gpus["containerEdits"],
    }


def _each_once(devices: Iterable[GivenDevice]) -> Iterable[GivenDevice]:
    """The devices, each once: with admin access a device may stand for several requests."""
    return {(device.device, device.share_id): device for device in devices}.values()


def _under_mps(
    edits: Mapping[str, Any],
    claim: Prepared,
    device: GivenDevice,
    unit: Callable[[GivenDevice], str | None],
    mps_root: Path,
) -> Mapping[str, Any]:
    """``edits`` with the environment and mounts of the device's MPS daemon, where it has one, and with the limits of a
    share there.
    """
    if device.share is not None:
        caps = ClientCaps(device.share.memory_mib, device.share.percent)
        client = client_settings(mps_root, device.gpu, caps)
    elif device.mps is not None and (daemon := daemon_of(claim, device, unit)) is not None:
        client = client_settings(mps_root, daemon)
    else:
        return edits
    mounts = [
        {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": ["rw", "bind"]}
        for mount in client.mounts
    ]
    return {
        **edits,
        "env": [*edits.get("env", ()), *(f"{name}={value}" for name, value in client.envs.items())],
        "mounts": [*edits.get("mounts", ()), *mounts],
    }
