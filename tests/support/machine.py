"""What a cluster could leave on a machine, taken before and after. Other clusters may come and go meanwhile."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.cluster import processes
from hack.cluster.layout import ClusterPaths
from hack.cluster.nodes import network, nodeinit

_PLACES = (
    "/etc",
    "/etc/cni",
    "/opt",
    "/run",
    "/usr/libexec",
    "/usr/libexec/kubernetes",
    "/var/lib",
    "/var/log",
    "/sys/fs/cgroup",
)
_SYSCTLS = (*nodeinit.TUNABLES, "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/all/rp_filter")


def traces(paths: ClusterPaths) -> dict[str, set[str]]:
    """Everything of the cluster that is there now, by kind; all sets are empty once it has gone."""
    home = str(paths.home)
    return {
        "processes": {
            " ".join(processes.command_line(each.pid)) for each in processes.every_process() if _names(each.pid, home)
        },
        "links": {link["ifname"] for link in _links() if paths.bridge in {link["ifname"], link.get("master")}},
        "mounts": {line for line in _lines("/proc/self/mountinfo") if home in line},
        "sockets": {line for line in _lines("/proc/net/unix") if home in line},
        # A walk passes over folders that go meanwhile: other clusters come and go beside this one.
        "cgroups": {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if Path(folder).name == paths.cgroup},
        "files": {home} if paths.home.exists() else set(),
    }


def _names(pid: int, home: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        environment = b""
    words = [*processes.command_line(pid), *map(os.fsdecode, environment.split(b"\0"))]
    return any(home in word for word in words if not word.startswith("PYTEST_")) and pid != os.getpid()


def surroundings() -> dict[str, set[str]]:
    """What no cluster may change at all, whoever starts and stops one: settings, rules, foreign links, usual places."""
    others = [link for link in _links() if not _is_a_cluster_s(link)]
    return {
        "places": {str(entry) for entry in _entries() if not entry.match("/sys/fs/cgroup/tessera-*")},
        "sysctls": {f"{name}={_lines(f'/proc/sys/{name}')}" for name in _SYSCTLS if Path("/proc/sys", name).exists()},
        "mounts": {line.split(" ", 4)[4] for line in _lines("/proc/self/mountinfo")},
        "links": {link["ifname"] for link in others},
        "addresses": {
            f"{link['ifname']} {info['local']}"
            for link in others
            for info in link.get("addr_info", ())
            if "local" in info
        },
        "rules": set(_output("nft", "list", "ruleset").splitlines()),
    }


def _entries() -> Iterator[Path]:
    for place in map(Path, _PLACES):
        if place.is_dir():
            yield from place.iterdir()


def _is_a_cluster_s(link: dict[str, Any]) -> bool:
    # A pod's end of a link hangs on its bridge, but for the moment in which it is made or the bridge is already gone.
    name, master = str(link["ifname"]), str(link.get("master", ""))
    return name.startswith(("tsr", "veth")) or master.startswith("tsr")


def _links() -> Iterator[dict[str, Any]]:
    yield from json.loads(network.ip("-j", "address"))


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""
