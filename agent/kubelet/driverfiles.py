"""The driver's libraries and programs below its root, for CDI specs. Reads the root; runs nothing.

Places and names are those that NVIDIA's container toolkit looks for (its packages ``lookup`` and ``nvcdi``): the folder
that has ``libcuda.so.<driver version>``, and in it every library of that version. A driver root may be a whole system
(Debian, a driver container) or the driver alone (GKE has ``lib64`` and ``bin``, Talos a folder ``glibc``).
"""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from agent.kubelet.elf import soname
from agent.kubelet.graphicsfiles import find_files, find_sockets
from agent.kubelet.hostroot import HostRoot, Seen, as_it_is
from deviceplugin.drivermounts import HOOKS, DriverFiles, HookProgram, Library, chosen_hooks
from deviceplugin.strategy import Symlink

LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/glibc/lib",
    "/glibc/usr/lib",
    "/usr/lib",
    "/lib",
    "/",
)
PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
OF_OTHER_VERSIONS = (
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-nvvm70.so.*",
)
"""Libraries of the driver with version numbers of their own."""
LISTED = re.compile(r"^\s*libcuda\.so\S*\s+\(libc6,[^)]*64[^)]*\)\s+=>\s+(/\S+)/libcuda\.so\S*$", re.MULTILINE)
VERSION = re.compile(r"libcuda\.so\.(\d+\.[\d.]+)")
NVML = "libnvidia-ml.so.1"
DEFAULT_HOOK = Path("/usr/bin/nvidia-ctk")
OTHER_HOOKS = (Path("/usr/bin/nvidia-cdi-hook"), Path("/usr/local/bin/nvidia-cdi-hook"))


class NoDriverError(LookupError):
    """No libcuda below the driver root: containers would start and find no GPU. One line."""


def listed_folders(ldconfig_output: str) -> tuple[str, ...]:
    """The folders in which the loader's cache, as ``ldconfig -p`` prints it, has a 64-bit libcuda."""
    return tuple(dict.fromkeys(LISTED.findall(ldconfig_output)))


def find_nvml(root: HostRoot) -> Path | None:
    """The path where this process sees NVML below the driver root; None where it is in none of the usual folders."""
    for folder in LIBRARY_FOLDERS:
        if (real := root.real(f"{folder}/{NVML}")) is not None:
            return root.own(real)
    return None


def find_driver(root: HostRoot, version: str, listed: Sequence[str] = ()) -> DriverFiles:
    """The driver of that ``version`` (empty: of any version), in the usual folders or in those in ``listed``.

    Raises NoDriverError.
    """
    for folder in (*LIBRARY_FOLDERS, *listed):
        names = root.names(folder)
        found = sorted(match[1] for name in names if (match := VERSION.fullmatch(name)))
        chosen = version if version in found else found[-1] if found and not version else None
        if chosen is not None and root.real(f"{folder}/libcuda.so.{chosen}") is not None:
            return _driver(root, folder.rstrip("/"), names, chosen)
    wanted = f"libcuda.so.{version}" if version else "libcuda.so"
    raise NoDriverError(
        f"found no {wanted} below the driver root {root.path}, neither in its library folders nor by etc/ld.so.cache"
    )


def _driver(root: HostRoot, folder: str, names: Sequence[str], version: str) -> DriverFiles:
    beside = f"{folder}/vdpau"
    libraries = {library.name: library for library in _libraries(root, folder, names, version)}
    for other in LIBRARY_FOLDERS:
        # Distributions may have some in another folder. A library that libcuda's folder has already is a link there, or
        # 32-bit.
        for library in _libraries(root, other.rstrip("/"), root.names(other), version):
            libraries.setdefault(library.name, library)
    files, file_links = find_files(root, folder, version)
    return DriverFiles(
        version=version,
        main_folder=folder or "/",
        libraries=(*libraries.values(), *_libraries(root, beside, root.names(beside), version)),
        programs=tuple(_programs(root)),
        files=files,
        file_links=file_links,
        sockets=find_sockets(root),
        machine=os.uname().machine,
    )


def _libraries(root: HostRoot, folder: str, names: Sequence[str], version: str) -> Iterable[Library]:
    for name in names:
        ours = name.endswith(f".so.{version}")
        if not ours and not any(fnmatchcase(name, pattern) for pattern in OF_OTHER_VERSIONS):
            continue
        real = root.real(f"{folder}/{name}")
        if real is not None and (ours or real.endswith(f"/{name}")):
            yield Library(root.host(real), folder, name, tuple(_links(root, folder, names, name, real)))


def _links(root: HostRoot, folder: str, names: Sequence[str], name: str, real: str) -> Iterable[Symlink]:
    """The other names that programs ask for: the library's own, its links on the host, and those that many assume."""
    stem = name.partition(".so.")[0]
    own = soname(root.own(real)) or ""
    own = own if own.startswith(f"{stem}.so") else name
    targets = {own: name} if own != name else {}
    for other in names:
        if other.startswith(f"{stem}.so") and other not in (name, own) and root.real(f"{folder}/{other}") == real:
            targets[other] = own
    if stem in ("libcuda", "libnvidia-opticalflow"):
        # Packages leave these out, and programs open them by the bare name.
        targets.setdefault(f"{stem}.so.1", name)
        targets.setdefault(f"{stem}.so", f"{stem}.so.1")
    elif stem == "libGLX_nvidia":
        targets.setdefault("libGLX_indirect.so.0", name)
    elif stem == "libnvidia-allocator":
        targets["gbm/nvidia-drm_gbm.so"] = "../libnvidia-allocator.so.1"
    elif stem == "libnvidia-vulkan-producer":
        targets.setdefault("libnvidia-vulkan-producer.so", name)
    return (Symlink(f"{folder}/{link}", target) for link, target in sorted(targets.items()))


def _programs(root: HostRoot) -> Iterable[tuple[str, str]]:
    for name in PROGRAMS:
        for folder in PROGRAM_FOLDERS:
            real = root.real(f"{folder}/{name}")
            if real is not None:
                yield root.host(real), f"{folder}/{name}"
                break


def find_hook(
    path: Path, disabled: Sequence[str], *, hidden: bool = False, seen: Seen = as_it_is
) -> HookProgram | None:
    """The hook program at ``path``, or where it is installed by default; None where the host has none.

    ``hidden`` says that this process cannot see the host's path: then a path other than the default is taken as given.
    """
    if path != DEFAULT_HOOK and hidden:
        return _program(path, chosen_hooks(HOOKS, disabled))
    places = (path, *OTHER_HOOKS) if path == DEFAULT_HOOK else (path,)
    there = next((place for place in places if seen(place).is_file()), None)
    return None if there is None else _program(there, chosen_hooks(_known_hooks(seen(there)), disabled))


def _program(path: Path, hooks: tuple[str, ...]) -> HookProgram | None:
    return HookProgram(str(path), hooks) if hooks else None


def _known_hooks(program: Path) -> tuple[str, ...]:
    """The hooks that the program knows. A program before 1.18 has fewer names in it, and fails the container when it is
    asked for a hook it does not know.

    A file that is not ELF is a wrapper around the program, as the GPU operator installs it, with the program beside it;
    where that cannot be seen it is taken for a current one.
    """
    for place in (program, program.with_name(f"{program.name}.real")):
        if (found := _hooks_in(place)) is not None:
            return found
    return HOOKS


def _hooks_in(program: Path) -> tuple[str, ...] | None:
    """The names of hooks in an ELF file; None for any other file."""
    import mmap

    try:
        with program.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return tuple(hook for hook in HOOKS if content.find(hook.encode()) >= 0)
    except (OSError, ValueError):
        return None
