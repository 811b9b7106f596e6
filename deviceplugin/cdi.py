"""Container Device Interface specs for the node's devices, as JSON-ready data. Pure.

Source: the CDI specification (cncf-tags/container-device-interface, SPEC.md); version 0.5.0 is the oldest that has
``hostPath`` on a device node, so that every runtime that reads CDI at all reads these.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deviceplugin.answer import CDI_VENDOR
from deviceplugin.drivermounts import DriverFiles, HookProgram, driver_edits
from deviceplugin.strategy import (
    IMEX_CLASS,
    AllocationSpec,
    DeviceAccess,
    DeviceIdStrategy,
    DeviceNode,
    NodeAccess,
)

CDI_VERSION = "0.5.0"
# The legacy runtime hook must not inject a second time what CDI injects.
NO_SECOND_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"
# A CDI runtime's own default: a container may make the node anew, as some initialisations of CUDA do.
PERMISSIONS = "rwm"

Spec = Mapping[str, Any]


def file_name(cls: str) -> str:
    """The file of a device class below the CDI folder."""
    return f"{CDI_VENDOR}-{cls}.json"


def specs(spec: AllocationSpec, access: NodeAccess, driver: DriverFiles) -> dict[str, Spec]:
    """The specs by file name, one for every class that ``spec`` can name in an answer. Empty without a CDI strategy.

    A class of which this host has no files has no devices: no answer names it, and its file is not to be written.
    """
    if not spec.uses_cdi:
        return {}
    documents = {"gpu": gpu_spec(spec, access, driver)}
    if spec.imex_channels:
        channels = access.channels(spec).items()
        documents[IMEX_CLASS] = _document(IMEX_CLASS, [_device(str(n), [node]) for n, node in channels], {})
    for cls in spec.extras:
        nodes = access.extras.get(cls, ())
        documents[cls] = _document(cls, [_device("all", nodes)] if nodes else [], {})
    return {file_name(cls): document for cls, document in documents.items()}


def gpu_spec(spec: AllocationSpec, access: NodeAccess, driver: DriverFiles) -> Spec:
    """The spec with one CDI device for each GPU and MIG instance, by the name that Allocate uses for it."""
    devices = [
        _gpu(device.index if spec.device_id is DeviceIdStrategy.INDEX else physical, device, driver.hook)
        for physical, device in access.devices.items()
    ]
    edits = driver_edits(driver)
    edits["env"] = [NO_SECOND_INJECTION, *edits.get("env", ())]
    if access.shared_nodes:
        edits["deviceNodes"] = _nodes(access.shared_nodes)
    return _document("gpu", devices, edits)


def device_names(document: Spec) -> set[str]:
    """The names that a spec defines, without vendor and class."""
    return {device["name"] for device in document["devices"]}


def rename_kind(document: Mapping[str, Any], cls: str) -> Spec:
    """A spec that another program (nvidia-ctk) generated, under the kind that our answers name."""
    return {**document, "kind": f"{CDI_VENDOR}/{cls}"}


def _document(cls: str, devices: Sequence[Spec], edits: Spec) -> Spec:
    # A spec without devices is invalid: the caller does not write such a file.
    return {
        "cdiVersion": CDI_VERSION,
        "kind": f"{CDI_VENDOR}/{cls}",
        "devices": list(devices),
        "containerEdits": dict(edits),
    }


def _device(name: str, nodes: Iterable[DeviceNode], hooks: Sequence[Spec] = ()) -> Spec:
    edits: dict[str, Any] = {"deviceNodes": _nodes(nodes)}
    if hooks:
        edits["hooks"] = list(hooks)
    # A device without edits makes the whole file invalid: one without files on this host gets an edit without effect.
    return {"name": name, "containerEdits": edits if edits["deviceNodes"] else {"env": [NO_SECOND_INJECTION]}}


def _gpu(name: str, device: DeviceAccess, hook: HookProgram | None) -> Spec:
    return _device(
        name,
        (*device.nodes, *device.display_nodes),
        [] if hook is None else hook.links(device.display_links),
    )


def _nodes(nodes: Iterable[DeviceNode]) -> list[dict[str, str]]:
    return [
        {"path": node.container_path, "hostPath": node.host_path, "permissions": PERMISSIONS}
        if node.host_path != node.container_path
        else {"path": node.container_path, "permissions": PERMISSIONS}
        for node in nodes
    ]
