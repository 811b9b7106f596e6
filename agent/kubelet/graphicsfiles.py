"""A driver's files beside its libraries and programs, for CDI specs: configuration of OpenCL, Vulkan, EGL and OptiX,
X.Org modules, GSP firmware, sockets of its daemons. Reads the root; runs nothing.

Names and places are those that NVIDIA's container toolkit (1.20) looks for. The folder of an MPS daemon on the host,
which it also gives to every container, is left out: containers here are clients of the agent's own daemons, whose
folder has the same name inside.
"""

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from agent.kubelet.hostroot import HostRoot
from deviceplugin.strategy import Symlink

Files = tuple[tuple[str, str], ...]
"""The host path and the container path of each file."""

FileLinks = tuple[tuple[str, Symlink], ...]
"""The host path that a link leads to, and the link."""

CONFIG_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
CONFIGS = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "OpenCL/vendors/nvidia.icd",
)
VULKAN = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    f"vulkan/icd.d/nvidia_icd.{os.uname().machine}.json",
)
XORG_BELOW = (
    "nvidia/xorg",
    *(f"xorg/modules{updates}/{kind}" for updates in ("", "/updates") for kind in ("drivers", "extensions")),
)
XORG_FOLDERS = tuple(
    f"{lib}/modules{updates}/{kind}"
    for lib in ("/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64")
    for updates in ("", "/updates")
    for kind in ("drivers", "extensions")
)
XORG_DRIVER = "nvidia_drv.so"
XORG_SERVER = "libglxserver_nvidia.so"
FIRMWARE_FOLDERS = ("/lib/firmware/updates", "/lib/firmware")
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
SOCKET_FOLDERS = ("/run", "/var/run")


def find_files(root: HostRoot, libraries: str, version: str) -> tuple[Files, FileLinks]:
    """Configuration, firmware and X.Org modules of the driver of that ``version``, with libcuda in ``libraries``; and
    the links to some of them.
    """
    modules, links = _xorg(root, libraries, version)
    return (*_configs(root), *_vulkan(root), *modules, *_firmware(root, version)), links


def find_sockets(root: HostRoot) -> Files:
    """The sockets of the persistence daemon and of the fabric manager that are there now."""
    return tuple(
        found for name in SOCKETS if (found := _first(root, [f"{folder}/{name}" for folder in SOCKET_FOLDERS]))
    )


def _configs(root: HostRoot) -> Iterable[tuple[str, str]]:
    for name in CONFIGS:
        for folder in CONFIG_FOLDERS:
            yield from _there(root, f"{folder}/{name}")


def _vulkan(root: HostRoot) -> Iterable[tuple[str, str]]:
    """The files of Vulkan. GKE has them in the root itself; loaders in a container look in /etc."""
    for name in VULKAN:
        found = _first(root, [f"{folder}/{name}" for folder in (*CONFIG_FOLDERS, "")])
        if found is not None:
            yield found[0], f"/etc/{name}"


def _xorg(root: HostRoot, libraries: str, version: str) -> tuple[Files, FileLinks]:
    folders = (*(f"{libraries}/{below}" for below in XORG_BELOW), *XORG_FOLDERS)
    driver = _first(root, [f"{folder}/{XORG_DRIVER}" for folder in folders])
    server = _first(root, [f"{folder}/{XORG_SERVER}.{version}" for folder in folders])
    modules = tuple(module for module in (driver, server) if module is not None)
    if server is None:
        return modules, ()
    host, inside = server
    return modules, ((host, Symlink(inside.removesuffix(f".{version}"), inside.rpartition("/")[2])),)


def _firmware(root: HostRoot, version: str) -> Iterable[tuple[str, str]]:
    release = os.uname().release
    for base in FIRMWARE_FOLDERS:
        for folder in (f"{base}/{release}/nvidia/{version}", f"{base}/nvidia/{version}"):
            for name in root.names(folder):
                if fnmatchcase(name, "gsp*.bin"):
                    yield from _there(root, f"{folder}/{name}")


def _there(root: HostRoot, inside: str) -> Files:
    real = root.real(inside)
    return () if real is None else ((root.host(real), inside),)


def _first(root: HostRoot, places: Sequence[str]) -> tuple[str, str] | None:
    return next((found for place in places for found in _there(root, place)), None)
