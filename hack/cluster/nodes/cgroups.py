"""A node's cgroup, in every hierarchy that the machine has: one of version 2, or several of version 1.

All containers of a node lie below it, so that their cgroups can be found and removed by the cluster's name.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hack.cluster import processes
from hack.cluster.errors import ClusterError
from hack.cluster.processes import Identity

_KIND_FIELD = 2
_REMOVE_S = 60.0
_WANTED = frozenset({"cpu", "cpuset", "hugetlb", "io", "memory", "pids"})


def hierarchies(mounts: str) -> list[Path]:
    """Where cgroup file systems are mounted, out of /proc/self/mounts."""
    fields = (line.split() for line in mounts.splitlines())
    return [Path(each[1]) for each in fields if len(each) > _KIND_FIELD and each[_KIND_FIELD] in {"cgroup", "cgroup2"}]


def _all_hierarchies() -> list[Path]:
    return hierarchies(Path("/proc/self/mounts").read_text(encoding="utf-8"))


def make(name: str) -> None:
    """Make the cgroup ``name`` (a path below the root) everywhere; OSError if the kernel refuses."""
    for hierarchy in _all_hierarchies():
        folder = hierarchy
        for part in Path(name).parts:
            _pass_down_controllers(folder)
            folder /= part
            folder.mkdir(exist_ok=True)


def _pass_down_controllers(folder: Path) -> None:
    """Let children have the controllers that a kubelet asks for. Version 1 has neither the file nor the need."""
    available = folder / "cgroup.controllers"
    if available.exists():
        for controller in sorted(_WANTED & set(available.read_text(encoding="ascii").split())):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _folders(name: str) -> Iterator[Path]:
    """The cgroup ``name`` and all below it, children before parents."""
    for hierarchy in _all_hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            yield Path(folder)


def members(name: str) -> Iterable[Identity]:
    """Living processes in the cgroup ``name`` and below."""
    for folder in _folders(name):
        with contextlib.suppress(OSError):
            for line in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                if (found := processes.identify(int(line))) is not None:
                    yield found


def remove(name: str) -> None:
    """Remove the cgroup ``name`` with all below it; ClusterError if a member stays in one."""
    deadline = time.monotonic() + _REMOVE_S
    while folders := list(_folders(name)):
        for folder in folders:
            with contextlib.suppress(OSError):  # busy while the kernel still buries a member; the next round gets it
                folder.rmdir()
        if time.monotonic() > deadline:
            raise ClusterError(f"cgroup {folders[-1]} cannot be removed")
        time.sleep(0.01)
