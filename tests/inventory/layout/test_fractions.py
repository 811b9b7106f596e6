"""Fractions of GPUs: one request lies on one GPU, and no GPU gives more than 100 percents, whatever is asked."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.devices import DeviceId
from inventory.layout.entries import PERCENT_RESOURCE, FractionPlacement, resolve
from inventory.layout.fractions import FractionError, check_granted, gpus_asked, largest, memory_mib
from inventory.layout.layout import Layout, Resource, plan
from inventory.layout.sharing import LayoutSpec
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser, UnsatisfiableError
from tests.support.inventory.builders import gpu, node
from tests.support.inventory.layouts import fractional, layout, on


def percents(
    gpus: int = 2,
    granularity: int = 1,
    placement: FractionPlacement = FractionPlacement.PACKED,
    *,
    apart: int = 0,
) -> tuple[Resource, Chooser]:
    """``apart``: so many of the GPUs have an MPS daemon each, the others one; 0: all have one each."""
    found = node([gpu(i) for i in range(gpus)])
    first = apart or gpus
    entries = [fractional(on(*range(first)), granularity, placement)]
    if first < gpus:
        entries.append(fractional(on(*range(first, gpus)), granularity, placement, one_daemon=True))
    spec = layout(*entries)
    planned: Layout = plan(found, LayoutSpec(), resolve(found, spec).modes)
    planned.validate()
    resource = planned.resource(PERCENT_RESOURCE)
    assert resource is not None
    return resource, Chooser(resource.devices, LinkTable.of(found))


def ask(resource: Resource, chooser: Chooser, held: set[DeviceId], size: int, gpus: int = 1) -> tuple[DeviceId, ...]:
    free = [device.id for device in resource.devices if device.id not in held]
    return chooser.start(available=free, required=(), size=size, gpus=gpus).best.devices


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


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([1, 10]),
    st.sampled_from([PACKED, SPREAD]),
    st.lists(st.tuples(st.integers(1, 22).map(lambda n: n * 5), st.integers(1, 4), st.booleans()), max_size=20),
)
def test_equal_parts_of_several_gpus_of_one_daemon_and_never_over_a_hundred(
    granularity: int, placement: FractionPlacement, requests: list[tuple[int, int, bool]]
) -> None:
    """Two GPUs with a daemon each, three with one: what is refused fits nowhere, what is given is what was asked."""
    resource, chooser = percents(5, granularity, placement, apart=2)
    by_id = {device.id: device for device in resource.devices}
    running: list[tuple[DeviceId, ...]] = []
    for each, gpus, ends in requests:
        if ends and running:
            running.pop(0)
        taken = Counter(by_id[one].gpu for pod in running for one in pod)
        room = [100 - taken[gpu(i).uuid] >= each and each % granularity == 0 for i in range(5)]
        fits = any(room) if gpus == 1 else sum(room[2:]) >= gpus
        try:
            chosen = ask(resource, chooser, {one for pod in running for one in pod}, each * gpus, gpus)
        except UnsatisfiableError:
            assert not fits, f"{each} of each of {gpus} GPUs was refused"
            continue
        assert fits
        parts = Counter(by_id[one].gpu for one in chosen)
        assert set(parts.values()) == {each}
        assert len(parts) == gpus
        assert gpus == 1 or not {gpu(0).uuid, gpu(1).uuid} & parts.keys()
        check_granted([by_id[one] for one in chosen], {gpus})
        running.append(chosen)
        assert max((taken + parts).values()) <= 100


def test_parts_of_several_gpus_lie_where_least_is_left() -> None:
    resource, chooser = percents(5, 10, apart=1)
    first = ask(resource, chooser, set(), 60)
    held = {*first, *ask(resource, chooser, set(first), 140, 2)}
    taken = Counter(one.partition("::")[0] for one in held)
    assert taken == {gpu(0).uuid: 60, gpu(1).uuid: 70, gpu(2).uuid: 70}
    again = ask(resource, chooser, held, 60, 2)
    assert Counter(one.partition("::")[0] for one in again) == {gpu(1).uuid: 30, gpu(2).uuid: 30}
    spread, chooser = percents(4, 10, SPREAD, apart=1)
    held = {device.id for device in spread.devices if device.gpu == gpu(1).uuid and device.replica in range(10)}
    assert {one.partition("::")[0] for one in ask(spread, chooser, held, 60, 2)} == {gpu(2).uuid, gpu(3).uuid}


def test_what_an_init_container_had_is_kept_on_its_gpus() -> None:
    resource, chooser = percents(4, 10, apart=1)
    free = [device.id for device in resource.devices]
    had = [one for one in free if one.partition("::")[0] in (gpu(1).uuid, gpu(3).uuid) and one.endswith("::7")]
    chosen = chooser.start(available=free, required=had, size=40, gpus=2).best.devices
    assert set(had) <= set(chosen)
    assert Counter(one.partition("::")[0] for one in chosen) == {gpu(1).uuid: 20, gpu(3).uuid: 20}
    for wrong in (free[:1], [one for one in free if one.startswith(gpu(1).uuid)][:21]):
        with pytest.raises(UnsatisfiableError, match="of each of 2 GPUs"):
            chooser.start(available=free, required=wrong, size=40, gpus=2)


@pytest.mark.parametrize(
    ("size", "gpus", "why"),
    [
        (
            100,
            3,
            "found a request for 100, expected a multiple of 3, the GPUs that tessera.dev/gpu-percent-devices says",
        ),
        (220, 2, "found a request for 110, expected 100 at most"),
        (100, 0, "tessera.dev/gpu-percent-devices: found no number of GPUs, expected one from 1 to 64"),
        (50, 2, "found a request for 25 of each of 2 GPUs, expected 0 GPUs at most"),
        (400, 4, "found a request for 100 of each of 4 GPUs, expected 3 GPUs at most: so many have that free and one"),
    ],
)
def test_parts_that_no_gpus_have_are_refused_with_the_sentence_why(size: int, gpus: int, why: str) -> None:
    resource, chooser = percents(5, 10, apart=2)
    with pytest.raises(UnsatisfiableError, match=re.escape(why)):
        ask(resource, chooser, set(), size, gpus)


def test_what_the_kubelet_chose_for_several_gpus_must_be_equal_parts_of_one_daemon() -> None:
    resource, _ = percents(4, 10, apart=1)
    by_gpu = {gpu(i).uuid: [one for one in resource.devices if one.gpu == gpu(i).uuid] for i in range(4)}
    own, a, b, c = (by_gpu[gpu(i).uuid] for i in range(4))
    check_granted([*a[:50], *b[:50]], {2})
    check_granted([*a[:100], *b[:100], *c[:100]], {3})
    check_granted(a[:100], {1, 2})
    for devices, asked, why in (
        ([*a[:60], *b[:40]], {2}, "60 of 100 percent would lie on one GPU, expected 50 on each"),
        ([*a[:50], *b[:50]], {1}, "100 percent would lie on 2 GPUs, expected one"),
        (a[:100], {2}, "100 percent would lie on 1 GPU, expected 2, as tessera.dev/gpu-percent-devices says"),
        ([*a[:30], *b[:30], *c[:30]], {1, 2}, "90 percent would lie on 3 GPUs, expected 1 or 2"),
        ([*own[:50], *a[:50]], {2}, "found a request for 50 of each of 2 GPUs, expected 1 GPU at most"),
        ([*a[:15], *b[:15]], {2}, "found a request for 15, expected a multiple of 10"),
        ([*a[:51], *b[:50]], {2}, "found a request for 101, expected a multiple of 2"),
    ):
        with pytest.raises(FractionError, match=re.escape(why)):
            check_granted(devices, asked)


@pytest.mark.parametrize(
    ("annotation", "gpus"),
    [
        *((None, 1), ("1", 1), ("2", 2), ("64", 64), ("02", 2)),
        *((wrong, None) for wrong in ("65", "0", "-1", "", "9" * 5000, "zwei", "1.5", "\u0662")),
    ],
)
def test_the_annotation_is_a_whole_number_of_gpus(annotation: str | None, gpus: int | None) -> None:
    assert gpus_asked(annotation) == gpus
