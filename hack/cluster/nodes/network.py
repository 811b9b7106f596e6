"""The cluster's addresses: a bridge for pods and nodes, a range for Services, and ports on loopback.

One bridge per cluster: pods of different nodes are neighbours on it, so nothing needs to be forwarded and no sysctl or
firewall rule of the machine is touched. The bridge's own address is every node's; kubelets differ in their ports.
"""

import ipaddress
import json
import os
import random
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError

Network = ipaddress.IPv4Network

# 198.18.0.0/15 is set aside for benchmarks (RFC 2544) and so hardly ever routed; the second is for where it is.
POOLS = (Network("198.18.0.0/15"), Network("10.128.0.0/9"))
_CLUSTER_PREFIX = 20
_NODE_PREFIX = 25
MAX_NODES = 2 ** (_NODE_PREFIX - _CLUSTER_PREFIX - 1) - 1
"""The first of the pod half's slices holds the bridge's own address."""

# Below the kernel's range for outgoing connections, so that none is taken between choice and use.
_PORTS = range(20000, 32000)


@dataclass(frozen=True)
class Addresses:
    """One cluster's range: the lower half for pods and nodes, the upper half for Services."""

    cluster: Network

    @property
    def pods(self) -> Network:
        return next(self.cluster.subnets(prefixlen_diff=1))

    @property
    def services(self) -> Network:
        return list(self.cluster.subnets(prefixlen_diff=1))[1]

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        """The bridge's address: InternalIP of all nodes."""
        return self.pods[1]

    @property
    def api_service(self) -> ipaddress.IPv4Address:
        """Cluster IP of the Service ``kubernetes``: the API server always gives it the first one."""
        return self.services[1]

    @property
    def dns_service(self) -> ipaddress.IPv4Address:
        return self.services[10]

    def node_slice(self, index: int) -> Network:
        """Addresses of the pods on the node ``index`` (from 0)."""
        return list(self.pods.subnets(new_prefix=_NODE_PREFIX))[index + 1]


def choose_addresses(used: Iterable[Network], *, seed: int) -> Addresses:
    """A range that overlaps none of ``used``; the search begins where ``seed`` says. ClusterError if all are taken."""
    taken = list(used)
    for pool in POOLS:
        candidates = list(pool.subnets(new_prefix=_CLUSTER_PREFIX))
        start = seed % len(candidates)
        for candidate in candidates[start:] + candidates[:start]:
            if not any(candidate.overlaps(each) for each in taken):
                return Addresses(candidate)
    raise ClusterError(f"no free address range in {', '.join(map(str, POOLS))}: all are in use by addresses or routes")


def used_networks(addresses: str, routes: str) -> list[Network]:
    """What ``ip -j -4 address`` and ``ip -j -4 route show table all`` say is in use, but for the default route."""
    networks = [
        Network((info["local"], info["prefixlen"]), strict=False)
        for link in json.loads(addresses or "[]")
        for info in link.get("addr_info", ())
        if "local" in info
    ]
    for route in json.loads(routes or "[]"):
        try:
            networks.append(Network(route.get("dst", "default"), strict=False))
        except ValueError:
            continue  # "default" and the like
    return [network for network in networks if network.prefixlen > 0]


def ip(*args: str) -> str:
    """Output of iproute2's ``ip``; ClusterError with its message if it refuses."""
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def networks_in_use() -> list[Network]:
    return used_networks(ip("-j", "-4", "address"), ip("-j", "-4", "route", "show", "table", "all"))


def has_link(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def add_bridge(name: str, addresses: Addresses) -> None:
    """Make the bridge and give it the nodes' address and those of the API's and the DNS Service."""
    # A fixed hardware address: a bridge otherwise takes that of its lowest port, and pods' ARP entries go stale.
    ip("link", "add", name, "address", "02:" + os.urandom(5).hex(":"), "type", "bridge")
    ip("address", "add", f"{addresses.gateway}/{addresses.pods.prefixlen}", "dev", name)
    for service in (addresses.api_service, addresses.dns_service):
        ip("address", "add", f"{service}/32", "dev", name)
    ip("link", "set", name, "up")


def remove_bridge(name: str) -> None:
    if has_link(name):
        ip("link", "delete", name)


def is_free(port: int, address: str = "0.0.0.0") -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT is free, one with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def choose_ports(names: Sequence[str], *, claimed: Iterable[int], rng: random.Random | None = None) -> dict[str, int]:
    """A free port for each name, none of ``claimed``."""
    left = list(set(_PORTS) - set(claimed))
    (rng or random.SystemRandom()).shuffle(left)
    chosen: dict[str, int] = {}
    wanted = list(names)
    while wanted and left:
        if is_free(port := left.pop()):
            chosen[wanted.pop()] = port
    if wanted:
        raise ClusterError(f"no free port between {_PORTS.start} and {_PORTS.stop} for {', '.join(wanted)}")
    return chosen
