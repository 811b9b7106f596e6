"""Hosts below a folder, laid out as distributions lay theirs out: ELF libraries, links, device files.

A device file is a link to /dev/null: a character device that anybody may make.
"""

import struct
from pathlib import Path

from msgspec import Struct

VERSION = "535.183.01"
SONAMES = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
    "libnvidia-ptxjitcompiler.so": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-glcore.so": f"libnvidia-glcore.so.{VERSION}",
    "libGLX_nvidia.so": "libGLX_nvidia.so.0",
}
"""Library to its DT_SONAME; glcore goes by its file name, as NVIDIA ships it."""


def elf(soname: str) -> bytes:
    """As much of a shared library as a reader of its dynamic section needs."""
    strings = b"\0" + soname.encode() + b"\0"
    dynamic_at = 64 + 2 * 56
    strings_at = dynamic_at + 3 * 16
    size = strings_at + len(strings)
    base = 0x10000
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, base + dynamic_at, base + dynamic_at, 48, 48, 8)
    entries = struct.pack("<QQQQQQ", 14, 1, 5, base + strings_at, 0, 0)
    return header + load + dynamic + entries + strings


class Host(Struct, frozen=True):
    """A host at ``root``; the driver's own root and the device root are paths on it."""

    root: Path
    driver_root: Path
    dev_root: Path

    def devices(self, *paths: str) -> None:
        """Character devices at the host's paths."""
        for path in paths:
            place = self.dev_root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to("/dev/null")


def install(folder: Path, *, links: bool = True, version: str = VERSION) -> None:
    """The driver's libraries in ``folder``; ``links`` as ldconfig leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, soname in SONAMES.items():
        name = f"{stem}.{version}"
        (folder / name).write_bytes(elf(soname))
        if links and soname != name:
            (folder / soname).symlink_to(name)
    (folder / "libc.so.6").write_bytes(elf("libc.so.6"))
    (folder / "libnvidia-container.so.1.17.4").write_bytes(elf("libnvidia-container.so.1"))


def program(path: Path, content: bytes = b"#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


def gke(root: Path, *, libraries: bool = True) -> Host:
    """Container-Optimized OS: the installer unpacks ``lib64`` and ``bin`` into a folder; devices are the host's."""
    driver = root / "home/kubernetes/bin/nvidia"
    driver.mkdir(parents=True)
    if libraries:
        install(driver / "lib64")
    for name in ("nvidia-smi", "nvidia-cuda-mps-control"):
        program(driver / "bin" / name)
    host = Host(root, driver, root)
    host.devices("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    return host


def talos(root: Path, *, libraries: bool = True) -> Host:
    """Talos: system extensions put glibc and the driver below /usr/local."""
    driver = root / "usr/local"
    driver.mkdir(parents=True)
    if libraries:
        install(driver / "glibc/usr/lib")
    program(driver / "bin/nvidia-smi")
    host = Host(root, driver, root)
    host.devices("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    return host


def debian(root: Path, *, libraries: bool = True) -> Host:
    """Debian: the files are in nvidia/current, and links through /etc/alternatives lead there."""
    lib = root / "usr/lib/x86_64-linux-gnu"
    current = lib / "nvidia/current"
    current.mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    if libraries:
        install(current)
        alternatives = root / "etc/alternatives"
        alternatives.mkdir(parents=True)
        (alternatives / "nvidia--libcuda.so.1").symlink_to("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
        (lib / "libcuda.so.1").symlink_to("/etc/alternatives/nvidia--libcuda.so.1")
    program(root / "usr/lib/nvidia/current/nvidia-smi")
    (root / "usr/bin").mkdir()
    (root / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    host = Host(root, root, root)
    host.devices("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    return host


LAYOUTS = {"gke": gke, "talos": talos, "debian": debian}
