"""The vendor capability of a virtual GPU tells its host's driver; any other bytes tell nothing and break nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.vgpu import VgpuHost, read_vgpu, vendor_capabilities, vgpu_host

BUS_ID = "0000:07:00.0"


def record(kind: int, data: bytes) -> bytes:
    return bytes((kind, len(data) + 2)) + data


def driver(version: bytes, branch: bytes) -> bytes:
    return record(0, version.ljust(10, b"\0") + branch.ljust(10, b"\0"))


def capability(*records: bytes, following: int = 0) -> bytes:
    body = b"VF" + b"".join(records)
    return bytes((0x09, following, len(body) + 3)) + body


def configuration(*capabilities: tuple[int, bytes], first: int = 0x40) -> bytes:
    space = bytearray(256)
    space[0x06], space[0x34] = 0x10, first
    for position, data in capabilities:
        space[position : position + len(data)] = data
    return bytes(space)


def test_the_hosts_driver_is_found_behind_other_records() -> None:
    found = vgpu_host(capability(record(1, b"abc"), driver(b"550.54.16", b"r550_00")))
    assert found == VgpuHost("550.54.16", "r550_00")


def test_the_capability_is_found_behind_others() -> None:
    msi = bytes((0x05, 0x60, 0))
    space = configuration((0x40, msi), (0x60, capability(driver(b"470.63", b"r470_46"))))
    assert [vgpu_host(one) for one in vendor_capabilities(space)] == [VgpuHost("470.63", "r470_46")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x09\x00\x05VX",
        capability(),
        capability(record(1, b"abc")),
        capability(b"\x00\x16" + b"550"),
        capability(b"\x01\x00", driver(b"1", b"2")),
    ],
    ids=["empty", "another vendor's", "no record", "no driver record", "cut off", "a record without length"],
)
def test_anything_else_is_no_virtual_gpu(data: bytes) -> None:
    assert vgpu_host(data) is None


def test_capabilities_that_point_in_a_circle_are_visited_once() -> None:
    space = configuration((0x40, capability(following=0x60)), (0x60, capability(following=0x40)))
    assert len(list(vendor_capabilities(space))) == 2


@given(st.binary(max_size=256))
def test_no_bytes_break_it(space: bytes) -> None:
    for data in vendor_capabilities(space):
        vgpu_host(data)


def test_it_is_read_from_sysfs(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices" / BUS_ID
    folder.mkdir(parents=True)
    assert read_vgpu(tmp_path, BUS_ID) is None
    (folder / "config").write_bytes(configuration((0x40, capability(driver(b"550.54.16", b"r550_00")))))
    assert read_vgpu(tmp_path, BUS_ID) == VgpuHost("550.54.16", "r550_00")
