"""Entries are a map: whatever is put, got and taken away, what they answer is what a dict would."""

import sys

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from kube.reading.entries import CachedObject, Entries, ObjectKey, own_metadata


class Metadata(Struct, frozen=True):
    name: str
    namespace: str
    uid: str
    resource_version: str


class Whole(Struct, frozen=True):
    metadata: Metadata


class Bare(Struct, frozen=True):
    figure: int = 7


NAMES, UIDS = st.sampled_from("ab"), st.sampled_from(("", "u", "v"))
KEYS = st.builds(ObjectKey, st.sampled_from(("", "team")), NAMES)
OBJECTS = st.one_of(st.builds(Whole, st.builds(Metadata, NAMES, st.just("team"), UIDS, UIDS)), st.builds(Bare))
ENTRIES = st.builds(CachedObject, OBJECTS, UIDS, UIDS)
STEPS = st.lists(st.tuples(KEYS, st.none() | ENTRIES), max_size=12)


@given(STEPS)
def test_they_answer_as_a_dict_does(steps: list[tuple[ObjectKey, CachedObject[Whole | Bare] | None]]) -> None:
    entries: Entries[Whole | Bare] = Entries()
    model: dict[ObjectKey, CachedObject[Whole | Bare]] = {}
    for key, entry in steps:
        if entry is None:
            assert entries.pop(key) == model.pop(key, None)
        else:
            entries.put(key, entry)
            model[key] = entry
        assert {each: entries.get(each) for each in entries} == model
        assert list(entries.objects()) == [each.object for each in model.values()]
        assert len(entries) == len(model)


def test_an_object_that_says_all_of_its_entry_is_all_that_is_kept() -> None:
    whole = Whole(Metadata("a", "team", "u", "1"))
    key, entry = ObjectKey("team", "a"), CachedObject(whole, "u", "1")
    entries: Entries[Whole] = Entries()
    entries.put(key, entry)
    before = sys.getrefcount(whole)
    del entry
    assert sys.getrefcount(whole) == before - 1
    found = entries.get(key)
    assert found is not None
    assert (found.object is whole, found.uid is whole.metadata.uid) == (True, True)


def test_metadata_that_lack_a_field_do_not_stand_for_an_entry() -> None:
    assert own_metadata(Whole(Metadata("a", "team", "", "1"))) is None
    assert own_metadata(Bare()) is None
