from hypothesis import given
from hypothesis import strategies as st

from controller.people.visibility.limits import Buckets, Recent


def test_a_value_counts_for_its_life() -> None:
    recent: Recent[str, str | None] = Recent(most=9, life_s=10.0)
    recent.put("a", None, 0.0)
    assert recent.get("a", 9.9) == (None,)
    assert recent.get("a", 10.0) is None
    assert len(recent) == 0
    assert recent.get("b", 0.0) is None


def test_the_oldest_goes_first_where_there_are_too_many() -> None:
    recent: Recent[str, int] = Recent(most=2, life_s=10.0)
    for number, key in enumerate("abab"):
        recent.put(key, number, 0.0)
    assert (recent.get("a", 1.0), recent.get("b", 1.0)) == ((2,), (3,))
    recent.put("c", 4, 1.0)
    assert (recent.get("a", 1.0), recent.get("b", 1.0), recent.get("c", 1.0)) == (None, (3,), (4,))
    assert len(recent) == 2


def test_a_user_has_a_burst_and_then_so_many_a_second() -> None:
    buckets: Buckets[str] = Buckets(per_s=2.0, burst=3, most=9)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.25) == 0.25
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) == 0.5
    assert [buckets.take("a", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("a", 99.0) == 0.5, "a clock that goes back gives nothing"


def test_those_that_asked_longest_ago_are_forgotten() -> None:
    buckets: Buckets[str] = Buckets(per_s=1.0, burst=1, most=2)
    assert [buckets.take(key, 0.0) for key in "aba"] == [0.0, 0.0, 1.0]
    assert buckets.take("c", 0.0) == 0.0
    assert len(buckets) == 2
    assert buckets.take("a", 0.0) == 1.0, "b was forgotten"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 5)), max_size=40))
def test_no_user_ever_gets_more_than_burst_and_rate(asks: list[tuple[str, float]]) -> None:
    buckets: Buckets[str] = Buckets(per_s=2.0, burst=3, most=9)
    now, taken = 0.0, {"a": 0, "b": 0}
    for key, pause in asks:
        now += pause
        taken[key] += buckets.take(key, now) == 0.0
        assert all(count <= 3 + 2.0 * now + 1e-6 for count in taken.values())
