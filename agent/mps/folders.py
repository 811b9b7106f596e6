"""The folders of a device's daemon on disk: made, opened up for clients of any user, remembered, taken away again."""

import contextlib
import ctypes
import os
import shutil
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from agent.hardware.computemode import ComputeMode
from agent.mps.control import MpsError
from agent.mps.paths import CONTAINER_SHM, DevicePaths, device_paths, root_problem
from agent.persistence.files import write_atomically
from failpoints import points
from failpoints.names import Failpoint

MODE_FILE = "compute-mode"
LOG_LIMIT_BYTES = 4 << 20
OUTPUT_LOG = "output.log"
_MNT_DETACH = 2
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_SHARED = stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH


class SharedMemory(StrEnum):
    """The kind of a device's ``shm``: a tmpfs of its own, a link to the host's /dev/shm, or an unused folder."""

    PRIVATE = "private"
    HOST = "host"
    NONE = "none"


def make(root: Path, device: str, shm: SharedMemory, shm_size_mib: int | None) -> DevicePaths:
    """Make a device's folders, or correct those that exist. Raises MpsError, one line.

    The control daemon starts its servers as their clients' users: those users need access to the folders and write the
    log. Only root may put a socket in place of another.
    """
    problem = root_problem(root)
    if problem is not None:
        raise MpsError(problem)
    paths = device_paths(root, device)
    points.before(Failpoint.MPS_FOLDERS)
    try:
        for folder, mode in ((root, 0o711), (paths.base, 0o711), (paths.pipe, 0o755), (paths.log, 0o1777)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        _make_shm(paths.shm, shm, shm_size_mib)
    except OSError as failed:
        raise MpsError(f"the folders of MPS: {failed}") from None
    points.after(Failpoint.MPS_FOLDERS)
    return paths


def _make_shm(folder: Path, shm: SharedMemory, size_mib: int | None) -> None:
    if shm is SharedMemory.HOST:
        if not folder.is_symlink():
            folder.symlink_to(CONTAINER_SHM)
        return
    folder.mkdir(exist_ok=True)
    if shm is SharedMemory.NONE:
        folder.chmod(0o1777)
    elif not os.path.ismount(folder):
        _mount_tmpfs(folder, size_mib)


def open_up(state_dir: Path, root: Path) -> None:
    """Let other users pass through the state folder, where the root lies below it. Raises OSError."""
    if root.is_relative_to(state_dir) and state_dir.is_dir():
        mode = stat.S_IMODE(state_dir.stat().st_mode)
        if mode | _SHARED != mode:
            state_dir.chmod(mode | _SHARED)


def closed_folder(root: Path) -> Path | None:
    """The first folder on the way to ``root`` that other users cannot pass, or None."""
    for folder in (*reversed(root.parents), root):
        with contextlib.suppress(OSError):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return folder
    return None


def leftovers(root: Path) -> Iterator[str]:
    """The devices that have folders, of this agent or an earlier one."""
    with contextlib.suppress(OSError):
        for folder in sorted(root.iterdir()):
            if folder.name.startswith(("GPU-", "MIG-")) and folder.is_dir():
                yield folder.name


def remember_mode(paths: DevicePaths, gpu: str, mode: ComputeMode) -> None:
    """Record the compute mode from before the first daemon; a mode already recorded stays. Raises OSError."""
    note = _note(paths, gpu)
    if not note.exists():
        write_atomically(note, mode.name.encode(), Failpoint.MPS_MODE, mode=0o644)


def remembered_modes(paths: DevicePaths) -> dict[str, ComputeMode]:
    """The compute modes to restore, by GPU, where some are recorded."""
    modes: dict[str, ComputeMode] = {}
    for gpu in members(paths):
        with contextlib.suppress(OSError, KeyError):
            modes[gpu] = ComputeMode[_note(paths, gpu).read_text().strip()]
    return modes


def members(paths: DevicePaths) -> tuple[str, ...]:
    """The devices of the daemon: the one that the folder is named by, and the other GPUs with a recorded mode."""
    mark = f"{MODE_FILE}."
    with contextlib.suppress(OSError):
        others = sorted(note.name.removeprefix(mark) for note in paths.base.iterdir() if note.name.startswith(mark))
        return (paths.base.name, *others)
    return (paths.base.name,)


def _note(paths: DevicePaths, gpu: str) -> Path:
    return paths.base / (MODE_FILE if gpu == paths.base.name else f"{MODE_FILE}.{gpu}")


def read_pid(paths: DevicePaths) -> int | None:
    """The daemon's pid from its pid file; None where that cannot be read."""
    try:
        pid = int(paths.pid_file.read_text().strip())
    except (OSError, ValueError):
        return None
    return pid if pid > 1 else None


def trim_logs(paths: DevicePaths) -> None:
    """Empty a log that has grown too long: the daemons write some lines for each command and client."""
    for log in (paths.control_log, paths.log / "server.log", paths.log / OUTPUT_LOG):
        with contextlib.suppress(OSError):
            if log.stat().st_size > LOG_LIMIT_BYTES:
                os.truncate(log, 0)


def remove(paths: DevicePaths) -> None:
    """Remove a device's folders. A container keeps those that it has mounted, for itself alone."""
    points.before(Failpoint.MPS_FOLDERS_REMOVED)
    if os.path.ismount(paths.shm):
        ctypes.CDLL(None).umount2(str(paths.shm).encode(), _MNT_DETACH)
    shutil.rmtree(paths.base, ignore_errors=True)
    points.after(Failpoint.MPS_FOLDERS_REMOVED)


def _mount_tmpfs(folder: Path, size_mib: int | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = "mode=1777" if size_mib is None else f"mode=1777,size={size_mib}m"
    if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", _MS_NOSUID_NODEV_NOEXEC, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"tmpfs at {folder}: {os.strerror(number)}: the agent has to be privileged")
