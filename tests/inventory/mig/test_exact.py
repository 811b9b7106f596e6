"""Instances at given places: all of them or a sentence, whatever is in use stays, and blocks nothing beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hack.bench.node.migplan import profiles_of
from inventory.mig.exact import exact, overlap
from inventory.mig.parts import Part
from inventory.mig.plan import (
    Compute,
    CreateCompute,
    CreateInstance,
    DestroyInstance,
    DoesNotFit,
    Existing,
    InTheWay,
    MigPlan,
    Slot,
    Step,
    validate,
)
from simulator.boards.products import PRODUCTS

A100 = profiles_of(PRODUCTS["NVIDIA A100-SXM4-40GB"])
BY_NAME = {profile.name: profile for profile in A100}
PLACES = [(profile.name, start) for profile in A100 for start in profile.starts]


def slot(name: str, start: int) -> Slot:
    return Slot(name, start, BY_NAME[name].size, (Part(0, BY_NAME[name].slices),))


def existing(name: str, start: int, *, busy: bool = False) -> Existing:
    part = Part(0, BY_NAME[name].slices)
    return Existing(start + 10, name, start, BY_NAME[name].size, (Compute(0, part, busy),))


def done(there: list[Existing], steps: tuple[Step, ...]) -> set[tuple[str, int]]:
    """What stands after the steps; each must be possible when it comes."""
    found = {instance.start: instance.slot for instance in there}
    for step in steps:
        if isinstance(step, DestroyInstance):
            del found[step.start]
        elif isinstance(step, CreateInstance):
            new = slot(step.profile, step.start)
            assert not any(overlap(new, other) for other in found.values())
            found[step.start] = new
    assert sum(isinstance(step, CreateCompute) for step in steps) == sum(isinstance(s, CreateInstance) for s in steps)
    return {(each.profile, each.start) for each in found.values()}


@st.composite
def stands(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Places that a GPU can have side by side."""
    found: list[tuple[str, int]] = []
    for place in draw(st.lists(st.sampled_from(PLACES), max_size=5)):
        if not isinstance(exact(A100, (), [slot(*each) for each in [*found, place]]), DoesNotFit):
            found.append(place)
    return found


@given(stands(), stands(), st.integers(0, 31))
def test_what_is_wanted_is_there_afterwards_and_nothing_in_use_is_touched(
    before: list[tuple[str, int]], wanted: list[tuple[str, int]], busy: int
) -> None:
    there = [existing(*place, busy=bool(busy >> number & 1)) for number, place in enumerate(before)]
    slots = [slot(*place) for place in wanted]
    found = exact(A100, there, slots)
    held = {(instance.profile, instance.start) for instance in there if instance.in_use}
    if isinstance(found, MigPlan):
        validate(A100, found.target)
        assert done(there, found.steps) == set(wanted) == {(each.profile, each.start) for each in found.target}
        assert held <= set(wanted)
        return
    assert isinstance(found, InTheWay)
    assert {(each.profile, each.start) for each in found.blocking} == held - set(wanted)
    if found.beside is not None:
        validate(A100, found.beside.target)
        after = done(there, found.beside.steps)
        assert held <= after <= held | set(wanted)
        free = {place for place in wanted if not any(overlap(slot(*place), each) for each in found.blocking)}
        assert free <= after


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ([Slot("9g.1gb", 0, 1, ())], "9g.1gb is no profile of this GPU, which has 1g.5gb, "),
        ([structs.replace(slot("1g.5gb", 0), start=7)], "1g.5gb cannot stand at slice 7"),
        ([structs.replace(slot("3g.20gb", 0), size=3)], "3g.20gb cannot stand at slice 0"),
        ([slot("3g.20gb", 4), slot("1g.5gb", 6)], "1g.5gb at slice 6 and 3g.20gb at slice 4 overlap"),
        ([slot("1g.5gb+me", 0), slot("1g.5gb+me", 1)], "found 2 of 1g.5gb+me, expected 1 at most"),
    ],
)
def test_what_no_such_gpu_can_have_is_said(wanted: list[Slot], why: str) -> None:
    found = exact(A100, (), wanted)
    assert isinstance(found, DoesNotFit)
    assert found.why.startswith(why)


def test_more_compute_slices_than_there_are_do_not_fit() -> None:
    narrow = tuple(structs.replace(each, size=1, starts=tuple(range(8))) for each in A100)
    two = [Slot("4g.20gb", start, 1, (Part(0, 4),)) for start in (0, 1)]
    one_more = [structs.replace(each, max_count=2) for each in narrow]
    found = exact(one_more, (), two)
    assert isinstance(found, DoesNotFit)
    assert found.why == "found 8 compute slices, expected 7 at most"
    assert isinstance(exact(one_more, (), [two[0], Slot("3g.20gb", 4, 1, (Part(0, 3),))]), MigPlan)


def test_neighbours_do_not_overlap() -> None:
    assert not overlap(slot("3g.20gb", 0), slot("3g.20gb", 4))
    assert overlap(slot("3g.20gb", 0), slot("1g.5gb", 3))
    assert overlap(slot("1g.5gb", 3), slot("3g.20gb", 0))


def test_an_instance_in_use_blocks_its_place_and_the_others_are_made_beside_it() -> None:
    there = [existing("1g.5gb", 4, busy=True), existing("1g.5gb", 0)]
    found = exact(A100, there, [slot("3g.20gb", 4), slot("2g.10gb", 0)])
    assert isinstance(found, InTheWay)
    assert [each.start for each in found.blocking] == [4]
    assert found.kept == ()
    assert found.beside is not None
    assert done(there, found.beside.steps) == {("1g.5gb", 4), ("2g.10gb", 0)}
    assert found.beside.surplus == found.blocking
