"""What is equal is one object, with the same items in the same order."""

from hypothesis import given
from hypothesis import strategies as st

from controller.objects.alike import one_dict, one_set

MAPPINGS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))


@given(MAPPINGS, MAPPINGS)
def test_equal_mappings_of_one_order_are_one_dict(one: dict[str, int], other: dict[str, int]) -> None:
    assert list(one_dict(one).items()) == list(one.items())
    is_same = list(one.items()) == list(other.items())
    assert (one_dict(one) is one_dict(other)) == is_same


@given(st.lists(st.integers(0, 3)))
def test_equal_lists_are_one_set(items: list[int]) -> None:
    assert one_set(items) == set(items)
    assert one_set(items) is one_set(iter(items))
