"""The grants that a flavor has for the next leader: written when one is missing, taken off when none counts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.repairs.grantrecords import MAX_RECORDED, due_text, read_record
from controller.reconcile.repairs.grants import moment_s

AT_S = 1_772_366_400.123
NAMES = st.text("abc-", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.floats(1e9, 4e9).map(moment_s), min_size=1), max_size=4))
def test_a_record_is_read_back_as_it_was_written(record: dict[str, dict[str, float]]) -> None:
    is_due, text = due_text(record, None)
    assert is_due is bool(record)
    assert {node: dict(gpus) for node, gpus in read_record(text).items()} == record
    assert due_text(record, text) == (False, None), "it is written once"


def test_a_grant_that_counts_no_more_costs_no_write_until_none_counts() -> None:
    _, both = due_text({"n1": {"a": AT_S}, "n2": {"b": AT_S}}, None)
    assert due_text({"n2": {"b": AT_S}}, both) == (False, None)
    is_due, text = due_text({"n2": {"b": AT_S, "c": AT_S + 1}}, both)
    assert is_due
    assert json.loads(text or "") == {"n2": {"b": "2026-03-01T12:00:00.123Z", "c": "2026-03-01T12:00:01.123Z"}}
    assert due_text({}, both) == (True, None)
    assert due_text({}, None) == (False, None)


def test_a_later_grant_of_the_same_gpu_is_written() -> None:
    _, text = due_text({"n1": {"a": AT_S}}, None)
    assert due_text({"n1": {"a": AT_S + 700}}, text)[0]


def test_a_storm_leaves_the_newest() -> None:
    storm = {f"n{number:04}": {"a": AT_S + number} for number in range(MAX_RECORDED + 10)}
    _, text = due_text(storm, None)
    assert text is not None
    assert len(text) < 128 * 1024, "an object has room for 256 KiB of annotations"
    assert min(read_record(text)) == "n0010"
    assert due_text(storm, text) == (False, None)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "1", '{"n": 1}', '{"n": {"g": "soon"}}', "[" * 100_000, '{"n": {}}' + " " * (1 << 18)]
)
def test_what_cannot_be_read_is_no_record(text: str | None) -> None:
    assert read_record(text) == {}
