"""Percents of several containers: each container's on one GPU, as the kubelet and the agent give them."""

from functools import cache
from itertools import combinations, product
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.objects.core import PodSpec
from controller.objects.decode import decode
from controller.scheduler.model.gpuparts import Part, Piece, choose, fitting_pods, parts_of
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import ResourceName

PERCENT = "tessera.dev/gpu-percent"


def spec_of(app: list[int], init: list[tuple[int, bool]] | None = None) -> PodSpec:
    """``init``: how many percents, and whether it is a sidecar."""

    def container(name: str, percent: int, *, sidecar: bool = False) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "resources": {"limits": {PERCENT: str(percent)} if percent else {}}}
        return made | ({"restartPolicy": "Always"} if sidecar else {})

    return decode(
        {
            "containers": [container(f"c{at}", percent) for at, percent in enumerate(app)],
            "initContainers": [container(f"i{at}", one, sidecar=side) for at, (one, side) in enumerate(init or [])],
        },
        PodSpec,
    )


def sizes(spec: PodSpec) -> list[int]:
    return [part.size for part in parts_of(spec, PERCENT)]


def test_each_container_has_its_own_and_what_an_init_container_had_is_handed_on() -> None:
    assert sizes(spec_of([60, 60])) == [60, 60]
    assert sizes(spec_of([60, 0, 30])) == [60, 30]
    assert sizes(spec_of([60], [(30, False)])) == [60], "the rest comes from the same GPU"
    assert sizes(spec_of([20, 20, 60], [(30, False)])) == [40, 60]
    assert sizes(spec_of([60], [(30, True)])) == [30, 60], "a sidecar keeps what it has"
    assert sizes(spec_of([20], [(80, False), (30, False)])) == [80]
    assert parts_of(spec_of([25, 50], [(100, False)]), PERCENT) == (Part(100, 25),)


percents = st.integers(0, 10).map(lambda tenth: tenth * 10)


@given(st.lists(percents, max_size=4), st.lists(st.tuples(percents, st.booleans()), max_size=3))
def test_parts_are_never_less_together_than_what_the_scheduler_counts(
    app: list[int], init: list[tuple[int, bool]]
) -> None:
    spec = spec_of(app, init)
    assert sum(sizes(spec)) == one_pod(spec).get(ResourceName(PERCENT), 0)


frees = st.lists(st.integers(0, 10).map(lambda tenth: tenth * 10), min_size=1, max_size=4)
wanted = st.lists(st.integers(1, 10).map(lambda tenth: Part(tenth * 10, tenth * 10)), min_size=1, max_size=4)


def every_way(free: list[int], parts: list[Part], joined: set[tuple[int, int]] | None) -> list[tuple[int, ...]]:
    """What is left by each way to place one pod, by trying all of them."""
    found = set()
    for places in product(range(len(free)), repeat=len(parts)):
        left = list(free)
        for part, at in zip(parts, places, strict=True):
            left[at] -= part.size
        pairs = {(a, b) for a in places for b in places if a < b}
        if min(left) >= 0 and (joined is None or pairs <= joined):
            found.add(tuple(left))
    return sorted(found)


@given(frees, wanted, st.none() | st.sets(st.sampled_from([(a, b) for b in range(4) for a in range(b)])))
def test_a_pod_finds_its_parts_exactly_where_trying_everything_does(
    free: list[int], parts: list[Part], joined: set[tuple[int, int]] | None
) -> None:
    def may_join(mask: int) -> bool:
        there = [at for at in range(4) if mask >> at & 1]
        return joined is None or all((a, b) in joined for a in there for b in there if a < b)

    pieces = [Piece(at, 1) for at in range(len(free))]
    given_ = choose(pieces, free, parts, None if joined is None else may_join)
    ways = every_way(free, parts, joined)
    assert bool(given_) == bool(ways)
    if given_:
        assert tuple(had - mine for had, mine in zip(free, given_, strict=True)) in ways


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5).map(lambda fifth: fifth * 20), min_size=1, max_size=3),
    wanted.filter(lambda p: len(p) < 3),
)
@example([100, 100], [Part(60, 60), Part(60, 60)])
@example([100] * 3, [Part(50, 50), Part(50, 50)])
def test_pods_are_counted_as_they_can_be_placed_and_hardly_ever_one_too_few(free: list[int], parts: list[Part]) -> None:
    @cache
    def most(left: tuple[int, ...]) -> int:
        return max((1 + most(tuple(sorted(one))) for one in every_way(list(left), parts, None)), default=0)

    pieces = [Piece(at, 1) for at in range(len(free))]
    counted = fitting_pods(pieces, free, parts, None)
    best = most(tuple(sorted(free)))
    assert best - 1 <= counted <= best
    if len(set(parts)) == 1 or best == 1:
        assert counted == best


def test_a_granularity_holds_for_each_container_and_not_for_their_sum() -> None:
    pieces = [Piece(0, 10), Piece(1, 5)]
    assert choose(pieces, [100, 100], [Part(50, 25)], None) == [0, 50]
    assert choose(pieces, [100, 40], [Part(50, 25)], None) == []
    assert fitting_pods(pieces, [100, 100], [Part(50, 25)], None) == 2
    assert fitting_pods(pieces, [100, 100], [Part(20, 20)], None) == 10


def test_more_containers_than_can_be_searched_are_placed_greedily() -> None:
    parts = [Part(1, 1)] * 2000
    given_ = choose([Piece(at, 1) for at in range(32)], [100] * 32, parts, None)
    assert sum(given_) == 2000
    assert choose([Piece(0, 1)], [100], parts, None) == []


def test_where_a_site_spreads_the_emptiest_gpu_is_taken_and_nothing_is_refused_for_that() -> None:
    pieces = [Piece(at, 1, spread=True) for at in range(3)]
    assert choose(pieces, [50, 100, 70], [Part(30, 30)], None) == [0, 30, 0]
    assert choose(pieces, [50, 100, 70], [Part(30, 30)] * 2, None) == [0, 60, 0], "both find the emptiest"
    two = pieces[:2]
    assert choose(two, [60, 100], [Part(60, 60), Part(50, 50), Part(50, 50)], None) == [60, 100], "all ways are tried"


@given(
    st.lists(st.tuples(frees.map(lambda found: found[0]), st.sampled_from([-1, 0, 4])), min_size=1, max_size=6),
    st.integers(1, 10).map(lambda tenth: tenth * 10),
    st.integers(2, 4),
    st.booleans(),
    st.none() | st.sets(st.sampled_from([(a, b) for b in range(6) for a in range(b)])),
)
def test_equal_parts_of_several_gpus_lie_on_as_many_of_one_daemon(
    gpus: list[tuple[int, int]], size: int, number: int, spread: bool, joined: set[tuple[int, int]] | None
) -> None:
    def may_join(mask: int) -> bool:
        there = [at for at in range(6) if mask >> at & 1]
        return joined is None or all(pair in joined for pair in combinations(there, 2))

    free = [units for units, _ in gpus]
    pieces = [Piece(at, 10, spread, daemon) for at, (_, daemon) in enumerate(gpus)]
    ways = {
        places
        for places in combinations(range(len(gpus)), number)
        if len({gpus[at][1] for at in places}) == 1
        and gpus[places[0]][1] >= 0
        and all(free[at] >= size for at in places)
        and may_join(sum(1 << at for at in places))
    }
    parts = [Part(size, size, number)]
    given_ = choose(pieces, free, parts, None if joined is None else may_join)
    assert sorted(set(given_)) in ([], [0, size], [size])
    assert bool(given_) == bool(ways)
    if given_:
        assert tuple(at for at, mine in enumerate(given_) if mine) in ways
    counted = fitting_pods(pieces, free, parts, None if joined is None else may_join)
    assert (counted > 0) == bool(ways)
    assert counted * number * size <= sum(free)


def test_of_several_daemons_that_with_the_fullest_gpus_serves_a_request_for_several() -> None:
    free = [100, 60, 50, 100, 40]
    pieces = [Piece(at, 10, daemon=daemon) for at, daemon in enumerate((0, 0, 0, 3, 3))]
    assert choose(pieces, free, [Part(40, 40, 2)], None) == [0, 40, 40, 0, 0]
    assert choose(pieces, free, [Part(50, 50, 3)], None) == [50, 50, 50, 0, 0]
    assert choose(pieces, free, [Part(45, 45, 2)], None) == [], "no multiple of the granularity"
    assert choose(pieces, free, [Part(70, 70, 2)], None) == []
    wide = [piece._replace(spread=True) for piece in pieces]
    assert choose(wide, free, [Part(40, 40, 2)], None) == [40, 40, 0, 0, 0]
    assert fitting_pods(pieces, free, [Part(40, 40, 2)], None) == 2
