"""What ``make e2e`` runs, in which order, and what it exits with."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hack.e2e import tier as module
from hack.e2e.plugin import how_it_failed, read_failures
from hack.e2e.tier import LATE, PASSES, PLACES, SECOND_TRY, Ended, tier
from tests.support.e2e import order

OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
BROKEN = sorted(set(pytest.ExitCode) - {OK, FAILED})
FIRST, ALONE = (words for _, words in PASSES)
AGAIN = SECOND_TRY[1]


class Played:
    """pytest that ends like this, call for call; each test is a letter."""

    def __init__(self, *ends: tuple[int, str]) -> None:
        self.calls: list[tuple[Sequence[str], str]] = []
        self._ends = ends

    def __call__(self, words: Sequence[str], only: frozenset[str]) -> Ended:
        self.calls.append((words, "".join(sorted(only))))
        code, failed = self._ends[len(self.calls) - 1]
        return Ended(code, {test: f"how {test} failed in call {len(self.calls)}" for test in failed})


@pytest.fixture(autouse=True)
def second_tries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "build/second-tries.txt"
    defaults = {**(tier.__kwdefaults__ or {}), "told": file}
    monkeypatch.setattr(module.tier, "__kwdefaults__", defaults)
    return file


def test_a_tier_that_passes_is_run_once() -> None:
    played = Played((OK, ""), (OK, ""))
    assert tier(played) == 0
    assert played.calls == [(FIRST, ""), (ALONE, "")]


@pytest.mark.parametrize("failed", ["ab,", ",ab", "a,b"])
def test_what_failed_in_either_pass_is_tried_again_after_both_and_told(
    failed: str, capsys: pytest.CaptureFixture[str], second_tries: Path
) -> None:
    played = Played(*((FAILED if tests else OK, tests) for tests in failed.split(",")), (OK, ""))
    assert tier(played) == 0
    assert played.calls == [(FIRST, ""), (ALONE, ""), (AGAIN, "ab")]
    said = capsys.readouterr().out
    assert re.search(rf"e2e: 2 {LATE}:\n  a\n    how a failed in call [12]\n  b\n    how b failed in call [12]\n", said)
    assert said.endswith(f"e2e: also in {second_tries}\n"), "the last words of a green run"
    assert second_tries.read_text() in said


def test_what_fails_twice_is_red(capsys: pytest.CaptureFixture[str], second_tries: Path) -> None:
    assert tier(Played((FAILED, "ab"), (OK, ""), (FAILED, "b"))) == FAILED
    said = capsys.readouterr().out
    assert "e2e: 1 failed twice:\n  b\n    how b failed in call 3\n" in said
    assert second_tries.read_text() == "  a\n    how a failed in call 1\n"


def test_a_run_without_second_tries_leaves_no_file_of_the_last_one(second_tries: Path) -> None:
    tier(Played((FAILED, "a"), (OK, ""), (OK, "")))
    assert second_tries.exists()
    tier(Played((OK, ""), (OK, "")))
    assert not second_tries.exists()


@pytest.mark.parametrize("code", BROKEN)
@pytest.mark.parametrize("before", [(), ((FAILED, "a"),)], ids=["first", "alone"])
def test_a_pass_that_could_not_run_or_found_no_test_is_red_at_once(
    code: int, before: tuple[tuple[int, str], ...]
) -> None:
    played = Played(*before, (code, ""))
    assert tier(played) == code
    assert len(played.calls) == len(before) + 1


@pytest.mark.parametrize("end", [(FAILED, ""), (OK, "a")])
def test_a_pass_whose_code_and_failures_disagree_is_red(end: tuple[int, str]) -> None:
    assert tier(Played(end)) != 0


@pytest.mark.parametrize("code", BROKEN)
def test_a_second_try_that_could_not_run_is_red(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert tier(Played((FAILED, "a"), (OK, ""), (code, ""))) == code
    assert capsys.readouterr().out.endswith("e2e: 1 had no second try:\n  a\n    how a failed in call 1\n")


@pytest.mark.parametrize(
    ("longrepr", "when", "said"),
    [
        ("worker 'gw0' crashed while running 'a'", "???", "???: worker 'gw0' crashed while running 'a'"),
        ("Traceback\nE   ImportError: no x\n\n", "setup", "setup: E ImportError: no x"),
        ("x" * 1_000, "call", "x" * 197 + "..."),
        (None, "call", "None"),
    ],
)
def test_how_a_test_failed_is_one_line(longrepr: str | None, when: Any, said: str) -> None:
    assert how_it_failed(pytest.TestReport("a", ("a", 1, "a"), {}, "failed", longrepr, when)) == said


def test_a_test_that_failed_in_two_phases_says_both(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text('["a", "one"]\n["b", "x"]\n["a", "teardown: two"]\n')
    assert read_failures(tmp_path / "notes") == {"a": "one; teardown: two", "b": "x"}
    assert read_failures(tmp_path / "none") == {}


def test_each_test_of_the_tier_is_in_one_of_its_passes() -> None:
    assert [words[words.index("-m") + 1] for words in (FIRST, ALONE)] == ["e2e and not alone", "e2e and alone"]


def test_no_test_of_the_tier_is_elsewhere() -> None:
    root = order.TESTS.parent
    marked = {
        path
        for path in order.TESTS.rglob("test_*.py")
        if re.search(r"^pytestmark = .*mark\.e2e\b", path.read_text(), re.MULTILINE)
    }
    assert marked
    assert all(any(path.is_relative_to(root / place) for place in PLACES) for path in marked)


def test_files_are_sent_the_longest_first_and_the_judge_of_all_comes_last() -> None:
    files = [order.TESTS / name for name in (order.LAST, "e2e/agent/test_soak.py", *reversed(list(order.SECONDS)))]
    found = [path.relative_to(order.TESTS).as_posix() for path in sorted(files, key=order.place)]
    assert found[-1] == order.LAST
    seconds = [order.SECONDS.get(name, 0) for name in found]
    assert seconds == sorted(seconds, reverse=True)
    assert all((order.TESTS / name).is_file() for name in found)


def test_what_bears_no_company_says_why() -> None:
    marked = [
        text for path in Path(order.TESTS / "e2e").rglob("test_*.py") if "mark.alone" in (text := path.read_text())
    ]
    assert marked
    assert all(re.search(r'mark\.alone\("[^"]{20,}"\)', text) for text in marked)
