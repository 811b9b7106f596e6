"""Quotas as shares of live, healthy capacity."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue, ResourceFlavor
from controller.scheduler.model.resources import FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.capacity import Capacity, QuotaShareError, resolved, shares_of
from inventory.api.names import NODE_TEMPLATE, QUOTA_SHARES

GPU = ResourceName("nvidia.com/gpu")
A100 = FlavorResource(FlavorName("a100"), GPU)


def node(name: str, gpus: int, *, product: str = "a100", ready: bool = True, cordoned: bool = False) -> Node:
    data = {
        "metadata": {"name": name, "labels": {"product": product}},
        "spec": {"unschedulable": cordoned},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "1500m"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return decode(data, Node)


def flavor(name: str = "a100", **labels: str) -> ResourceFlavor:
    return decode({"metadata": {"name": name}, "spec": {"nodeLabels": labels or {"product": name}}}, ResourceFlavor)


def cluster_queue(shares: Any) -> ClusterQueue:
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": "3"}, {"name": "cpu", "nominalQuota": "7"}]
    group = {"coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": [{"name": "a100", "resources": quota}]}
    text = shares if isinstance(shares, str) else json.dumps(shares)
    return decode(
        {"metadata": {"name": "cq", "annotations": {QUOTA_SHARES: text}}, "spec": {"resourceGroups": [group]}},
        ClusterQueue,
    )


def nominal(queue: ClusterQueue) -> list[str]:
    return [str(one.nominal_quota) for one in queue.spec.resource_groups[0].flavors[0].resources]


def test_only_nodes_that_can_take_pods_count_and_only_those_of_the_flavor() -> None:
    capacity = Capacity()
    capacity.set_flavor(flavor())
    for one in (
        node("n1", 8),
        node("n2", 8, ready=False),
        node("n3", 8, cordoned=True),
        node("n4", 8, product="h100"),
    ):
        capacity.set_node(one)
    assert capacity.of(A100) == 8


def test_a_failed_gpu_leaves_the_quota_and_a_repaired_one_returns() -> None:
    capacity = Capacity()
    capacity.set_flavor(flavor())
    capacity.set_node(node("n1", 8))
    queue = cluster_queue({"a100": {"nvidia.com/gpu": "50%"}})
    assert nominal(resolved(queue, capacity)) == ["4", "7"]
    assert capacity.set_node(node("n1", 6)) == {"a100"}
    assert nominal(resolved(queue, capacity)) == ["3", "7"]
    assert capacity.set_node(node("n1", 6)) == frozenset()
    assert capacity.remove_node("n1") == {"a100"}
    assert nominal(resolved(queue, capacity)) == ["0", "7"]


def test_shares_round_down_and_keep_fractions_of_a_core() -> None:
    capacity = Capacity()
    capacity.set_flavor(flavor())
    capacity.set_node(node("n1", 7))
    shares = {"a100": {"nvidia.com/gpu": "33.3%", "cpu": "50%"}}
    assert nominal(resolved(cluster_queue(shares), capacity)) == ["2", "750m"]


def test_a_flavor_without_labels_counts_every_node() -> None:
    capacity = Capacity()
    capacity.set_node(node("n1", 8, product="h100"))
    every = decode({"metadata": {"name": "a100"}}, ResourceFlavor)
    assert capacity.set_flavor(every) == {"a100"}
    assert capacity.of(A100) == 8
    assert capacity.remove_flavor(FlavorName("a100")) == {"a100"}
    assert capacity.of(A100) == 0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("no json", "expected"),
        ([1], "expected"),
        ({"a100": {"nvidia.com/gpu": "half"}}, "'half'"),
        ({"a100": {"nvidia.com/gpu": "-5%"}}, "'-5%'"),
        ({"a100": {"memory": "5%"}}, "a100/memory"),
        ({"h100": {"nvidia.com/gpu": "5%"}}, "h100/nvidia.com/gpu"),
    ],
)
def test_a_bad_share_is_refused_in_one_line_that_names_it(given: Any, named: str) -> None:
    with pytest.raises(QuotaShareError, match="quota-shares") as caught:
        resolved(cluster_queue(given), Capacity())
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_no_annotation_raises_anything_else(text: str) -> None:
    with contextlib.suppress(QuotaShareError):
        shares_of({QUOTA_SHARES: text})


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(["n1", "n2", "n3"]), st.integers(0, 8), st.booleans()),
        st.tuples(st.just("gone"), st.sampled_from(["n1", "n2", "n3"]), st.just(0), st.just(True)),
        st.tuples(st.just("flavor"), st.sampled_from(["a100", "h100", "any"]), st.just(0), st.booleans()),
    ),
    max_size=20,
)


@given(OPERATIONS)
def test_sums_are_those_of_the_nodes_after_any_changes(operations: list[tuple[str, str, int, bool]]) -> None:
    capacity = Capacity()
    for what, name, amount, flag in operations:
        match what:
            case "node":
                capacity.set_node(node(name, amount, ready=flag, product="a100" if amount % 2 else "h100"))
            case "gone":
                capacity.remove_node(name)
            case "flavor" if flag:
                capacity.set_flavor(
                    flavor(name) if name != "any" else decode({"metadata": {"name": "any"}}, ResourceFlavor)
                )
            case _:
                capacity.remove_flavor(FlavorName(name))
        capacity.validate()


def templated(most: int) -> ResourceFlavor:
    notes = {NODE_TEMPLATE: json.dumps({"gpus": 8, "max": most})}
    spec = {"nodeLabels": {"product": "a100"}, "topologyName": "t"}
    return decode({"metadata": {"name": "a100", "annotations": notes}, "spec": spec}, ResourceFlavor)


def test_a_flavor_whose_nodes_can_come_counts_at_its_greatest() -> None:
    capacity = Capacity(coming=True)
    assert capacity.set_flavor(templated(4)) == {"a100"}
    assert capacity.of(A100) == 32
    capacity.set_node(node("a", 8))
    assert capacity.of(A100) == 32, "it is one of the four"
    assert capacity.set_flavor(templated(2)) == {"a100"}
    assert capacity.of(A100) == 16
    for name in "bcd":
        capacity.set_node(node(name, 8))
    assert capacity.of(A100) == 32, "more are there than the template says"
    capacity.validate()
    off = Capacity()
    off.set_flavor(templated(4))
    assert off.of(A100) == 0
