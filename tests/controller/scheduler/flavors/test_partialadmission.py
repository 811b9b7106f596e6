from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.scheduler.flavors.partialadmission import may_reduce, reduce_counts
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.podrequests import RequestRules
from controller.scheduler.model.workload import WorkloadInfo

GATES = FeatureGates()


def info(*counts: tuple[int, int | None], reclaimable: int = 0, slices_of: int = 0) -> WorkloadInfo:
    """Pod sets p0, p1 ... by count and least count."""
    sets: list[dict[str, Any]] = [
        {"name": f"p{index}", "count": count, **({} if least is None else {"minCount": least})}
        for index, (count, least) in enumerate(counts)
    ]
    if slices_of:
        sets[0]["topologyRequest"] = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": slices_of}
    status = {"reclaimablePods": [{"name": "p0", "count": reclaimable}]} if reclaimable else {}
    data = {"metadata": {"name": "w"}, "spec": {"podSets": sets}, "status": status}
    return WorkloadInfo.of(decode(data, Workload), rules=RequestRules(), gates=GATES)


def at_most(limit: int) -> Any:
    def fits(counts: Mapping[str, int]) -> dict[str, int] | None:
        return dict(counts) if sum(counts.values()) <= limit else None

    return fits


def test_as_many_pods_as_there_is_room_for() -> None:
    assert reduce_counts(info((50, 20)), at_most(33)) == {"p0": 33}


def test_sets_without_a_least_count_stay_whole_and_the_others_shrink_in_step() -> None:
    assert reduce_counts(info((10, None), (40, 20), (20, 10)), at_most(40)) == {"p0": 10, "p1": 20, "p2": 10}
    assert reduce_counts(info((10, None), (40, 20), (20, 10)), at_most(55)) == {"p0": 10, "p1": 30, "p2": 15}


def test_below_the_least_counts_there_is_nothing() -> None:
    assert reduce_counts(info((10, 5)), at_most(4)) is None


def test_a_workload_without_least_counts_is_not_asked_about() -> None:
    assert reduce_counts(info((10, None), (5, 5)), at_most(100)) is None
    assert not may_reduce(info((10, None)), GATES)
    assert may_reduce(info((10, 9)), GATES)
    assert not may_reduce(info((10, 9)), FeatureGates({"PartialAdmission": False}))


def test_finished_pods_are_neither_asked_for_nor_saved() -> None:
    assert reduce_counts(info((10, 4), reclaimable=3), at_most(6)) == {"p0": 6}
    assert not may_reduce(info((10, 4), reclaimable=7), GATES)


@given(st.integers(2, 4), st.integers(1, 5), st.integers(1, 20), st.integers(0, 20))
def test_of_a_set_that_is_cut_into_slices_whole_slices_are_left_out(
    size: int, slices: int, least: int, limit: int
) -> None:
    full = size * slices
    if least >= full:
        return

    def fits(counts: Mapping[str, int]) -> int | None:
        (count,) = counts.values()
        return count if count <= limit and count % size == 0 else None

    possible = [count for count in range(full, 0, -size) if least <= count <= limit]
    assert reduce_counts(info((full, least), slices_of=size), fits) == next(iter(possible), None)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), min_size=1, max_size=4), st.integers(0, 40)
)
def test_the_search_finds_the_first_step_that_fits_and_respects_every_least_count(
    counts: list[tuple[int, int | None]], limit: int
) -> None:
    ways = [0 if least is None else max(0, count - least) for count, least in counts]
    asked: list[dict[str, int]] = []

    def fits(given: Mapping[str, int]) -> dict[str, int] | None:
        asked.append(dict(given))
        return at_most(limit)(given)  # type: ignore[no-any-return]

    found = reduce_counts(info(*counts), fits)
    total = sum(ways)
    steps = [
        {
            f"p{index}": count - way * step // total
            for index, ((count, _), way) in enumerate(zip(counts, ways, strict=True))
        }
        for step in range(total + 1 if total else 0)
    ]
    assert found == next((one for one in steps if sum(one.values()) <= limit), None)
    for one in asked:
        for (count, _), way, number in zip(counts, ways, one.values(), strict=True):
            assert count - way <= number <= count
    assert len(asked) <= total.bit_length() + 1
