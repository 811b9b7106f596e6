"""Removing all that a cluster left, whatever state it died in. Needs no state file: names follow from the folder.

The order matters: first processes, by kill, because only they could make something new; with a node's first process the
kernel drops its mounts and its pods' networks. Then cgroups, the bridge and at last the files.
"""

import contextlib
import shutil
from pathlib import Path

from hack.cluster import processes
from hack.cluster.errors import ClusterError
from hack.cluster.layout import ClusterPaths
from hack.cluster.nodes import cgroups, network
from hack.cluster.processes import Identity
from hack.cluster.state import State

_ROUNDS = 5


def sweep(paths: ClusterPaths, state: State | None) -> None:
    """Remove every process, cgroup, link and file of the cluster; ClusterError naming what would not go."""
    _end_processes(paths, state)
    cgroups.remove(paths.cgroup)
    network.remove_bridge(paths.bridge)
    _remove_files(paths)


def _end_processes(paths: ClusterPaths, state: State | None) -> None:
    recorded = {each for each in state.processes.values() if processes.alive(each)} if state else set()
    left_over: set[Identity] = set()
    for _ in range(_ROUNDS):
        # Again until none is found: one may have started another while the first were being ended.
        left_over = set(processes.marked(paths.home)) | set(cgroups.members(paths.cgroup))
        left_over |= {each for each in recorded if processes.alive(each)}
        inits = {each for each in left_over if processes.is_namespace_init(each.pid)}
        if not left_over:
            return
        # Nodes first and at once: the kernel takes everything inside with them, kubelet and containers alike.
        processes.end(inits, grace_s=0.0)
        processes.end(left_over - inits, grace_s=0.0)
    left = ", ".join(
        f"{each.pid} ({' '.join(processes.command_line(each.pid)[:2])})"
        for each in sorted(left_over, key=lambda each: each.pid)
    )
    raise ClusterError(f"processes of {paths.home} do not end: {left}")


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
