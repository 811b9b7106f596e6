"""What a smaller request may be: never less than the use with its headroom, never more than was asked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.advise.advice import (
    MIG_RESOURCE,
    Advice,
    AdviceKind,
    AdviceOptions,
    ContainerDevices,
    Prefer,
    Product,
    Used,
    advise,
    report,
)
from cli.advise.queries import known_products
from inventory.layout.entries import PERCENT_RESOURCE

NAMES = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA A30", "Tesla T4", "NVIDIA GB200")
PRODUCTS = known_products({"models": [({"modelName": name}, 1.0) for name in NAMES], "sizes": []})
H100 = PRODUCTS[NAMES[0]]
GPU = "nvidia.com/gpu"


def request(*devices: Used, mode: str = "whole", resource: str = GPU, product: Product = H100) -> ContainerDevices:
    return ContainerDevices(
        namespace="team",
        pod="train",
        container="main",
        resource=resource,
        mode=mode,
        product=product.name,
        devices=devices,
        age_s=7200,
    )


def used(busy: float, memory_mib: float, share: float = 1.0, profile: str = "") -> Used:
    return Used(share, profile, busy, memory_mib, memory_mib)


def told(found: Advice) -> tuple[str, str, float]:
    return found.kind.value, found.do, round(found.frees_gpus, 4)


@pytest.mark.parametrize(
    ("asked", "wish", "expected"),
    [
        (request(used(0.08, 5000)), AdviceOptions(), ("mig", f"1 x {MIG_RESOURCE}1g.10gb", 0.8571)),
        (request(used(0.08, 9000)), AdviceOptions(), ("mig", f"1 x {MIG_RESOURCE}1g.20gb", 0.75)),
        (request(used(0.3, 9000)), AdviceOptions(), ("mig", f"1 x {MIG_RESOURCE}3g.40gb", 0.5)),
        (
            request(used(0.08, 5000)),
            AdviceOptions(prefer=Prefer.FRACTION),
            ("fraction", f"10 x {PERCENT_RESOURCE}", 0.9),
        ),
        (
            request(used(0.08, 5000)),
            AdviceOptions(prefer=Prefer.FRACTION, granularity=25),
            ("fraction", f"25 x {PERCENT_RESOURCE}", 0.75),
        ),
        (
            request(used(0.08, 5000), product=PRODUCTS["Tesla T4"]),
            AdviceOptions(),
            ("fraction", f"40 x {PERCENT_RESOURCE}", 0.6),
        ),
        (request(used(0.9, 5000)), AdviceOptions(), ("keep", f"1 x {GPU}", 0.0)),
        (request(used(0.1, 70000)), AdviceOptions(), ("keep", f"1 x {GPU}", 0.0)),
        (request(*[used(0.4, 9000)] * 4), AdviceOptions(), ("count", f"2 x {GPU}", 2.0)),
        (request(*[used(0.05, 60000)] * 4), AdviceOptions(), ("keep", f"4 x {GPU}", 0.0)),
        (request(*[used(0.05, 2000)] * 4), AdviceOptions(), ("mig", f"1 x {MIG_RESOURCE}2g.20gb", 3.7143)),
        (request(used(0, 0), used(0, 0)), AdviceOptions(), ("release", "nothing", 2.0)),
        (request(used(0, 0), used(0.9, 70000)), AdviceOptions(), ("keep", f"2 x {GPU}", 0.0)),
        (request(used(0, 0), used(0.83, 50000)), AdviceOptions(), ("count", f"1 x {GPU}", 1.0)),
        (
            request(used(0.2, 5000, 3 / 7, "3g.40gb"), mode="mig", resource=f"{MIG_RESOURCE}3g.40gb"),
            AdviceOptions(),
            ("mig", f"1 x {MIG_RESOURCE}1g.10gb", 0.3571),
        ),
        (
            request(*[used(0.4, 5000, 1 / 7, "1g.10gb")] * 3, mode="mig", resource=f"{MIG_RESOURCE}1g.10gb"),
            AdviceOptions(),
            ("count", f"2 x {MIG_RESOURCE}1g.10gb", 0.1429),
        ),
        (
            request(
                used(0.25, 5000, 3 / 7, "3g.40gb"),
                *[used(0.1, 5000, 3 / 7, "3g.40gb")] * 2,
                mode="mig",
                resource=f"{MIG_RESOURCE}3g.40gb",
            ),
            AdviceOptions(),
            ("mig", f"3 x {MIG_RESOURCE}1g.10gb", 1.0714),
        ),
        (
            request(
                used(0.5, 5000, 3 / 7, "3g.40gb"),
                *[used(0.1, 5000, 3 / 7, "3g.40gb")] * 2,
                mode="mig",
                resource=f"{MIG_RESOURCE}3g.40gb",
            ),
            AdviceOptions(),
            ("count", f"1 x {MIG_RESOURCE}3g.40gb", 1.0),
        ),
        (
            request(used(0.1, 5000, 0.5), mode="fractional", resource=PERCENT_RESOURCE),
            AdviceOptions(),
            ("fraction", f"12 x {PERCENT_RESOURCE}", 0.38),
        ),
        (request(used(0.3, 5000, 0.25), mode="time-slicing"), AdviceOptions(), ("keep", f"1 x {GPU}", 0.0)),
    ],
)
def test_the_smallest_that_would_do(
    asked: ContainerDevices, wish: AdviceOptions, expected: tuple[str, str, float]
) -> None:
    assert told(advise(asked, PRODUCTS[asked.product], wish)) == expected


@pytest.mark.parametrize(
    ("asked", "product", "why"),
    [
        (request(Used(1.0)), H100, "nothing tells how busy its devices are"),
        (request(Used(1.0, "", 0.5)), H100, "nothing tells how much memory it holds"),
        (request(used(0.1, 500), Used(1.0, "", None, 500, 500)), H100, "nothing tells how busy its devices are"),
        (request(used(0.1, 500), Used(1.0, "", 0.1)), H100, "nothing tells how much memory it holds"),
        (request(used(0.5, 500)), None, "the memory's size is not known"),
        (request(used(0.5, 500)), Product("Z1", 0.0), "the memory's size is not known"),
        (request(used(0.5, 500, 0.1, "1g.10gb"), mode="mps"), H100, "a share of a MIG instance"),
        (request(used(0.5, 500, 1 / 7, "3g.40gb"), mode="mig"), H100, "a compute instance"),
        (request(used(0.5, 500, 1 / 7, "1g.99gb"), mode="mig"), H100, "has no profile 1g.99gb"),
    ],
)
def test_what_is_not_known_is_said(asked: ContainerDevices, product: Product | None, why: str) -> None:
    found = advise(asked, product, AdviceOptions())
    assert (found.kind, found.frees_gpus) == (AdviceKind.UNKNOWN, 0)
    assert why in found.why


def test_young_containers_get_no_advice() -> None:
    found = advise(request(used(0.0, 0.0)), H100, AdviceOptions(min_age_s=7201))
    assert found.why == "seen for 7200 s, 7201 s are wanted"


@st.composite
def asks(draw: st.DrawFn) -> ContainerDevices:
    product = PRODUCTS[draw(st.sampled_from(NAMES))]
    mode = draw(st.sampled_from(["whole", "time-slicing", "fractional", *(["mig"] if product.profiles else [])]))
    number = 1 if mode in ("time-slicing", "fractional") else draw(st.integers(1, 8))
    percent = draw(st.integers(1, 100))
    profile = draw(st.sampled_from(product.profiles)) if mode == "mig" else None
    share = 1.0 if mode == "whole" else product.activity(profile) if profile is not None else percent / 100
    room_mib = profile.memory_mib if profile is not None else product.memory_mib
    busy = st.floats(0, 1)
    memory = st.floats(0, room_mib)
    held = [sorted((draw(memory), draw(memory))) for _ in range(number)]
    name = profile.name if profile is not None else ""
    devices = tuple(Used(share, name, draw(busy), usual, most) for usual, most in held)
    resource = (
        f"{MIG_RESOURCE}{profile.name}" if profile is not None else PERCENT_RESOURCE if mode == "fractional" else GPU
    )
    return request(*devices, mode=mode, resource=resource, product=product)


wishes = st.builds(
    AdviceOptions,
    st.floats(0, 2),
    st.just(0.0),
    st.sampled_from(list(Prefer)),
    st.sampled_from([1, 5, 10, 25, 50, 100]),
)


def capacity(found: Advice, product: Product) -> tuple[float, float]:
    """Activity (in GPUs) and memory (MiB) of what the advice names, read back from its words."""
    number, _, resource = found.do.partition(" x ")
    if resource == PERCENT_RESOURCE:
        return int(number) / 100, int(number) / 100 * product.memory_mib
    if resource.startswith(MIG_RESOURCE):
        profile = product.named(resource.removeprefix(MIG_RESOURCE))
        assert profile is not None
        return int(number) * product.activity(profile), float(int(number) * profile.memory_mib)
    return float(number), int(number) * product.memory_mib


@given(asks(), wishes)
def test_advice_is_never_below_the_use_with_headroom_and_never_above_what_was_asked(
    asked: ContainerDevices, wish: AdviceOptions
) -> None:
    product = PRODUCTS[asked.product]
    found = advise(asked, product, wish)
    assert found.kind is not AdviceKind.UNKNOWN
    assert 0 <= found.needs_gpus <= found.asked_gpus + 1e-9
    assert found.needs_gpus + found.frees_gpus == pytest.approx(found.asked_gpus)
    if found.kind is AdviceKind.KEEP:
        assert found.frees_gpus == 0
        return
    assert found.frees_gpus > 0
    unit = 1.0
    if asked.mode == "mig":
        profile = product.named(asked.devices[0].profile)
        assert profile is not None
        unit = product.activity(profile)
    busy = math.fsum(one.activity_p95 or 0 for one in asked.devices) * unit * (1 + wish.headroom)
    memory = math.fsum(one.memory_max_mib or 0 for one in asked.devices) * (1 + wish.headroom)
    if found.kind is AdviceKind.RELEASE:
        assert busy == 0
        assert memory < len(asked.devices) * (1 + wish.headroom)
        return
    room, room_mib = capacity(found, product)
    assert room >= busy - 1e-4
    assert room_mib >= memory - product.memory_mib * 1e-4
    if found.kind is AdviceKind.FRACTION:
        assert int(found.do.partition(" ")[0]) % wish.granularity == 0


@given(st.lists(asks(), max_size=6), wishes)
def test_freed_gpus_add_up(asked: list[ContainerDevices], wish: AdviceOptions) -> None:
    found = report(asked, PRODUCTS, wish, 3600)
    assert len(found.advice) == len(asked)
    assert found.frees_gpus == pytest.approx(sum(one.frees_gpus for one in found.advice))
    assert found.asked_gpus == pytest.approx(sum(one.asked_gpus for one in found.advice))
    assert sum(one.frees_gpus for one in found.namespaces.values()) == pytest.approx(found.frees_gpus)
    assert [one.frees_gpus for one in found.advice] == sorted((one.frees_gpus for one in found.advice), reverse=True)
