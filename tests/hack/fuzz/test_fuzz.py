"""What a run of the fuzzer counts and reports, without atheris."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.fuzz.mutating import mutated
from hack.fuzz.outcome import exit_code, row
from hack.fuzz.target import Defect, Shape, execute
from hack.fuzz.targets import TARGETS

SAID = """INFO: seed corpus: files: 3
defect: KeyError at agent/a.py:7: /tmp/found/1
Traceback
stat::number_of_executed_units: 5000
stat::peak_rss_mb:              60
"""


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 80), st.sampled_from(Shape))
def test_the_same_seed_makes_the_same_input_of_bounded_size(data: bytes, seed: int, most: int, shape: Shape) -> None:
    made = mutated(data, seed, most, shape)
    assert made == mutated(data, seed, most, shape)
    assert len(made) <= most


def test_json_stays_json_and_becomes_another_one() -> None:
    given_ = b'{"a": [1, "b"], "c": {"d": null}}'
    made = {mutated(given_, seed, 100_000, Shape.JSON) for seed in range(100)}
    assert all(isinstance(json.loads(each), object) for each in made)
    assert len(made) > 50


def test_a_value_and_a_declared_error_are_fine_and_any_other_error_is_a_defect() -> None:
    assert execute(int, (ValueError,), b"7")
    assert not execute(int, (ValueError,), b"x")
    with pytest.raises(Defect, match="invalid literal"):
        execute(int, (KeyError,), b"x")


def test_an_error_of_several_lines_is_a_defect_and_so_is_one_far_longer_than_its_input() -> None:
    def failing(text: str) -> None:
        def parse(_data: bytes) -> object:
            raise ValueError(text)

        execute(parse, (ValueError,), b"")

    for text in ("a\nb", "a" * 5_000):
        with pytest.raises(Defect):
            failing(text)
    failing("one line")


@pytest.mark.parametrize("text", ["manifest:1: a\nmanifest:2: b", "manifest: one line"])
def test_a_target_with_a_line_for_each_problem_says_how_each_begins(text: str) -> None:
    def parse(_data: bytes) -> object:
        raise ValueError(text)

    assert not execute(parse, (ValueError,), b"", each_line="manifest")


@pytest.mark.parametrize("text", ["manifest:1: a\nb", "manifest:1: a\n\nmanifest:2: b", "body: a\nmanifest: b"])
def test_a_line_that_the_input_broke_is_a_defect_there_too(text: str) -> None:
    def parse(_data: bytes) -> object:
        raise ValueError(text)

    with pytest.raises(Defect):
        execute(parse, (ValueError,), b"", each_line="manifest")


def test_executions_are_those_that_libfuzzer_counted() -> None:
    found = row("claim", SAID, 2.0)
    assert (found.executions, found.peak_mib, found.complete) == (5000, 60, True)
    assert found.defects == ("KeyError at agent/a.py:7: /tmp/found/1",)
    assert "5,000 executions,   2,500/s" in found.line


def test_what_was_found_exits_with_1_and_a_worker_that_did_not_run_with_2() -> None:
    clean, broken = row("a", "stat::number_of_executed_units: 1", 1.0), row("b", "ImportError", 1.0)
    assert exit_code([clean]) == 0
    assert exit_code([clean, broken]) == 2
    assert exit_code([broken, row("c", SAID, 1.0)]) == 1
    slow = row("d", "==7== ERROR: libFuzzer: timeout after 5 seconds\nstat::number_of_executed_units: 1", 1.0)
    assert slow.defects == ("libFuzzer: timeout after 5 seconds",)


def test_each_target_says_who_writes_what_it_reads_and_has_inputs_to_begin_with() -> None:
    for target in TARGETS.values():
        assert target.what
        assert target.writer
        assert target.seeds()
