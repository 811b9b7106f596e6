"""The addresses of this node, from which the kubelet's probes come, whatever the cluster's network makes of them.

A probe's source is the node's own address, or that of the bridge which the pod's default route leads to. Both are known
in the pod: the first by ``--node-addresses``, the second by its routes.
"""

import ipaddress
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kube.listening.places import Group

NODE: Final = Group("node")
_FRESH_S: Final = 60.0


class OwnAddresses:
    """Tells peers of the node from others, by ``group_of``. Routes and interfaces are read anew after a minute."""

    def __init__(self, proc: Path = Path("/proc"), given: Sequence[str] = ()) -> None:
        self._proc = proc
        self._given = tuple(given)
        self._found: frozenset[str] = frozenset()
        self._read_s = float("-inf")

    def group_of(self, address: str) -> Group | None:
        """``NODE`` for an address of this node, else None."""
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return None
        peer = getattr(peer, "ipv4_mapped", None) or peer
        if peer.is_loopback:
            return NODE
        now_s = time.monotonic()
        if now_s - self._read_s >= _FRESH_S:
            self._found, self._read_s = frozenset(self._addresses()), now_s
        return NODE if str(peer) in self._found else None

    def _addresses(self) -> Iterator[str]:
        yield from self._given
        yield from gateways(_lines(self._proc / "net/route"), _lines(self._proc / "net/ipv6_route"))
        yield from local(_lines(self._proc / "net/fib_trie"), _lines(self._proc / "net/if_inet6"))


def gateways(routes: Iterable[str], routes6: Iterable[str]) -> Iterator[str]:
    """The gateways of default routes, from the kernel's tables (proc(5), IPv4 in the machine's byte order)."""
    for line in routes:
        _, to, gateway, *_ = (*line.split(), "", "", "")
        if to == "00000000" and gateway.strip("0"):
            yield str(ipaddress.IPv4Address(bytes.fromhex(gateway)[::-1]))
    for line in routes6:
        to, length, _, _, gateway, *_ = (*line.split(), "", "", "", "", "")
        if length == "00" and not to.strip("0") and gateway.strip("0"):
            yield str(ipaddress.IPv6Address(bytes.fromhex(gateway)))


def local(trie: Iterable[str], interfaces6: Iterable[str]) -> Iterator[str]:
    """The addresses of the interfaces that this process sees."""
    last = ""
    for line in trie:
        if "/32 host LOCAL" in line:
            yield last
        last = line.split()[-1] if "|--" in line else last
    for line in interfaces6:
        if fields := line.split():
            yield str(ipaddress.IPv6Address(bytes.fromhex(fields[0])))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
