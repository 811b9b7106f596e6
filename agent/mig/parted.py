"""mig-parted's configuration file (``version: v1``, ``mig-configs``), read as it is and turned into wishes. Pure.

    version: v1
    mig-configs:
      all-1g.10gb:
      - device-filter: ["0x233010DE"]     # PCI device and vendor id; optional
        devices: all                      # or [0, 3]
        mig-enabled: true
        mig-devices: {"1g.10gb": 7}

An entry later in a configuration stands over an earlier one for the GPUs that both mean, as mig-parted applies them.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from agent.mig.outcomes import Wish
from inventory.devices import Gpu
from inventory.gpulayout import WhenBusy
from inventory.ids import GpuUuid
from yamlfile import Document, Kind, Place, parse_text
from yamlfile.parsers import BOOL, TEXT, integer

_FILTER = re.compile(r"0x[0-9a-fA-F]{8}")
_PROFILE = re.compile(r"(\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb([+-][a-z.]+)*")
MAX_COUNT = 64


class PartedEntry(Struct, frozen=True):
    """One entry. ``filters`` empty: any board; ``indexes`` None: all GPUs."""

    enabled: bool
    profiles: tuple[str, ...] = ()
    filters: tuple[int, ...] = ()
    indexes: tuple[int, ...] | None = None


Configurations = Mapping[str, tuple[PartedEntry, ...]]


def parse(text: str, file: str) -> Configurations:
    """The configurations by name. Raises ConfigError, one line with the line number."""
    place = Place(Document(file=file), "", parse_text(text, file))
    fields = place.fields(("version", "mig-configs"))
    version = fields.get("version")
    if version is None or version.node.text != "v1":
        raise (version or place).error("version: v1")
    if "mig-configs" not in fields:
        raise place.error("the key mig-configs", "none")
    return {name: tuple(_entry(item) for item in found.items()) for name, found in fields["mig-configs"].children()}


def _entry(place: Place) -> PartedEntry:
    fields = place.fields(("device-filter", "devices", "mig-enabled", "mig-devices"))
    for key in ("devices", "mig-enabled"):
        if key not in fields:
            raise place.error(f"the key {key}", "none")
    profiles = _profiles(fields["mig-devices"]) if "mig-devices" in fields else ()
    enabled = bool(fields["mig-enabled"].value(BOOL))
    if profiles and not enabled:
        raise fields["mig-devices"].error("no instances where mig-enabled is false")
    return PartedEntry(
        enabled=enabled,
        profiles=profiles,
        filters=_filters(fields["device-filter"]) if "device-filter" in fields else (),
        indexes=_devices(fields["devices"]),
    )


def _profiles(place: Place) -> tuple[str, ...]:
    found: list[str] = []
    for name, item in place.children():
        if not _PROFILE.fullmatch(name):
            raise item.error("a MIG profile as the key, e.g. 1g.10gb", repr(name[:40]))
        found += [name] * int(item.value(integer(0, MAX_COUNT)))
    return tuple(found)


def _filters(place: Place) -> tuple[int, ...]:
    items = place.items() if place.node.kind is Kind.LIST else [place]
    found: list[int] = []
    for item in items:
        # YAML reads a bare 0x233010DE as a number; its text is the same.
        if not _FILTER.fullmatch(item.node.text):
            raise item.error("a PCI device id and vendor id such as 0x233010DE")
        found.append(int(item.node.text, 16))
    return tuple(found)


def _devices(place: Place) -> tuple[int, ...] | None:
    if place.node.kind is not Kind.LIST:
        if place.value(TEXT) != "all":
            raise place.error("all, or a list of GPU indexes")
        return None
    return tuple(int(item.value(integer(0, 4095))) for item in place.items())


def wishes(entries: Sequence[PartedEntry], gpus: Sequence[Gpu], when_busy: WhenBusy) -> dict[GpuUuid, Wish]:
    """What a configuration means for these GPUs. One without MIG has no wish, unless MIG is asked of it by index."""
    found: dict[GpuUuid, Wish] = {}
    for entry in entries:
        for gpu in gpus:
            if entry.filters and gpu.pci_device_id not in entry.filters:
                continue
            if entry.indexes is not None and gpu.index not in entry.indexes:
                continue
            if not gpu.mig_capable and gpu.readable and (entry.indexes is None or not entry.enabled):
                continue
            found[gpu.uuid] = Wish(entry.profiles if entry.enabled else None, when_busy)
    return found


def missing(entries: Sequence[PartedEntry], gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Indexes that the configuration names and that are not there."""
    there = {gpu.index for gpu in gpus}
    return tuple(sorted({index for entry in entries for index in entry.indexes or () if index not in there}))
