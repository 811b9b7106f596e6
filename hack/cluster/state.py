"""What a cluster is, as one JSON file. Written before each act, so that whatever was begun can be undone.

``phase`` is ``starting`` from before the first act until everything is ready. A file that says ``starting`` while no
``up`` holds the cluster's lock is the trace of a crash.
"""

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hack.cluster.errors import ClusterError
from hack.cluster.nodes.network import Addresses, Network
from hack.cluster.processes import Identity

Phase = Literal["starting", "up"]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What the caller asked for."""

    nodes: tuple[str, ...] = ("node-1",)
    """Names of the nodes with a kubelet of their own; empty for a control plane alone."""
    kwok_nodes: int = 0
    """Nodes played by kwok, named kwok-0 and on."""
    kwok_capacity: dict[str, str] = field(default_factory=dict)
    """Resources of each kwok node, e.g. ``{"nvidia.com/gpu": "8"}``, over the usual cores, memory and pods."""
    apiserver_args: tuple[str, ...] = ()
    controller_manager_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    kubelet_config: dict[str, Any] = field(default_factory=dict)
    """Keys laid over each KubeletConfiguration, e.g. ``{"topologyManagerPolicy": "best-effort"}``."""
    dns: bool = False
    """CoreDNS answers pods for the names of Services and of pods that have a subdomain."""


@dataclass(frozen=True, kw_only=True)
class State:
    spec: Spec
    phase: Phase
    cluster_cidr: str
    ports: dict[str, int]
    processes: dict[str, Identity] = field(default_factory=dict)
    """Control plane components, kwok, and each node's first process as ``init-NODE``."""
    binaries: dict[str, str] = field(default_factory=dict)
    """Folder of each build that this cluster runs, by its name."""
    audit: str = ""
    """Folder of the audit policy and of the log that is written by it; empty for none."""

    @property
    def addresses(self) -> Addresses:
        return Addresses(Network(self.cluster_cidr))

    def with_process(self, name: str, identity: Identity) -> "State":
        return dataclasses.replace(self, processes={**self.processes, name: identity})


def encode(state: State) -> str:
    return json.dumps({"version": 1, **dataclasses.asdict(state)}, indent=1) + "\n"


def decode(text: str) -> State:
    """The state in ``text``; ClusterError if it is none (a later version's, or damaged)."""
    try:
        data = json.loads(text)
        if data.pop("version") != 1:
            raise ValueError("another version's")  # noqa: TRY301 - joins the ways in which a file is no state of ours
        spec = data.pop("spec")
        lists = ("nodes", "apiserver_args", "controller_manager_args", "scheduler_args")
        return State(
            spec=Spec(**{**spec, **{key: tuple(spec[key]) for key in lists}}),
            processes={name: Identity(**found) for name, found in data.pop("processes").items()},
            **data,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"no state of a cluster: {error}") from None


def load(path: Path) -> State | None:
    """The state in ``path``; None where there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return decode(text)
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from None


def save(path: Path, state: State) -> None:
    """Replace ``path`` at once: a reader, or a crash, sees the old state or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(encode(state), encoding="utf-8")
    fresh.replace(path)


def claimed_ports(root: Path) -> set[int]:
    """Ports that other clusters below ``root`` have chosen, listening or not."""
    ports: set[int] = set()
    for path in root.glob("*/state.json"):
        with contextlib.suppress(ClusterError, OSError):
            found = load(path)
            ports.update(found.ports.values() if found else ())
    return ports


def make_private(folder: Path) -> None:
    """Make ``folder`` (and what it lies in) for its owner only; ClusterError if it belongs to somebody else."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if info.st_uid != os.geteuid() or folder.is_symlink():
        raise ClusterError(f"{folder}: belongs to user {info.st_uid} or is a link, expected a folder of our own")
