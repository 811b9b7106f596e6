"""What fails together is found among many, and nothing beside it."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hack.chaos.schedule import minimise


@given(st.integers(min_value=1, max_value=40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_guilty_stay(given_: tuple[int, set[int]]) -> None:
    count, guilty = given_
    assert minimise(range(count), lambda part: guilty <= set(part)) == sorted(guilty)


def test_no_trial_is_made_of_what_is_known_to_fail() -> None:
    tried: list[list[int]] = []

    def fails(part: Sequence[int]) -> bool:
        tried.append(list(part))
        return 3 in part

    assert minimise(range(8), fails) == [3]
    assert list(range(8)) not in tried
