"""A change that is killed with -9 anywhere goes on in the next life, or back: nothing half-made stays."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.support.agent.killed",
        str(tmp_path_factory.mktemp("killed")),
    ]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def of(lives: list[dict[str, Any]], scenario: str, following: str) -> list[dict[str, Any]]:
    found = [life for life in lives if (life["scenario"], life["next"]) == (scenario, following)]
    assert [life["killed"] for life in found] == [True] * (len(found) - 1) + [False]
    return found


def profiles(life: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return sorted((profile, parts) for profile, _, parts in life["instances"])


def test_each_step_of_a_change_was_killed(lives: list[dict[str, Any]]) -> None:
    # The journal before and after, each on both sides of a write; an instance goes and another is cut anew inside.
    assert len(of(lives, "recut", "the same")) - 1 == 4 + 3 + 4
    # The mode besides, with its own journal entry.
    assert len(of(lives, "from whole", "the same")) - 1 == 6 + 1 + 4


@pytest.mark.parametrize("scenario", ["recut", "from whole"])
def test_who_wishes_the_same_gets_it(lives: list[dict[str, Any]], scenario: str) -> None:
    found = of(lives, scenario, "the same")
    *_, whole = found
    for life in found:
        assert (life["state"], life["open"], life["enabled"]) == ("Applied", False, True), life
        assert profiles(life) == profiles(whole), life
    assert any(life["found"] != whole["found"] for life in found), "no kill left anything to be done"


def test_what_was_in_use_is_the_same_device_in_every_life(lives: list[dict[str, Any]]) -> None:
    busy = [life for life in lives if life["scenario"] == "recut"]
    assert all(["4g.40gb", 0, [4]] in life["instances"] for life in busy)


def test_who_wishes_nothing_any_more_finds_the_former_layout_again(lives: list[dict[str, Any]]) -> None:
    *interrupted, finished = of(lives, "recut", "nothing")
    before = [("1g.10gb", [1]), ("2g.20gb", [2]), ("4g.40gb", [4])]
    for life in interrupted:
        assert (life["state"], life["open"]) == ("Applied", False), life
        # Killed after the journal said that all was done: there was nothing to undo.
        assert profiles(life) in (before, profiles(finished)), life
    assert [profiles(life) for life in interrupted].count(before) == len(interrupted) - 1


def test_a_gpu_that_was_whole_before_is_whole_again(lives: list[dict[str, Any]]) -> None:
    *interrupted, _ = of(lives, "from whole", "nothing")
    whole = [life for life in interrupted if not life["enabled"]]
    assert len(whole) == len(interrupted) - 1
    assert all(life["instances"] == [] and not life["open"] for life in whole)
