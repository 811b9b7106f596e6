"""Answers that are kept, and how many of them."""

from controller.scheduler.model.caches import Bounded, ByIdentity, Numbers


def test_as_many_answers_are_kept_as_are_allowed() -> None:
    kept: Bounded[str, int] = Bounded(2)
    assert (kept.remember("a", 1), kept.remember("b", 2)) == (1, 2)
    assert kept == {"a": 1, "b": 2}
    kept.remember("c", 3)
    assert kept == {"c": 3}


def test_equal_contents_have_equal_numbers_and_no_number_comes_twice() -> None:
    numbers = Numbers(2)
    first, second = numbers.of(("a",)), numbers.of(("b",))
    assert first != second
    assert (numbers.of(("a",)), numbers.of(("b",))) == (first, second)
    assert numbers.of(("c",)) not in (first, second)
    assert numbers.of(("a",)) not in (first, second)


def test_what_is_known_of_an_object_is_not_known_of_an_equal_one() -> None:
    kept, one, other = ByIdentity[list[int], str](2), [1], [1]
    assert kept.keep(one, "one") == "one"
    assert (kept[id(one)], id(other) in kept) == ((one, "one"), False)
    kept.validate()
