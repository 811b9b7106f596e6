"""ResourceSlices of one node: the objects for its devices, and the writes that bring the server's objects in line with
them. Pure.

    contents(offer) -> wanted slices; sync(found, wanted) -> Sync: deletes, updates and creates, in that order

A slice has devices or counter sets, never both (a rule of the API since 1.35). Those with counter sets come first: an
API server that drops them is found out before a device is written that names one. Readers take a pool for complete
where all slices of its highest generation are there, ``resourceSliceCount`` of them: so a change of one slice keeps the
generation, any other raises it on all.
Source: resource.k8s.io/v1 ``ResourceSlice``; limits as in its validation.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from agent.dra.publishing.devices import DraDevice, Offer, values
from agent.dra.publishing.partitions import CounterSet
from kube.objects import ObjectMeta
from kube.resources import Resource

RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
MAX_DEVICES: Final = 64
"""The most devices in a slice. The API allows 128 where no device has taints or counters, but slices that change their
size with a taint would rewrite slices that have nothing to do with it.
"""
MAX_COUNTER_SETS: Final = 8
DEVICES: Final = "devices"
COUNTERS: Final = "sharedCounters"
CONSUMES: Final = "consumesCounters"
CAPACITY: Final = "capacity"
SHARED: Final = "allowMultipleAllocations"
POLICY: Final = "requestPolicy"
MAX_NAME: Final = 253


NOTHING: Final = msgspec.Raw(b"[]")
Items = Sequence[Mapping[str, Any]]
"""A list of a slice's ``spec``: devices or counter sets, as JSON objects."""


class SliceSpec(Struct, frozen=True, rename="camel"):
    """The fields of ``spec`` that the driver writes. Lists stay undecoded: a node has hundreds of devices, which are
    looked into one slice at a time.
    """

    driver: str
    pool: Mapping[str, Any]
    node_name: str = ""
    devices: msgspec.Raw = NOTHING
    shared_counters: msgspec.Raw = NOTHING

    @property
    def generation(self) -> int:
        return int(self.pool.get("generation", 0))

    @property
    def count(self) -> int:
        return int(self.pool.get("resourceSliceCount", 0))


class FoundSlice(Struct, frozen=True):
    """A slice on the server."""

    metadata: ObjectMeta
    spec: SliceSpec


class Content(Struct, frozen=True):
    """The content of one slice beside its pool: devices or counter sets."""

    devices: tuple[DraDevice, ...] = ()
    counters: tuple[CounterSet, ...] = ()

    @property
    def field(self) -> str:
        return COUNTERS if self.counters else DEVICES

    @property
    def items(self) -> Items:
        """The devices or counter sets as the API writes them."""
        sets = [{"name": each.name, "counters": values(each.counters)} for each in self.counters]
        return sets or [device.content() for device in self.devices]


class Sync(Struct, frozen=True):
    """The writes that bring the pool in line. ``updates`` carry the resourceVersion that they were made from."""

    deletes: tuple[FoundSlice, ...] = ()
    updates: tuple[Mapping[str, Any], ...] = ()
    creates: tuple[Mapping[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.updates or self.creates)


class Pool(Struct, frozen=True):
    """The driver and the node that slices belong to: ``owner`` is the Node's reference, as JSON."""

    driver: str
    node_name: str
    owner: Mapping[str, Any]

    def slice_name(self, index: int) -> str:
        """The name of the slice with this index. It is fixed, so that a create whose answer was lost makes no second
        slice; readers go by name.
        """
        name = f"{index:05x}-{self.driver}-{self.node_name}"
        if len(name) <= MAX_NAME:
            return name
        digest = sha256(name.encode()).hexdigest()[:16]
        return f"{name[: MAX_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def contents(offer: Offer) -> tuple[Content, ...]:
    """The content of each slice. A pool without devices has one empty slice: without any slice the pool would not
    exist.

    A GPU that shares counters with its parts has slices of its own, so that its taint rewrites no other GPU's.
    """
    plain = tuple(device for device in offer.devices if device.consumes is None)
    divided: dict[str, list[DraDevice]] = {}
    for device in offer.devices:
        if device.consumes is not None:
            divided.setdefault(device.gpu, []).append(device)
    groups = [plain, *map(tuple, divided.values())]
    sets = range(0, len(offer.counters), MAX_COUNTER_SETS)
    return (
        *(Content(counters=offer.counters[at : at + MAX_COUNTER_SETS]) for at in sets),
        *(
            Content(devices=group[at : at + MAX_DEVICES])
            for group in groups
            for at in range(0, len(group), MAX_DEVICES)
        ),
    ) or (Content(),)


def sync(
    pool: Pool, found: Sequence[FoundSlice], wanted: Sequence[Content], unkept: Collection[str] = frozenset()
) -> Sync:
    """The writes that lead from the ``found`` slices of this driver on this node to ``wanted``; none where all are as
    wanted. Slices that lack only ``unkept`` fields, which the server drops, count as such, or they would be written
    without end.
    """
    by_name = {each.metadata.name: each for each in found}
    names = [pool.slice_name(index) for index in range(len(wanted))]
    known = [by_name.get(name) for name in names]
    deletes = tuple(each for each in found if each.metadata.name not in names)
    same = [there is not None and _same(there, content, unkept) for there, content in zip(known, wanted, strict=True)]
    generation = _generation(found, known, same, deletes)
    updates: list[Mapping[str, Any]] = []
    creates: list[Mapping[str, Any]] = []
    for name, there, content, stays in zip(names, known, wanted, same, strict=True):
        about = {"name": pool.node_name, "generation": generation, "resourceSliceCount": len(wanted)}
        if there is None:
            creates.append(_body(pool, name, about, (content.field, content.items), None))
        elif (there.spec.generation, there.spec.count) != (generation, len(wanted)) or not stays:
            updates.append(_body(pool, name, about, _with_times(there, content), there))
    return Sync(deletes, tuple(updates), tuple(creates))


def dropped(sent: Mapping[str, Any], kept: FoundSlice) -> tuple[str, ...]:
    """The fields that the server took without keeping them: their feature gate is off there."""
    spec = sent["spec"]
    missing = {
        field
        for wanted, there in zip(_items(spec.get(DEVICES)), _items(kept.spec.devices), strict=False)
        for part, whole in _parts(wanted, there)
        for field in part
        if field not in whole
    }
    if COUNTERS in spec and not _items(kept.spec.shared_counters):
        missing.add(COUNTERS)
    return tuple(sorted(missing))


def fields(body: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a slice that a server may drop."""
    parts = (part for device in _items(body["spec"].get(DEVICES)) for part, _ in _parts(device, {}))
    return frozenset({COUNTERS} & set(body["spec"])).union(*parts)


def counted(body: Mapping[str, Any]) -> bool:
    """Whether a slice has counters, or devices that consume some."""
    return not fields(body).isdisjoint({COUNTERS, CONSUMES})


def _parts(
    wanted: Mapping[str, Any], there: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The parts of a device that have fields behind feature gates, each beside the server's part: the device itself and
    its capacities.
    """
    yield wanted, there
    capacities = there.get(CAPACITY) or {}
    for name, amount in wanted.get(CAPACITY, {}).items():
        yield amount, capacities.get(name) or {}


def _items(raw: msgspec.Raw | None) -> Items:
    found: Items = msgspec.json.decode(raw or NOTHING, type=list[dict[str, Any]] | None) or ()
    return found


def _generation(
    found: Sequence[FoundSlice],
    known: Sequence[FoundSlice | None],
    same: Sequence[bool],
    deletes: Sequence[FoundSlice],
) -> int:
    highest = max((each.spec.generation for each in found), default=0)
    changed = sum(there is not None and not stays for there, stays in zip(known, same, strict=True))
    uneven = {each.spec.generation for each in found} not in (set(), {highest})
    if not found:
        return 1
    if deletes or None in known or changed > 1 or uneven:
        return highest + 1
    return highest


def _same(there: FoundSlice, content: Content, unkept: Collection[str]) -> bool:
    for field, raw in ((DEVICES, there.spec.devices), (COUNTERS, there.spec.shared_counters)):
        published = [_timeless(item) for item in _items(raw)]
        wanted = content.items if field == content.field else ()
        if len(published) != len(wanted):
            return False
        if any(item != _kept(each, item, unkept) for each, item in zip(wanted, published, strict=True)):
            return False
    return True


def _kept(wanted: Mapping[str, Any], there: Mapping[str, Any], unkept: Collection[str]) -> Mapping[str, Any]:
    """``wanted`` without the ``unkept`` fields that ``there`` lacks. A field that ``there`` has, from when the server
    kept it, is compared as any other.
    """
    if not unkept:
        return wanted
    own, *amounts = (
        {field: value for field, value in part.items() if field in has or field not in unkept}
        for part, has in _parts(wanted, there)
    )
    if CAPACITY in own:
        own[CAPACITY] = dict(zip(wanted[CAPACITY], amounts, strict=True))
    return own


def _timeless(device: Mapping[str, Any]) -> dict[str, Any]:
    """The device without ``timeAdded``, which the server adds to each taint."""
    taints = device.get("taints")
    if not taints:
        return dict(device)
    shown = [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in taints]
    return {**device, "taints": shown}


def _with_times(there: FoundSlice, content: Content) -> tuple[str, Items]:
    """``content`` with the times of the taints that stay: a rewritten time would start an eviction's patience anew."""
    times = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in _items(there.spec.devices)
        for taint in device.get("taints", ())
        if "timeAdded" in taint
    }

    def timed(device: Mapping[str, Any], taint: Mapping[str, Any]) -> Mapping[str, Any]:
        at = times.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
        return taint if at is None else {**taint, "timeAdded": at}

    return content.field, [
        {**item, "taints": [timed(item, taint) for taint in item["taints"]]} if "taints" in item else item
        for item in content.items
    ]


def _body(
    pool: Pool,
    name: str,
    about: Mapping[str, Any],
    content: tuple[str, Items],
    there: FoundSlice | None,
) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [pool.owner]}
    if there is not None:
        metadata |= {"uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version}
    field, encoded = content[0], msgspec.Raw(msgspec.json.encode(content[1]))
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": metadata,
        "spec": {"driver": pool.driver, "pool": about, "nodeName": pool.node_name, field: encoded},
    }
