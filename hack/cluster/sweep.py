"""Removing all that a cluster left, whatever state it died in. Needs no state file: names follow from the folder's path.

The order matters: first processes, by kill, because only they could make something new; with a node's first process the
kernel drops its mounts and its pods' networks. Then cgroups, the bridge and at last the files.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from hack.cluster import network, processes
from hack.cluster.errors import ClusterError
from hack.cluster.layout import ClusterPaths
from hack.cluster.processes import Identity
from hack.cluster.state import State

_ROUNDS = 5
_CGROUP_S = 10.0


def sweep(paths: ClusterPaths, state: State | None) -> None:
    """Remove every process, cgroup, link and file of the cluster; ClusterError naming what would not go."""
    _end_processes(paths, state)
    _remove_cgroups(paths.cgroup)
    network.remove_bridge(paths.bridge)
    _remove_files(paths)


def _end_processes(paths: ClusterPaths, state: State | None) -> None:
    recorded = {each for each in state.processes.values() if processes.alive(each)} if state else set()
    found: set[Identity] = set()
    for _ in range(_ROUNDS):
        # Again until none is found: one may have started another while the first were being ended.
        found = set(processes.marked(paths.home)) | set(_cgroup_members(paths.cgroup))
        found |= {each for each in recorded if processes.alive(each)}
        inits = {each for each in found if processes.is_namespace_init(each.pid)}
        if not found:
            return
        # Nodes first and at once: the kernel takes everything inside with them, kubelet and containers alike.
        processes.end(inits, grace_s=0.0)
        processes.end(found - inits, grace_s=0.0)
    left = ", ".join(
        f"{each.pid} ({' '.join(processes.command_line(each.pid)[:2])})"
        for each in sorted(found, key=lambda each: each.pid)
    )
    raise ClusterError(f"processes of {paths.home} do not end: {left}")


def cgroup_hierarchies(mounts: str) -> list[Path]:
    """Where cgroup file systems are mounted, out of /proc/self/mounts: one of version 2, or several of version 1."""
    fields = (line.split() for line in mounts.splitlines())
    return [Path(each[1]) for each in fields if len(each) > 2 and each[2] in {"cgroup", "cgroup2"}]


def _cgroup_folders(name: str) -> Iterable[Path]:
    """Every cgroup of ``name``, children before parents."""
    for hierarchy in cgroup_hierarchies(Path("/proc/self/mounts").read_text(encoding="utf-8")):
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            yield Path(folder)


def _cgroup_members(name: str) -> Iterable[Identity]:
    for folder in _cgroup_folders(name):
        with contextlib.suppress(OSError):
            for line in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                if (found := processes.identify(int(line))) is not None:
                    yield found


def _remove_cgroups(name: str) -> None:
    deadline = time.monotonic() + _CGROUP_S
    while folders := list(_cgroup_folders(name)):
        for folder in folders:
            with contextlib.suppress(OSError):  # busy while the kernel still buries a member; the next round gets it
                folder.rmdir()
        if time.monotonic() > deadline:
            raise ClusterError(f"cgroup {folders[-1]} cannot be removed")
        time.sleep(0.02)


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Mount points below ``folder``, deepest first, out of /proc/self/mountinfo."""
    points = (line.split()[4] for line in mountinfo.splitlines() if line)
    decoded = (point.encode().decode("unicode_escape") for point in points)
    return sorted((point for point in decoded if Path(point).is_relative_to(folder)), key=len, reverse=True)


def _remove_files(paths: ClusterPaths) -> None:
    # A node's mounts are its own and gone with it. One that is still here is a person's: deleting through it could
    # delete what is not ours.
    if found := mounts_below(paths.home, Path("/proc/self/mountinfo").read_text(encoding="utf-8")):
        raise ClusterError(f"something is mounted in {paths.home}: umount {' '.join(found)}")
    if paths.home.exists():
        shutil.rmtree(paths.home)
    with contextlib.suppress(OSError):  # others live there, or it was never made
        paths.home.parent.rmdir()
