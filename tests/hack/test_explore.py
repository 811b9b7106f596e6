"""What exploring finds is told in the words that pin it; what it looks at is new in each round."""

import re
from pathlib import Path

import pytest

from hack import explore
from hack.findings import to_pin
from tests.support.seeds import drawn

ROOT = Path(__file__).parents[2]

CALL = """\
    @given(n=st.integers(), words=st.lists(st.text()))
    def test_small(n, words):
>       assert n < 100, "too large"
E       AssertionError: too large
E       Failing test case: test_small(
E           n=100,
E           words=[],  # or any other generated value
E       )
E       You can reproduce this example by temporarily adding @reproduce_failure('6.1', b'AXA=') as a decorator
"""
METHOD = """\
E   Falsifying example: test_m(
E       self=<tests.test_x.TestC object at 0x7f073a1ea090>,
E       x='000',
E   )
"""
MACHINE = """\
E       assert 20 < 20
E       Failing test case: <state machine>
E       state = M()
E       state.add(k=2)
E       state.teardown()
"""
DRAWN = """\
E       Failing test case: test_data(
E           n=0,
E           data=data(...),
E       )
E       Draw 1: 1000
E       You can reproduce this example by temporarily adding @reproduce_failure('6.1', b'AXA=') as a decorator
"""
TWO = """\
  | ExceptionGroup: Hypothesis found 2 distinct failures. (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    | ZeroDivisionError: division by zero
    | Failing test case: test_two(n=0)
    +---------------- 2 ----------------
    | AssertionError
    | Failing test case: test_two(
    |     n=5,
    | )
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("node", "text", "pins"),
    [
        ("f.py::test_small", CALL, ["@example(\n    n=100,\n    words=[],  # or any other generated value\n)"]),
        ("f.py::TestC::test_m", METHOD, ["@example(\n    x='000',\n)"]),
        (
            "f.py::TestM::runTest",
            MACHINE,
            ["def test_...() -> None:\n    state = M()\n    state.add(k=2)\n    state.teardown()"],
        ),
        ("f.py::test_two", TWO, ["@example(n=0)", "@example(\n    n=5,\n)"]),
        ("f.py::test_seeded[12345]", "E   assert 12345 < 5", ["@histories(..., 12345)"]),
        ("f.py::test_seeded[half full-7]", "E   assert", ["@histories(..., 7)"]),
        ("f.py::test_setup", "E   OSError", ["nothing to pin was told: see the failure"]),
    ],
)
def test_a_failure_s_text_becomes_what_pins_it(node: str, text: str, pins: list[str]) -> None:
    assert to_pin(node, text) == pins


def test_what_is_drawn_inside_a_test_is_pinned_by_its_bytes() -> None:
    (pin,) = to_pin("f.py::test_data", DRAWN)
    assert pin.startswith("@reproduce_failure('6.1', b'AXA=')")


PROPERTIES = """\
from hypothesis import given, strategies as st
from tests.support.seeds import histories

@given(n=st.integers())
def test_small(n: int) -> None:
    assert n < 100

@histories(0, 1)
def test_seeded(seed: int) -> None:
    assert seed < 2

def test_no_property() -> None:
    raise AssertionError
"""


@pytest.fixture
def by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pytest that it starts is told nothing by the run that this test is in."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("by_itself")
def test_it_tells_what_it_found_and_how_to_pin_it_and_ends_when_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_x.py").write_text(PROPERTIES)
    monkeypatch.setattr(explore, "TOLD_EVERY_S", 0.01)
    code = explore.main(["10m", f"{tmp_path}/test_x.py"], workers=0)
    told = capsys.readouterr().out
    assert code == 1, told
    assert told.startswith(f"explore: properties of {tmp_path}/test_x.py with fresh seeds for 600 s\n")
    assert "explore: 0 s: 0 properties tried\n" in told
    assert re.search("explore: [0-9]+ s: [12] propert(y|ies) tried", told)
    assert "@example(\n    n=100,\n)" in told
    assert "@histories(..., " in told
    assert "test_no_property" not in told
    assert told.endswith("explore: 2 found in 2 rounds\n")


def test_a_time_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert explore.main(["soon"]) == 2
    assert capsys.readouterr().err == 'explore: TIME: found \'soon\', expected a duration such as "10m" or "1h30m"\n'


@pytest.mark.parametrize("word", ["nonsense", "tests/nonsense", "tests/nonsense.py::test_x"])
def test_what_is_to_be_explored_and_is_not_there_is_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explore.main(["1s", word]) == 2
    expected = "expected outside, or a folder or file with properties, such as tests/controller"
    assert capsys.readouterr().err == f"explore: ONLY: found {word!r}, {expected}\n"


@pytest.mark.usefixtures("by_itself")
@pytest.mark.parametrize("name", ["", "::test_nowhere"])
def test_where_no_property_is_there_is_nothing_to_explore(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("def test_no_property() -> None:\n    raise AssertionError\n")
    assert explore.main(["10m", f"{file}{name}"], workers=0) == 2
    assert capsys.readouterr().err.startswith("explore: ONLY: found ")


@pytest.mark.usefixtures("by_itself")
def test_a_time_in_which_no_history_ends_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert explore.main(["1s", "outside"], workers=1) == 2
    out, err = capsys.readouterr()
    assert out.startswith("explore: random histories judged from outside for 1 s\n")
    assert "no story is begun" in out
    assert err == "explore: TIME: found 1 s, in which no story ended, expected more\n"


def test_the_tests_draw_the_same_histories_and_each_round_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.seeds.ROUND", "")
    assert drawn(range(3)) == [0, 1, 2]
    monkeypatch.setattr("tests.support.seeds.ROUND", "1")
    first = drawn(range(3))
    assert first == drawn(range(3))
    monkeypatch.setattr("tests.support.seeds.ROUND", "2")
    assert not set(first) & set(drawn(range(3)))
