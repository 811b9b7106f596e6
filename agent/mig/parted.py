"""mig-parted's configuration file (``version: v1``, ``mig-configs``), read as it is and turned into wishes. Pure.

    version: v1
    mig-configs:
      all-1g.10gb:
      - device-filter: ["0x233010DE"]     # PCI device and vendor id; optional
        devices: all                      # or [0, 3]
        mig-enabled: true
        mig-devices: {"1g.10gb": 7}

The file may have all that mig-parted's reader accepts: merge keys, a key given twice (the last counts), more documents
(the first counts), a subsystem's id behind the board's (``0x233010DE:0x16C010DE``), several attributes of a profile
(``+me,gfx``).

An entry later in a configuration stands over an earlier one for the GPUs that both mean, as mig-parted applies them.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from agent.mig.outcomes import Wish
from inventory.devices import Gpu, GpuUuid
from inventory.layout.entries import WhenBusy
from yamlfile import Document, Place, YamlKind, parse_text
from yamlfile.parsers import BOOL, TEXT, integer

_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[0-7_]*|[1-9][0-9_]*)")
_OCTAL = re.compile(r"([+-]?)0_?([0-7])")
_ATTRIBUTE = r"[A-Za-z]([A-Za-z0-9.]*[A-Za-z0-9])?"
_PROFILE = re.compile(rf"(\d{{1,2}}c\.)?\d{{1,2}}g\.\d{{1,4}}gb([+-]{_ATTRIBUTE}(,{_ATTRIBUTE})*)?")
MAX_COUNT = 64
_MOST = 0x7FFFFFFF


class BoardFilter(Struct, frozen=True):
    """A board by its PCI ids, ``0xDDDDVVVV``. ``device`` None: the text is not a number and matches no board."""

    device: int | None
    subsystem: int | None = None

    def means(self, gpu: Gpu) -> bool:
        return gpu.pci_device_id == self.device and self.subsystem in (None, gpu.pci_subsystem_id)


class PartedEntry(Struct, frozen=True):
    """One entry of a configuration. ``filters`` empty: any board; ``indexes`` None: all GPUs."""

    enabled: bool
    profiles: tuple[str, ...] = ()
    filters: tuple[BoardFilter, ...] = ()
    indexes: tuple[int, ...] | None = None


Configurations = Mapping[str, tuple[PartedEntry, ...]]


class Parted(Struct, frozen=True):
    """The content of a file. ``warnings`` are lines about keys that are read and mean nothing."""

    configurations: Configurations
    warnings: tuple[str, ...] = ()


def parse(text: str, file: str) -> Parted:
    """The configurations in ``text``, by name. Raises ConfigError, one line with the line number."""
    place = Place(Document(file=file), "", parse_text(text, file, forgiving=True))
    fields = place.fields(("version", "mig-configs"))
    version = fields.get("version")
    # mig-parted takes the bare key too.
    if version.node.text != "v1" if version is not None else "version" not in place.node.entries:
        raise (version or place).error("version: v1")
    configs = place.required(fields, "mig-configs")
    if not configs.children():
        raise configs.error("at least one configuration", "an empty section")
    found = {name: tuple(_entry(item) for item in listed.items()) for name, listed in configs.children()}
    return Parted(found, tuple(place.document.warnings))


def _entry(place: Place) -> PartedEntry:
    fields = place.fields(("device-filter", "devices", "mig-enabled", "mig-devices"))
    for key in ("devices", "mig-enabled"):
        place.required(fields, key)
    enabled = bool(fields["mig-enabled"].value(BOOL))
    profiles = _profiles(fields["mig-devices"]) if "mig-devices" in fields else ()
    if profiles and not enabled:
        raise fields["mig-devices"].error("no instances where mig-enabled is false")
    entry = PartedEntry(
        enabled=enabled,
        profiles=profiles,
        filters=_filters(fields["device-filter"]) if "device-filter" in fields else (),
        indexes=_devices(fields["devices"]),
    )
    if enabled:
        place.required(fields, "mig-devices")
    return entry


def _profiles(place: Place) -> tuple[str, ...]:
    profiles: list[str] = []
    for key, item in place.children():
        # An attribute that is left empty is passed over.
        name = re.sub(r",+(?=,|$)", "", key)
        if not _PROFILE.fullmatch(name):
            raise item.error("a MIG profile as the key, e.g. 1g.10gb", repr(key[:40]))
        profiles += [name] * int(item.value(integer(0, MAX_COUNT)))
    return tuple(profiles)


_BOARD = "a PCI device id and vendor id such as 0x233010DE"


def _filters(place: Place) -> tuple[BoardFilter, ...]:
    if place.node.kind is not YamlKind.LIST:
        return (_filter(place),) if place.node.text else ()
    return tuple(_filter(item) for item in place.items())


def _filter(place: Place) -> BoardFilter:
    # YAML reads a bare 0x233010DE as a number; its text is the same.
    if place.node.kind not in (YamlKind.STRING, YamlKind.INT):
        raise place.error(_BOARD)
    device, *more = (_number(part) for part in place.node.text.split(":"))
    if device is None or len(more) > 1 or None in more:
        # mig-parted reads this as an entry for a board that does not exist, not as a broken file.
        place.warn(f"found {place.node.describe()}, expected {_BOARD}: no GPU is meant")
        return BoardFilter(None)
    return BoardFilter(device, *more)


def _number(text: str) -> int | None:
    """The number that Go's ``strconv.ParseInt(text, 0, 32)`` makes of ``text``; None where it refuses."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value = int(_OCTAL.sub(r"\g<1>0o\2", text, count=1) if _OCTAL.match(text) else text, 0)
    except ValueError:
        return None
    return value if -_MOST - 1 <= value <= _MOST else None


def _devices(place: Place) -> tuple[int, ...] | None:
    if place.node.kind is not YamlKind.LIST:
        if place.value(TEXT) != "all":
            raise place.error("all, or a list of GPU indexes")
        return None
    return tuple(int(item.value(integer(0, 4095))) for item in place.items())


def wishes(entries: Sequence[PartedEntry], gpus: Sequence[Gpu], when_busy: WhenBusy) -> dict[GpuUuid, Wish]:
    """The wishes of a configuration for these GPUs. A GPU without MIG has no wish, unless MIG is asked of it by
    index.
    """
    by_gpu: dict[GpuUuid, Wish] = {}
    for entry in entries:
        for gpu in gpus:
            if entry.filters and not any(board.means(gpu) for board in entry.filters):
                continue
            if entry.indexes is not None and gpu.index not in entry.indexes:
                continue
            if not gpu.mig_capable and gpu.readable and (entry.indexes is None or not entry.enabled):
                continue
            by_gpu[gpu.uuid] = Wish(entry.profiles if entry.enabled else None, when_busy)
    return by_gpu


def missing(entries: Sequence[PartedEntry], gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Indexes that the configuration names and that are not there."""
    there = {gpu.index for gpu in gpus}
    return tuple(sorted({index for entry in entries for index in entry.indexes or () if index not in there}))
