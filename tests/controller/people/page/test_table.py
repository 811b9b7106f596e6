"""Rows with revisions, and what somebody who has an older one lacks."""

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.people.page.frames import Frame, Frames, Place, marked, packed, read_mark, stored
from controller.people.page.table import Table
from controller.people.page.visiblenamespaces import Variants, VisibleNamespaces
from controller.people.visibility.redaction import named

ROUNDS = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)), max_size=8)


def round_of(table: Table, rows: dict[str, Any]) -> None:
    for key, value in rows.items():
        table.take(key, value, partial(dict, value=value))
    table.finish()
    table.validate()


@given(ROUNDS, st.integers(0, 8))
def test_whoever_has_any_revision_has_all_rows_with_what_he_lacks(rounds: list[dict[str, int]], at: int) -> None:
    table, kept, revision = Table(), dict[str, bytes](), None
    for count, rows in enumerate(rounds):
        round_of(table, rows)
        if count < at:
            continue  # a slow reader
        changes = table.since(revision)
        if changes is not None:
            kept = {} if changes.whole else kept
            for key in changes.gone:
                kept.pop(key, None)
            kept |= {key: row.raw for key, row in changes.rows}
            revision = changes.revision
        assert kept == {key: msgspec.json.encode({"value": value}) for key, value in rows.items()}


def test_a_round_without_a_change_is_no_revision() -> None:
    table = Table()
    round_of(table, {"a": 1})
    table.take("a", "made from another thing", lambda: {"value": 1})
    assert not table.finish()
    assert table.revision == 1
    assert table.since(1) is None
    assert table.since(7) is not None, "a revision that was never told is none"


def test_rows_beyond_the_most_are_counted() -> None:
    table = Table(most=2)
    round_of(table, {"a": 1, "b": 1, "c": 1})
    changes = table.since(None)
    assert changes is not None
    assert (len(changes.rows), changes.cut) == (2, 1)


def test_frames_are_bounded_by_their_bytes() -> None:
    table, frames = Table(), Frames(most_bytes=400)
    round_of(table, {"a": "x" * 50})
    changes = table.since(None)
    assert changes is not None
    frame = Frame.of("fleet", changes, iter((key, row.raw) for key, row in changes.rows))
    places = [Place("e", "all", "fleet", since) for since in range(5)]
    for place in places:
        frames.put(place, frame)
    assert frames.size <= 400
    assert frames.get(places[0]) is None
    assert frames.get(places[4]) == frame


def test_a_mark_counts_where_it_was_given() -> None:
    has = {"fleet": 3, "pending": 18}
    assert read_mark(marked("5f.all", has), "5f.all") == has
    assert read_mark(marked("5f.all", has), "5f.9a") == {}
    for text in ("", "5f.all", "5f.all.fleet=-1", "5f.all.fleet=1e9", "5f.all.fleet", "x" * 400):
        assert read_mark(text, "5f.all") == {}


def test_blocks_of_a_stream_refer_to_nothing_before() -> None:
    import zlib

    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    first, second = b"data: same same\n\n" * 9, b"data: same same\n\n" * 2
    for blocks in ((packed(first), stored(second), packed(second)), (packed(second), packed(first)), (stored(first),)):
        assert zlib.decompressobj(31).decompress(header + b"".join(blocks)).startswith(b"data: same")


SPACES = ("alpha-ns", "beta-ns", "gamma-ns")
OBJECTS = st.fixed_dictionaries(
    {
        "workload": st.sampled_from([None, *(f"{space}/job" for space in SPACES)]),
        "localQueue": st.sampled_from([None, *(f"{space}/queue" for space in SPACES)]),
        "sentence": st.lists(st.sampled_from(["waits for", *(f"{space}/pod-1" for space in SPACES)])).map(" ".join),
        "hidden": st.just(False),
    }
)
ROWS = st.dictionaries(st.sampled_from("abc"), st.fixed_dictionaries({"gpus": st.lists(OBJECTS, max_size=3)}))


@settings(max_examples=60)
@given(ROWS, st.sets(st.sampled_from(SPACES)))
def test_no_name_of_a_namespace_that_is_not_allowed_is_in_the_bytes(rows: Any, allowed: AbstractSet[str]) -> None:
    table = Table()
    for key, row in rows.items():
        table.take(key, row, partial(dict, row))
    table.finish()
    visible, variants = VisibleNamespaces(frozenset(allowed)), Variants()
    changes = table.since(None)
    if changes is None:
        return
    body = Frame.of("fleet", changes, variants.rows(visible, "fleet", changes, frozenset(SPACES), lambda _: "q")).body
    for space in SPACES:
        assert space in allowed or space.encode() not in body
    if allowed == set(SPACES):
        assert body == Frame.of("fleet", changes, ((key, row.raw) for key, row in changes.rows)).body


def test_a_namespace_that_nobody_has_heard_of_is_hidden_where_a_key_stands_for_itself() -> None:
    row = {"workload": "newest/job", "hidden": False, "localQueue": "newest/queue", "n": 1}
    visible = VisibleNamespaces(frozenset({"mine"}))
    assert visible.hides(named(row), frozenset()) == {"newest"}
    shown = visible.shown(row, frozenset(), lambda _: "q")
    assert shown == {"workload": "a workload of queue q", "hidden": True, "localQueue": None, "n": 1}
    assert VisibleNamespaces(None).shown(row, frozenset(), lambda _: "q") is row


def test_a_namespace_that_is_called_as_a_word_of_a_row_changes_prose_alone() -> None:
    row = {
        "name": "research",
        "parent": "cohort/all",
        "taints": ["pool/gpu=yes:NoSchedule"],
        "asks": {"pool/gpu": 1},
        "resources": [{"flavor": "h100", "resource": "pool/gpu"}],
        "problems": ["cohort/job waits"],
    }
    shown = VisibleNamespaces(frozenset()).shown(row, {"cohort", "pool"}, lambda _: None)
    assert shown == {**row, "problems": ["an object of another namespace waits"]}
    waits = {"workload": "cohort/job", "hidden": False, "asks": {"pool/gpu": 1}}
    told = "a workload of queue q"
    assert VisibleNamespaces(frozenset()).shown(waits, {"cohort", "pool"}, lambda _: "q") == waits | {
        "workload": told,
        "hidden": True,
    }


def test_a_row_is_encoded_once_for_all_who_do_not_see_its_namespace() -> None:
    table, variants = Table(), Variants()
    round_of(table, {"a": "mine/x"})
    changes = table.since(None)
    assert changes is not None

    def seen(*allowed: str) -> bytes:
        visible = VisibleNamespaces(frozenset(allowed))
        ((_, raw),) = variants.rows(visible, "fleet", changes, frozenset({"mine"}), lambda _: None)
        return raw

    assert seen("mine") is table.rows["a"].raw
    assert b"mine" not in seen("other")
    assert seen("other") is seen("others", "still")
