"""Subgroups above the minimum of a PodGroup: each is queued as a whole, and leaves as a whole."""

from typing import Any

import pytest

from controller.jobs.framework.podview import part_name
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.tiers import Tier
from controller.scheduler.model.gangshape import gang_shape
from inventory.api.names import ABOVE_MINIMUM_OF, ABOVE_MINIMUM_SUBGROUP, GANG, SUBGROUP
from tests.support.controller.podworld import PodWorld, pod

ABC: Json = {"minSubGroup": 1, "subGroups": [{"name": name, "minMember": 2} for name in "abc"]}
DEEP: Json = {
    "minSubGroup": 1,
    "subGroups": [
        {"name": "x", "minSubGroup": 1},
        {"name": "y", "minSubGroup": 1},
        *({"name": f"{parent}{at}", "parent": parent, "minMember": 2} for parent in "xy" for at in (1, 2)),
    ],
}
B = part_name("k", "b")


def member(name: str, leaf: str) -> Json:
    return pod(
        name, labels={"kai.scheduler/subgroup-name": leaf, "kai.scheduler/queue": "q"}, notes={"pod-group-name": "k"}
    )


def world(spec: Json, *names: str) -> PodWorld:
    """Pods of KAI's group ``k``, named by their leaf and a number."""
    made = PodWorld(*(member(name, name.partition("-")[0]) for name in names))
    made.pod_group = {"metadata": {"name": "k", "uid": "k"}, "spec": {"queue": "q", **spec}}
    made.settle()
    return made


def started(spec: Json = ABC, *more: str) -> PodWorld:
    made = world(spec, *(f"{leaf}-{at}" for leaf in "abc" for at in (1, 2)), *more)
    made.admit()
    made.settle()
    return made


def marks(made: PodWorld, name: str) -> tuple[str, str, str]:
    notes = made.pods[name]["metadata"]["annotations"]
    return tuple(notes.get(key, "") for key in (ABOVE_MINIMUM_OF, ABOVE_MINIMUM_SUBGROUP, SUBGROUP))


def test_the_group_starts_with_as_many_whole_subgroups_as_it_needs() -> None:
    made = world(ABC, "a-1", "b-1", "b-2", "c-1", "a-2")
    assert made.sizes() == [2]
    made.admit()
    made.settle()
    assert made.running() == {"b-1", "b-2"}, "the first that was whole"


def test_a_subgroup_above_the_minimum_is_one_workload_that_names_the_minimum() -> None:
    made = started()
    assert made.running() == {"a-1", "a-2"}
    own = made.workload_of(B)
    assert [one["count"] for one in own["spec"]["podSets"]] == [2]
    assert own["metadata"]["annotations"][ABOVE_MINIMUM_OF] == "k"
    assert own["spec"]["queueName"] == "q"
    assert {one["name"] for one in own["metadata"]["ownerReferences"]} == {"b-1", "b-2"}
    assert marks(made, "b-1") == ("k", "b", "b")
    shape = gang_shape({GANG: own["metadata"]["annotations"][GANG]})
    assert shape is not None
    assert [(group.name, group.minimum) for group in shape.groups] == [("b", 2)]


def test_subgroups_join_and_leave_one_by_one_and_each_as_a_whole() -> None:
    made = started()
    made.admit(above=B)
    made.settle()
    assert made.running() == {"a-1", "a-2", "b-1", "b-2"}
    made.admit(above=part_name("k", "c"))
    made.settle()
    assert len(made.running()) == 6
    made.evict(above=B)
    made.settle()
    assert made.running() == {"a-1", "a-2", "c-1", "c-2"}


def test_a_subgroup_that_lacks_a_pod_has_no_workload_and_says_what_it_lacks() -> None:
    made = world(ABC, "a-1", "a-2", "b-1")
    made.admit()
    made.settle()
    assert set(made.workloads) == {"k"}
    assert ("WaitingForPods", f"group {B} has 1 of 2 pods") in made.events
    made.create(member("b-2", "b"))
    made.settle()
    assert B in made.workloads


def test_pods_above_the_minimum_of_a_subgroup_join_one_by_one_once_that_runs() -> None:
    made = started(ABC, "b-3", "a-3")
    assert marks(made, "a-3") == ("k", "", "a")
    assert marks(made, "b-3") == ("k", "b", "b"), "until its subgroup runs it may be needed for that"
    made.admit(above=B)
    made.settle()
    assert marks(made, "b-3") == (B, "", "b")
    assert made.running() == {"a-1", "a-2", "b-1", "b-2"}
    made.admit(above="b-3")
    made.settle()
    assert made.running() == {"a-1", "a-2", "b-1", "b-2", "b-3"}


def test_a_subgroup_with_subgroups_is_a_group_like_the_whole() -> None:
    made = world(DEEP, *(f"{leaf}-{at}" for leaf in ("x1", "x2", "y1", "y2") for at in (1, 2)))
    made.admit()
    made.settle()
    assert made.running() == {"x1-1", "x1-2"}
    y, x2 = part_name("k", "y"), part_name("k", "x2")
    assert set(made.workloads) == {"k", y, x2}
    assert marks(made, "y2-1") == ("k", "y", "y2")
    made.admit(above=y)
    made.settle()
    assert made.running() == {"x1-1", "x1-2", "y1-1", "y1-2"}
    assert marks(made, "y2-1") == (y, "y2", "y2")
    assert part_name(y, "y2") in made.workloads


def test_a_replacement_joins_the_subgroup_of_the_pod_that_failed() -> None:
    made = started()
    made.admit(above=B)
    made.settle()
    made.end("b-1", "Failed")
    made.settle()
    made.create(member("b-3", "b"))
    made.settle()
    assert made.running() == {"a-1", "a-2", "b-2", "b-3"}
    assert marks(made, "b-3") == ("k", "b", "b")


def test_subgroups_that_wait_are_of_the_group_again_when_the_minimum_has_lost_its_quota() -> None:
    made = started()
    made.evict()
    made.settle()
    assert made.above() == []
    assert set(made.workloads) == {"k"}
    made.admit()
    made.settle()
    assert made.running() == {"b-1", "b-2"}
    assert marks(made, "c-1") == ("k", "c", "c")


def test_a_subgroup_above_ends_by_itself_and_the_group_by_what_it_started_with() -> None:
    made = started()
    made.admit(above=B)
    made.settle()
    for name in ("b-1", "b-2"):
        made.end(name, "Succeeded")
    made.settle()
    assert made.workload_of(B)["status"]["conditions"][-1]["type"] == "Finished"
    assert made.outcome() == ""
    for name in ("a-1", "a-2"):
        made.end(name, "Succeeded")
    made.settle()
    assert made.outcome() == "Succeeded"


def test_a_group_whose_subgroups_are_larger_than_it_asks_ends_with_all_of_their_pods() -> None:
    made = PodWorld(*(pod(f"p{at}", labels={"at": f"{at // 2}"}, notes=VOLCANO) for at in range(4)))
    policies = [{"name": "rack", "matchLabelKeys": ["at"], "subGroupSize": 2}, {"name": "other"}]
    made.pod_group = {"metadata": {"name": "v", "uid": "v"}, "spec": {"minMember": 3, "subGroupPolicy": policies}}
    made.settle()
    assert made.sizes() == [2, 2]
    made.admit()
    made.settle()
    for name in ("p0", "p1", "p2"):
        made.end(name, "Succeeded")
    made.settle()
    assert (made.outcome(), made.running()) == ("", {"p3"})
    made.end("p3", "Succeeded")
    made.settle()
    assert made.outcome() == "Succeeded"


def test_a_subgroup_that_is_larger_than_the_group_asks_is_whole_all_the_same() -> None:
    made = volcano(minMember=1, policy={"minSubGroups": 0})
    assert made.sizes() == [2]
    made.admit()
    made.settle()
    assert made.running() == {"p0", "p2"}
    assert part_name("v", "pair/y") in made.workloads


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ({ABOVE_MINIMUM_OF: "k", ABOVE_MINIMUM_SUBGROUP: "d"}, "expected a subgroup of k, found 'd'"),
        (
            {ABOVE_MINIMUM_OF: "k", ABOVE_MINIMUM_SUBGROUP: "b"},
            "expected a subgroup with the pod's own, 'a', found 'b'",
        ),
        (
            {ABOVE_MINIMUM_OF: "k", ABOVE_MINIMUM_SUBGROUP: "d", "pod-group-name": ""},
            "expected a pod of a PodGroup beside 'd'",
        ),
    ],
)
def test_a_mark_that_says_nothing_is_refused_and_starts_no_pod(notes: dict[str, str], sentence: str) -> None:
    made = started()
    odd = member("odd", "a")
    odd["metadata"]["annotations"] |= notes
    made.create(odd)
    made.settle()
    assert f"metadata.annotations[{ABOVE_MINIMUM_SUBGROUP}]: {sentence}" in made.refusals
    assert "odd" not in made.running()


def test_a_name_of_a_part_is_an_objects_name_and_its_own() -> None:
    assert part_name("g", "b").startswith("g-b-")
    assert part_name("g", "Rack_A/x.1").startswith("g-rack-a-x-1-")
    odd = {part_name("g", name) for name in ("", "//", "x" * 300, "é", "-a-")}
    assert len(odd) == 5
    assert all(len(name) <= 253 and name.strip("-.") == name and "--" not in name for name in odd)
    assert len(part_name("n" * 253, "b")) == 253
    assert part_name("g", "a/b") != part_name("g", "a-b")


VOLCANO = {"scheduling.k8s.io/group-name": "v"}
HARD = {"mode": "hard", "highestTierAllowed": 1}
WHERE = "PodGroup v: spec.subGroupPolicy[0].networkTopology"
TIERS = JobSettings(tiers=(Tier(node_label="rack", name="leaf"), Tier(node_label="zone")))


def volcano(settings: JobSettings | None = None, **spec: Any) -> PodWorld:
    """Four pods of two values of the label ``at``, in a group with a policy of pairs."""
    pods = (pod(f"p{at}", labels={"at": "xy"[at % 2]}, notes=VOLCANO) for at in range(4))
    made = PodWorld(*pods, settings=settings)
    policy = {"name": "pair", "matchLabelKeys": ["at"], "subGroupSize": 2, "minSubGroups": 1, **spec.pop("policy", {})}
    given = {"minMember": 2, "subGroupPolicy": [policy], **spec}
    made.pod_group = {"metadata": {"name": "v", "uid": "v"}, "spec": given}
    made.settle()
    return made


def test_subgroups_of_a_policy_join_as_a_whole_too() -> None:
    made = volcano()
    made.admit()
    made.settle()
    assert made.running() == {"p0", "p2"}
    own = part_name("v", "pair/y")
    made.admit(above=own)
    made.settle()
    assert made.running() == {"p0", "p1", "p2", "p3"}
    assert made.workload_of(own)["metadata"]["annotations"][ABOVE_MINIMUM_OF] == "v"


@pytest.mark.parametrize(
    ("policy", "spec", "levels"),
    [
        (HARD, {}, [("", ""), ("rack", "")]),
        ({"mode": "soft"}, {}, [("", ""), ("", "rack")]),
        ({"highestTierName": "leaf"}, HARD | {"highestTierAllowed": 2}, [("zone", ""), ("rack", "")]),
        ({}, HARD, [("rack", ""), ("", "")]),
    ],
    ids=["hard", "soft", "both", "the group's alone"],
)
def test_levels_of_a_policy_are_those_of_each_of_its_subgroups(
    policy: Json, spec: Json, levels: list[tuple[str, str]]
) -> None:
    given = {"policy": {"networkTopology": policy} if policy else {}} | ({"networkTopology": spec} if spec else {})
    made = volcano(TIERS, minSubGroups=1, **given)
    for name in ("v", part_name("v", "pair/y")):
        shape = gang_shape(made.workloads[name]["metadata"]["annotations"])
        assert shape is not None
        leaf = next(group for group in shape.groups if group.name.startswith("pair/"))
        top = levels[0] if name == "v" else ("", "")
        found = [(each.required_level, each.preferred_level) for each in (shape, leaf)]
        assert found == [top, levels[1]]
        made.admit()
        made.settle()


@pytest.mark.parametrize(
    ("topology", "settings", "sentence"),
    [
        (
            HARD,
            JobSettings(),
            f"{WHERE}: expected a table of tiers in tessera.volcano.topology of the configuration, found none",
        ),
        (
            HARD | {"highestTierAllowed": 3},
            TIERS,
            f"{WHERE}.highestTierAllowed: expected 0 to 2, the tiers of tessera.volcano.topology, found 3",
        ),
    ],
)
def test_a_hard_level_without_its_tier_is_refused(topology: Json, settings: JobSettings, sentence: str) -> None:
    made = volcano(settings, policy={"networkTopology": topology})
    assert (made.workloads, made.refusals[-1]) == ({}, sentence)


def test_a_wish_without_a_table_is_none() -> None:
    made = volcano(policy={"networkTopology": {"mode": "soft"}})
    assert made.sizes() == [2]


def test_what_several_roles_share_is_bound_as_a_gang() -> None:
    made = PodWorld(*(pod(f"p{at}", cpu=f"{1 + at}", notes=VOLCANO) for at in range(3)), settings=TIERS)
    made.pod_group = {"metadata": {"name": "v", "uid": "v"}, "spec": {"minMember": 3, "networkTopology": HARD}}
    made.settle()
    shape = gang_shape(made.workload["metadata"]["annotations"])
    assert shape is not None
    assert (made.sizes(), shape.required_level) == ([1, 1, 1], "rack")
