"""The annotation that says what nodes of a flavor can still come."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.deviceclaims import DeviceAttribute
from controller.objects.meta import ObjectMeta
from controller.objects.queues import ResourceFlavor
from controller.scheduler.model.nodetemplate import NodeTemplate, NodeTemplateError, template_of, template_problem
from inventory.api.names import LINK_GROUP, NODE_TEMPLATE

YAML = """
allocatable: {cpu: "96", memory: 1Ti}
gpus: 8
product: NVIDIA H100 80GB HBM3
gpuMemory: 80Gi
nvlink: full
labels: {zone: a}
taints: [{key: spot, value: "true", effect: NoSchedule}]
max: 4
after: 4m
"""


def flavor(text: str | None) -> ResourceFlavor:
    return ResourceFlavor(metadata=ObjectMeta(name="f", annotations={} if text is None else {NODE_TEMPLATE: text}))


def read(text: str) -> NodeTemplate:
    found = template_of(flavor(text))
    assert found is not None
    return found


def test_all_of_it_is_read() -> None:
    found = read(YAML)
    assert {name: str(amount) for name, amount in found.allocatable.items()} == {
        "cpu": "96",
        "memory": "1Ti",
        "nvidia.com/gpu": "8",
    }
    assert (found.gpus, found.most, found.after_s, found.nvlink) == (8, 4, 240.0, True)
    assert (found.product, found.gpu_memory_mib) == ("NVIDIA H100 80GB HBM3", 80 * 1024)
    assert (found.labels, found.taints[0].effect) == ({"zone": "a"}, "NoSchedule")


def test_json_says_the_same() -> None:
    assert read(json.dumps({"gpus": 8, "max": 2})) == read("{gpus: 8, max: 2}")


def test_gpus_may_stand_among_the_resources() -> None:
    assert read('{allocatable: {nvidia.com/gpu: "4"}, max: 1}').gpus == 4


def test_what_is_not_named_of_cpu_and_memory_is_enough() -> None:
    assert {"cpu", "memory", "pods"} <= read("{gpus: 8, max: 2}").offered.keys()
    assert read("{gpus: 8, max: 2}").amounts.keys() == {"nvidia.com/gpu"}, "quotas count what is named"


def test_gpus_given_out_by_claim_are_described_by_the_template_and_are_not_allocatable() -> None:
    """What a driver publishes of a GPU follows from the keys that say what the GPUs are like."""
    found = read(
        "{gpus: 2, product: NVIDIA H100 80GB HBM3, gpuMemory: 80Gi, nvlink: full, max: 1,"
        " devices: [{driver: gpu.nvidia.com, attributes: {architecture: Hopper}}]}"
    )
    assert (found.gpus, dict(found.allocatable), dict(found.amounts)) == (0, {}, {})
    (published,) = found.devices
    assert (published.driver, [device.name for device in published.devices]) == (
        "gpu.nvidia.com",
        ["device-0", "device-1"],
    )
    attributes = published.devices[1].attributes
    assert {name: attributes[name].string for name in ("type", "productName", "architecture")} == {
        "type": "gpu",
        "productName": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
    }
    assert attributes[LINK_GROUP].int_ == 0
    assert str(published.devices[1].capacity["memory"].value) == "80Gi"
    assert len({device.attributes["uuid"].string for device in published.devices}) == 2


def test_gpus_that_no_driver_gives_out_are_left_to_the_device_plugin() -> None:
    found = read(
        "{gpus: 8, max: 1, devices: [{driver: gpu.nvidia.com, count: 3}, {driver: net.example.com, count: 4}]}"
    )
    assert (found.gpus, str(found.allocatable["nvidia.com/gpu"])) == (5, "5")
    assert {each.driver: len(each.devices) for each in found.devices} == {"gpu.nvidia.com": 3, "net.example.com": 4}
    assert found.devices[1].devices[0].attributes == {}, "nothing of a GPU is said of other devices"


def test_attributes_and_capacity_of_devices_are_those_of_the_entry() -> None:
    (published,) = read(
        "{max: 1, devices: [{driver: a.example.com, count: 1, capacity: {rate: 100G},"
        " attributes: {x: text, n: 3, whole: true, example.com/v: {version: 1.20.3}}}]}"
    ).devices
    (device,) = published.devices
    assert device.attributes == {
        "x": DeviceAttribute(string="text"),
        "n": DeviceAttribute(int_=3),
        "whole": DeviceAttribute(bool_=True),
        "example.com/v": DeviceAttribute(version="1.20.3"),
    }
    assert str(device.capacity["rate"].value) == "100G"


def test_entries_of_one_driver_are_one_pool_of_devices() -> None:
    entries = "[{driver: a, count: 2, attributes: {type: one}}, {driver: a, count: 1, attributes: {type: other}}]"
    (published,) = read(f"{{max: 1, devices: {entries}}}").devices
    assert [device.name for device in published.devices] == ["device-0", "device-1", "device-2"]
    assert [device.attributes["type"].string for device in published.devices] == ["one", "one", "other"]


def test_placeholders_have_claims_unless_the_template_says_no() -> None:
    assert read("{gpus: 8, max: 1}").placeholder_claims
    assert not read("{gpus: 8, max: 1, placeholderClaims: false}").placeholder_claims


def test_a_flavor_without_the_annotation_has_none() -> None:
    assert template_of(flavor(None)) is None
    assert template_problem(flavor(None)) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "expected {allocatable"),
        ("{max: 2}", "expected allocatable, gpus or devices, found neither"),
        ("{gpus: 8}", "max: found nothing"),
        ("{gpus: 8, max: 0}", "max: found 0, expected a whole number from 1 to 5000"),
        ("{gpus: 8, max: true}", "max: found true"),
        ("{gpus: 65, max: 1}", "gpus: found 65"),
        ("{gpus: 8, max: 1, after: soon}", 'after: found "soon"'),
        ("{gpus: 8, max: 1, after: 25h}", 'after: found "25h"'),
        ("{gpus: 8, max: 1, size: 3}", 'found the field "size"'),
        ("{allocatable: {cpu: many}, max: 1}", 'allocatable: cpu: found "many"'),
        ('{allocatable: {"no good!": 1}, max: 1}', "expected the name of a resource"),
        ("{gpus: 8, max: 1, nvlink: some}", 'nvlink: found "some"'),
        ("{gpus: 8, max: 1, placeholderClaims: never}", 'placeholderClaims: found "never", expected true or false'),
        ("{gpus: 8, max: 1, labels: {zone: 1}}", "labels: zone: found 1"),
        ("{gpus: 8, max: 1, taints: [{key: spot}]}", "taints[0]"),
        ("{gpus: 8, max: 1, taints: spot}", "taints: found"),
        ("{gpus: 8, max: 1, devices: 8}", "devices: found 8, expected a list of {driver, count"),
        ("{gpus: 8, max: 1, devices: []}", "devices: found []"),
        (
            "{gpus: 8, max: 1, devices: [gpu]}",
            'devices[0]: found "gpu", expected {driver, count, attributes, capacity}',
        ),
        ("{gpus: 8, max: 1, devices: [{count: 8}]}", "devices[0]: driver: found null"),
        ("{gpus: 8, max: 1, devices: [{driver: GPU}]}", 'devices[0]: driver: found "GPU"'),
        ("{max: 1, devices: [{driver: gpu.nvidia.com}]}", "devices[0]: count: found nothing"),
        (
            "{max: 1, devices: [{driver: a, count: 129}]}",
            "devices[0]: count: found 129, expected a whole number from 1",
        ),
        ("{gpus: 2, max: 1, devices: [{driver: gpu.nvidia.com, count: 3}]}", "devices: found 3 GPUs, expected at most"),
        (
            "{allocatable: {nvidia.com/gpu: 8}, gpus: 8, max: 1, devices: [{driver: gpu.nvidia.com}]}",
            "allocatable: nvidia.com/gpu: found 8, expected the 0 of gpus that are not in devices",
        ),
        (
            "{max: 1, devices: [{driver: a, count: 1, attributes: {x: 1.5}}]}",
            "attributes: x: found 1.5, expected a text",
        ),
        ("{max: 1, devices: [{driver: a, count: 1, attributes: {'a b': 1}}]}", 'attributes: found "a b"'),
        ("{max: 1, devices: [{driver: a, count: 1, attributes: {v: {version: 1.2}}}]}", "attributes: v: found"),
        ("{max: 1, devices: [{driver: a, count: 1, capacity: {memory: much}}]}", 'capacity: memory: found "much"'),
        ("{a: &x [1], b: *x}", "an alias"),
        ("{gpus: [[[[[[[[[[1]]]]]]]]]], max: 1}", "more than 8 levels"),
        ("{gpus: 8", "expected {allocatable"),
        ("x" * 20_000, "at most 16384 characters"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(text: str, said: str) -> None:
    with pytest.raises(NodeTemplateError) as told:
        template_of(flavor(text))
    assert said in str(told.value)
    assert str(told.value).startswith(NODE_TEMPLATE)
    assert "\n" not in str(told.value)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["allocatable", "gpus", "product", "gpuMemory", "nvlink", "devices", "labels", "taints", "max", "after"]
        ),
        VALUES,
        max_size=10,
    )
    | st.text(max_size=60)
)
def test_no_text_does_anything_but_be_read_or_refused(text: Any) -> None:
    made = flavor(text if isinstance(text, str) else json.dumps(text))
    if not template_problem(made):
        found = template_of(made)
        assert found is not None
        assert found.most >= 1
        assert all(amount.nanos >= 0 for amount in found.allocatable.values())
