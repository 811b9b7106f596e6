"""The parts of the driver that a container needs beside device nodes, as edits of a CDI spec. Pure.

With NVIDIA's hook program on the host, libraries are mounted under their file names and its hooks make the links, the
loader's cache, forward compatibility and the closed ``/proc/driver/nvidia/params``: the edits of NVIDIA's plugin.
Without it, nothing may be run in a container, so that the same names are mounts, in the folders that loaders search
without a cache. Forward compatibility, the closed parameters and the application profile have no such stand-in:
runtimes refuse mounts in /proc, and which GPUs a profile is to name is known in the container alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from deviceplugin.strategy import Symlink

ALL_HOOKS = "all"
CREATE_SYMLINKS = "create-symlinks"
ENABLE_CUDA_COMPAT = "enable-cuda-compat"
UPDATE_LDCACHE = "update-ldcache"
DISABLE_DEVICE_NODE_MODIFICATION = "disable-device-node-modification"
UPDATE_APPLICATION_PROFILE = "update-application-profile"
HOOKS = (
    CREATE_SYMLINKS,
    ENABLE_CUDA_COMPAT,
    UPDATE_LDCACHE,
    DISABLE_DEVICE_NODE_MODIFICATION,
    UPDATE_APPLICATION_PROFILE,
)

_RED_HAT = ("/usr/lib64", "/lib64")
_DEBIAN = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu", "/lib/aarch64-linux-gnu"),
}


class Library(Struct, frozen=True):
    """A library of the driver: its file on the host; the folder and name it has in a container; links beside it."""

    host_path: str
    folder: str
    name: str
    links: tuple[Symlink, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


class HookProgram(Struct, frozen=True):
    """The program nvidia-cdi-hook (or nvidia-ctk) on the host, and the hooks that it may be called for."""

    path: str
    hooks: tuple[str, ...] = HOOKS

    def call(self, hook: str, arguments: Iterable[str]) -> Mapping[str, Any]:
        """The hook as CDI writes it."""
        program = self.path.rpartition("/")[2]
        words = [program, "hook"] if program == "nvidia-ctk" else [program]
        return {"hookName": "createContainer", "path": self.path, "args": [*words, hook, *arguments]}

    def links(self, links: Sequence[Symlink]) -> list[Mapping[str, Any]]:
        """One call that makes ``links``; none where there is no link to make, or the hook is not to be called."""
        if not links or CREATE_SYMLINKS not in self.hooks:
            return []
        return [self.call(CREATE_SYMLINKS, (w for link in links for w in ("--link", f"{link.target}::{link.path}")))]


class DriverFiles(Struct, frozen=True):
    """The driver's files below its root. ``programs``, ``files`` (configuration and firmware) and ``sockets`` are (host
    path, container path), ``file_links`` links to some of the files, each with the host path of its file.

    ``main_folder`` is the container's folder of libcuda; ``machine`` is the processor as ``uname`` names it.
    """

    version: str = ""
    main_folder: str = ""
    libraries: tuple[Library, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    file_links: tuple[tuple[str, Symlink], ...] = ()
    sockets: tuple[tuple[str, str], ...] = ()
    hook: HookProgram | None = None
    machine: str = "x86_64"


def driver_edits(driver: DriverFiles) -> dict[str, Any]:
    """The ``mounts``, ``hooks`` and ``env`` of a spec; empty ones are left out."""
    libraries = [(library.host_path, library.path) for library in driver.libraries]
    if driver.hook is None or CREATE_SYMLINKS not in driver.hook.hooks:
        libraries += [(lib.host_path, link.path) for lib in driver.libraries for link in lib.links]
        libraries += [(host, link.path) for host, link in driver.file_links]
    if driver.hook is None or UPDATE_LDCACHE not in driver.hook.hooks:
        libraries += list(_where_loaders_look(driver))
    distinct = {inside: host for host, inside in (*libraries, *driver.programs, *driver.files)}
    edits = {
        "env": [f"NVIDIA_CTK_LIBCUDA_DIR={driver.main_folder}"] if driver.main_folder else [],
        "mounts": [
            *(_mount(host, inside) for inside, host in sorted(distinct.items())),
            *(_mount(host, inside, _SOCKET) for host, inside in driver.sockets),
        ],
        "hooks": [] if driver.hook is None else _hooks(driver, driver.hook),
    }
    return {key: value for key, value in edits.items() if value}


def _hooks(driver: DriverFiles, program: HookProgram) -> list[Mapping[str, Any]]:
    if not driver.libraries:
        return []
    folders = sorted({library.folder for library in driver.libraries})
    arguments = {
        ENABLE_CUDA_COMPAT: [f"--host-driver-version={driver.version}"],
        UPDATE_LDCACHE: [word for folder in folders for word in ("--folder", folder)],
        DISABLE_DEVICE_NODE_MODIFICATION: [],
        UPDATE_APPLICATION_PROFILE: [],
    }
    calls = (program.call(hook, words) for hook, words in arguments.items() if hook in program.hooks)
    links = [link for library in driver.libraries for link in library.links]
    return [*program.links([*links, *(link for _, link in driver.file_links)]), *calls]


def _where_loaders_look(driver: DriverFiles) -> Iterable[tuple[str, str]]:
    """The libraries in the other folders that a loader searches by itself: an image is of one family or the other."""
    families = (_RED_HAT, _DEBIAN.get(driver.machine, ()))
    for library in driver.libraries:
        if library.folder.endswith("/vdpau"):
            continue  # no loader searches it
        # A link such as `gbm/nvidia-drm_gbm.so` is a name in a folder below.
        names = [link.path.removeprefix(f"{library.folder}/") for link in library.links] or [library.name]
        for folder in (family[0] for family in families if family and library.folder not in family):
            yield from ((library.host_path, f"{folder}/{name}") for name in names)


_FILE = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")


def _mount(host: str, inside: str, options: Sequence[str] = _FILE) -> Mapping[str, Any]:
    return {"hostPath": host, "containerPath": inside, "options": list(options)}


def chosen_hooks(known: Collection[str], disabled: Collection[str]) -> tuple[str, ...]:
    """The hooks in HOOKS that a program knows and that are not disabled; ``all`` in ``disabled`` disables every one."""
    return () if ALL_HOOKS in disabled else tuple(hook for hook in HOOKS if hook in known and hook not in disabled)
