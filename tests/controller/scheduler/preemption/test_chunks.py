from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.preemption import chunks
from controller.scheduler.preemption.chunks import Chunks

Entry = tuple[int, str]
ENTRIES = st.lists(st.tuples(st.integers(0, 30), st.text("ab", max_size=3)), unique=True, max_size=80)


@settings(max_examples=60, deadline=None)
@given(ENTRIES, st.data())
def test_it_is_a_sorted_list(entries: list[Entry], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chunks, "CHUNK", 4)
        kept: Chunks[Entry] = Chunks()
        for entry in entries:
            kept.add(entry)
        gone = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
        for entry in gone:
            kept.remove(entry)
        left = sorted(set(entries) - set(gone))
        assert list(kept) == left
        assert len(kept) == len(left)
        bound = data.draw(st.integers(-1, 31))
        behind = [entry for entry in left if entry[0] > bound]
        assert list(kept.after(bound, itemgetter(0))) == behind
        assert kept.count_after(bound, itemgetter(0)) == len(behind)


def test_what_is_not_there_cannot_be_removed() -> None:
    kept: Chunks[Entry] = Chunks()
    kept.add((1, "a"))
    for entry in ((0, "a"), (1, "b"), (2, "a")):
        with pytest.raises(ValueError, match="not in the list"):
            kept.remove(entry)
