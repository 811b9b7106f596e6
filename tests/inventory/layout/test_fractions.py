"""Fractions of GPUs: one request lies on one GPU, and no GPU gives more than 100 percents, whatever is asked."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.devices import DeviceId
from inventory.layout.entries import PERCENT_RESOURCE, FractionPlacement, resolve
from inventory.layout.fractions import FractionError, check_granted, largest, memory_mib
from inventory.layout.layout import Layout, Resource, plan
from inventory.layout.sharing import LayoutSpec
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser, UnsatisfiableError
from tests.support.inventory.builders import gpu, node
from tests.support.inventory.layouts import fractional, layout, on


def percents(
    gpus: int = 2, granularity: int = 1, placement: FractionPlacement = FractionPlacement.PACKED
) -> tuple[Resource, Chooser]:
    found = node([gpu(i) for i in range(gpus)])
    spec = layout(fractional(on(*range(gpus)), granularity, placement))
    planned: Layout = plan(found, LayoutSpec(), resolve(found, spec).modes)
    planned.validate()
    resource = planned.resource(PERCENT_RESOURCE)
    assert resource is not None
    return resource, Chooser(resource.devices, LinkTable.of(found))


def ask(resource: Resource, chooser: Chooser, held: set[DeviceId], size: int) -> tuple[DeviceId, ...]:
    free = [device.id for device in resource.devices if device.id not in held]
    return chooser.start(available=free, required=(), size=size).best.devices


SPREAD, PACKED = FractionPlacement.SPREAD, FractionPlacement.PACKED


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([1, 10, 25]),
    st.sampled_from([PACKED, SPREAD]),
    st.lists(st.tuples(st.integers(1, 110), st.booleans()), max_size=25),
)
def test_a_request_lies_on_one_gpu_and_no_gpu_gives_more_than_it_is(
    granularity: int, placement: FractionPlacement, requests: list[tuple[int, bool]]
) -> None:
    resource, chooser = percents(3, granularity, placement)
    by_id = {device.id: device for device in resource.devices}
    running: list[tuple[DeviceId, ...]] = []
    for size, ends in requests:
        if ends and running:
            running.pop(0)
        held = {one for pod in running for one in pod}
        room = largest(resource, held)
        try:
            chosen = ask(resource, chooser, held, size)
        except UnsatisfiableError:
            assert room is not None
            assert size > room or size % granularity, f"{size} was refused with {room} free"
            continue
        assert room is not None
        assert size <= room
        assert len(set(chosen)) == size
        assert not held & set(chosen)
        assert len({by_id[one].gpu for one in chosen}) == 1
        check_granted([by_id[one] for one in chosen])
        running.append(chosen)
        for g in range(3):
            taken = sum(by_id[one].gpu == f"GPU-{g:02d}" for pod in running for one in pod)
            assert taken <= 100
            assert taken % granularity == 0


def test_packed_fills_the_fullest_and_spread_the_emptiest() -> None:
    for placement, expected in ((PACKED, "GPU-00"), (SPREAD, "GPU-01")):
        resource, chooser = percents(placement=placement)
        first = set(ask(resource, chooser, set(), 30))
        assert {one.split("::")[0] for one in first} == {"GPU-00"}
        second = ask(resource, chooser, first, 30)
        assert {one.split("::")[0] for one in second} == {expected}


def test_every_refusal_says_why_in_one_sentence() -> None:
    resource, chooser = percents(granularity=10)
    half = {device.id for device in resource.devices if (device.replica or 0) < 50}
    with pytest.raises(UnsatisfiableError, match=r"found a request for 60, expected 50 at most: that is free on"):
        ask(resource, chooser, half, 60)
    with pytest.raises(UnsatisfiableError, match=r"found a request for 15, expected a multiple of 10"):
        ask(resource, chooser, set(), 15)
    with pytest.raises(UnsatisfiableError, match=r"found a request for 110, expected 100 at most: it is percent of"):
        ask(resource, chooser, set(), 110)
    assert largest(resource, half) == 50
    assert largest(resource, [*half, DeviceId("GPU-00::77")]) == 50
    assert largest(resource, [*half, DeviceId("GPU-00::77"), DeviceId("GPU-01::78")]) == 40


def test_what_an_init_container_had_is_kept_and_the_rest_comes_from_the_same_gpu() -> None:
    resource, chooser = percents()
    had = tuple(DeviceId(f"GPU-01::{n}") for n in range(20))
    free = [device.id for device in resource.devices]
    chosen = chooser.start(available=free, required=had, size=50).best.devices
    assert set(had) <= set(chosen)
    assert {one.split("::")[0] for one in chosen} == {"GPU-01"}
    with pytest.raises(UnsatisfiableError, match="would lie on 2 GPUs"):
        chooser.start(available=free, required=(DeviceId("GPU-00::0"), DeviceId("GPU-01::0")), size=3)


def test_allocate_takes_nobodys_word_for_it() -> None:
    resource, _ = percents(granularity=10)
    first, second = resource.devices[:100], resource.devices[100:]
    check_granted(first[:30])
    for wrong, why in (
        ((*first[:5], *second[:5]), "would lie on 2 GPUs"),
        (first[:7], "multiple of 10"),
        ((*first, *second[:10]), "100 at most"),
    ):
        with pytest.raises(FractionError, match=why):
            check_granted(wrong)
    assert memory_mib(first[:30]) == 40960 * 30 // 100
