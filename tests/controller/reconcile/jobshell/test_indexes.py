"""Indexes of objects by the key that they belong to."""

from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.jobshell.indexes import Index, note

STEPS = st.lists(st.tuples(st.integers(0, 4), st.none() | st.sampled_from("abc")), max_size=30)


@given(STEPS)
def test_an_index_has_each_object_under_the_key_that_was_told_last(steps: list[tuple[int, str | None]]) -> None:
    index, truth = Index[str, int](), dict[int, str]()
    for value, key in steps:
        if key is None:
            assert index.drop(value) == truth.pop(value, None)
        else:
            index.put(value, key)
            truth[value] = key
        assert {each: index.key(each) for each in index.values()} == truth
        assert {each: set(index.of(each)) for each in index} == {
            each: {one for one in truth if truth[one] == each} for each in truth.values()
        }
    assert index.key(5) is None
    assert not set(index.of("d"))


def test_a_key_without_objects_is_in_no_index() -> None:
    known: dict[str, set[int]] = {}
    note(known, "a", 1, gone=False)
    note(known, "a", 1, gone=True)
    note(known, "b", 1, gone=True)
    assert known == {}
