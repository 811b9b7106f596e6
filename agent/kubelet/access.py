"""The device files that a container needs for each GPU and MIG instance. Reads /dev, /proc and /sys.

Answers hold the host's paths. Where the agent itself runs in a container it sees the host's driver root elsewhere:
``hostroot.seen_at`` says where, and existence alone is looked up there.

A simulated GPU has no files: its nodes map /dev/null to the name that the real one would have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from agent.kubelet.hostroot import Seen, as_it_is, is_device
from agent.words import node as words
from deviceplugin.strategy import IMEX_CLASS, DeviceAccess, DeviceNode, NodeAccess, Symlink, imex_channel_path
from inventory.devices import Gpu, MigInstance, NodeInventory

SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
EXTRA_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}
SIMULATED_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs0",),
    "mofed": ("/dev/infiniband/rdma_cm",),
}
DISPLAY_FOLDER = "/dev/dri"
NULL = "/dev/null"
_CAPABILITIES = 2
"""The number of capability files of a MIG instance: its GPU instance's and its compute instance's."""


class Roots(Struct, frozen=True):
    """The host's roots: device files below ``dev``, and its procfs and sysfs."""

    dev: Path
    proc: Path
    sys: Path


def node_access(
    node: NodeInventory, roots: Roots, *, channels: Iterable[int] = (), simulated: bool, seen: Seen = as_it_is
) -> NodeAccess:
    """The device files of each GPU and MIG instance, by physical id. The shared nodes, and those of ``extras``, are
    those that exist.

    ``channels`` are the IMEX channels to look for.
    """
    hosts = _Hosts(roots.dev, seen, simulated=simulated)
    devices: dict[str, DeviceAccess] = {}
    for gpu in node.gpus:
        own = hosts.node(f"/dev/nvidia{gpu.minor}")
        display = hosts.display(roots.sys, gpu.pci_bus_id)
        links = hosts.display_links(gpu.pci_bus_id, display)
        devices[gpu.uuid] = DeviceAccess(str(gpu.index), (own,), display, links)
        for mig in gpu.mig_instances:
            paths = capability_paths(roots.proc, gpu, mig)
            devices[mig.uuid] = DeviceAccess(
                index=f"{gpu.index}:{mig.index}",
                nodes=(own, *map(hosts.node, paths)),
                lacking="" if len(paths) == _CAPABILITIES else words.no_capabilities(gpu.index, mig.index, mig.profile),
            )
    shared = (hosts.node(path) for path in SHARED_NODES if hosts.has(path))
    return NodeAccess(devices, tuple(shared), _extras(hosts, channels), node.driver_version)


def missing_channels(dev_root: Path, channels: Iterable[int], seen: Seen = as_it_is) -> tuple[str, ...]:
    """The paths of those IMEX channels that this host does not have."""
    hosts = _Hosts(dev_root, seen, simulated=False)
    return tuple(path for path in map(imex_channel_path, channels) if not hosts.has_device(path))


def _extras(hosts: "_Hosts", channels: Iterable[int]) -> Mapping[str, tuple[DeviceNode, ...]]:
    """The files of IMEX channels, gdrcopy, gds and mofed; all of them where GPUs are simulated."""
    imex = tuple(map(imex_channel_path, channels))
    if hosts.simulated:
        wanted = {**SIMULATED_NODES, IMEX_CLASS: imex}
        return {cls: tuple(map(hosts.node, paths)) for cls, paths in wanted.items()}
    by_class = {
        cls: tuple(path for pattern in patterns for path in hosts.glob(pattern))
        for cls, patterns in EXTRA_NODES.items()
    }
    by_class[IMEX_CLASS] = tuple(path for path in imex if hosts.has_device(path))
    return {cls: tuple(map(hosts.node, paths)) for cls, paths in by_class.items()}


def capability_paths(proc_root: Path, gpu: Gpu, mig: MigInstance) -> tuple[str, ...]:
    """The two capability files of a MIG instance; fewer where the driver lists fewer.

    Source: NVIDIA's MIG user guide, "Device Nodes and Capabilities": ``access`` names the minor of ``nvidia-caps``, and
    ``mig-minors`` lists all of them. Container runtimes may hide the first from the agent.
    """
    base = proc_root / f"driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{mig.gi_id}"
    names = ("access", f"ci{mig.ci_id}/access")
    minors = [_capability_minor(base / name) for name in names]
    if None in minors:
        listed = _mig_minors(proc_root)
        own = f"gpu{gpu.minor}/gi{mig.gi_id}"
        minors = [
            listed.get(f"{own}/{name}") if minor is None else minor for name, minor in zip(names, minors, strict=True)
        ]
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors if minor is not None)


def _mig_minors(proc_root: Path) -> Mapping[str, int]:
    """The minor of each capability by its path, from lines such as ``gpu0/gi1/ci0/access 31``."""
    try:
        lines = (proc_root / "driver/nvidia-caps/mig-minors").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}  # noqa: PLR2004


def _capability_minor(path: Path) -> int | None:
    try:
        found = re.search(r"DeviceFileMinor:\s*(\d+)", path.read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


class _Hosts:
    """The host's device files: their paths on the host, and whether this process sees them."""

    def __init__(self, dev_root: Path, seen: Seen, *, simulated: bool) -> None:
        self._root = dev_root
        self._seen = seen
        self.simulated = simulated

    def node(self, path: str) -> DeviceNode:
        host = NULL if self.simulated else str(self._root / path.lstrip("/"))
        return DeviceNode(host_path=host, container_path=path)

    def has(self, path: str) -> bool:
        return not self.simulated and self._own(path).exists()

    def has_device(self, path: str) -> bool:
        # In a container a device may have been injected at its own path, wherever the host's root is mounted.
        injected = self._seen is not as_it_is and is_device(Path(path))
        return injected or is_device(self._own(path))

    def glob(self, pattern: str) -> Sequence[str]:
        folder, _, name = pattern.rpartition("/")
        return [f"{folder}/{found.name}" for found in sorted(self._own(folder).glob(name)) if is_device(found)]

    def display(self, sys_root: Path, pci_bus_id: str) -> tuple[DeviceNode, ...]:
        """The files below /dev/dri that the kernel made for the GPU."""
        if self.simulated:
            return ()
        listed = sorted((sys_root / "bus/pci/devices" / pci_bus_id / "drm").glob("*"))
        paths = (f"{DISPLAY_FOLDER}/{path.name}" for path in listed)
        return tuple(self.node(path) for path in paths if self.has_device(path))

    def display_links(self, pci_bus_id: str, nodes: Iterable[DeviceNode]) -> tuple[Symlink, ...]:
        paths = {node.container_path for node in nodes}
        links = []
        for kind in ("card", "render"):
            path = f"{DISPLAY_FOLDER}/by-path/pci-{pci_bus_id}-{kind}"
            try:
                target = self._own(path).readlink()
            except OSError:
                continue
            if f"{DISPLAY_FOLDER}/{target.name}" in paths:
                links.append(Symlink(path, f"../{target.name}"))
        return tuple(links)

    def _own(self, path: str) -> Path:
        return self._seen(self._root / path.lstrip("/"))
