"""The parts of a config file that are more than one value: what is advertised, how it is shared, what XIDs mean.

Grammar and rules of ``resources`` and ``sharing`` are NVIDIA's (device plugin, config API v1). What its plugin parses
and then ignores (``resources``, ``rename``, ``devices``) works here.
"""

import re
from typing import Any

from agent.config.layoutsection import SECTION, distinct_refs
from agent.config.reader import Reader
from agent.health.settings import XidOverride
from agent.health.xids import FaultClass, XidScope
from inventory.devices import ResourceName
from inventory.layout.sharing import DeviceSelector, ReplicatedResource, Replication, ResourcePattern, SharingMode
from yamlfile import Place, YamlKind
from yamlfile.parsers import BOOL, TEXT, Parser, integer, one_of

PREFIX = "nvidia.com/"
MAX_NAME = 63

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d{{1,4}}(:\d{{1,4}})?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")
_SHARING_KEYS = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
_ENTRY_KEYS = ("name", "rename", "devices", "replicas")


def _version(place: Place, _: dict[str, Any]) -> None:
    if place.node.kind is not YamlKind.STRING or place.node.text not in ("", "v1"):
        raise place.error("v1")


def _name(place: Place) -> ResourceName:
    """A resource name; NVIDIA's prefix is added where it is missing."""
    text: str = place.value(TEXT)
    name = text if text.startswith(PREFIX) else PREFIX + text
    if len(name) > MAX_NAME:
        raise place.error(f"at most {MAX_NAME} characters with {PREFIX}", f"{len(name)} characters")
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)):
        raise place.error(f"{PREFIX} and a DNS subdomain (lower case letters, digits, - and .)")
    return ResourceName(name)


# -- resources ---------------------------------------------------------------------------------------------------


def _patterns(target: str) -> Reader:
    def read(place: Place, values: dict[str, Any]) -> None:
        patterns: list[ResourcePattern] = []
        for item in place.items():
            fields = item.fields(("pattern", "name"))
            pattern: str = item.required(fields, "pattern").value(TEXT)
            if not pattern:
                raise fields["pattern"].error("a pattern, e.g. * for everything")
            if any(known.pattern == pattern for known in patterns):
                fields["pattern"].warn("the pattern stands above already: this one never matches")
            patterns.append(ResourcePattern(pattern, _name(item.required(fields, "name"))))
        if patterns:
            values[target] = tuple(patterns)

    return read


# -- sharing -----------------------------------------------------------------------------------------------------


def _time_slicing(place: Place, values: dict[str, Any]) -> None:
    found = read_replication(place, SharingMode.TIME_SLICING, one_by_default=False)
    # NVIDIA's plugin takes the section mps where both are there.
    values.setdefault("layout.replication", found)


def _mps(place: Place, values: dict[str, Any]) -> None:
    values["layout.replication"] = read_replication(place, SharingMode.MPS, one_by_default=True)


def read_replication(place: Place, mode: SharingMode, *, one_by_default: bool) -> Replication:
    """A section of ``sharing``. ``one_by_default``: requests above one fail unless the file says otherwise."""
    fields = place.fields(_SHARING_KEYS)
    resources = place.required(fields, "resources")
    entries = [(item, _entry(item)) for item in resources.items()]
    if not entries:
        raise resources.error("at least one resource", "an empty list")
    _tell_overlaps(entries)
    one_at_most = _flag(fields, "failRequestsGreaterThanOne", default=one_by_default)
    return Replication(
        mode=mode,
        rename_by_default=_flag(fields, "renameByDefault", default=False),
        fail_requests_greater_than_one=one_at_most,
        resources=tuple(entry for _, entry in entries),
    )


def _flag(fields: dict[str, Place], key: str, *, default: bool) -> bool:
    return bool(fields[key].value(BOOL)) if key in fields else default


def _entry(item: Place) -> ReplicatedResource:
    fields = item.fields(_ENTRY_KEYS)
    return ReplicatedResource(
        name=_name(item.required(fields, "name")),
        replicas=item.required(fields, "replicas").value(integer(2, _MOST_REPLICAS)),
        rename=_name(fields["rename"]) if "rename" in fields else None,
        devices=_selector(fields["devices"]) if "devices" in fields else DeviceSelector(),
    )


_MOST_REPLICAS = 2**31 - 1
"""The largest signed 32-bit integer. How many replicas fit on a node follows from its GPUs, which
``inventory.layout.layout.plan`` looks at.
"""
_DEVICES = "all, a count, or a list of indexes (0), MIG indexes (0:1) and UUIDs"


def _selector(place: Place) -> DeviceSelector:
    """Read ``all``, a count, or a list of devices."""
    if place.node.kind is YamlKind.STRING and place.node.text == "all":
        return DeviceSelector()
    if place.node.kind is YamlKind.LIST and place.is_empty:
        place.warn("an empty list: read as all, as without the key")
        return DeviceSelector()
    if place.node.whole is not None:
        return DeviceSelector(count=place.value(integer(1, 9999)))
    if place.node.kind is not YamlKind.LIST:
        raise place.error(_DEVICES)
    refs = distinct_refs(place, _DEVICE, "an index (0), a MIG index (0:1) or a UUID", "each device once")
    return DeviceSelector(refs=refs)


def _tell_overlaps(entries: list[tuple[Place, ReplicatedResource]]) -> None:
    """Warn of two entries for one device, naming both. The one with the larger number counts, or under two names the
    first one (``inventory.layout.layout``).

    Only overlaps that the file alone shows are found; UUIDs are compared as written.
    """
    for position, (place, entry) in enumerate(entries):
        for earlier_place, earlier in entries[:position]:
            if earlier.name != entry.name:
                continue
            shared = _shared_device(earlier.devices, entry.devices)
            if shared:
                larger = entry.rename == earlier.rename and entry.replicas > earlier.replicas
                counts = "this one's larger number counts" if larger else f"{earlier_place.path} counts"
                place.warn(f"{shared} of {entry.name} a second time: {counts}")
                break


def _shared_device(a: DeviceSelector, b: DeviceSelector) -> str:
    """The devices that both selectors surely have, in words; empty when the file does not show any."""
    if a.is_all or b.is_all:
        return "all devices"
    if a.count is not None and b.count is not None:
        return "the first devices"
    if a.count is not None or b.count is not None:
        count = a.count if a.count is not None else b.count or 0
        # The first devices of a resource need not be the GPUs of those indexes, but GPU 0 always comes first.
        return "device 0" if count > 0 and "0" in (*a.refs, *b.refs) else ""
    for ref in b.refs:
        gpu = ref.partition(":")[0]
        if ref in a.refs or gpu in a.refs:
            return f"device {ref}"
        inside = next((other for other in a.refs if other.startswith(f"{ref}:")), None)
        if inside is not None:
            return f"device {inside}"
    return ""


# -- health ------------------------------------------------------------------------------------------------------

_CLASS: Parser = one_of(FaultClass)
_SCOPE: Parser = one_of(XidScope)


def _xids(place: Place, values: dict[str, Any]) -> None:
    overrides: dict[int, XidOverride] = {}
    for key, item in place.children():
        if not re.fullmatch(r"\d{1,9}", key):
            raise item.error("an XID as the key", repr(key[:40]))
        if item.is_null:
            continue
        fields = item.fields(("class", "scope", "action"))
        overrides[int(key)] = XidOverride(
            fault_class=fields["class"].value(_CLASS) if "class" in fields else None,
            scope=fields["scope"].value(_SCOPE) if "scope" in fields else None,
            action=fields["action"].value(TEXT) if "action" in fields else None,
        )
    values["health.xids"] = overrides


SPECIAL: dict[str, Reader] = {
    "version": _version,
    "resources.gpus": _patterns("layout.gpu_patterns"),
    "resources.mig": _patterns("layout.mig_patterns"),
    "sharing.timeSlicing": _time_slicing,
    "sharing.mps": _mps,
    "health.xids": _xids,
    "layout": SECTION,
}
"""Readers of the sections that are not plain settings, by key path."""
