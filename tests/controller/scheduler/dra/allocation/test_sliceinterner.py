"""Slices in little memory: what is equal is one object, and nothing else is lost of them."""

import msgspec

from controller.objects.deviceclaims import ResourceSlice
from controller.objects.meta import ObjectMeta
from controller.scheduler.dra.allocation.sliceinterner import ResourceSliceInterner
from tests.support.engine.deviceclaims import device, node_slice


def a_slice(node: str, **labels: str) -> ResourceSlice:
    devices = [
        device(f"d{at}", capacity={"memory": "1000"}, counters={"units": "5"}, taint="sick", model="x", serial=serial)
        for at, serial in enumerate(("1", "1", "2"))
    ]
    made = node_slice(node, *devices)
    assert isinstance(made, ResourceSlice)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def test_equal_parts_of_devices_are_one_object() -> None:
    interner = ResourceSliceInterner()
    first, second, third = interner.kept(a_slice("a")).spec.devices
    (other, *_) = interner.kept(a_slice("b")).spec.devices
    assert first.attributes is second.attributes
    assert first.attributes is not third.attributes
    assert first.attributes["model"] is third.attributes["model"]
    assert first.attributes["serial"] is not third.attributes["serial"]
    for each in (second, third, other):
        assert first.capacity is each.capacity
        assert first.consumes_counters is each.consumes_counters
        assert first.taints is each.taints
    assert first.attributes is not other.attributes
    assert first.name is other.name


def test_a_slice_says_the_same_as_before_but_for_its_labels() -> None:
    given = a_slice("a", zone="1")
    kept = ResourceSliceInterner().kept(given)
    assert kept.spec == given.spec
    assert kept.metadata == ObjectMeta(name="slice-a", resource_version=given.metadata.resource_version)
