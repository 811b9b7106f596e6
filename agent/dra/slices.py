"""ResourceSlices of one node: from its devices to the objects, and from what lies on the server to what must be
written. Pure.

    contents(devices) -> wanted slices; sync(found, wanted) -> Sync: deletes, updates and creates, in that order

Readers take a pool for complete where all slices of its highest generation are there, ``resourceSliceCount`` of them:
so a change of one slice keeps the generation, any other raises it on all.
Source: resource.k8s.io/v1 ``ResourceSlice``; limits as in its validation.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from agent.dra.devices import DraDevice
from kube.objects import ObjectMeta
from kube.resources import Resource

RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
MAX_DEVICES: Final = 64
"""128 are allowed where no device has taints or counters: chunks that change their size with a taint would rewrite
slices that have nothing to do with it."""
MAX_NAME: Final = 253


class SliceSpec(Struct, frozen=True, rename="camel"):
    """``spec`` as far as it is ours. ``devices`` are JSON objects, without ``timeAdded`` in their taints."""

    driver: str
    pool: Mapping[str, Any]
    node_name: str = ""
    devices: tuple[Mapping[str, Any], ...] = ()

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
        """Fixed for each index, so that a create whose answer was lost makes no second one; readers go by name."""
        name = f"{index:05x}-{self.driver}-{self.node_name}"
        if len(name) <= MAX_NAME:
            return name
        digest = sha256(name.encode()).hexdigest()[:16]
        return f"{name[: MAX_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def contents(devices: Sequence[DraDevice]) -> tuple[tuple[Mapping[str, Any], ...], ...]:
    """The devices of each slice. A pool without devices has one empty slice: without any it would not exist."""
    found = [device.content() for device in devices]
    return tuple(tuple(found[at : at + MAX_DEVICES]) for at in range(0, max(1, len(found)), MAX_DEVICES))


def sync(pool: Pool, found: Sequence[FoundSlice], wanted: Sequence[Sequence[Mapping[str, Any]]]) -> Sync:
    """From the ``found`` slices of this driver on this node to ``wanted``. Nothing where all is as it should be."""
    by_name = {each.metadata.name: each for each in found}
    names = [pool.slice_name(index) for index in range(len(wanted))]
    known = [by_name.get(name) for name in names]
    deletes = tuple(each for each in found if each.metadata.name not in names)
    generation = _generation(found, known, wanted, deletes)
    updates: list[Mapping[str, Any]] = []
    creates: list[Mapping[str, Any]] = []
    for name, there, devices in zip(names, known, wanted, strict=True):
        about = {"name": pool.node_name, "generation": generation, "resourceSliceCount": len(wanted)}
        if there is None:
            creates.append(_body(pool, name, about, devices, None))
        elif (there.spec.generation, there.spec.count) != (generation, len(wanted)) or not _same(there, devices):
            updates.append(_body(pool, name, about, _with_times(there, devices), there))
    return Sync(deletes, tuple(updates), tuple(creates))


def dropped(sent: Mapping[str, Any], kept: FoundSlice) -> tuple[str, ...]:
    """The fields of devices that the server took without keeping them: their feature gate is off there."""
    missing = {
        field
        for wanted, there in zip(sent["spec"]["devices"], kept.spec.devices, strict=False)
        for field in wanted
        if field not in there
    }
    return tuple(sorted(missing))


def _generation(
    found: Sequence[FoundSlice],
    known: Sequence[FoundSlice | None],
    wanted: Sequence[Sequence[Mapping[str, Any]]],
    deletes: Sequence[FoundSlice],
) -> int:
    highest = max((each.spec.generation for each in found), default=0)
    changed = sum(there is not None and not _same(there, devices) for there, devices in zip(known, wanted, strict=True))
    uneven = {each.spec.generation for each in found} not in (set(), {highest})
    if not found:
        return 1
    if deletes or None in known or changed > 1 or uneven:
        return highest + 1
    return highest


def _same(there: FoundSlice, devices: Sequence[Mapping[str, Any]]) -> bool:
    return [_timeless(device) for device in there.spec.devices] == list(devices)


def _timeless(device: Mapping[str, Any]) -> dict[str, Any]:
    """The device as we say it: the server adds to each taint when it first saw it."""
    taints = device.get("taints")
    if not taints:
        return dict(device)
    shown = [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in taints]
    return {**device, "taints": shown}


def _with_times(there: FoundSlice, devices: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """``devices`` with the times of the taints that stay: a rewritten time would start an eviction's patience anew."""
    times = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in there.spec.devices
        for taint in device.get("taints", ())
        if "timeAdded" in taint
    }

    def timed(device: Mapping[str, Any], taint: Mapping[str, Any]) -> Mapping[str, Any]:
        at = times.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
        return taint if at is None else {**taint, "timeAdded": at}

    return [
        {**device, "taints": [timed(device, taint) for taint in device["taints"]]} if "taints" in device else device
        for device in devices
    ]


def _body(
    pool: Pool,
    name: str,
    about: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    there: FoundSlice | None,
) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [pool.owner]}
    if there is not None:
        metadata |= {"uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": metadata,
        "spec": {"driver": pool.driver, "pool": about, "nodeName": pool.node_name, "devices": list(devices)},
    }
