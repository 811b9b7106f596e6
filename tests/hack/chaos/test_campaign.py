"""The table of kinds and the functions that do them are one; the command line refuses what cannot be."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hack.chaos.__main__ import main
from hack.chaos.faults.begins import BEGINS
from hack.chaos.faults.kinds import KINDS
from hack.chaos.members import CLOCK_ENV, SEAM, ChaosAgent


def test_each_kind_has_its_hand() -> None:
    assert BEGINS.keys() == KINDS.keys()


def test_the_page_names_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs/chaos.md").read_text()
    assert not [name for name in KINDS if f"`{name}`" not in page]


def test_a_schedule_is_shown_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--minutes", "3", "--only", "kill-agent", "--show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["seed"] == 5
    assert {act["kind"] for burst in shown["bursts"] for act in burst["acts"]} == {"kill-agent"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "flood"], "--only: found 'flood', expected kinds of fault"),
        (["--minutes", "-1"], "--minutes: found -1.0, expected 0 to"),
        (["--calm", "61"], "--calm: found 61.0, expected more than 0 and at most 60 seconds"),
        (["--replay", "/nowhere"], "/nowhere: "),
    ],
)
def test_words_that_cannot_be_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_a_process_with_the_seam_is_ahead_by_what_the_file_says(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("7200")
    told = "import os, time; print(time.time() - os.stat('now').st_mtime)"
    (tmp_path / "now").touch()
    environment = {**os.environ, "PYTHONPATH": str(SEAM), CLOCK_ENV: str(clock)}
    ahead = subprocess.check_output([sys.executable, "-c", told], env=environment, cwd=tmp_path, text=True)
    assert 7199 < float(ahead) < 7300


def test_a_process_that_was_started_counts_as_up_once_it_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        agent = ChaosAgent(tmp_path, None, tmp_path, port=server.getsockname()[1])
        assert agent.listens
    assert not agent.listens
