"""Whose connections are the node's own: the kubelet's probes come from there."""

from pathlib import Path

import pytest

from agent.serving.ownaddresses import NODE, OwnAddresses, gateways, local

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0114F40A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0014F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
NO6, ANY6 = f"{0:032x} 00", f"{0:032x}"
ROUTES6 = f"""fd{0:030x} 40 {NO6} {ANY6} 00000100 1 0 1 eth0
{ANY6} 00 {NO6} fd{1:030x} 00000400 1 0 3 eth0
"""
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
Local:
  +-- 10.244.20.0/24 2 0 2
     |-- 10.244.20.17
        /32 host LOCAL
     |-- 10.244.20.255
        /32 link BROADCAST
"""


def test_gateways_are_those_of_default_routes() -> None:
    assert list(gateways(ROUTES.splitlines(), ROUTES6.splitlines())) == ["10.244.20.1", "fd00::1"]


def test_local_addresses_are_those_of_interfaces() -> None:
    interfaces6 = ["fe8000000000000000fc00fffe000001 02 40 20 80     eth0"]
    assert list(local(TRIE.splitlines(), interfaces6)) == ["10.244.20.17", "fe80::fc:ff:fe00:1"]


@pytest.fixture
def own(tmp_path: Path) -> OwnAddresses:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "route").write_text(ROUTES)
    (tmp_path / "net" / "fib_trie").write_text(TRIE)
    return OwnAddresses(tmp_path, given=["192.168.1.7", "fd00:7::1"])


@pytest.mark.parametrize(
    "address",
    ["192.168.1.7", "fd00:7::1", "10.244.20.1", "10.244.20.17", "127.0.0.1", "127.8.8.8", "::1", "::ffff:10.244.20.1"],
)
def test_addresses_of_the_node_are_its_own(own: OwnAddresses, address: str) -> None:
    assert own.group_of(address) == NODE


@pytest.mark.parametrize("address", ["10.244.20.18", "192.168.1.8", "fd00:7::2", "local", "", "10.244.20.255"])
def test_other_addresses_are_not(own: OwnAddresses, address: str) -> None:
    assert own.group_of(address) is None


def test_a_machine_without_those_tables_has_what_it_was_given(tmp_path: Path) -> None:
    own = OwnAddresses(tmp_path / "nowhere", given=["192.168.1.7"])
    assert own.group_of("192.168.1.7") == NODE
    assert own.group_of("10.244.20.1") is None
