"""Queues and pod groups of KAI, queues of Volcano: what is read, and what no queue can mean."""

from typing import Any

import pytest

from controller.foreign.objects import KINDS
from controller.foreign.objects.kai import KaiPodGroup, KaiQueue, problems
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.decode import DecodeError, decode, decode_object


def test_a_kai_queue_is_read_in_its_own_units_and_what_is_absent_is_nothing() -> None:
    resources = {"gpu": {"quota": 1.5, "limit": -1, "overQuotaWeight": 2}, "cpu": {"quota": 500}}
    given = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}}
    found = decode_object({**given, "spec": {"parentQueue": "dept", "priority": 7, "resources": resources}}, KINDS)
    assert isinstance(found, KaiQueue)
    asked = found.spec.resources
    assert (asked.gpu.quota, asked.gpu.limit, asked.gpu.over_quota_weight) == (1.5, -1, 2)
    assert (asked.cpu.quota, asked.cpu.limit, asked.memory.limit) == (500, 0, 0)
    assert (found.spec.parent_queue, found.spec.priority, found.spec.reclaim_min_runtime) == ("dept", 7, None)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"quota": -2}, "quota: expected -1 or a number of at least 0, found -2"),
        ({"limit": -0.5}, "limit: expected -1 or a number of at least 0, found -0.5"),
        ({"overQuotaWeight": -3}, "overQuotaWeight: expected a number of at least 0, found -3"),
        ({"quota": "4"}, "Expected `float`, got `str`"),
    ],
)
def test_a_kai_queue_with_a_number_that_means_nothing_is_refused(gpu: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode({"metadata": {"name": "q"}, "spec": {"resources": {"gpu": gpu}}}, KaiQueue)
    assert said in str(error.value)
    assert "spec.resources.gpu" in str(error.value)


def test_a_volcano_queue_has_its_webhooks_defaults() -> None:
    given = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    found = decode_object({**given, "spec": {"deserved": {"nvidia.com/gpu": 4}}}, KINDS)
    assert isinstance(found, VolcanoQueue)
    assert (found.spec.weight, found.spec.reclaimable, found.spec.dequeue_strategy) == (1, True, "traverse")
    assert found.spec.deserved["nvidia.com/gpu"].value == 4
    assert found.status.open
    for state, takes in (("Open", True), ("Closing", False), ("Closed", False), ("Unknown", True)):
        assert decode({"metadata": {"name": "q"}, "status": {"state": state}}, VolcanoQueue).status.open is takes


@pytest.mark.parametrize("spec", [{"weight": 0}, {"weight": 70_000}, {"priority": -1}, {"dequeueStrategy": "lifo"}])
def test_a_volcano_queue_outside_of_its_schema_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode({"metadata": {"name": "q"}, "spec": spec}, VolcanoQueue)


def group(**spec: Any) -> list[str]:
    return list(problems(decode({"metadata": {"name": "g", "namespace": "ns"}, "spec": spec}, KaiPodGroup)))


def deep(levels: int) -> list[dict[str, Any]]:
    return [{"name": f"s{at}", "parent": f"s{at - 1}" if at else ""} for at in range(levels)]


def test_a_pod_group_is_a_tree_of_subgroups_whose_leaves_count_members() -> None:
    leaves = [{"name": "a", "minMember": 2, "parent": "top"}, {"name": "b", "minMember": 1, "parent": "top"}]
    assert group(subGroups=[{"name": "top", "minSubGroup": 1}, *leaves]) == []
    assert group(minMember=3) == []
    assert group(subGroups=deep(32)) == []
    assert group(minSubGroup=0, subGroups=[{"name": "a", "minMember": 0}]) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minMember": 1, "minSubGroup": 1}, "spec.minSubGroup: expected none beside minMember 1, found 1"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "spec.subGroups[1].name: expected a name of its own"),
        ({"subGroups": [{"name": "a", "parent": "x"}]}, "spec.subGroups[0].parent: expected the name of a subgroup"),
        (
            {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "spec.subGroups[0].parent: expected a tree, found 'a' above itself",
        ),
        ({"subGroups": [{"name": "a", "minSubGroup": 1}]}, "spec.subGroups[0].minSubGroup: expected none where no"),
        (
            {"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "parent": "a"}]},
            "spec.subGroups[0].minMember: expected none where other subgroups are below, found 1",
        ),
        ({"subGroups": [{"name": ""}]}, "spec.subGroups[0].name: expected the name of a subgroup, found an empty"),
        ({"subGroups": [{"name": "a", "minMember": -1}]}, "spec.subGroups[0].minMember: expected at least 0, found -1"),
        ({"minSubGroup": -1}, "spec.minSubGroup: expected at least 0, found -1"),
        ({"subGroups": deep(33)}, "spec.subGroups[32].parent: expected 32 levels at most, found 33"),
    ],
)
def test_a_pod_group_that_is_no_gang_says_where(spec: dict[str, Any], said: str) -> None:
    assert group(**spec)[0].startswith(said)
