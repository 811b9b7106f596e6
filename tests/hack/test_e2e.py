"""What ``make e2e`` runs, in which order, and what it exits with."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from hack.e2e.tier import PASSES, PLACES, SECOND_TRY, Ended, tier
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
        return Ended(code, frozenset(failed))


def test_a_tier_that_passes_is_run_once() -> None:
    played = Played((OK, ""), (OK, ""))
    assert tier(played) == 0
    assert played.calls == [(FIRST, ""), (ALONE, "")]


@pytest.mark.parametrize("failed", ["ab,", ",ab", "a,b"])
def test_what_failed_in_either_pass_is_tried_again_after_both_and_told(
    failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    played = Played(*((FAILED if tests else OK, tests) for tests in failed.split(",")), (OK, ""))
    assert tier(played) == 0
    assert played.calls == [(FIRST, ""), (ALONE, ""), (AGAIN, "ab")]
    assert capsys.readouterr().out.endswith("e2e: passed only at the second try:\n  a\n  b\n")


def test_what_fails_twice_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    assert tier(Played((FAILED, "ab"), (OK, ""), (FAILED, "b"))) == FAILED
    assert capsys.readouterr().out.endswith("passed only at the second try:\n  a\ne2e: failed twice:\n  b\n")


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
    assert capsys.readouterr().out.endswith("e2e: had no second try:\n  a\n")


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
