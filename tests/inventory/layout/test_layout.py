"""What a node advertises: names, ids and replicas for every MIG strategy, selector and pattern."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from inventory.devices import GpuUuid, NodeInventory, ResourceName
from inventory.layout.layout import (
    DEFAULT_GPU_RESOURCE,
    Layout,
    Resource,
    mig_resource_name,
    physical_id,
    plan,
    shared_name,
)
from inventory.layout.sharing import (
    DeviceSelector,
    LayoutSpec,
    MigStrategy,
    ReplicatedResource,
    Replication,
    ResourcePattern,
    SharingMode,
)
from inventory.words import layouts as words
from tests.support.inventory.builders import gpu, mig_instance, node

PROFILES = st.sampled_from(["1g.5gb", "1g.5gb+me", "2g.10gb", "1c.2g.10gb", "3g.20gb"])
MIG_1G = ResourceName("nvidia.com/mig-1g.5gb")


@st.composite
def nodes(draw: st.DrawFn) -> NodeInventory:
    cut = st.none() | st.lists(PROFILES, max_size=4)
    product = st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4"])
    return node([gpu(i, product=draw(product), mig=draw(cut)) for i in range(draw(st.integers(0, 5)))])


SELECTORS = st.one_of(
    st.just(DeviceSelector()),
    st.builds(DeviceSelector, count=st.integers(1, 4)),
    st.builds(
        DeviceSelector,
        refs=st.lists(st.sampled_from(["0", "1", "0:0", "1:1", "GPU-02", "MIG-00-1", "9"]), min_size=1).map(tuple),
    ),
)
ENTRIES = st.builds(
    ReplicatedResource,
    name=st.sampled_from([DEFAULT_GPU_RESOURCE, MIG_1G]),
    replicas=st.integers(2, 4),
    rename=st.none() | st.just(ResourceName("nvidia.com/slice")),
    devices=SELECTORS,
)
SPECS = st.builds(
    LayoutSpec,
    mig_strategy=st.sampled_from(MigStrategy),
    replication=st.none()
    | st.builds(
        Replication,
        rename_by_default=st.booleans(),
        fail_requests_greater_than_one=st.booleans(),
        resources=st.lists(ENTRIES, min_size=1, max_size=3).map(tuple),
    ),
)


@settings(max_examples=40, deadline=None)
@given(nodes(), SPECS)
def test_every_plan_is_sound_and_repeatable(found: NodeInventory, spec: LayoutSpec) -> None:
    layout = plan(found, spec)
    layout.validate()
    assert layout == plan(found, spec)
    known = {g.uuid for g in found.gpus} | {mig.uuid for g in found.gpus for mig in g.mig_instances}
    for resource in layout.resources:
        assert resource.devices
        assert {device.physical_id for device in resource.devices} <= known
        assert all(physical_id(device.id) == device.physical_id for device in resource.devices)


@settings(max_examples=40, deadline=None)
@given(nodes(), SPECS)
def test_sharing_multiplies_devices_and_loses_none(found: NodeInventory, spec: LayoutSpec) -> None:
    shared = plan(found, spec)
    exclusive = plan(found, LayoutSpec(mig_strategy=spec.mig_strategy))

    def stand_on(layout: Layout) -> set[str]:
        return {device.physical_id for resource in layout.resources for device in resource.devices}

    assert stand_on(shared) == stand_on(exclusive)
    for resource in shared.resources:
        by_unit: dict[str, list[int | None]] = {}
        for device in resource.devices:
            by_unit.setdefault(device.physical_id, []).append(device.replica)
        assert all(numbers in ([None], list(range(len(numbers)))) for numbers in by_unit.values())


@settings(max_examples=30, deadline=None)
@given(nodes(), st.sampled_from(MigStrategy))
def test_without_sharing_every_device_is_exclusive(found: NodeInventory, strategy: MigStrategy) -> None:
    for resource in plan(found, LayoutSpec(mig_strategy=strategy)).resources:
        assert resource.sharing is SharingMode.NONE
        assert all(device.replica is None for device in resource.devices)


def only(layout: Layout) -> Resource:
    (resource,) = layout.resources
    return resource


def test_strategy_none_offers_a_cut_gpu_whole_and_says_what_that_means() -> None:
    layout = plan(node([gpu(0), gpu(1, mig=["1g.5gb"])]), LayoutSpec())
    assert [device.id for device in only(layout).devices] == ["GPU-00", "GPU-01"]
    assert only(layout).name == "nvidia.com/gpu"
    (note,) = layout.notes
    assert note.startswith("GPU 1 ")
    assert "migStrategy is none: it is offered whole" in note
    assert layout.problems == (), "it is as it was asked for"


def test_strategy_single_offers_instances_under_the_name_of_gpus() -> None:
    layout = plan(
        node([gpu(0, mig=["1g.5gb"] * 2), gpu(1, mig=["1g.5gb"])]), LayoutSpec(mig_strategy=MigStrategy.SINGLE)
    )
    assert only(layout).name == "nvidia.com/gpu"
    assert [device.id for device in only(layout).devices] == ["MIG-00-0", "MIG-00-1", "MIG-01-0"]
    assert layout.problems == ()


def test_strategy_single_without_any_mig_offers_gpus() -> None:
    layout = plan(node([gpu(0), gpu(1)]), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert [device.id for device in only(layout).devices] == ["GPU-00", "GPU-01"]


@pytest.mark.parametrize(
    ("cuts", "complaint"),
    [
        ([None, ["1g.5gb"]], "GPUs 0 have MIG mode off"),
        ([["1g.5gb"], []], "GPUs 1 have no MIG instance"),
        ([["1g.5gb"], ["2g.10gb"]], "found the profiles 1g.5gb, 2g.10gb, expected one"),
    ],
)
def test_strategy_single_refuses_a_node_that_is_not_cut_alike(cuts: list[list[str] | None], complaint: str) -> None:
    layout = plan(node([gpu(i, mig=cut) for i, cut in enumerate(cuts)]), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert layout.resources == ()
    assert complaint in layout.problems[0]


def test_strategy_mixed_names_a_resource_for_each_profile() -> None:
    found = node([gpu(0), gpu(1, mig=["1g.5gb+me", "2g.10gb"]), gpu(2, mig=[])])
    layout = plan(found, LayoutSpec(mig_strategy=MigStrategy.MIXED))
    assert {resource.name: len(resource.devices) for resource in layout.resources} == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.5gb.me": 1,
        "nvidia.com/mig-2g.10gb": 1,
    }
    assert layout.problems == (words.empty_mig("GPU 2 (GPU-02)"),)


def test_names_of_profiles_and_shared_resources() -> None:
    assert mig_resource_name("1g.10gb+me.all") == "nvidia.com/mig-1g.10gb.me.all"
    assert mig_resource_name("2g.48gb-me") == "nvidia.com/mig-2g.48gb-me"
    assert shared_name(MIG_1G) == "nvidia.com/mig-1g.5gb.shared"


def test_patterns_know_only_the_star_and_the_first_match_wins() -> None:
    patterns = (
        ResourcePattern("Tesla [T]4", ResourceName("nvidia.com/odd")),
        ResourcePattern("Tesla*", ResourceName("nvidia.com/tesla")),
        ResourcePattern("*", ResourceName("nvidia.com/gpu")),
    )
    found = node([gpu(0, product="Tesla T4"), gpu(1)])
    layout = plan(found, LayoutSpec(gpu_patterns=patterns))
    assert [resource.name for resource in layout.resources] == ["nvidia.com/tesla", "nvidia.com/gpu"]


def test_a_product_without_a_pattern_is_left_out_and_named() -> None:
    patterns = (ResourcePattern("Tesla*", DEFAULT_GPU_RESOURCE),)
    layout = plan(node([gpu(0), gpu(1, product="Tesla T4")]), LayoutSpec(gpu_patterns=patterns))
    assert [device.id for device in only(layout).devices] == ["GPU-01"]
    assert "GPU 0 (NVIDIA A100-SXM4-40GB) matches no pattern" in layout.problems[0]


def replicated(*entries: ReplicatedResource, rename: bool = False) -> LayoutSpec:
    return LayoutSpec(replication=Replication(rename_by_default=rename, resources=entries))


def test_replicas_are_numbered_from_zero_under_the_same_name_or_the_shared_one() -> None:
    entry = ReplicatedResource(DEFAULT_GPU_RESOURCE, 2)
    kept = only(plan(node([gpu(0)]), replicated(entry)))
    assert (kept.name, [device.id for device in kept.devices]) == ("nvidia.com/gpu", ["GPU-00::0", "GPU-00::1"])
    assert kept.sharing is SharingMode.TIME_SLICING
    renamed = only(plan(node([gpu(0)]), replicated(entry, rename=True)))
    assert renamed.name == "nvidia.com/gpu.shared"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (DeviceSelector(), ["GPU-00", "GPU-01", "GPU-02"]),
        (DeviceSelector(count=2), ["GPU-00", "GPU-01"]),
        (DeviceSelector(refs=("1",)), ["GPU-01"]),
        (DeviceSelector(refs=("GPU-02", "0")), ["GPU-00", "GPU-02"]),
    ],
)
def test_a_selector_shares_only_what_it_names(selector: DeviceSelector, expected: list[str]) -> None:
    layout = plan(
        node([gpu(i) for i in range(3)]), replicated(ReplicatedResource(DEFAULT_GPU_RESOURCE, 2, devices=selector))
    )
    devices = only(layout).devices
    assert sorted({device.physical_id for device in devices if device.replica is not None}) == expected
    assert len({device.physical_id for device in devices}) == 3


def test_a_gpu_index_selects_all_its_instances_and_a_pair_selects_one() -> None:
    found = node([gpu(0, mig=["1g.5gb"] * 2), gpu(1, mig=["1g.5gb"] * 2)])
    entry = ReplicatedResource(MIG_1G, 2, devices=DeviceSelector(refs=("0", "1:1")))
    spec = LayoutSpec(mig_strategy=MigStrategy.MIXED, replication=Replication(resources=(entry,)))
    devices = only(plan(found, spec)).devices
    assert {device.mig for device in devices if device.replica is not None} == {"MIG-00-0", "MIG-00-1", "MIG-01-1"}


def test_of_two_sharing_entries_the_larger_number_wins_a_device_and_a_useless_one_is_named() -> None:
    first = ReplicatedResource(DEFAULT_GPU_RESOURCE, 2, devices=DeviceSelector(refs=("0",)))
    second = ReplicatedResource(DEFAULT_GPU_RESOURCE, 4)
    stray = ReplicatedResource(ResourceName("nvidia.com/mig-7g.40gb"), 2)
    layout = plan(node([gpu(0), gpu(1)]), replicated(first, second, stray))
    assert [device.physical_id for device in only(layout).devices] == ["GPU-00"] * 4 + ["GPU-01"] * 4
    assert layout.problems == (words.no_device_shared("nvidia.com/mig-7g.40gb"),)
    other_name = structs.replace(second, rename=ResourceName("nvidia.com/other"))
    renamed = plan(node([gpu(0), gpu(1)]), replicated(first, other_name)).resources
    assert [(each.name, len(each.devices)) for each in renamed] == [("nvidia.com/gpu", 2), ("nvidia.com/other", 4)]


def test_as_many_replicas_are_advertised_as_fit_the_kubelets_list() -> None:
    """16384 of two GPUs: what a public report ran with NVIDIA's plugin."""
    named = [structs.replace(gpu(index), uuid=GpuUuid(f"GPU-{index:036d}")) for index in (0, 1)]
    layout = plan(node(named), replicated(ReplicatedResource(DEFAULT_GPU_RESOURCE, 16384)))
    assert (len(only(layout).devices), layout.problems) == (32768, ())


@pytest.mark.parametrize("replicas", [40_000, 2**31 - 1])
def test_a_list_that_is_too_long_is_left_out_alone_and_the_largest_number_is_said(replicas: int) -> None:
    named = [structs.replace(gpu(index), uuid=GpuUuid(f"GPU-{index:036d}")) for index in (0, 1, 2)]
    first_two = DeviceSelector(refs=("0", "1"))
    spec = replicated(ReplicatedResource(DEFAULT_GPU_RESOURCE, replicas, ResourceName("nvidia.com/many"), first_two))
    layout = plan(node(named), spec)
    assert [(each.name, len(each.devices)) for each in layout.resources] == [(DEFAULT_GPU_RESOURCE, 1)]
    fits = 31_943
    assert layout.problems == (words.list_too_long("nvidia.com/many", replicas, fits, 4),)
    assert f"expected {fits} at most" in layout.problems[0]
    both = ReplicatedResource(DEFAULT_GPU_RESOURCE, fits, ResourceName("nvidia.com/many"), first_two)
    assert [len(each.devices) for each in plan(node(named), replicated(both)).resources] == [2 * fits, 1]
    over = structs.replace(both, replicas=fits + 1)
    assert len(plan(node(named), replicated(over)).resources) == 1


def test_equal_compute_instances_are_offered_with_the_single_strategy() -> None:
    cut = [
        structs.replace(gpu(index, mig=[]), mig_instances=(mig_instance(index, 0, "1c.3g.20gb", ci_slices=1),))
        for index in (0, 1)
    ]
    layout = plan(node(cut), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert [device.mig for device in only(layout).devices] == ["MIG-00-0", "MIG-01-0"]
    assert (only(layout).name, layout.problems) == (DEFAULT_GPU_RESOURCE, ())
