"""Counting and choosing sets of linked GPUs, against trying all of them."""

from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.scheduler.devices.linkage import Linkage
from controller.scheduler.model.devicerequest import Link
from inventory.links import Link as Pair
from inventory.links import LinkMatrix, PcieLevel
from inventory.preference.subsets import indexes
from tests.support.engine.boards import mesh, pairs

SOME = settings(max_examples=60, deadline=None)


def matrix(count: int, linked: set[tuple[int, int]]) -> LinkMatrix:
    return tuple(
        tuple(Pair(PcieLevel.SYS, int((min(a, b), max(a, b)) in linked and a != b)) for b in range(count))
        for a in range(count)
    )


@st.composite
def wirings(draw: st.DrawFn) -> tuple[int, set[tuple[int, int]]]:
    count = draw(st.integers(1, 8))
    every = list(combinations(range(count), 2))
    return count, draw(st.sets(st.sampled_from(every))) if every else set()


def joined(mask: int, linked: set[tuple[int, int]]) -> bool:
    return all(pair in linked for pair in combinations(indexes(mask), 2))


def most(free: int, size: int, linked: set[tuple[int, int]]) -> int:
    """Disjoint joined sets, by trying everything."""
    best = 0
    places = indexes(free)
    for members in combinations(places, size):
        if members[0] != places[0]:
            break
        mask = sum(1 << one for one in members)
        if joined(mask, linked):
            best = max(best, 1 + most(free ^ mask, size, linked))
    return max(best, most(free & (free - 1), size, linked) if len(places) > size else 0)


@SOME
@given(wirings(), st.integers(0, 255), st.integers(1, 4))
def test_as_many_sets_are_counted_as_there_are(wiring: tuple[int, set[tuple[int, int]]], mask: int, size: int) -> None:
    count, linked = wiring
    linkage = Linkage(matrix(count, linked), (None,) * count)
    free = mask & linkage.full
    assert linkage.fitting_sets(free, size, Link.NVLINK) == (
        most(free, size, linked) if free.bit_count() >= size else 0
    )


TORN = 6, {(0, 2), (0, 3), (0, 5), (1, 2), (1, 3), (1, 4), (2, 3), (2, 5), (3, 4), (3, 5), (4, 5)}
"""Two linked threes, and a better linked third one that is in the way of both."""


@SOME
@example(TORN, 0b111111, 3)
@given(wirings(), st.integers(0, 255), st.integers(1, 4))
def test_what_is_counted_can_be_chosen_one_after_the_other(
    wiring: tuple[int, set[tuple[int, int]]], mask: int, size: int
) -> None:
    count, linked = wiring
    linkage = Linkage(matrix(count, linked), (None,) * count)
    free = mask & linkage.full
    for _ in range(linkage.fitting_sets(free, size, Link.NVLINK)):
        chosen = linkage.choose(free, size, Link.NVLINK)
        assert chosen.bit_count() == size
        assert not chosen & ~free
        assert joined(chosen, linked)
        free ^= chosen
    assert linkage.choose(free, size, Link.NVLINK) == 0


def of(links: object, count: int = 8) -> Linkage:
    assert callable(links)
    return Linkage(tuple(tuple(Pair(None, links(a, b)) for b in range(count)) for a in range(count)), (None,) * count)


def test_eight_gpus_in_pairs_hold_no_linked_four_and_four_linked_twos() -> None:
    linkage = of(pairs)
    assert [linkage.fitting_sets(0xFF, size, Link.NVLINK) for size in (4, 2, 1)] == [0, 4, 8]


def test_a_hybrid_cube_mesh_holds_two_linked_fours() -> None:
    assert of(mesh).fitting_sets(0xFF, 4, Link.NVLINK) == 2


def test_one_gpu_is_taken_from_the_pair_that_is_broken_already() -> None:
    linkage = of(pairs)
    assert linkage.choose(0b11110100, 1, None) == 0b100
    assert linkage.choose(0b11110100, 1, Link.NVLINK) == 0b100


def test_more_gpus_than_can_be_searched_are_packed_from_below() -> None:
    ring = Linkage(
        tuple(tuple(Pair(None, int((a - b) % 20 in (1, 19))) for b in range(20)) for a in range(20)), (None,) * 20
    )
    found = ring.fitting_sets(ring.full, 2, Link.NVLINK)
    assert 1 <= found <= 10
