"""Layouts drawn at random, and short ways to write one."""

from hypothesis import strategies as st

from inventory.devices import ResourceName
from inventory.layout.entries import (
    FractionPlacement,
    GpuLayoutSpec,
    GpuSelector,
    LayoutEntry,
    LayoutMode,
    MpsClient,
    WhenBusy,
)
from inventory.layout.sharing import SharingMode
from tests.support.inventory.builders import uuid

LARGE, SMALL = ResourceName("nvidia.com/gpu-large"), ResourceName("nvidia.com/gpu-small")
UNEVEN = (MpsClient(20480, 50, LARGE), MpsClient(10240, 25, SMALL))

MODES: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.just({"mode": LayoutMode.WHOLE}),
    st.builds(lambda n: {"mode": LayoutMode.DRA, "shares": n}, st.sampled_from([None, 10, 25])),
    st.builds(
        lambda n, rename: {"mode": LayoutMode.TIME_SLICING, "replicas": n, "rename": rename},
        st.integers(2, 4),
        st.booleans(),
    ),
    st.builds(lambda n: {"mode": LayoutMode.MPS, "replicas": n}, st.integers(2, 4)),
    st.just({"mode": LayoutMode.MPS, "clients": UNEVEN}),
    st.builds(
        lambda n, joint: {"mode": LayoutMode.FRACTIONAL, "granularity": n, "one_daemon": joint},
        st.sampled_from([1, 10, 25]),
        st.booleans(),
    ),
    st.builds(
        lambda profiles, n, by: {
            "mode": LayoutMode.MIG,
            "profiles": tuple(profiles),
            "replicas": n,
            "sharing": by,
        },
        st.lists(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb"]), min_size=1, max_size=3),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([SharingMode.TIME_SLICING, SharingMode.MPS]),
    ),
)
SELECTORS = st.one_of(
    st.lists(st.sampled_from(["0", "1", "2", "3", uuid(0), uuid(2), "9"]), min_size=1, max_size=3, unique=True).map(
        lambda refs: GpuSelector(refs=tuple(refs))
    ),
    st.builds(GpuSelector, any_count=st.integers(1, 3)),
    st.builds(GpuSelector, product=st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4"]), any_count=st.integers(1, 2)),
    st.builds(GpuSelector, product=st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4"])),
)


@st.composite
def entries(draw: st.DrawFn) -> LayoutEntry:
    fields = draw(MODES)
    return LayoutEntry(gpus=draw(SELECTORS), when_busy=draw(st.sampled_from(WhenBusy)), **fields)  # type: ignore[arg-type]


SPECS = st.lists(entries(), max_size=4).map(lambda found: GpuLayoutSpec(tuple(found)))


def layout(*found: LayoutEntry) -> GpuLayoutSpec:
    return GpuLayoutSpec(tuple(found))


def on(*refs: int | str) -> GpuSelector:
    return GpuSelector(refs=tuple(str(ref) for ref in refs))


def sliced(gpus: GpuSelector, replicas: int = 4, when_busy: WhenBusy = WhenBusy.REFUSE) -> LayoutEntry:
    return LayoutEntry(gpus, LayoutMode.TIME_SLICING, replicas=replicas, when_busy=when_busy)


def fractional(
    gpus: GpuSelector,
    granularity: int = 1,
    placement: FractionPlacement = FractionPlacement.PACKED,
    *,
    one_daemon: bool = False,
) -> LayoutEntry:
    return LayoutEntry(gpus, LayoutMode.FRACTIONAL, granularity=granularity, placement=placement, one_daemon=one_daemon)


def mig(gpus: GpuSelector, *profiles: str, replicas: int | None = None) -> LayoutEntry:
    return LayoutEntry(gpus, LayoutMode.MIG, profiles=profiles, replicas=replicas)


def mps(gpus: GpuSelector, replicas: int) -> LayoutEntry:
    return LayoutEntry(gpus, LayoutMode.MPS, replicas=replicas)
