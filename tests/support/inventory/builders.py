"""Plain data for the tests of inventory: score matrices, nodes, and hypothesis strategies that draw them."""

import random
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigUuid, NodeInventory, NodeName
from inventory.layout.layout import LogicalDevice
from inventory.links import Link, PcieLevel, ScoreMatrix

PAIR_SCORES = st.one_of(
    st.sampled_from([0, 10, 20, 50]),
    st.sampled_from([110, 150, 210, 250, 1260]),
    st.integers(0, 1860),
)


def matrix(n: int, score: Callable[[int, int], int]) -> ScoreMatrix:
    """A symmetric matrix: ``score(i, j)`` is asked once for each pair, with i < j."""
    pairs = {(i, j): score(i, j) for j in range(n) for i in range(j)}
    return tuple(tuple(0 if i == j else pairs[min(i, j), max(i, j)] for j in range(n)) for i in range(n))


def random_matrix(n: int, seed: int) -> ScoreMatrix:
    numbers = random.Random(seed)
    return matrix(n, lambda _i, _j: numbers.randrange(1000))


@st.composite
def score_matrices(draw: st.DrawFn, *, max_gpus: int = 8) -> ScoreMatrix:
    """Arbitrary links; few distinct values in about half of the draws, so that ties are common."""
    n = draw(st.integers(1, max_gpus))
    values = draw(st.sampled_from([PAIR_SCORES, st.sampled_from([10, 110]), st.just(0), st.integers(0, 3)]))
    return matrix(n, lambda _i, _j: draw(values))


@st.composite
def boxes(draw: st.DrawFn, *, max_gpus: int = 9) -> ScoreMatrix:
    """Boxes built of equal parts, one level inside the other, with the GPUs in any order: full of twins."""
    widths = draw(st.lists(st.sampled_from([2, 3]), min_size=1, max_size=3))
    levels = draw(st.lists(st.integers(0, 40), min_size=len(widths) + 1, max_size=len(widths) + 1))
    places: list[tuple[int, ...]] = [()]
    for width in widths:
        places = [(*place, i) for place in places for i in range(width)]
    places = draw(st.permutations(places))[:max_gpus]

    def shared(i: int, j: int) -> int:
        return next((k for k, (a, b) in enumerate(zip(places[i], places[j], strict=True)) if a != b), len(widths))

    return matrix(len(places), lambda i, j: levels[shared(i, j)])


def uuid(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-{index:02d}")


def whole(index: int) -> LogicalDevice:
    return LogicalDevice(id=DeviceId(uuid(index)), gpu=uuid(index))


def replicas(index: int, count: int, numa_node: int | None = None) -> list[LogicalDevice]:
    return [
        LogicalDevice(id=DeviceId(f"{uuid(index)}::{n}"), gpu=uuid(index), replica=n, numa_node=numa_node)
        for n in range(count)
    ]


def instances(index: int, count: int, numa_node: int | None = None) -> list[LogicalDevice]:
    return [
        LogicalDevice(
            id=DeviceId(f"MIG-{index:02d}-{n}"),
            gpu=uuid(index),
            mig=MigUuid(f"MIG-{index:02d}-{n}"),
            numa_node=numa_node,
        )
        for n in range(count)
    ]


def ids(devices: Sequence[LogicalDevice]) -> list[DeviceId]:
    return [device.id for device in devices]


def mig_instance(gpu: int, index: int, profile: str, *, ci_slices: int | None = None) -> MigInstance:
    slices = int(profile.split(".")[-2].removesuffix("g"))
    return MigInstance(
        uuid=MigUuid(f"MIG-{gpu:02d}-{index}"),
        index=index,
        gi_id=index + 1,
        ci_id=0,
        profile=profile,
        gi_slices=slices,
        ci_slices=slices if ci_slices is None else ci_slices,
        memory_mib=1024 * slices,
        multiprocessors=14 * slices,
    )


def gpu(index: int, *, product: str = "NVIDIA A100-SXM4-40GB", mig: Sequence[str] | None = None) -> Gpu:
    """A GPU; ``mig`` lists the profiles it is cut into, None where MIG mode is off."""
    return Gpu(
        uuid=uuid(index),
        index=index,
        minor=index,
        product=product,
        pci_bus_id=f"0000:{index:02x}:00.0",
        memory_mib=40960,
        numa_node=index // 4,
        mig_capable=True,
        mig_enabled=mig is not None,
        mig_instances=tuple(mig_instance(index, i, profile) for i, profile in enumerate(mig or ())),
    )


def node(gpus: Sequence[Gpu]) -> NodeInventory:
    near, far = Link(pcie=PcieLevel.PIX), Link(pcie=PcieLevel.SYS)
    links = tuple(tuple(near if i // 2 == j // 2 else far for j in range(len(gpus))) for i in range(len(gpus)))
    return NodeInventory(name=NodeName("node-a"), gpus=tuple(gpus), links=links)
