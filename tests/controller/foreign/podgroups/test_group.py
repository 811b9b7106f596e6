"""What the PodGroups of Volcano and KAI say about their pods."""

from typing import Any

import pytest

from controller.foreign.podgroups.group import (
    ForeignGroup,
    as_member,
    chosen,
    group_queue,
    lacking,
    read_group,
    subgroup_of,
)
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.podview import GroupName, SeenPod, key_of
from controller.jobs.framework.raw import JobError
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.gangshape import Subgroup
from tests.support.controller.podworld import pod

VOLCANO, KAI = GroupName(System.VOLCANO, "v"), GroupName(System.KAI, "k")


def volcano(**spec: Any) -> ForeignGroup:
    return read_group(VOLCANO, {"spec": spec})


def kai(*groups: dict[str, Any], **spec: Any) -> ForeignGroup:
    return read_group(KAI, {"spec": {**spec, "subGroups": list(groups)}})


def members(group: ForeignGroup, **marks: list[str]) -> list[SeenPod]:
    """Pods with these values of a mark: ``task`` and ``sub`` of the two systems, any other a plain label."""
    keys = {"task": "volcano.sh/task-spec", "sub": "kai.scheduler/subgroup-name"}
    raws = [(keys.get(mark, mark), value) for mark, values in marks.items() for value in values]
    found = []
    for at, (key, value) in enumerate(raws):
        raw = pod(f"p{at}", labels={key: value, "kueue.x-k8s.io/queue-name": ""})
        raw["metadata"]["uid"] = f"u{at}"
        found.append(as_member(SeenPod(raw), group))
    return found


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"notes": {"scheduling.k8s.io/group-name": "v"}}, "v"),
        ({"notes": {"scheduling.volcano.sh/group-name": "v"}}, "v"),
        ({"notes": {"pod-group-name": "k"}, "labels": {"kai.scheduler/queue": "q"}}, "k"),
        ({"notes": {"pod-group-name": "k"}, "schedulerName": "kai-scheduler"}, "k"),
        ({"notes": {"pod-group-name": "k", "tessera.dev/scheduler-name": "kai-scheduler"}}, "k"),
        ({"notes": {"pod-group-name": "k"}}, ""),
        (
            {
                "notes": {"pod-group-name": "pg-train-0a1b2c3d-0000-4000-8000-000000000001"},
                "schedulerName": "kai-scheduler",
            },
            "",
        ),
    ],
    ids=[
        "volcano",
        "volcano, second",
        "kai by queue",
        "kai by scheduler",
        "kai, kept name",
        "no mark",
        "the grouper's",
    ],
)
def test_which_group_a_pod_is_in(marks: dict[str, Any], expected: str) -> None:
    assert key_of(SeenPod(pod("p", **marks)))[1] == expected


def test_what_is_not_written_is_as_the_systems_have_it() -> None:
    found = volcano()
    assert (found.minimum, found.queue, found.priority_class) == (1, "default", "")
    assert (kai().minimum, kai().queue, kai().preemptibility) == (1, "default-queue", "")
    assert volcano(minMember=3, queue="q", priorityClassName="high").queue == "q"
    assert kai(minMember=3, queue="q", preemptibility="non-preemptible").preemptibility == "non-preemptible"


def test_pods_of_a_gang_without_an_object_say_its_minimum_themselves() -> None:
    found = read_group(VOLCANO, None, "3")
    assert (found.name, found.minimum, found.queue) == ("v", 3, "default")
    assert read_group(VOLCANO, {"spec": {"minMember": 2}}, "3").minimum == 2, "an object of the name goes before"


def test_a_pod_is_in_the_groups_queue_unless_it_names_one() -> None:
    bare = pod("p", labels={"kueue.x-k8s.io/queue-name": ""})
    assert queue_name(as_member(SeenPod(bare), volcano(queue="q")).raw) == "q"
    assert queue_name(as_member(SeenPod(pod("p")), volcano(queue="other")).raw) == "q"
    assert group_queue(VOLCANO, {"spec": {"queue": "q"}}) == "q"
    assert (group_queue(KAI, {"spec": {}}), group_queue(KAI, None)) == ("default-queue", "")


def test_each_task_has_its_own_minimum() -> None:
    group = volcano(minMember=3, minTaskMember={"ps": 1, "worker": 2})
    assert lacking(group, members(group, task=["worker", "worker", "worker"])) == "0 of 1 pod of ps"
    assert lacking(group, members(group, task=["worker", "ps", "worker"])) == ""
    pods = members(group, task=["worker", "worker", "worker", "ps"])
    assert [subgroup_of(each) for each in chosen(group, pods, 3)] == ["worker", "worker", "ps"]


def test_minimums_of_tasks_that_add_up_to_more_than_the_groups_do_not_count() -> None:
    group = volcano(minMember=2, minTaskMember={"ps": 1, "worker": 2})
    assert group.groups == ()
    assert lacking(group, members(group, task=["worker", "worker"])) == ""


def test_a_policy_of_subgroups_counts_by_the_values_of_its_keys() -> None:
    policy = {"name": "rack", "matchLabelKeys": ["at"], "subGroupSize": 2, "minSubGroups": 2}
    group = volcano(minMember=4, subGroupPolicy=[policy])
    pods = members(group, at=["a", "b", "a", "c"])
    assert [subgroup_of(each) for each in pods] == ["rack/a", "rack/b", "rack/a", "rack/c"]
    assert lacking(group, pods) == "1 of 2 pods of rack/b"
    assert lacking(group, members(group, at=["a", "b", "a", "b", "c"])) == ""
    shape = group.shape({"x": "rack/a", "y": "rack/b"})
    assert [(each.name, each.parent, each.minimum) for each in shape.groups] == [
        ("rack", "", 2),
        ("rack/a", "rack", 2),
        ("rack/b", "rack", 2),
    ]
    assert shape.members == {"x": "rack/a", "y": "rack/b"}


def test_a_leaf_of_two_policies_is_in_the_tree_once() -> None:
    policies = [{"name": name, "matchLabelKeys": ["at"], "minSubGroups": 1} for name in ("a", "a/b")]
    group = volcano(minMember=2, subGroupPolicy=policies)
    tree = [(each.name, each.parent) for each in group.shape({"x": "a/b/c", "y": "a/b"}).groups]
    assert tree == [("a", ""), ("a/b", ""), ("a/b/c", "a")]


def test_a_policy_without_keys_is_one_subgroup_of_those_it_selects() -> None:
    policy = {"name": "ps", "labelSelector": {"matchLabels": {"role": "ps"}}, "subGroupSize": 2, "minSubGroups": 1}
    group = volcano(minMember=2, subGroupPolicy=[policy])
    assert [subgroup_of(each) for each in members(group, role=["ps", "worker"])] == ["ps", ""]
    assert lacking(group, members(group, role=["ps", "worker"])) == "1 of 2 pods of ps"
    assert volcano(minMember=2, subGroupPolicy=[{"name": "p"}]).groups == ()
    defaults = {"name": "p", "matchLabelKeys": ["at"], "subGroupSize": 1, "minSubGroups": 0}
    assert volcano(minMember=2, subGroupPolicy=[defaults]).groups == ()
    placed = volcano(minMember=4, subGroupPolicy=[defaults | {"networkTopology": {"mode": "hard"}}])
    pods = members(placed, at=["a", "a", "b", "b"])
    assert len(chosen(placed, pods, 4)) == 4, "as many of each as there are"


def test_kais_tree_says_how_many_of_its_groups_are_enough() -> None:
    leaves = [{"name": name, "parent": "top", "minMember": size} for name, size in (("a", 3), ("b", 1), ("c", 2))]
    group = kai({"name": "top", "minSubGroup": 2}, *leaves)
    assert group.minimum == 3
    assert lacking(group, members(group, sub=["a", "b", "c"])) == "1 of 3 pods of a"
    assert lacking(group, members(group, sub=["c", "b", "c"])) == ""
    assert kai(*({**leaf, "parent": ""} for leaf in leaves)).minimum == 6
    with pytest.raises(JobError, match=r"labels\[kai.scheduler/subgroup-name\]: expected one of a, b, c, found 'd'"):
        members(group, sub=["d"])
    with pytest.raises(JobError, match="expected one of a, b, c, found none"):
        members(group, sub=[""])


def test_levels_and_patience_go_along() -> None:
    level = {"topology": "t", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    leaf = {"name": "a", "minMember": 2, "topologyConstraint": level}
    shape = kai(leaf, minMember=2, stalenessGracePeriod="90s", topologyConstraint=level).shape({"s": "a"})
    assert (shape.topology, shape.required_level, shape.preferred_level) == ("t", "zone", "rack")
    assert shape.staleness_s == 90.0
    assert shape.groups == (Subgroup(name="a", minimum=2, topology="t", required_level="zone", preferred_level="rack"),)
    assert kai(minMember=2, stalenessGracePeriod="-1s").staleness_s == -1.0
    assert kai(minMember=2).staleness_s == 60.0
    notes = {"kai.scheduler/staleness-grace-period": "5s"}
    marked: dict[str, Any] = {"metadata": {"annotations": notes}, "spec": {"minMember": 2}}
    name = GroupName(System.KAI, "g")
    assert read_group(name, marked).staleness_s == 5.0
    marked["spec"]["stalenessGracePeriod"] = "9s"
    assert read_group(name, marked).staleness_s == 9.0
    assert volcano(minMember=2).shape({}).staleness_s is None


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: read_group(VOLCANO, None), "scheduling.k8s.io/group-name.: no PodGroup 'v' of scheduling.volcano.sh"),
        (lambda: read_group(KAI, None), "pod-group-name.: no PodGroup 'k' of scheduling.run.ai"),
        (lambda: read_group(VOLCANO, None, "0"), "PodGroup v: spec.minMember: expected at least 1, found 0"),
        (lambda: read_group(VOLCANO, None, "x"), "annotations.scheduling.volcano.sh/group-min-member.: expected"),
        (lambda: volcano(minMember=-1), "PodGroup v: spec.minMember: expected at least 1, found -1"),
        (lambda: volcano(minMember="two"), "PodGroup v: .*minMember"),
        (
            lambda: volcano(minMember=2, minTaskMember={"": 1}),
            "^PodGroup v: spec.minTaskMember: expected names of tasks, found an empty one$",
        ),
        (
            lambda: volcano(minMember=2, subGroupPolicy=[{"name": "a", "minSubGroups": 1}] * 2),
            "^PodGroup v: spec.subGroupPolicy: expected policies with names of their own, found 'a' twice$",
        ),
        (lambda: kai({"name": "", "minMember": 1}), "PodGroup k: spec.subGroups.0..name: expected the name of a"),
        (lambda: kai(minMember=2, stalenessGracePeriod="soon"), "stalenessGracePeriod: expected a duration such as"),
        (lambda: kai({"name": "a", "parent": "b"}), "PodGroup k: spec.subGroups.0..parent: expected the name"),
    ],
)
def test_what_cannot_be_a_group_is_said_in_a_sentence(read: Any, sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        read()
