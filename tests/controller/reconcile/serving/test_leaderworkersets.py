"""Groups of LeaderWorkerSets whose pods are to be together: a tree of gangs where the object asks for one."""

from typing import Any

import pytest

from controller.jobs.framework.podview import ROLE_HASH
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.serving.leaderworkerset import (
    GROUP_INDEX,
    LEADER_NAME,
    NAME,
    SUBGROUP_TOPOLOGY,
    TOPOLOGY,
    WORKER_INDEX,
    LeaderWorkerSet,
)
from controller.scheduler.model.gangshape import GangShape, Subgroup, gang_shape
from inventory.api.names import GANG
from tests.controller.reconcile.serving.test_reconcile import World, leader_worker_set, pods_of, set_pod

RACK, ZONE = "example.com/rack", "example.com/zone"


def tree(size: int, each: Any, *, leads: bool = True, excluded: bool = False, level: str = "") -> Json:
    """``level``: of the whole group."""
    notes = {SUBGROUP_TOPOLOGY: RACK, **({TOPOLOGY: level} if level else {})}
    made = leader_worker_set(1, size, annotations=notes)
    inner = made["spec"]["leaderWorkerTemplate"]
    inner["subGroupPolicy"] = {"subGroupSize": each, **({"subGroupPolicyType": "LeaderExcluded"} if excluded else {})}
    if not leads:
        del inner["leaderTemplate"]
    return made


def sets(owner: Json) -> dict[str, int]:
    (group,) = LeaderWorkerSet().groups(owner)
    return {each.name: each.count for each in group.pod_sets}


def shape(owner: Json) -> GangShape | None:
    (group,) = LeaderWorkerSet().groups(owner)
    return group.gang


@pytest.mark.parametrize(
    ("owner", "expected", "leader"),
    [
        (tree(4, 2), {"leader": 1, "subgroup-0": 1, "subgroup-1": 2}, "subgroup-0"),
        (tree(5, 2), {"leader": 1, "subgroup-0": 2, "subgroup-1": 2}, "subgroup-0"),
        (tree(5, 2, excluded=True), {"leader": 1, "subgroup-0": 2, "subgroup-1": 2}, ""),
        (tree(4, 2, leads=False), {"subgroup-0": 2, "subgroup-1": 2}, ""),
        (tree(5, 2, leads=False), {"subgroup-0": 3, "subgroup-1": 2}, ""),
        (tree(5, 2, leads=False, excluded=True), {"main": 1, "subgroup-0": 2, "subgroup-1": 2}, ""),
        (tree(2, 1), {"leader": 1, "subgroup-0": 1}, "subgroup-0"),
        (tree(1, 1), {"leader": 1}, "subgroup-0"),
        (tree(17, 1, excluded=True), {"leader": 1} | {f"subgroup-{at}": 1 for at in range(16)}, ""),
        (tree(2**31 - 1, 2**30 - 1), {"leader": 1, "subgroup-0": 2**30 - 1, "subgroup-1": 2**30 - 1}, "subgroup-0"),
    ],
)
def test_each_subgroup_is_a_pod_set_in_one_domain(owner: Json, expected: dict[str, int], leader: str) -> None:
    assert sets(owner) == expected
    found = shape(owner)
    assert found is not None
    subgroups = [name for name in expected if name.startswith("subgroup")] or ["subgroup-0"]
    assert found.groups == tuple(Subgroup(name=name, required_level=RACK, exclusive=True) for name in subgroups)
    assert found.members.get("leader", "") == leader
    assert found.required_level == ""
    assert gang_shape({GANG: '{"minimum":0}'}) == GangShape()


@pytest.mark.parametrize(
    ("leads", "excluded", "size", "each"),
    [
        (leads, excluded, size, each)
        for leads in (True, False)
        for excluded in (True, False)
        for size in (3, 4, 5, 7)
        for each in (1, 2, 3)
        if (size - 1) % each == 0 or (size % each == 0 and not excluded)
    ],
)
def test_pods_are_of_the_pod_set_that_counts_them(*, leads: bool, excluded: bool, size: int, each: int) -> None:
    owner = tree(size, each, leads=leads, excluded=excluded)
    found: dict[str, int] = {}
    for rank in range(size):
        notes = {LEADER_NAME: "lws-0"} if rank else {}
        role = LeaderWorkerSet().role(owner, {"metadata": {"labels": {WORKER_INDEX: str(rank)}, "annotations": notes}})
        found[role] = found.get(role, 0) + 1
    assert found == sets(owner)


def test_a_whole_group_may_be_bound_beside_its_subgroups_and_without_any() -> None:
    both = shape(tree(4, 2, level=ZONE))
    assert both is not None
    assert (both.required_level, both.groups[0].required_level) == (ZONE, RACK)
    alone = leader_worker_set(1, 3, annotations={TOPOLOGY: ZONE})
    assert shape(alone) == GangShape(required_level=ZONE, exclusive=True)
    assert sets(alone) == {"leader": 1, "worker": 2}


@pytest.mark.parametrize("there", [{}, {"status": {"replicas": 2**31 - 1}}])
def test_more_groups_than_can_be_looked_at_are_refused_before_they_are_made(there: Json) -> None:
    replicas = 100_001 if there else 2**31 - 1
    owner = leader_worker_set(replicas, 3)
    owner["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": 1}}
    found = 2**31 - 1
    with pytest.raises(JobError, match=f"spec.replicas: expected at most 100000 groups, found {found}"):
        LeaderWorkerSet().groups({**owner, **there})


def test_subgroups_without_a_level_are_marks_alone() -> None:
    owner = tree(4, 2)
    del owner["metadata"]["annotations"]
    assert (sets(owner), shape(owner)) == ({"leader": 1, "worker": 3}, None)
    assert shape(leader_worker_set(1, 3, annotations={SUBGROUP_TOPOLOGY: RACK})) is None


def test_the_workload_says_the_tree_and_follows_it_while_it_waits() -> None:
    world = World(LeaderWorkerSet(), tree(4, 2))
    world.settle()
    assert pods_of(world.workload()) == {"leader": 1, "subgroup-0": 1, "subgroup-1": 2}
    said = gang_shape(world.workload()["metadata"]["annotations"])
    assert said is not None
    assert said.members == {"leader": "subgroup-0", "subgroup-0": "subgroup-0", "subgroup-1": "subgroup-1"}
    assert world.owner is not None
    world.owner["metadata"]["annotations"] = {}
    world.settle()
    assert pods_of(world.workload()) == {"leader": 1, "worker": 3}
    assert GANG not in {key for key, value in world.workload()["metadata"]["annotations"].items() if value}


def test_a_tree_of_a_group_that_runs_stays_what_it_was_admitted_with() -> None:
    world = World(LeaderWorkerSet(), leader_worker_set(1, 3, annotations={TOPOLOGY: ZONE}))
    world.settle()
    world.reserve(world.workload())
    assert world.owner is not None
    world.owner["metadata"]["annotations"] = {}
    world.settle()
    assert world.workload()["metadata"]["annotations"][GANG]


@pytest.mark.parametrize(
    ("index", "leader", "role"), [("0", "", "leader"), ("1", "l", "subgroup-0"), ("2", "l", "subgroup-1")]
)
def test_pods_join_by_their_number(index: str, leader: str, role: str) -> None:
    pod = set_pod(0, cpu=2 if leader else 1)
    labels = {NAME: "lws", GROUP_INDEX: "0", WORKER_INDEX: index, "tessera.dev/joining": "true"}
    pod["metadata"] |= {"labels": labels, "annotations": {LEADER_NAME: leader} if leader else {}}
    world = World(LeaderWorkerSet(), tree(4, 2), pod)
    world.settle()
    assert world.pods["sts-0"]["metadata"]["annotations"][ROLE_HASH] == role


@pytest.mark.parametrize("index", ["", "x", "-1", "9" * 400, "٣x"])
def test_a_pod_that_does_not_say_its_number_is_refused(index: str) -> None:
    pod = {"metadata": {"name": "p", "labels": {WORKER_INDEX: index}, "annotations": {LEADER_NAME: "l"}}}
    with pytest.raises(JobError, match=r"^pod p: metadata.labels\[.*worker-index\]: expected the pod's number in its"):
        LeaderWorkerSet().role(tree(4, 2), pod)


@pytest.mark.parametrize(
    ("owner", "sentence"),
    [
        (tree(4, 0), "expected a number by which 4 pods or the 3 workers of a group are divided, found 0"),
        (tree(4, -2), "expected a number by which 4 pods or the 3 workers of a group are divided, found -2"),
        (tree(6, 4), "expected a number by which 6 pods or the 5 workers of a group are divided, found 4"),
        (tree(3, 4), "expected a number by which 3 pods or the 2 workers of a group are divided, found 4"),
        (tree(4, 2, excluded=True), "expected a number by which the 3 workers of a group are divided, found 2"),
        (tree(34, 2), "expected 1 to 16 subgroups of a group, found 17"),
        (tree(4, "two"), "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: expected"),
    ],
)
def test_what_makes_no_subgroups_is_refused(owner: Json, sentence: str) -> None:
    with pytest.raises(JobError) as refused:
        LeaderWorkerSet().groups(owner)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: ")
