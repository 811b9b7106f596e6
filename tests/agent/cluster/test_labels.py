"""Labels as NVIDIA's feature discovery has them."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.cluster.labels import family, is_published, label_value, labels
from agent.hardware.vgpu import VgpuHost
from inventory.devices import (
    Clique,
    Engines,
    Gpu,
    GpuUuid,
    MigInstance,
    MigUuid,
    NodeInventory,
    NodeName,
    ResourceName,
    unknown_links,
)
from inventory.layout.entries import Fractional, GpuMode, Mig
from inventory.layout.layout import plan
from inventory.layout.sharing import (
    DeviceSelector,
    LayoutSpec,
    MigStrategy,
    ReplicatedResource,
    Replication,
    SharingMode,
)
from tests.agent.answers import rows

A100 = "NVIDIA A100-SXM4-80GB"
GPU = ResourceName("nvidia.com/gpu")


def gpu(index: int, product: str = A100, **changes: Any) -> Gpu:
    base: dict[str, Any] = {
        "uuid": GpuUuid(f"GPU-{index}"),
        "index": index,
        "minor": index,
        "product": product,
        "pci_bus_id": f"0000:{index:02x}:00.0",
        "memory_mib": 81920,
        "compute_capability": (8, 0),
        "pci_class": 0x0302,
        "mig_capable": product == A100,
    }
    return Gpu(**(base | changes))


def instance(of: int, index: int, profile: str = "1g.10gb", **changes: Any) -> MigInstance:
    base: dict[str, Any] = {
        "uuid": MigUuid(f"MIG-{of}-{index}"),
        "index": index,
        "gi_id": index,
        "ci_id": 0,
        "profile": profile,
        "gi_slices": 1,
        "ci_slices": 1,
        "memory_mib": 9856,
        "multiprocessors": 14,
        "engines": Engines(copy=1, decoder=0),
    }
    return MigInstance(**(base | changes))


def cut(index: int, count: int, profile: str = "1g.10gb") -> Gpu:
    return gpu(index, mig_enabled=True, mig_instances=tuple(instance(index, n, profile) for n in range(count)))


def node(*gpus: Gpu) -> NodeInventory:
    return NodeInventory(
        name=NodeName("n"), driver_version="570.124.06", cuda_version=(12, 8), gpus=gpus, links=unknown_links(len(gpus))
    )


def of(found: NodeInventory, spec: LayoutSpec | None = None, **more: Any) -> dict[str, str]:
    """The labels without their common ``nvidia.com/``."""
    spec = spec or LayoutSpec()
    given: dict[str, Any] = {"machine_type": "DGX A100", "timestamp_s": None} | more
    made = labels(found, plan(found, spec), spec, **given)
    return {key.removeprefix("nvidia.com/"): value for key, value in made.items()}


def shared(
    replicas: int, *, rename: bool = False, mode: SharingMode = SharingMode.TIME_SLICING, **more: Any
) -> LayoutSpec:
    entry = ReplicatedResource(name=GPU, replicas=replicas, **more)
    return LayoutSpec(replication=Replication(mode=mode, rename_by_default=rename, resources=(entry,)))


def test_whole_gpus_carry_the_whole_set() -> None:
    assert of(node(*(gpu(n) for n in range(8))), timestamp_s=1700000000) == {
        "gfd.timestamp": "1700000000",
        "cuda.driver.major": "570",
        "cuda.driver.minor": "124",
        "cuda.driver.rev": "06",
        "cuda.runtime.major": "12",
        "cuda.runtime.minor": "8",
        "cuda.driver-version.major": "570",
        "cuda.driver-version.minor": "124",
        "cuda.driver-version.revision": "06",
        "cuda.driver-version.full": "570.124.06",
        "cuda.runtime-version.major": "12",
        "cuda.runtime-version.minor": "8",
        "cuda.runtime-version.full": "12.8",
        "gpu.machine": "DGX-A100",
        "gpu.count": "8",
        "gpu.product": "NVIDIA-A100-SXM4-80GB",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": "81920",
        "gpu.family": "ampere",
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.mode": "compute",
        "mig.capable": "true",
        "mps.capable": "false",
        "vgpu.present": "false",
    }


def test_a_node_without_gpus_has_no_labels() -> None:
    assert of(node()) == {}
    assert of(node(gpu(0, product="", readable=False))) == {}


@pytest.mark.parametrize(
    ("spec", "product", "replicas"),
    [
        (shared(10), "NVIDIA-A100-SXM4-80GB-SHARED", "10"),
        (shared(10, rename=True), "NVIDIA-A100-SXM4-80GB", "10"),
        (shared(4, rename=False, devices=DeviceSelector(refs=("0",))), "NVIDIA-A100-SXM4-80GB", "1"),
    ],
)
def test_sharing_shows_in_replicas_and_unless_renamed_in_the_product(
    spec: LayoutSpec, product: str, replicas: str
) -> None:
    found = of(node(gpu(0), gpu(1), gpu(2)), spec)
    assert (found["gpu.product"], found["gpu.replicas"], found["gpu.count"]) == (product, replicas, "3")


def test_mps_is_told_and_capable_only_without_mig() -> None:
    spec = shared(4, mode=SharingMode.MPS)
    found = of(node(gpu(0)), spec)
    assert (found["gpu.sharing-strategy"], found["mps.capable"]) == ("mps", "true")
    assert of(node(gpu(0), cut(1, 1)), spec)["mps.capable"] == "false"


def test_a_layout_shows_as_nvidias_labels_do() -> None:
    found = node(gpu(0), gpu(1), cut(2, 2))
    modes: dict[GpuUuid, GpuMode] = {
        found.gpus[0].uuid: Fractional(granularity=10),
        found.gpus[1].uuid: Fractional(granularity=10),
        found.gpus[2].uuid: Mig(("1g.10gb", "1g.10gb")),
    }
    layout = plan(found, LayoutSpec(), modes)
    told = labels(found, layout, LayoutSpec(), machine_type="", timestamp_s=None, percent_largest=70)
    assert told["tessera.dev/gpu-percent-largest"] == "70"
    assert (told["nvidia.com/gpu.sharing-strategy"], told["nvidia.com/gpu.replicas"]) == ("mps", "10")
    assert (told["nvidia.com/mig.strategy"], told["nvidia.com/mig-1g.10gb.count"]) == ("mixed", "2")
    assert told["nvidia.com/mps.capable"] == "true"
    assert all(is_published(key) for key in told)
    assert "tessera.dev/gpu-percent-largest" not in of(found)


def test_single_strategy_tells_of_instances_under_the_gpus_name() -> None:
    found = of(node(cut(0, 7), cut(1, 7)), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    told = {key: value for key, value in found.items() if key.startswith("gpu.")}
    assert told == {
        "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "gpu.count": "14",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": "9856",
        "gpu.multiprocessors": "14",
        "gpu.slices.gi": "1",
        "gpu.slices.ci": "1",
        "gpu.engines.copy": "1",
        "gpu.engines.decoder": "0",
        "gpu.engines.encoder": "0",
        "gpu.engines.jpeg": "0",
        "gpu.engines.ofa": "0",
        "gpu.machine": "DGX-A100",
        "gpu.family": "ampere",
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.mode": "compute",
    }


def test_single_strategy_without_mig_is_as_none() -> None:
    found = of(node(gpu(0)), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert (found["gpu.product"], found["mig.strategy"]) == ("NVIDIA-A100-SXM4-80GB", "single")


@pytest.mark.parametrize(
    "gpus", [(cut(0, 7), gpu(1)), (cut(0, 7), cut(1, 0)), (cut(0, 1), cut(1, 1, "1g.20gb"))], ids=str
)
def test_single_strategy_that_cannot_hold_is_invalid(gpus: tuple[Gpu, ...]) -> None:
    found = of(node(*gpus), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert found["gpu.product"] == "NVIDIA-A100-SXM4-80GB-MIG-INVALID"
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.memory"]) == ("0", "0", "0")
    assert found["gpu.sharing-strategy"] == ""
    assert "gpu.slices.gi" not in found


def test_mixed_strategy_tells_of_each_profile_beside_the_whole_gpus() -> None:
    gpus = (gpu(0), cut(1, 3), cut(2, 2, "1g.10gb+me"))
    found = of(node(*gpus), LayoutSpec(mig_strategy=MigStrategy.MIXED))
    assert (found["gpu.count"], found["gpu.replicas"]) == ("3", "1")
    assert (found["mig-1g.10gb.count"], found["mig-1g.10gb.memory"]) == ("3", "9856")
    assert found["mig-1g.10gb.me.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me"
    assert found["mig-1g.10gb.me.count"] == "2"


def test_gpus_all_cut_have_no_replicas_of_their_own() -> None:
    found = of(node(cut(0, 7)), LayoutSpec(mig_strategy=MigStrategy.MIXED))
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.sharing-strategy"]) == ("1", "0", "none")


def test_a_gpu_in_mig_mode_that_is_offered_whole_and_shared_says_neither() -> None:
    spec = structs.replace(shared(2), mig_strategy=MigStrategy.NONE)
    found = of(node(cut(0, 1), cut(1, 1)), spec)
    assert (found["gpu.replicas"], found["gpu.sharing-strategy"]) == ("0", "none")
    assert found["gpu.product"] == "NVIDIA-A100-SXM4-80GB"


def test_equal_compute_instances_are_told_of_with_the_single_strategy() -> None:
    part: dict[str, Any] = {"profile": "1c.3g.40gb", "gi_slices": 3, "ci_slices": 1}
    gpus = [gpu(at, mig_enabled=True, mig_instances=(instance(at, 0, **part),)) for at in (0, 1)]
    found = of(node(*gpus), LayoutSpec(mig_strategy=MigStrategy.SINGLE))
    assert found["gpu.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1c.3g.40gb"
    assert [found[f"gpu.{name}"] for name in ("count", "replicas", "slices.gi", "slices.ci")] == ["2", "1", "3", "1"]


def test_shared_instances_are_marked_unless_renamed() -> None:
    entry = ReplicatedResource(name=ResourceName("nvidia.com/mig-1g.10gb"), replicas=3)
    for rename, product in ((False, "-MIG-1g.10gb-SHARED"), (True, "-MIG-1g.10gb")):
        replication = Replication(rename_by_default=rename, resources=(entry,))
        found = of(node(cut(0, 2)), LayoutSpec(mig_strategy=MigStrategy.MIXED, replication=replication))
        assert found["mig-1g.10gb.product"] == f"NVIDIA-A100-SXM4-80GB{product}"
        assert (found["mig-1g.10gb.replicas"], found["mig-1g.10gb.sharing-strategy"]) == ("3", "time-slicing")


def test_parts_of_a_gpu_instance_have_no_labels() -> None:
    part = instance(0, 0, "1c.3g.40gb", gi_slices=3, ci_slices=1)
    found = of(node(gpu(0, mig_enabled=True, mig_instances=(part,))), LayoutSpec(mig_strategy=MigStrategy.MIXED))
    assert not [key for key in found if key.startswith("mig-")]


def test_mixed_models_are_described_by_the_most_numerous_and_each_is_counted() -> None:
    found = of(node(gpu(0, "Tesla T4"), gpu(1), gpu(2)))
    assert (found["gpu.product"], found["gpu.count"]) == ("NVIDIA-A100-SXM4-80GB", "2")
    assert found["tessera.dev/gpu.product.Tesla-T4"] == "1"
    assert found["tessera.dev/gpu.product.NVIDIA-A100-SXM4-80GB"] == "2"


def test_of_equally_many_models_the_lowest_index_decides_whatever_the_order() -> None:
    gpus = (gpu(0, "Tesla T4"), gpu(1))
    assert of(node(*gpus))["gpu.product"] == "Tesla-T4"
    assert of(node(*reversed(gpus)))["gpu.product"] == "Tesla-T4"


def test_the_clique_is_told_only_if_all_gpus_are_in_it() -> None:
    here, there = Clique("c0ffee", 1), Clique("c0ffee", 2)
    assert of(node(gpu(0, clique=here), gpu(1, clique=here)))["gpu.clique"] == "c0ffee.1"
    assert "gpu.clique" not in of(node(gpu(0, clique=here), gpu(1, clique=there)))
    assert "gpu.clique" not in of(node(gpu(0, clique=here), gpu(1)))


@pytest.mark.parametrize(
    ("classes", "mode"),
    [((0x0302,), "compute"), ((0x0300,), "graphics"), ((0x0302, 0x0300), "unknown"), ((None,), "unknown")],
)
def test_the_mode_is_the_pci_class(classes: tuple[int | None, ...], mode: str) -> None:
    assert of(node(*(gpu(n, pci_class=each) for n, each in enumerate(classes))))["gpu.mode"] == mode


def test_a_vgpu_tells_of_its_host() -> None:
    found = of(node(gpu(0)), vgpu=VgpuHost(driver_version="550.54", driver_branch="r550_30"))
    assert (found["vgpu.present"], found["vgpu.host-driver-version"]) == ("true", "550.54")
    assert found["vgpu.host-driver-branch"] == "r550_30"


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((3, 7), "kepler"), ((6, 1), "pascal"), ((7, 0), "volta"), ((7, 5), "turing"), ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"), ((9, 0), "hopper"), ((10, 0), "blackwell"), ((12, 0), "blackwell"),
        ((13, 0), "rubin"), ((0, 0), "undefined"), ((99, 0), "undefined"),
    ],
)  # fmt: skip
def test_families(capability: tuple[int, int], name: str) -> None:
    assert family(*capability) == name


def test_an_unknown_machine_is_called_unknown() -> None:
    assert of(node(gpu(0)), machine_type="")["gpu.machine"] == "unknown"
    assert of(node(gpu(0)), machine_type=" (c) ")["gpu.machine"] == "c"


def test_a_driver_version_of_two_parts_leaves_the_revision_empty() -> None:
    found = of(NodeInventory(name=NodeName("n"), driver_version="535.104", gpus=(gpu(0),), links=unknown_links(1)))
    assert (found["cuda.driver-version.minor"], found["cuda.driver-version.revision"]) == ("104", "")
    assert not [key for key in found if key.startswith("cuda.runtime")]


def test_a_long_product_keeps_its_suffix() -> None:
    found = of(node(gpu(0, "X" * 90)), shared(2))
    assert found["gpu.product"] == "X" * 56 + "-SHARED"


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/mig.config",
        "nvidia.com/mig.config.state",
        "nvidia.com/mig-manager.count",
        "nvidia.com/device-plugin.config",
        "tessera.dev/config",
        "kubernetes.io/hostname",
        "nvidia.com.evil/gpu.count",
    ],
)
def test_labels_of_others_are_not_ours(key: str) -> None:
    assert not is_published(key)


NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
profiles = st.sampled_from(["1g.10gb", "1g.10gb+me", "2g.20gb", "1g.24gb+me.all", "1g.24gb-me", "7g.80gb"])
gpus_strategy = st.lists(
    st.builds(
        lambda product, enabled, names, cc: (product, enabled, names, cc),
        st.one_of(st.sampled_from([A100, "Tesla T4"]), st.text(max_size=96)),
        st.booleans(),
        st.lists(profiles, max_size=3),
        st.tuples(st.integers(0, 14), st.integers(0, 9)),
    ),
    max_size=5,
)


@given(
    gpus_strategy,
    st.sampled_from(MigStrategy),
    st.integers(1, 4),
    st.booleans(),
    st.text(max_size=80),
    st.text(max_size=30),
)
def test_whatever_the_hardware_labels_are_valid_ours_and_repeatable(
    gpus: list[tuple[str, bool, list[str], tuple[int, int]]],
    strategy: MigStrategy,
    replicas: int,
    rename: bool,
    machine: str,
    version: str,
) -> None:
    made = [
        gpu(
            n,
            product,
            mig_enabled=enabled,
            compute_capability=capability,
            mig_instances=tuple(instance(n, i, name) for i, name in enumerate(names)) if enabled else (),
        )
        for n, (product, enabled, names, capability) in enumerate(gpus)
    ]
    replication = Replication(rename_by_default=rename, resources=(ReplicatedResource(name=GPU, replicas=replicas),))
    spec = LayoutSpec(mig_strategy=strategy, replication=replication if replicas > 1 else None)
    found = NodeInventory(name=NodeName("n"), driver_version=version, gpus=tuple(made), links=unknown_links(len(made)))
    layout = plan(found, spec)
    told = labels(found, layout, spec, machine_type=machine, timestamp_s=1)
    for key, value in told.items():
        prefix, _, name = key.partition("/")
        assert prefix in ("nvidia.com", "tessera.dev")
        assert 0 < len(name) <= 63, key
        assert len(value) <= 63, value
        assert NAME.fullmatch(name), key
        assert NAME.fullmatch(value), value
        assert is_published(key), key
    assert told == labels(found, layout, spec, machine_type=machine, timestamp_s=1)
    assert bool(told) == any(each.product for each in made)


@pytest.mark.parametrize("row", rows("label-values"), ids=lambda row: row["text"])
def test_a_name_becomes_the_label_that_nvidias_discovery_writes(row: dict[str, str]) -> None:
    assert label_value(row["text"]) == row["label"]
    told = of(node(gpu(0, row["text"])), machine_type=row["text"])
    assert (told["gpu.machine"], told["gpu.product"]) == (row["label"], row["label"])


@pytest.mark.parametrize("strategy", MigStrategy)
def test_the_strategy_is_a_label_only_where_there_is_one(strategy: MigStrategy) -> None:
    told = of(node(gpu(0)), LayoutSpec(mig_strategy=strategy))
    assert told.get("mig.strategy", "none") == strategy
    assert ("mig.strategy" in told) == (strategy is not MigStrategy.NONE)


@given(st.text())
def test_label_values_are_always_valid(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63
    assert NAME.fullmatch(value)
    assert label_value(value) == value
