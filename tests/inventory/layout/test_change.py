"""A layout changed under containers that run: nothing is taken from them, and all that is free changes."""

from collections.abc import Iterable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from inventory.devices import DeviceId, GpuUuid, NodeInventory
from inventory.layout.change import advance
from inventory.layout.entries import (
    Dra,
    GpuLayoutSpec,
    GpuMode,
    LayoutEntry,
    LayoutMode,
    Mig,
    Resolved,
    TimeSliced,
    WhenBusy,
    Whole,
    resolve,
)
from inventory.layout.layout import Layout, physical_id, plan
from inventory.layout.sharing import LayoutSpec
from tests.support.inventory.builders import gpu, node, uuid
from tests.support.inventory.layouts import SPECS, fractional, layout, mig, mps, on, sliced

PLAIN = LayoutSpec()


def ids(found: Layout) -> dict[DeviceId, str]:
    return {device.id: resource.name for resource in found.resources for device in resource.devices}


def by_claim(found: NodeInventory, modes: Mapping[GpuUuid, GpuMode]) -> dict[DeviceId, str]:
    """What claims may hold: one share of a GPU that is given out by shares, else the GPU or an instance of it."""
    offered: dict[DeviceId, str] = {}
    for each in found.gpus:
        mode = modes.get(each.uuid)
        if isinstance(mode, Dra) and mode.shares is not None:
            offered[DeviceId(f"{each.uuid}::a-share")] = f"shares of {mode.shares} %"
        elif isinstance(mode, Dra):
            offered |= dict.fromkeys(map(DeviceId, (each.uuid, *(part.uuid for part in each.mig_instances))), "a claim")
    return offered


@st.composite
def nodes(draw: st.DrawFn) -> NodeInventory:
    cut = st.none() | st.lists(st.sampled_from(["1g.5gb", "3g.20gb"]), min_size=1, max_size=2)
    return node([gpu(i, mig=draw(cut)) for i in range(draw(st.integers(1, 4)))])


@settings(max_examples=30, deadline=None)
@given(nodes(), st.lists(SPECS, min_size=1, max_size=4), st.data())
def test_no_held_device_is_ever_taken_away(
    found: NodeInventory, specs: list[GpuLayoutSpec], data: st.DataObject
) -> None:
    now: Mapping[GpuUuid, GpuMode] = {}
    held: dict[DeviceId, str] = {}
    for spec in specs:
        step = advance(found, PLAIN, now, resolve(found, spec, now), held)
        planned = plan(found, PLAIN, step.modes)
        planned.validate()
        offered = ids(planned) | by_claim(found, step.modes)
        assert held.items() <= offered.items(), "a held device went, or changed its resource"
        if step.refused:
            assert dict(step.modes) == dict(now)
        assert set(step.withheld) <= {uuid(i) for i in range(4)}
        now = step.modes
        given_away = data.draw(st.sets(st.sampled_from(sorted(offered)))) if offered else set()
        held |= {device: offered[device] for device in given_away}
        held = {device: held[device] for device in data.draw(st.sets(st.sampled_from(sorted(held))))} if held else {}


@settings(max_examples=30, deadline=None)
@given(nodes(), SPECS, SPECS)
def test_with_nobody_there_a_layout_is_in_force_at_once(
    found: NodeInventory, old: GpuLayoutSpec, new: GpuLayoutSpec
) -> None:
    before = advance(found, PLAIN, {}, resolve(found, old), ())
    resolved = resolve(found, new, before.modes)
    after = advance(found, PLAIN, before.modes, resolved, ())
    assert not after.blocked
    if resolved.problems:
        assert after.modes == before.modes
    else:
        assert {where: mode for where, mode in after.modes.items() if where in resolved.modes} == resolved.modes
        assert all(mode == Whole() for where, mode in after.modes.items() if where not in resolved.modes)


def step(
    found: NodeInventory, spec: GpuLayoutSpec, held: Iterable[str], now: Mapping[GpuUuid, GpuMode] | None = None
) -> tuple[Mapping[GpuUuid, GpuMode], tuple[str, ...]]:
    made = advance(found, PLAIN, now or {}, resolve(found, spec, now), [DeviceId(one) for one in held])
    return made.modes, tuple(device for one in made.blocked for device in one.devices)


TWO = node([gpu(0), gpu(1)])


def test_a_refused_change_touches_no_gpu_and_names_what_is_held() -> None:
    modes, blocking = step(TWO, layout(sliced(on(0, 1))), ["GPU-01"])
    assert modes == {}
    assert blocking == ("GPU-01",)


def test_a_change_that_waits_lets_the_other_gpus_go_on() -> None:
    spec = layout(sliced(on(0, 1), when_busy=WhenBusy.WAIT))
    made = advance(TWO, PLAIN, {}, resolve(TWO, spec), [DeviceId("GPU-01")])
    assert made.modes == {uuid(0): TimeSliced(4)}
    assert made.withheld == (uuid(1),)
    assert not made.refused
    assert advance(TWO, PLAIN, made.modes, resolve(TWO, spec), ()).modes == dict.fromkeys(
        (uuid(0), uuid(1)), TimeSliced(4)
    )


def test_a_gpu_that_waits_keeps_the_mode_that_it_is_in() -> None:
    spec = layout(sliced(on(0), 2, when_busy=WhenBusy.WAIT))
    assert step(TWO, spec, ["GPU-00::3"], {uuid(0): TimeSliced(4)})[0] == {uuid(0): TimeSliced(4)}


def test_more_slices_disturb_nobody_and_fewer_only_who_holds_those_that_go() -> None:
    now = {uuid(0): TimeSliced(4)}
    assert step(TWO, layout(sliced(on(0), 8)), ["GPU-00::3"], now) == ({uuid(0): TimeSliced(8)}, ())
    assert step(TWO, layout(sliced(on(0), 2)), ["GPU-00::1"], now) == ({uuid(0): TimeSliced(2)}, ())
    assert step(TWO, layout(sliced(on(0), 2)), ["GPU-00::3"], now) == (now, ("GPU-00::3",))


def test_equal_shares_of_another_size_disturb_every_client() -> None:
    now = resolve(TWO, layout(mps(on(0), 2))).modes
    assert step(TWO, layout(mps(on(0), 4)), ["GPU-00::0"], now) == (now, ("GPU-00::0",))


def test_a_gpu_is_given_out_by_shares_once_no_claim_has_it_or_a_part_of_it() -> None:
    found = node([gpu(0, mig=["3g.20gb"]), gpu(1)])
    whole, shared = {uuid(0): Dra(), uuid(1): Dra()}, layout(LayoutEntry(on(0, 1), LayoutMode.DRA, shares=10))
    assert step(found, shared, ["GPU-01"], whole) == (whole, ("GPU-01",))
    assert step(found, shared, ["MIG-00-0"], whole) == (whole, ("MIG-00-0",))
    assert step(found, shared, [], whole) == (dict.fromkeys(whole, Dra(10)), ())
    now = dict.fromkeys(whole, Dra(10))
    for other in (LayoutEntry(on(0, 1), LayoutMode.DRA), LayoutEntry(on(0, 1), LayoutMode.DRA, shares=20)):
        assert step(found, layout(other), ["GPU-01::a-share"], now) == (now, ("GPU-01::a-share",))


def test_what_a_layout_cut_is_whole_again_when_no_entry_names_it() -> None:
    cut = node([gpu(0, mig=["3g.20gb"])])
    now = {uuid(0): Mig(("3g.20gb",))}
    assert step(cut, GpuLayoutSpec(), (), now)[0] == {uuid(0): Whole()}
    assert step(cut, GpuLayoutSpec(), ["MIG-00-0"], now) == (now, ("MIG-00-0",))
    whole = node([gpu(0)])
    assert step(whole, GpuLayoutSpec(), (), {uuid(0): Whole()})[0] == {}
    by_hand = step(cut, GpuLayoutSpec(), (), {})
    assert by_hand[0] == {}, "what no layout cut is not ours to mend"


def test_from_instances_to_others_is_the_mig_planners() -> None:
    cut = node([gpu(0, mig=["3g.20gb", "3g.20gb"])])
    now = {uuid(0): Mig(("3g.20gb", "3g.20gb"))}
    modes, blocking = step(cut, layout(mig(on(0), "3g.20gb", "1g.5gb")), ["MIG-00-0"], now)
    assert (modes, blocking) == ({uuid(0): Mig(("3g.20gb", "1g.5gb"))}, ())
    assert {physical_id(one) for one in ids(plan(cut, PLAIN, modes))} == {"MIG-00-0", "MIG-00-1"}


def test_a_layout_with_problems_changes_nothing_and_a_gpu_that_is_gone_has_no_mode() -> None:
    now = {uuid(0): TimeSliced(4), uuid(1): TimeSliced(4)}
    made = advance(node([gpu(0)]), PLAIN, now, Resolved(problems=("no such GPU",)), ())
    assert made.modes == {uuid(0): TimeSliced(4)}
    assert structs.asdict(made)["blocked"] == ()


def test_gpus_of_one_daemon_change_together() -> None:
    """GPU 0 is held: GPU 1 keeps its daemon with it, and GPU 2, which would join GPU 1, waits too."""
    found = node([gpu(0), gpu(1), gpu(2), gpu(3)])
    pair = fractional(on(0, 1), 10, one_daemon=True)
    now = resolve(found, layout(pair, fractional(on(2), 10))).modes
    waiting = [
        LayoutEntry(on(0), LayoutMode.WHOLE, when_busy=WhenBusy.WAIT),
        LayoutEntry(on(1, 2), LayoutMode.FRACTIONAL, granularity=10, one_daemon=True, when_busy=WhenBusy.WAIT),
    ]
    wanted = resolve(found, layout(*waiting, sliced(on(3))))
    held = DeviceId(f"{uuid(0)}::7")
    step = advance(found, PLAIN, now, wanted, [held])
    assert {one.gpu: one.devices for one in step.blocked} == {uuid(i): (held,) for i in range(3)}
    assert step.modes == {**now, uuid(3): wanted.modes[uuid(3)]}
    assert advance(found, PLAIN, now, wanted, []).modes == wanted.modes
    same = advance(found, PLAIN, now, resolve(found, layout(pair, sliced(on(2)))), [held])
    assert not same.blocked, "what is held is not changed"


def test_a_gpu_that_a_claim_holds_is_given_out_by_claim_whatever_is_remembered_of_it() -> None:
    """Else the device plugin would offer it too: it knows of no claim."""
    found = node([gpu(0), gpu(1)])
    held = [DeviceId(uuid(0))]
    for wanted in (Dra(), Dra(shares=10)):
        step = advance(found, PLAIN, {}, Resolved({uuid(0): wanted}), held, claimed=held)
        assert (step.modes, step.blocked) == ({uuid(0): wanted}, ())
    for resolved in (Resolved(), Resolved({uuid(0): Whole()}), Resolved(problems=("wrong",))):
        step = advance(found, PLAIN, {uuid(1): Whole()}, resolved, held, claimed=held)
        assert step.modes == {uuid(0): Dra(), uuid(1): Whole()}
