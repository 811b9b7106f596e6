"""The pod of each process: pid to cgroup to container to pod, once a pass.

A cgroup names the container whatever the layout: cgroup v1 (one line a controller) and v2 (one line), the systemd and
the cgroupfs driver, containerd, CRI-O and Docker, a kubelet with a root cgroup of its own, a node that is itself a
container, and paths that begin above the reader's own cgroup namespace (``/../..``).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from agent.kubelet.containers import PodContainer, PodLookup

_ID = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
"""The cgroup of a container: ``<id>``, ``cri-containerd-<id>.scope``, ``crio-<id>.scope``, ``docker-<id>.scope``,
``libpod-<id>.scope``, ``kubepods-...:cri-containerd:<id>``.
"""
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")
"""The cgroup of a pod: ``pod<uid>`` or ``kubepods-burstable-pod<uid, underlined>.slice``; a static pod's uid is a hash
without dashes.
"""
_MONITOR = "crio-conmon-"
LONGEST = 64 << 10


class CgroupOwner(Struct, frozen=True):
    """The owner that a process's cgroup names: container ids, outermost first, and the pod's uid with dashes.

    In a pod the first container is the pod's own, the further ones run inside it. Where the cgroup names no pod
    (``pod_uid`` None) the first may be the node itself, when that is a container.
    """

    container_ids: tuple[str, ...]
    pod_uid: str | None = None


def parse(text: str) -> CgroupOwner | None:
    """The owner in ``/proc/<pid>/cgroup``; None for a process that is in no container."""
    first: CgroupOwner | None = None
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        owner = _of_path(rest.partition(":")[2])
        if owner is not None and owner.pod_uid is not None:
            return owner
        first = first or owner
    return first


def _of_path(path: str) -> CgroupOwner | None:
    """The containers below the pod's cgroup; all of them where the path names no pod."""
    uid: str | None = None
    containers: list[str] = []
    for segment in path.split("/"):
        pod = _POD.search(segment)
        if pod is not None:
            uid, containers = pod[1].replace("_", "-"), []
            continue
        container = _ID.search(segment)
        if container is not None and not segment.startswith(_MONITOR):
            containers.append(container[1])
    return CgroupOwner(tuple(containers), uid) if containers else None


def read(proc_root: Path, pid: int) -> CgroupOwner | None:
    """The owner of a process; None for one that is gone, hidden, or in no container."""
    try:
        with (proc_root / str(pid) / "cgroup").open("rb") as file:
            return parse(file.read(LONGEST).decode(errors="replace"))
    except OSError:
        return None


def owners_of(pids: Iterable[int], proc_root: Path, pods: PodLookup) -> Mapping[int, PodContainer]:
    """The pod of each process in ``pids`` that a pod runs. They are read again each time: the kernel reuses pids."""
    pods_of: dict[int, PodContainer] = {}
    for pid in set(pids):
        owner = read(proc_root, pid)
        candidates = () if owner is None else map(pods.container, owner.container_ids)
        container = next((candidate for candidate in candidates if candidate is not None), None)
        if container is not None:
            pods_of[pid] = container
    return pods_of
