"""Which device files a container needs for each GPU and MIG instance, and what of the driver. Reads /dev and /proc.

Answers hold the host's paths. Where the agent itself runs in a container it sees the host's driver root elsewhere:
``seen_at`` says where, and only existence is looked up there.

A simulated GPU has no files: its nodes map /dev/null to the name that the real one would have.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from deviceplugin.cdi import EXTRA_NODES, DriverFiles, imex_channel_path
from deviceplugin.strategy import DeviceAccess, DeviceNode, NodeAccess
from inventory.devices import Gpu, MigInstance, Node

log = logging.getLogger(__name__)

SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
NULL = "/dev/null"
# Not libcudart and the like: those are the toolkit's, and a container brings its own. Nor the container toolkit's.
LIBRARY = re.compile(
    r"^\s*(lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvidia-(?!container)[\w+-]+)\.so[\w.+-]*)\s.*=>\s*(/\S+)$"
)
BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)


Seen = Callable[[Path], Path]
"""Where this process sees a path of the host."""


def as_it_is(path: Path) -> Path:
    """Outside a container the host's paths are ours."""
    return path


def seen_at(driver_root: Path, container_driver_root: Path) -> Seen:
    """The view from a container that has the host's ``driver_root`` at ``container_driver_root``; else as it is."""
    if not container_driver_root.is_dir():
        return as_it_is

    def seen(path: Path) -> Path:
        inside = path.is_relative_to(driver_root)
        return container_driver_root / path.relative_to(driver_root) if inside else path

    return seen


def node_access(node: Node, *, dev_root: Path, proc_root: Path, simulated: bool, seen: Seen = as_it_is) -> NodeAccess:
    """Device files by physical id. Host paths lie below ``dev_root``; the shared nodes are those that exist."""
    hosts = _Hosts(dev_root, seen, simulated=simulated)
    devices: dict[str, DeviceAccess] = {}
    for gpu in node.gpus:
        own = hosts.node(f"/dev/nvidia{gpu.minor}")
        devices[gpu.uuid] = DeviceAccess(index=str(gpu.index), nodes=(own,))
        for mig in gpu.mig_instances:
            caps = tuple(hosts.node(path) for path in capability_paths(proc_root, gpu, mig))
            devices[mig.uuid] = DeviceAccess(index=f"{gpu.index}:{mig.index}", nodes=(own, *caps))
    shared = (hosts.node(path) for path in SHARED_NODES if hosts.has(path))
    return NodeAccess(devices=devices, shared_nodes=tuple(shared))


def capability_paths(proc_root: Path, gpu: Gpu, mig: MigInstance) -> tuple[str, ...]:
    """The two capability files of a MIG instance; none where the driver lists none.

    Source: NVIDIA's MIG user guide, "Device Nodes and Capabilities": ``access`` names the minor of ``nvidia-caps``.
    """
    base = proc_root / f"driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{mig.gi_id}"
    minors = (_capability_minor(path) for path in (base / "access", base / f"ci{mig.ci_id}" / "access"))
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors if minor is not None)


def _capability_minor(path: Path) -> int | None:
    try:
        found = re.search(r"DeviceFileMinor:\s*(\d+)", path.read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


class _Hosts:
    def __init__(self, dev_root: Path, seen: Seen, *, simulated: bool) -> None:
        self._root = dev_root
        self._seen = seen
        self._simulated = simulated

    def node(self, path: str) -> DeviceNode:
        host = NULL if self._simulated else str(self._root / path.lstrip("/"))
        return DeviceNode(host_path=host, container_path=path)

    def has(self, path: str) -> bool:
        return not self._simulated and self._seen(self._root / path.lstrip("/")).exists()


def extra_nodes(
    dev_root: Path, imex_channels: Iterable[int], *, simulated: bool, seen: Seen = as_it_is
) -> Mapping[str, Sequence[DeviceNode]]:
    """The nodes of IMEX channels, gdrcopy, gds and mofed that this host has; all of them where GPUs are simulated."""
    hosts = _Hosts(dev_root, seen, simulated=simulated)
    wanted = {**EXTRA_NODES, "imex-channel": tuple(imex_channel_path(n) for n in imex_channels)}
    return {
        cls: tuple(hosts.node(path) for path in paths if simulated or hosts.has(path)) for cls, paths in wanted.items()
    }


def driver_files(ldconfig_output: str, driver_root: Path, hook_path: Path, seen: Seen = as_it_is) -> DriverFiles:
    """The driver's libraries by their sonames, and its programs, from what ``ldconfig -p`` of the driver root printed.

    A soname path is bound as it is: the mount follows the link on the host, so the container needs no links made.
    """
    listed = (match[2] for line in ldconfig_output.splitlines() if (match := LIBRARY.match(line)))
    # The cache may be older than the files. A link counts as there: it may lead to a place that only the host has.
    libraries = [path for path in listed if os.path.lexists(seen(driver_root / path.lstrip("/")))]
    programs = [f"/usr/bin/{name}" for name in BINARIES if seen(driver_root / "usr/bin" / name).exists()]
    inside = sorted({*libraries, *programs})
    return DriverFiles(
        mounts=tuple((str(driver_root / path.lstrip("/")), path) for path in inside),
        library_folders=tuple(sorted(_folders(libraries))),
        hook_path=str(hook_path) if seen(hook_path).exists() else None,
    )


def _folders(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths}
