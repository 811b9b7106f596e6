"""Whether a GPU is a virtual one, and which driver its host runs: from a vendor capability in its PCI configuration.

Layout, as GPU feature discovery reads it: capability id 0x09, next pointer, length, the signature ``VF``, then records
of (id, length with these two bytes, data). Record 0 holds the host driver's version and branch, ten bytes each, padded
with zeros. The bytes come from a device: none of them is believed.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

STATUS = 0x06
HAS_CAPABILITIES = 0x10
FIRST_CAPABILITY = 0x34
VENDOR_SPECIFIC = 0x09
SIGNATURE = b"VF"
RECORDS = 5
TEXT_BYTES = 10
DRIVER_RECORD = 0


class VgpuHost(Struct, frozen=True):
    """The host's driver, as a virtual GPU's PCI vendor capability names it."""

    driver_version: str
    driver_branch: str


def read_vgpu(sys_root: Path, bus_id: str) -> VgpuHost | None:
    """The host of the virtual GPU at ``bus_id``; None for a real GPU, or where sysfs shows less than it should."""
    try:
        config = (sys_root / "bus/pci/devices" / bus_id / "config").read_bytes()
    except OSError:
        return None
    return next((host for host in map(vgpu_host, vendor_capabilities(config)) if host is not None), None)


def vendor_capabilities(config: bytes) -> Iterator[bytes]:
    """The vendor-specific capabilities in a device's configuration space; each is visited once, however they point."""
    if len(config) <= FIRST_CAPABILITY or not config[STATUS] & HAS_CAPABILITIES:
        return
    position, seen = config[FIRST_CAPABILITY] & ~3, set[int]()
    while position and position not in seen and position + 2 < len(config):
        seen.add(position)
        if config[position] == VENDOR_SPECIFIC:
            yield config[position : position + config[position + 2]]
        position = config[position + 1] & ~3


def vgpu_host(capability: bytes) -> VgpuHost | None:
    """The host that a vendor capability names; None when the capability is not a virtual GPU's, or broken off."""
    if capability[3:RECORDS] != SIGNATURE:
        return None
    position = RECORDS
    while position + 2 <= len(capability):
        kind, length = capability[position], capability[position + 1]
        if kind == DRIVER_RECORD:
            data = capability[position + 2 : position + 2 + 2 * TEXT_BYTES]
            return VgpuHost(_text(data[:TEXT_BYTES]), _text(data[TEXT_BYTES:])) if len(data) == 2 * TEXT_BYTES else None
        if length == 0:
            return None
        position += length
    return None


def _text(data: bytes) -> str:
    return data.strip(b"\0").decode("ascii", errors="replace")
