"""The annotation that says what nodes of a flavor can still come."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.meta import ObjectMeta
from controller.objects.queues import ResourceFlavor
from controller.scheduler.model.nodetemplate import NodeTemplate, NodeTemplateError, template_of, template_problem
from inventory.api.names import NODE_TEMPLATE

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


def test_a_flavor_without_the_annotation_has_none() -> None:
    assert template_of(flavor(None)) is None
    assert template_problem(flavor(None)) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "expected {allocatable"),
        ("{max: 2}", "expected allocatable or gpus, found neither"),
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
        ("{gpus: 8, max: 1, labels: {zone: 1}}", "labels: zone: found 1"),
        ("{gpus: 8, max: 1, taints: [{key: spot}]}", "taints[0]"),
        ("{gpus: 8, max: 1, taints: spot}", "taints: found"),
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
        st.sampled_from(["allocatable", "gpus", "product", "gpuMemory", "nvlink", "labels", "taints", "max", "after"]),
        VALUES,
        max_size=9,
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
