"""What a layout means on a node: which GPU gets which mode, and every way in which it cannot be had."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from inventory.devices import MigProfile, NodeInventory
from inventory.layout.entries import (
    Enforcement,
    Fractional,
    FractionPlacement,
    GpuLayoutSpec,
    GpuSelector,
    LayoutEntry,
    LayoutMode,
    Mig,
    Mps,
    MpsClient,
    TimeSliced,
    Whole,
    enforcement,
    resolve,
)
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, SharingMode
from tests.support.inventory.builders import gpu, node, uuid
from tests.support.inventory.layouts import SPECS, fractional, layout, mig, mps, on, sliced


@st.composite
def nodes(draw: st.DrawFn) -> NodeInventory:
    cut = st.none() | st.lists(st.sampled_from(["1g.5gb", "3g.20gb"]), max_size=2)
    product = st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4"])
    return node([gpu(i, product=draw(product), mig=draw(cut)) for i in range(draw(st.integers(0, 5)))])


@settings(max_examples=30, deadline=None)
@given(nodes(), SPECS)
def test_a_layout_is_had_whole_or_not_at_all_and_always_alike(found: NodeInventory, spec: GpuLayoutSpec) -> None:
    resolved = resolve(found, spec)
    assert resolved == resolve(found, spec)
    assert not (resolved.modes and resolved.problems)
    assert resolved.modes.keys() <= {g.uuid for g in found.gpus}
    assert resolved.modes.keys() == resolved.when_busy.keys()
    assert all("\n" not in problem for problem in resolved.problems)
    plan(found, LayoutSpec(), resolved.modes).validate()
    if not resolved.problems:
        # Once in force, it stays where it is: also on the GPUs that `any` took.
        assert resolve(found, spec, resolved.modes).modes == resolved.modes


@settings(max_examples=30, deadline=None)
@given(nodes(), SPECS)
def test_gpus_that_no_entry_names_are_offered_as_without_a_layout(found: NodeInventory, spec: GpuLayoutSpec) -> None:
    modes = resolve(found, spec).modes
    with_layout = plan(found, LayoutSpec(), modes)
    without = plan(found, LayoutSpec())

    def of_unnamed(layout: object) -> list[str]:
        return [d.id for r in layout.resources for d in r.devices if d.gpu not in modes]  # type: ignore[attr-defined]

    assert of_unnamed(with_layout) == of_unnamed(without)


def problem(spec: GpuLayoutSpec, *gpus: object) -> str:
    (only,) = resolve(node(gpus or [gpu(0), gpu(1)]), spec).problems  # type: ignore[arg-type]
    return only


def test_a_gpu_named_twice_is_an_error_whatever_it_is_called() -> None:
    assert problem(layout(sliced(on(1)), fractional(on(uuid(1))))) == (
        "gpus: [GPU-01]: GPU 1 (GPU-01) is named by the entry gpus: [1] too, expected once"
    )
    assert "stands twice" in problem(layout(sliced(on(1, uuid(1)))))
    assert "too, expected once" in problem(layout(sliced(on(0)), sliced(GpuSelector(product="NVIDIA A100-SXM4-40GB"))))


def test_a_gpu_that_is_not_there_is_an_error_and_the_others_are_left_alone() -> None:
    spec = layout(sliced(on(0)), sliced(on(7)))
    assert problem(spec) == (
        "gpus: 7: no such GPU, this node has the GPUs 0, 1 (NVIDIA A100-SXM4-40GB), expected one of them"
    )
    assert resolve(node([gpu(0), gpu(1)]), spec).modes == {}
    assert "found 1 such GPUs" in problem(layout(sliced(on(0)), sliced(GpuSelector(any_count=2))))
    assert "no such GPU" in problem(layout(sliced(GpuSelector(product="H100"))))


def test_any_takes_what_nobody_names_the_lowest_first() -> None:
    spec = layout(mps(GpuSelector(any_count=1), 2), sliced(on(0)))
    modes = resolve(node([gpu(0), gpu(1), gpu(2)]), spec).modes
    assert {where: type(mode) for where, mode in modes.items()} == {uuid(0): TimeSliced, uuid(1): Mps}


def test_any_prefers_the_gpu_that_was_in_the_mode_then_the_one_that_is_cut_so() -> None:
    cut = node([gpu(0), gpu(1), gpu(2, mig=["3g.20gb"])])
    spec = layout(mig(GpuSelector(any_count=1), "3g.20gb"))
    assert list(resolve(cut, spec).modes) == [uuid(2)]
    was = {uuid(1): Mig(("3g.20gb",))}
    assert list(resolve(cut, spec, was).modes) == [uuid(1)]
    assert list(resolve(cut, layout(sliced(GpuSelector(any_count=2)))).modes) == [uuid(0), uuid(1)]


def test_what_a_gpu_cannot_do_is_said_before_anything_is_touched() -> None:
    plain = structs.replace(gpu(0, product="Tesla T4"), mig_capable=False)
    assert problem(layout(mig(on(0), "1g.5gb")), plain) == "GPU 0 (Tesla T4) cannot do MIG, expected one that can"
    profile = MigProfile("1g.5gb", 19, 1, 1, (0, 1, 2), 3, 4864, 14)
    a100 = structs.replace(gpu(0), mig_profiles=(profile,))
    assert "found 9g.99gb, expected some of 1g.5gb" in problem(layout(mig(on(0), "9g.99gb")), a100)
    assert "found 4 of 1g.5gb, expected 3 at most" in problem(layout(mig(on(0), *["1g.5gb"] * 4)), a100)
    pascal = structs.replace(gpu(0), compute_capability=(6, 0))
    assert "found 17 MPS clients, expected 16 at most" in problem(layout(mps(on(0), 17)), pascal)
    greedy = LayoutEntry(on(0), LayoutMode.MPS, clients=(MpsClient(30000), MpsClient(30000)))
    assert "found 60000 MiB of memory" in problem(layout(greedy), gpu(0))


def test_one_node_places_its_fractions_one_way() -> None:
    spread = fractional(on(1), placement=FractionPlacement.SPREAD)
    assert "expected one for all of them" in problem(layout(fractional(on(0)), spread))


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        (Whole(), Enforcement.HARDWARE),
        (Mig(("1g.5gb",)), Enforcement.HARDWARE),
        (Mig(("1g.5gb",), 2, SharingMode.TIME_SLICING), Enforcement.NOBODY),
        (Mig(("1g.5gb",), 2, SharingMode.MPS), Enforcement.DAEMON),
        (TimeSliced(4), Enforcement.NOBODY),
        (Mps((MpsClient(),) * 4, equal=True), Enforcement.DAEMON),
        (Mps((MpsClient(1024),), equal=False), Enforcement.BY_CLIENT),
        (Fractional(), Enforcement.BY_CLIENT),
    ],
)
def test_each_mode_says_who_enforces_it(mode: object, word: Enforcement) -> None:
    assert enforcement(mode) is word  # type: ignore[arg-type]


def test_gpus_of_one_daemon_are_alike_and_know_each_other() -> None:
    both = layout(fractional(on(0, 1), 10, one_daemon=True), fractional(on(2), 10, one_daemon=True))
    modes = resolve(node([gpu(0), gpu(1), gpu(2)]), both).modes
    pair = (uuid(0), uuid(1))
    assert modes == {
        uuid(0): Fractional(10, together=pair),
        uuid(1): Fractional(10, together=pair),
        uuid(2): Fractional(10),
    }
    assert problem(layout(fractional(on(0, 1), one_daemon=True)), gpu(0), gpu(1, product="Tesla T4")) == (
        "gpus: [0, 1]: oneDaemon: found the products NVIDIA A100-SXM4-40GB, Tesla T4, expected one"
    )
    any_two = layout(LayoutEntry(GpuSelector(any_count=2), LayoutMode.FRACTIONAL, one_daemon=True))
    was = {uuid(1): Fractional(together=(uuid(1), uuid(2))), uuid(2): Fractional(together=(uuid(1), uuid(2)))}
    assert resolve(node([gpu(0), gpu(1), gpu(2)]), any_two, was).modes == was, "it stays with its choice"
