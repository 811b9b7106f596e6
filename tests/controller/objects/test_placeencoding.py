import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.placeencoding import HOSTNAME_LABEL, Domain, TopologyEncodingError, decode, encode
from controller.objects.workload import (
    LevelRoots,
    LevelValues,
    SlicePodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)

NAMES = st.text("ab-1", max_size=6)


@st.composite
def assignments(draw: st.DrawFn) -> tuple[list[str], list[Domain]]:
    depth = draw(st.integers(1, 3))
    domain = st.builds(Domain, st.tuples(*[NAMES] * depth), st.integers(1, 3))
    return [*(f"level-{i}" for i in range(depth - 1)), HOSTNAME_LABEL], draw(st.lists(domain, max_size=8))


@given(assignment=assignments(), by_prefix=st.booleans())
def test_reading_gives_back_what_was_written_in_its_order(
    assignment: tuple[list[str], list[Domain]], by_prefix: bool
) -> None:
    levels, domains = assignment
    encoded = encode(levels, domains, by_hostname_prefix=by_prefix)
    assert list(decode(encoded)) == domains
    assert encoded.levels == tuple(levels)


@given(assignment=assignments())
def test_splitting_by_host_prefix_never_makes_it_longer(assignment: tuple[list[str], list[Domain]]) -> None:
    levels, domains = assignment
    split, whole = (encode(levels, domains, by_hostname_prefix=by) for by in (True, False))
    assert len(msgspec.json.encode(split)) <= len(msgspec.json.encode(whole))


def test_node_pools_are_written_apart_where_that_is_shorter() -> None:
    hosts = [f"gke-cluster-{pool}-{i:02}" for pool in ("blue", "green") for i in range(30)]
    encoded = encode([HOSTNAME_LABEL], [Domain((host,), 1) for host in hosts])
    assert [one.domain_count for one in encoded.slices] == [30, 30]
    assert len(encode(["rack"], [Domain((host,), 1) for host in hosts]).slices) == 1


def assignment_of(values: LevelValues, counts: SlicePodCounts, levels: tuple[str, ...] = ("a",)) -> TopologyAssignment:
    one = TopologyAssignmentSlice(domain_count=2, values_per_level=(values,), pod_counts=counts)
    return TopologyAssignment(levels=levels, slices=(one,))


@pytest.mark.parametrize(
    ("assignment", "field"),
    [
        (assignment_of(LevelValues(), SlicePodCounts(universal=1)), "valuesPerLevel[0]: neither"),
        (
            assignment_of(LevelValues(individual=LevelRoots(roots=("x",))), SlicePodCounts(universal=1)),
            "valuesPerLevel[0].individual.roots: expected 2, found 1",
        ),
        (
            assignment_of(LevelValues(universal="x"), SlicePodCounts(individual=(1, 2, 3))),
            "podCounts.individual: expected 2, found 3",
        ),
        (
            assignment_of(LevelValues(universal="x"), SlicePodCounts(universal=1), ("a", "b")),
            "valuesPerLevel: expected",
        ),
        (assignment_of(LevelValues(universal="x"), SlicePodCounts(universal=1), ()), "levels: expected at least one"),
    ],
)
def test_an_assignment_that_contradicts_itself_is_told_by_field(assignment: TopologyAssignment, field: str) -> None:
    with pytest.raises(TopologyEncodingError) as caught:
        list(decode(assignment))
    assert field in str(caught.value)


def test_a_domain_without_a_value_for_each_level_is_refused() -> None:
    with pytest.raises(TopologyEncodingError):
        encode(["a", "b"], [Domain(("x",), 1)])


def test_a_domain_count_beyond_the_api_is_refused_before_it_takes_memory() -> None:
    one = TopologyAssignmentSlice(
        domain_count=2**31 - 1, values_per_level=(LevelValues(universal="x"),), pod_counts=SlicePodCounts(universal=1)
    )
    with pytest.raises(TopologyEncodingError):
        list(decode(TopologyAssignment(levels=("a",), slices=(one,))))
