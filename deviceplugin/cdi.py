"""Container Device Interface specs for the node's devices, as JSON-ready data. Pure.

Source: the CDI specification (cncf-tags/container-device-interface, SPEC.md); version 0.5.0 is the oldest that has
``hostPath`` on a device node, so that every runtime that reads CDI at all reads these.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from deviceplugin.answer import CDI_VENDOR
from deviceplugin.strategy import AllocationSpec, DeviceIdStrategy, DeviceNode, NodeAccess

CDI_VERSION = "0.5.0"
# The legacy runtime hook must not inject a second time what CDI injects.
NO_SECOND_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"
EXTRA_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs0",),
    "mofed": ("/dev/infiniband/rdma_cm",),
}


class DriverFiles(Struct, frozen=True):
    """What a container needs of the driver beside device nodes: ``mounts`` are (host path, container path), read-only.

    ``library_folders`` are the container folders that its loader must know; ``hook_path`` is nvidia-cdi-hook (or
    nvidia-ctk) on the host, None where there is none.
    """

    mounts: tuple[tuple[str, str], ...] = ()
    library_folders: tuple[str, ...] = ()
    hook_path: str | None = None


Spec = Mapping[str, Any]


def file_name(cls: str) -> str:
    """The file of a device class below the CDI folder."""
    return f"{CDI_VENDOR}-{cls}.json"


def specs(
    spec: AllocationSpec, access: NodeAccess, driver: DriverFiles, extra: Mapping[str, Sequence[DeviceNode]]
) -> dict[str, Spec]:
    """File name to content, for every class that ``spec`` can name in an answer. Empty without a CDI strategy.

    ``extra`` holds the nodes found on this host for the classes imex-channel, gdrcopy, gds and mofed; what is not
    there is left out, as a host path that is missing fails the container.
    """
    if not spec.uses_cdi:
        return {}
    documents = {"gpu": gpu_spec(spec, access, driver)}
    if spec.imex_channels:
        found = {node.container_path: node for node in extra.get("imex-channel", ())}
        channels = [
            _device(str(channel), [found[path]] if path in found else [])
            for channel, path in ((n, imex_channel_path(n)) for n in spec.imex_channels)
        ]
        documents["imex-channel"] = _document("imex-channel", channels, {})
    for cls, wanted in (("gdrcopy", spec.gdrcopy), ("gds", spec.gds), ("mofed", spec.mofed)):
        if wanted:
            documents[cls] = _document(cls, [_device("all", extra.get(cls, ()))], {})
    return {file_name(cls): document for cls, document in documents.items()}


def imex_channel_path(channel: int) -> str:
    """The device file of an IMEX channel."""
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"


def gpu_spec(spec: AllocationSpec, access: NodeAccess, driver: DriverFiles) -> Spec:
    """One CDI device for each GPU and MIG instance, by the name that Allocate uses for it."""
    devices = [
        _device(device.index if spec.device_id is DeviceIdStrategy.INDEX else physical, device.nodes)
        for physical, device in access.devices.items()
    ]
    edits: dict[str, Any] = {"env": [NO_SECOND_INJECTION]}
    if access.shared_nodes:
        edits["deviceNodes"] = _nodes(access.shared_nodes)
    if driver.mounts:
        edits["mounts"] = [
            {"hostPath": host, "containerPath": inside, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}
            for host, inside in driver.mounts
        ]
    if driver.hook_path is not None and driver.library_folders:
        edits["hooks"] = [_update_ldcache(driver.hook_path, driver.library_folders)]
    return _document("gpu", devices, edits)


def device_names(document: Spec) -> set[str]:
    """The names that a spec defines, without vendor and class."""
    return {device["name"] for device in document["devices"]}


def rename_kind(document: Mapping[str, Any], cls: str) -> Spec:
    """A spec generated elsewhere (nvidia-ctk), under the kind that our answers name."""
    return {**document, "kind": f"{CDI_VENDOR}/{cls}"}


def _document(cls: str, devices: Sequence[Spec], edits: Spec) -> Spec:
    # A spec without devices is invalid: the file is then left out by the caller's emptiness check.
    return {
        "cdiVersion": CDI_VERSION,
        "kind": f"{CDI_VENDOR}/{cls}",
        "devices": list(devices),
        "containerEdits": dict(edits),
    }


def _device(name: str, nodes: Iterable[DeviceNode]) -> Spec:
    listed = _nodes(nodes)
    # A device without edits makes the whole file invalid, and leaving the device out would fail every container that
    # was given its name: one that has no files on this host gets an edit without effect.
    return {"name": name, "containerEdits": {"deviceNodes": listed} if listed else {"env": [NO_SECOND_INJECTION]}}


def _nodes(nodes: Iterable[DeviceNode]) -> list[dict[str, str]]:
    return [
        {"path": node.container_path, "hostPath": node.host_path, "permissions": "rw"}
        if node.host_path != node.container_path
        else {"path": node.container_path, "permissions": "rw"}
        for node in nodes
    ]


def _update_ldcache(hook_path: str, folders: Sequence[str]) -> Spec:
    program = hook_path.rpartition("/")[2]
    words = [program, "hook"] if program == "nvidia-ctk" else [program]
    return {
        "hookName": "createContainer",
        "path": hook_path,
        "args": [*words, "update-ldcache", *(word for folder in folders for word in ("--folder", folder))],
    }
