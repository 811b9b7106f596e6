"""The parts of ``make nightly``, and the page that keeps their results."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from hack.fuzz.targets import TARGETS
from hack.nightly import page
from hack.nightly.__main__ import main
from hack.nightly.page import PAGE, LastRun, commit, read, record, table, written
from hack.nightly.parts import BY_NAME, FUZZ_MINUTES, MOST_MINUTES, PARTS, PYTHON, SHARES, Part, share
from hack.nightly.running import Ended

ROOT = Path(__file__).parents[3]
A, B = Part("a", ("make", "a"), "what a shows"), Part("b", ("make", "b"), "what b shows", 30)
GREEN = LastRun("0123abcd", "2026-11-28", "green", "12")


def test_the_page_has_the_parts_that_there_are() -> None:
    text = PAGE.read_text()
    assert written(text, PARTS, read(text)) == text, "a part that is new has no row yet"
    assert read(text).keys() <= BY_NAME.keys()
    assert re.findall(r"^\| `([a-z]+)` ", text, re.MULTILINE) == [part.name for part in PARTS]


def test_each_part_is_named_once_and_takes_an_hour_at_most() -> None:
    assert len(BY_NAME) == len(PARTS)
    assert all(0 < part.limit_min <= MOST_MINUTES == 60 for part in PARTS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_runs_what_there_is(part: Part) -> None:
    program, *rest = part.words(day=1)
    if program == "make":
        assert re.search(rf"^{rest[0]}: ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert (program, rest[0]) == (PYTHON, "-m")
        assert importlib.util.find_spec(rest[1])
    assert not re.search(r"[{}]", " ".join([program, *rest]))


def test_each_target_of_the_fuzzer_has_its_night_and_a_share_fits_its_hour() -> None:
    days = [share(day) for day in range(7, 7 + SHARES)]
    assert sorted(name for names in days for name in names) == sorted(TARGETS)
    assert all(len(names) * FUZZ_MINUTES <= BY_NAME["fuzz"].limit_min - 5 for names in days)


def test_what_the_page_tells_is_read_again_and_a_part_without_a_run_says_so() -> None:
    text = written("# Page\n<!-- nightly -->\nold\n<!-- end -->\nmore\n", (A, B), {"b": GREEN})
    assert read(text) == {"b": GREEN}
    assert "| `a` | what a shows | `make a` | 60 | not run yet |" in text
    assert "| `b` | what b shows | `make b` | 30 | 0123abcd | 2026-11-28 | green | 12 |" in text
    assert text.startswith("# Page\n")
    assert text.endswith("<!-- end -->\nmore\n")
    with pytest.raises(ValueError, match="found 0 places"):
        written("no marks", (A,), {})
    assert table((A,), {}).count("\n") == 3


def test_a_run_takes_the_place_of_the_one_before_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "nightly.md"
    file.write_text(written("<!-- nightly -->\n<!-- end -->\n", (A, B), {"a": GREEN, "b": GREEN}))
    later = LastRun("89abcdef", "2026-11-29", "RED: exit code 2", "3")
    record(A, later, (A, B), file)
    assert read(file.read_text()) == {"a": later, "b": GREEN}


def test_a_commit_is_marked_where_files_differ_from_it_the_page_apart(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/nightly.md").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "one")
    clean = commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{8}", clean)
    (tmp_path / "docs/nightly.md").write_text("two\n")
    assert commit(tmp_path) == clean
    (tmp_path / "new.py").touch()
    assert commit(tmp_path) == f"{clean}+"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of its own."""
    monkeypatch.setattr("hack.nightly.__main__.commit", lambda: "0123abcd")
    file = tmp_path / "nightly.md"
    file.write_text(written(page.PAGE.read_text(), PARTS, {}))
    return file


def test_all_parts_are_run_and_one_that_is_red_stops_no_other(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(part: Part, day: int) -> Ended:
        assert day > 739_000
        return Ended("over its limit of 60 min" if part.name == "chaos" else "", 7.4)

    assert main([], run, kept) == 1
    found = read(kept.read_text())
    assert found.keys() == BY_NAME.keys()
    assert found["chaos"].result == "RED: over its limit of 60 min"
    assert (found["fuzz"].result, found["fuzz"].minutes, found["fuzz"].commit) == ("green", "7", "0123abcd")
    assert capsys.readouterr().out.endswith("nightly: red: chaos\n")


def test_one_part_alone_is_run_and_recorded(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--part", "fuzz"], lambda *_: Ended("", 1.0), kept) == 0
    assert read(kept.read_text()).keys() == {"fuzz"}
    assert capsys.readouterr().out.endswith("nightly: all green\n")


def test_the_list_names_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BY_NAME)
