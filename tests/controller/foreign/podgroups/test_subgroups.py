"""A subgroup is whole or not there: which pods a group starts with, and what joins it as a whole."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.foreign.podgroups.subgroups import Tree, lacking, starting
from controller.scheduler.model.gangshape import GangShape, Subgroup


def tree(*groups: tuple[str, str, int], minimum: int = 0, spare: str = "") -> Tree:
    """``groups``: name, parent and minimum of each."""
    made = tuple(Subgroup(name=name, parent=parent, minimum=least) for name, parent, least in groups)
    return Tree(shape=GangShape(minimum=minimum, groups=made), spare=frozenset(spare.split()))


ABC = (("a", "", 2), ("b", "", 2), ("c", "", 2))
NESTED = (
    ("x", "", 1),
    ("x1", "x", 2),
    ("x2", "x", 1),
    ("y", "", 0),
    ("y1", "y", 1),
    ("y2", "y", 1),
)


@pytest.mark.parametrize(
    ("leaves", "total", "expected"),
    [
        ("aabbcc", 4, "aabb"),
        ("abcabc", 4, "abab"),
        ("abccab", 4, "acca"),
        ("ccbbaa", 4, "ccbb"),
        ("aabb", 4, "aabb"),
        ("aaaabb", 5, "aaabb"),
        ("aabbccc", 5, "aabbcc"),
        ("aabbc", 5, "aabb"),
        ("aabc", 4, "aabc"),
        ("abc", 4, "abc"),
    ],
    ids=[
        "the first",
        "whole although they come in turns",
        "those that were whole first",
        "by age, not by name",
        "no more",
        "pods of what is there fill up",
        "else a whole one more",
        "and no part of one",
        "too few of one",
        "too few of all",
    ],
)
def test_a_group_starts_with_whole_subgroups_as_many_as_it_needs(leaves: str, total: int, expected: str) -> None:
    own = tree(*ABC, minimum=2)
    assert "".join(leaves[at] for at in starting(own, leaves, total)) == expected
    assert bool(lacking(own, expected)) == (
        not any(min(expected.count(leaf) for leaf in two) >= 2 for two in ("ab", "ac", "bc"))
    )


def test_what_is_missing_is_said_of_the_first_that_is_not_whole() -> None:
    own = tree(*ABC, minimum=2)
    assert lacking(own, "aabc") == "1 of 2 pods of b"
    assert lacking(own, "bb") == "0 of 2 pods of a"
    assert lacking(tree(*NESTED, minimum=1), ["x1", "y1"]) == "1 of 2 pods of x1"


@pytest.mark.parametrize(("name", "least"), [("", 2), ("x", 1), ("x1", 2), ("y", 2), ("y2", 1)])
def test_the_fewest_pods_of_a_whole_one(name: str, least: int) -> None:
    """``x`` needs one of its two, the top one of ``x`` and ``y``, ``y`` both."""
    assert tree(*NESTED, minimum=2).least("") == 3
    assert tree(*NESTED).least("") == 3
    assert tree(("a", "", 2), minimum=9).least("") == 2, "more than there are is all of them"
    found = tree(*NESTED, minimum=1).least(name)
    assert found == (1 if not name else least)


@pytest.mark.parametrize(
    ("leaf", "there", "whole"),
    [
        ("x1", ["y1", "y2"], "x"),
        ("x1", ["x2"], "x1"),
        ("x1", ["x1"], ""),
        ("y1", ["x2"], "y"),
        ("", ["x2"], ""),
        ("none", ["x2"], ""),
    ],
)
def test_pods_join_with_the_highest_subgroup_of_which_nothing_is_there(leaf: str, there: list[str], whole: str) -> None:
    assert tree(*NESTED, minimum=1).wholes([leaf], there) == {leaf: whole}


def test_a_subgroup_without_a_minimum_comes_pod_by_pod() -> None:
    own = tree(("a", "", 2), ("b", "", 0), ("c", "", 0), ("c1", "c", 0))
    assert set(own.wholes(("a", "b", "c1"), ["a"]).values()) == {""}
    assert starting(own, ["b", "c1", "a", "a"], 3) == [0, 2, 3]


def test_subgroups_that_are_not_needed_come_each_by_itself() -> None:
    own = tree(("p", "", 0), ("p/1", "p", 2), ("p/2", "p", 2), spare="p")
    assert (own.least(""), lacking(own, []), own.wholes(["p/1"], [])["p/1"]) == (0, "", "p/1")
    assert starting(own, ["p/1", "p/2", "p/2", "p/1", ""], 2) == [1, 2, 4]


def test_a_part_is_a_tree_of_its_own() -> None:
    part = tree(*NESTED, minimum=1).part("x")
    assert [(group.name, group.parent) for group in part.shape.groups] == [("x", ""), ("x1", "x"), ("x2", "x")]
    assert (part.least(""), part.wholes(["x1"], ["x2"])["x1"], part.part("x2").least("")) == (1, "x1", 1)
    assert tree(*NESTED).part("none").shape.groups == ()


TREES = [tree(*ABC, minimum=2), tree(*ABC), tree(*NESTED, minimum=1), tree(*NESTED), tree(*ABC, minimum=1, spare="c")]


@settings(max_examples=30)
@given(st.sampled_from(TREES), st.data(), st.integers(1, 9))
def test_no_subgroup_is_partly_there_and_none_that_is_needed_is_missing(
    own: Tree, data: st.DataObject, total: int
) -> None:
    names = [group.name for group in own.shape.leaves]
    leaves = data.draw(st.lists(st.sampled_from([*names, ""]), max_size=14))
    taken = [leaves[at] for at in starting(own, leaves, total)]
    if lacking(own, leaves):
        assert lacking(own, taken)
        assert len(taken) <= total
        return
    assert not lacking(own, taken)
    counts = Counter(taken)
    assert all(not counts[group.name] or counts[group.name] >= group.minimum for group in own.shape.leaves)
    short = total - len(taken)
    left = set(Counter(leaves) - counts)
    assert short <= 0 or all(own.wholes(left, counts).values()), "what may join one by one fills up"


@settings(max_examples=30)
@given(st.sampled_from(TREES), st.permutations(["a", "b", "c", "x1", "x2", "y1", "y2"]))
def test_what_is_above_the_minimum_joins_in_wholes_that_do_not_overlap(own: Tree, order: list[str]) -> None:
    """Each pod is of the one that its leaf is below, until all leaves are there."""
    there: set[str] = set()
    for leaf in order:
        whole = own.wholes([leaf], there)[leaf]
        below = {group.name for group in own.part(whole).shape.groups} if whole else set()
        assert not below & there
        assert not whole or leaf in below
        there |= {leaf} & {group.name for group in own.shape.leaves}
    assert set(own.wholes(order, there).values()) == {""}


def test_the_largest_tree_costs_little() -> None:
    """Each group is looked at a few times, however many there are."""
    names = [f"l{at}" for at in range(1000)]
    reads = 0

    class Counted(Tree):
        def is_leaf(self, name: str) -> bool:
            nonlocal reads
            reads += 1
            return super().is_leaf(name)

    shape = GangShape(minimum=500, groups=tuple(Subgroup(name=name, minimum=1) for name in names))
    own = Counted(shape=shape)
    assert starting(own, names, 700) == [*range(700)]
    assert lacking(own, names) == ""
    assert reads < 50_000
