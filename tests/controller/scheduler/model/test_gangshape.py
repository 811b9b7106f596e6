"""The shape of a gang comes back as it was written, and what nobody of ours wrote is refused."""

import pytest

from controller.scheduler.model.gangshape import GangShape, GangShapeError, Subgroup, gang_shape, written
from inventory.api.names import GANG

TREE = GangShape(
    minimum=1,
    groups=(
        Subgroup(name="workers", minimum=1, required_level="zone"),
        Subgroup(name="w0", parent="workers", minimum=2),
        Subgroup(name="w1", parent="workers", minimum=3, preferred_level="rack"),
        Subgroup(name="leader", minimum=1),
    ),
    members={"a": "w0", "b": "w1", "c": "leader"},
    required_level="region",
    staleness_s=60.0,
)


@pytest.mark.parametrize("shape", [GangShape(), GangShape(minimum=3), TREE])
def test_it_comes_back_as_it_was_written(shape: GangShape) -> None:
    assert gang_shape({GANG: written(shape)}) == shape


def test_a_workload_without_it_has_none() -> None:
    assert gang_shape({"other": "x"}) is None


def test_the_leaves_are_those_without_groups_below() -> None:
    assert [group.name for group in TREE.leaves] == ["w0", "w1", "leader"]
    assert [group.name for group in TREE.below("")] == ["workers", "leader"]
    assert [group.name for group in TREE.below("workers")] == ["w0", "w1"]


@pytest.mark.parametrize("value", ["", "[]", '{"minimum": "many"}', '{"groups": [{"parent": "p"}]}'])
def test_what_the_controller_did_not_write_is_refused(value: str) -> None:
    with pytest.raises(GangShapeError, match=r"metadata\.annotations\[tessera\.dev/gang\]: expected"):
        gang_shape({GANG: value})


def chain(length: int) -> tuple[Subgroup, ...]:
    return tuple(Subgroup(name=f"s{at}", parent=f"s{at - 1}" if at else "") for at in range(length))


def flat(length: int) -> tuple[Subgroup, ...]:
    return tuple(Subgroup(name=f"s{at}") for at in range(length))


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (GangShape(groups=(Subgroup(name=""),)), "names of groups, found an empty one"),
        (GangShape(groups=(Subgroup(name="a"), Subgroup(name="a"))), "names of their own, found one twice"),
        (GangShape(groups=(Subgroup(name="a", parent="b"),)), "names of groups, found 'b'"),
        (GangShape(members={"main": "b"}), "names of groups, found 'b'"),
        (GangShape(groups=(Subgroup(name="a", parent="b"), Subgroup(name="b", parent="a"))), "found a deeper one or a"),
        (GangShape(groups=chain(33)), "a tree of 32 levels at most"),
        (GangShape(groups=flat(1025)), "1024 groups at most, found 1025"),
        (GangShape(minimum=-1), "minimums of at least 0"),
        (GangShape(groups=(Subgroup(name="a", minimum=-1),)), "minimums of at least 0"),
    ],
)
def test_what_is_no_tree_is_refused_with_what_is_wrong(shape: GangShape, found: str) -> None:
    with pytest.raises(GangShapeError, match=found):
        gang_shape({GANG: written(shape)})


@pytest.mark.parametrize("groups", [chain(32), flat(1024)])
def test_the_largest_trees_are_read(groups: tuple[Subgroup, ...]) -> None:
    assert gang_shape({GANG: written(GangShape(groups=groups))}) is not None


def test_values_nested_without_end_are_refused() -> None:
    with pytest.raises(GangShapeError, match="expected what the controller wrote"):
        gang_shape({GANG: '{"other":' + "[" * 5000 + "]" * 5000 + "}"})
