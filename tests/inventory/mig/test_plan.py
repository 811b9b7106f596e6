"""The planner against the simulator's hardware rules, which are another author's code over the published tables."""

from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hack.bench.node import migplan as bench
from inventory.devices import MigProfile
from inventory.mig import parts as migparts
from inventory.mig import plan as migplan
from inventory.mig.parts import Part
from inventory.mig.plan import (
    Compute,
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    DoesNotFit,
    Existing,
    InTheWay,
    MigPlan,
    Slot,
    plan,
    steps_between,
)
from simulator.boards import migstate
from simulator.boards.boards import Product
from simulator.boards.migprofiles import compute_profiles
from simulator.boards.migstate import MigState
from simulator.boards.products import PRODUCTS

BOARDS = [
    PRODUCTS[name]
    for name in ("NVIDIA A100-SXM4-40GB", "NVIDIA A30", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200")
]
A100, A30, H100, *_ = BOARDS


def table(board: Product) -> tuple[MigProfile, ...]:
    """The profiles as NVML tells them."""
    return tuple(
        MigProfile(
            name=p.name,
            profile_id=p.id,
            slices=p.slices,
            size=p.size,
            starts=p.starts,
            max_count=p.count,
            memory_mib=p.memory_mib,
            multiprocessors=p.sms,
        )
        for p in board.mig
    )


def seen(board: Product, mig: MigState, busy: set[int] = frozenset()) -> tuple[Existing, ...]:  # type: ignore[assignment]
    """The hardware as an agent sees it; ``busy`` are serials of compute instances."""
    return tuple(
        Existing(
            gi_id=gi.id,
            profile=migstate.profile_of(board, gi).name,
            start=gi.start,
            size=migstate.profile_of(board, gi).size,
            computes=tuple(Compute(ci.id, Part(ci.start, ci.slices), ci.serial in busy) for ci in gi.computes),
        )
        for gi in mig.instances
    )


def take(board: Product, mig: MigState, step: migplan.Step) -> MigState:
    """One step on the hardware. Raises what it refuses."""
    gi = next((gi for gi in mig.instances if gi.start == step.start), None)
    if isinstance(step, CreateInstance):
        profile = board.mig_profile(step.profile)
        assert profile is not None
        assert profile.size == step.size
        return migstate.create_gpu_instance(mig, board, profile, step.start)
    assert gi is not None, f"{step} of nothing"
    whole = migstate.profile_of(board, gi)
    if isinstance(step, DestroyInstance):
        assert whole.name == step.profile
        return migstate.destroy_gpu_instance(mig, gi)
    if isinstance(step, DestroyCompute):
        (ci,) = [ci for ci in gi.computes if Part(ci.start, ci.slices) == step.part]
        return migstate.destroy_compute_instance(mig, gi, ci)
    assert isinstance(step, CreateCompute)
    kind = next(p for p in compute_profiles(whole.slices) if p.slices == step.part.slices)
    return migstate.create_compute_instance(mig, gi, kind, step.part.start, whole=whole.slices)


def run(board: Product, mig: MigState, steps: tuple[migplan.Step, ...]) -> Iterator[MigState]:
    for step in steps:
        mig = take(board, mig, step)
        migstate.validate(mig, board)
        yield mig


def after(board: Product, mig: MigState, found: MigPlan) -> MigState:
    migplan.validate(table(board), found.target)
    *_, end = mig, *run(board, mig, found.steps)
    assert {one.slot for one in seen(board, end)} == set(found.target), "ended elsewhere than planned"
    return end


def devices(board: Product, mig: MigState) -> Counter[str]:
    """MIG devices by profile text, as nvidia-smi lists them."""
    wholes = [(migstate.profile_of(board, gi), ci) for gi, ci in mig.devices()]
    return Counter(migparts.join(whole.name, ci.slices, whole.slices) for whole, ci in wholes)


@st.composite
def layouts(draw: st.DrawFn, board: Product) -> MigState:
    """Any state that instances created and destroyed in any order can leave; half-made ones too."""
    mig = MigState(enabled=True, pending=True)
    for _ in range(draw(st.integers(0, 9))):
        if mig.instances and draw(st.integers(0, 3)) == 0:
            gi = draw(st.sampled_from(mig.instances))
            for ci in gi.computes:
                mig = migstate.destroy_compute_instance(
                    mig, next(one for one in mig.instances if one.serial == gi.serial), ci
                )
            mig = migstate.destroy_gpu_instance(mig, next(one for one in mig.instances if one.serial == gi.serial))
            continue
        profile = draw(st.sampled_from(board.mig))
        start = draw(st.sampled_from(profile.starts))
        try:
            mig = migstate.create_gpu_instance(mig, board, profile, start)
        except migstate.NoRoomError:
            continue
        serial = mig.serial
        for kind in draw(st.lists(st.sampled_from(compute_profiles(profile.slices)), max_size=3)):
            gi = next(one for one in mig.instances if one.serial == serial)
            if migstate.remaining_compute(kind, gi):
                mig = migstate.create_compute_instance(mig, gi, kind, whole=profile.slices)
    return mig


@st.composite
def situations(draw: st.DrawFn) -> tuple[Product, MigState, set[int], list[str]]:
    """A board, what is on it, which compute instances are in use, and what is wanted: a layout that exists."""
    board = draw(st.sampled_from(BOARDS))
    mig = draw(layouts(board))
    serials = [ci.serial for _, ci in mig.devices()]
    busy = set(draw(st.lists(st.sampled_from(serials), unique=True))) if serials else set()
    wanted = list(devices(board, draw(layouts(board))).elements())
    return board, mig, busy, draw(st.permutations(wanted))


@given(situations())
def test_any_layout_to_any_layout_over_whatever_is_in_use(
    situation: tuple[Product, MigState, set[int], list[str]],
) -> None:
    board, mig, busy, wanted = situation
    existing = seen(board, mig, busy)
    found = plan(table(board), existing, wanted)
    if isinstance(found, DoesNotFit):
        # Compute parts were taken together from what stood apart, or the other way round: never without parts.
        assert any("c." in text for text in wanted), found
        return
    if isinstance(found, MigPlan):
        end = after(board, mig, found)
        assert busy <= {ci.serial for _, ci in end.devices()}, "something in use was destroyed"
        assert devices(board, end) == Counter(wanted)
        assert not migplan.endangered(existing, found.steps)
        again = plan(table(board), seen(board, end, busy), wanted)
        assert isinstance(again, MigPlan)
        assert not again.steps
        return
    assert found.blocking
    assert all(one.in_use for one in found.blocking)
    freed = tuple(_freed(one) if one in found.blocking else one for one in existing)
    assert isinstance(plan(table(board), freed, wanted), MigPlan), "with those gone it must do"
    if found.beside is not None:
        end = after(board, mig, found.beside)
        assert busy <= {ci.serial for _, ci in end.devices()}
        surplus = Counter[str]()
        for one in found.beside.surplus:
            whole = next(p.slices for p in board.mig if p.name == one.profile)
            surplus.update(migparts.join(one.profile, compute.part.slices, whole) for compute in one.computes)
        assert devices(board, end) == Counter(wanted) + surplus


def _freed(one: Existing) -> Existing:
    return replace(one, busy=False, computes=tuple(replace(each, busy=False) for each in one.computes))


@given(situations())
def test_a_change_that_stops_anywhere_can_go_on_and_can_go_back(
    situation: tuple[Product, MigState, set[int], list[str]],
) -> None:
    board, mig, busy, wanted = situation
    found = plan(table(board), seen(board, mig, busy), wanted)
    if not isinstance(found, MigPlan):
        return
    before = tuple(one.slot for one in seen(board, mig))
    for half in run(board, mig, found.steps):
        for goal in (found.target, before):
            steps = steps_between(seen(board, half, busy), goal)
            assert not migplan.endangered(seen(board, half, busy), steps)
            *_, end = half, *run(board, half, steps)
            assert {one.slot for one in seen(board, end)} == set(goal)
    assert not steps_between(seen(board, mig), before)


@pytest.mark.parametrize("board", [A30, A100], ids=lambda board: board.name)
def test_what_an_exhaustive_search_can_place_is_placed(board: Product) -> None:
    for wanted in combinations_of(board):
        possible = any(_creatable(board, order) for order in permutations(wanted))
        found = plan(table(board), (), wanted)
        assert isinstance(found, MigPlan) is possible, wanted


def combinations_of(board: Product) -> Iterator[tuple[str, ...]]:
    """Multisets of profiles, small ones all, so that permutations stay few."""
    names = [profile.name for profile in board.mig]
    for a in names:
        yield (a,)
        for b in names[names.index(a) :]:
            yield (a, b)
            for c in names[names.index(b) :]:
                yield (a, b, c)
                yield (a, b, c, c)


def _creatable(board: Product, order: tuple[str, ...]) -> bool:
    """Whether some choice of places, one after another, takes them all."""
    states = [MigState(enabled=True)]
    for name in order:
        profile = board.mig_profile(name)
        assert profile is not None
        after_: dict[frozenset[tuple[int, int]], MigState] = {}
        for mig in states:
            for start in profile.starts:
                try:
                    new = migstate.create_gpu_instance(mig, board, profile, start)
                except migstate.NoRoomError:
                    continue
                after_[frozenset((gi.start, gi.profile) for gi in new.instances)] = new
        states = list(after_.values())
        if not states:
            return False
    return True


def exists(profile: str, start: int, *, busy: bool = False, board: Product = A100) -> Existing:
    found = board.mig_profile(profile)
    assert found is not None
    return Existing(start, profile, start, found.size, (Compute(0, Part(0, found.slices), busy),))


def test_a_free_neighbour_is_replaced_beside_one_in_use() -> None:
    existing = [exists("4g.20gb", 0, busy=True), exists("2g.10gb", 4)]
    found = plan(table(A100), existing, ["4g.20gb", "1g.5gb", "1g.5gb"])
    assert isinstance(found, MigPlan)
    assert found.removed == (4,)
    assert [step for step in found.steps if step.start == 0] == []
    assert Slot("4g.20gb", 0, 4, (Part(0, 4),)) in found.target


def test_only_those_in_the_way_are_named() -> None:
    existing = [exists("1g.5gb", 0, busy=True), exists("1g.5gb", 5, busy=True)]
    found = plan(table(A100), existing, ["4g.20gb", "1g.5gb"])
    assert isinstance(found, InTheWay)
    assert [one.start for one in found.blocking] == [0]
    assert found.beside is None


def test_what_fits_beside_those_in_the_way_can_be_done_now() -> None:
    existing = [exists("1g.5gb", 0, busy=True), exists("2g.10gb", 2)]
    found = plan(table(A100), existing, ["3g.20gb"])
    assert isinstance(found, InTheWay)
    assert found.beside is not None
    assert [one.start for one in found.beside.surplus] == [0]
    assert [slot.start for slot in found.beside.target] == [0, 4]


def test_an_instance_moves_only_when_it_must() -> None:
    # 4g starts at slice 0 only: the idle 1g there has to go, the other may stay.
    found = plan(table(A100), [exists("1g.5gb", 0), exists("1g.5gb", 5)], ["4g.20gb", "1g.5gb", "1g.5gb"])
    assert isinstance(found, MigPlan)
    assert found.removed == (0,)


def test_compute_parts_share_a_gpu_instance_and_are_changed_inside_it() -> None:
    whole = plan(table(A100), (), ["1c.3g.20gb", "2c.3g.20gb"])
    assert isinstance(whole, MigPlan)
    assert [len(slot.parts) for slot in whole.target] == [2]
    (slot,) = whole.target
    busy = next(part for part in slot.parts if part.slices == 1)
    existing = [
        Existing(
            1, slot.profile, slot.start, slot.size, tuple(Compute(i, p, p == busy) for i, p in enumerate(slot.parts))
        )
    ]
    found = plan(table(A100), existing, ["1c.3g.20gb"] * 3)
    assert isinstance(found, MigPlan)
    assert found.removed == ()
    assert [type(step) for step in found.steps] == [DestroyCompute, CreateCompute, CreateCompute]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["5g.40gb"], "5g.40gb is no profile of this GPU, which has 1g.5gb"),
        (["3c.4g.20gb"], "4g.20gb has no compute instances of 3 slices"),
        (["4g.20gb", "4g.20gb"], "4g.20gb, 4g.20gb do not fit together"),
        (["1g.5gb+me", "1g.5gb+me"], "do not fit together"),
        (["7g.40gb", "1g.5gb"], "do not fit together"),
    ],
)
def test_what_no_such_gpu_can_be_is_told_in_a_line(wanted: list[str], said: str) -> None:
    found = plan(table(A100), (), wanted)
    assert isinstance(found, DoesNotFit)
    assert said in found.why
    assert migplan.possible(table(A100), wanted) == found.why


def test_room_for_the_large_is_kept_where_there_is_a_choice() -> None:
    found = plan(table(A100), (), ["1g.5gb"])
    assert isinstance(found, MigPlan)
    assert migplan.plan(table(A100), [replace(exists("1g.5gb", found.target[0].start), gi_id=9)], ["1g.5gb", "4g.20gb"])
    assert found.target[0].start >= 4


STANDS = {board.name: sorted(set(bench.stands(table(board)))) for board in (A30, A100)}


@given(st.data())
def test_no_way_spares_more(data: st.DataObject) -> None:
    board = data.draw(st.sampled_from([A30, A100]))
    stands = STANDS[board.name]
    there, wanted = data.draw(st.sampled_from(stands)), data.draw(st.sampled_from(stands))
    busy = data.draw(st.lists(st.booleans(), min_size=len(there), max_size=len(there)))
    existing = bench.existing(table(board), there, busy)
    found = plan(table(board), existing, [name for name, _ in wanted])
    held = {place for place, one in zip(there, busy, strict=True) if one}
    alike = [stand for stand in stands if sorted(n for n, _ in stand) == sorted(n for n, _ in wanted)]
    keeping = [stand for stand in alike if held <= set(stand)]
    if isinstance(found, MigPlan):
        assert len(found.removed) == min(len(set(there) - set(stand)) for stand in keeping)
    else:
        assert isinstance(found, InTheWay)
        assert not keeping
        assert len(found.blocking) == min(len(held - set(stand)) for stand in alike)


def test_of_two_alike_the_one_that_is_cut_as_wanted_stays() -> None:
    halves = Existing(0, "2g.10gb", 0, 2, (Compute(0, Part(0, 1)), Compute(1, Part(1, 1))))
    found = plan(table(A100), [halves, exists("2g.10gb", 2)], ["2g.10gb"])
    assert isinstance(found, MigPlan)
    assert found.removed == (0,)
    assert [slot.start for slot in found.target] == [2]


def within(*parts: tuple[int, int, bool]) -> Existing:
    """A 3g with compute instances of (start, slices, busy)."""
    computes = tuple(Compute(i, Part(start, slices), busy) for i, (start, slices, busy) in enumerate(parts))
    return Existing(1, "3g.20gb", 4, 4, computes)


@pytest.mark.parametrize(
    ("there", "wanted", "steps"),
    [
        (within((0, 1, False)), ["1c.3g.20gb"], []),
        (within((0, 1, False), (1, 1, True)), ["1c.3g.20gb"], [DestroyCompute(4, Part(0, 1))]),
        (within((1, 1, False)), ["2c.3g.20gb", "1c.3g.20gb"], [DestroyCompute(4, Part(1, 1))]),
        (within((2, 1, True)), ["3g.20gb"], None),
    ],
)
def test_compute_instances_stay_where_they_may(
    there: Existing, wanted: list[str], steps: list[DestroyCompute] | None
) -> None:
    found = plan(table(A100), [there], wanted)
    if steps is None:
        assert isinstance(found, InTheWay)
    else:
        assert isinstance(found, MigPlan)
        assert [step for step in found.steps if isinstance(step, DestroyCompute | DestroyInstance)] == steps


def test_compute_slices_are_counted_beside_memory_slices() -> None:
    half = replace(table(A100)[0], name="4g.half", slices=4, size=4, starts=(0, 4), max_count=2)
    assert isinstance(plan([*table(A100), half], (), ["4g.half"]), MigPlan)
    assert isinstance(plan([*table(A100), half], (), ["4g.half", "4g.half"]), DoesNotFit)
