"""The recipe of ``docs/scheduler/preemption.md``: its patch applies, and its tests fail and pass as it says."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.pagetables import table

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "docs/scheduler/preemption.md"
MOST_LINES: Final = 15
CLAIM: Final = "test_of_two_candidates_of_equal_priority_the_smaller_one_goes"
_PATCHED: Final = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)


@cache
def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{PAGE.name}: found {len(found)} blocks of {language}, expected one"
    return str(found[0])


def source(folder: Path, *, patched: bool) -> Path:
    """A copy of the source that the patch changes; whatever is beside it is linked to."""
    for path in _PATCHED.findall(block("diff")):
        copy = folder
        for part in Path(path).parts[:-1]:
            copy /= part
            copy.mkdir(exist_ok=True)
            for there in (ROOT / copy.relative_to(folder)).iterdir():
                link = copy / there.name
                if there.name != "__pycache__" and not link.exists() and there.name not in Path(path).parts:
                    link.symlink_to(there)
        (folder / path).unlink(missing_ok=True)
        (folder / path).write_text((ROOT / path).read_text())
    if patched:
        done = subprocess.run(
            ["git", "apply", "-"], cwd=folder, input=block("diff"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return folder


def outcomes(folder: Path, *modules: Path, only: Sequence[str] = ()) -> dict[str, bool]:
    """Whether each test passes by the source in this folder, by its name with its parameters."""
    words = ["-q", "-rA", "-c", os.devnull, "--rootdir", str(ROOT), "--import-mode=importlib", "-p", "no:cacheprovider"]
    chosen = ["-k", " or ".join(only)] if only else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *chosen, *map(str, modules)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\S+)(.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {name: word == "PASSED" for word, name, _ in found}


def written(folder: Path) -> Path:
    test = folder / "test_fewest_gpus.py"
    assert f"`{test.name}`" in PAGE.read_text()
    test.write_text(block("python"))
    return test


def others() -> dict[str, bool]:
    """The tests of the page's table, and whether each passes with the patch."""
    words = {"fails": False, "passes": True}
    return {row["test"]: words[re.split(r"\W", row["with the patch"])[0]] for row in table(PAGE, "test")}


def test_the_patch_is_short_enough_for_a_first_day() -> None:
    changed = [line for line in block("diff").splitlines() if re.match(r"[+-](?!\+\+ |-- )", line)]
    assert 0 < len(changed) <= MOST_LINES


def test_the_pages_test_fails_by_the_rule_as_it_is(tmp_path: Path) -> None:
    assert outcomes(source(tmp_path, patched=False), written(tmp_path)) == {CLAIM: False}


def test_with_the_patch_the_tests_of_the_page_pass_and_fail_as_told(tmp_path: Path) -> None:
    modules = {ROOT / row["module"] for row in table(PAGE, "test")}
    found = outcomes(source(tmp_path, patched=True), written(tmp_path), *sorted(modules), only=[CLAIM, *others()])
    assert found.pop(CLAIM)
    by_name = {name: {passed for of, passed in found.items() if of.partition("[")[0] == name} for name in others()}
    assert by_name == {name: {passed} for name, passed in others().items()}
    assert set(others().values()) == {True, False}
