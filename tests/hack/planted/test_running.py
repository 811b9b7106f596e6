"""Programs of nets on copies: what counts as a verdict."""

from pathlib import Path

import pytest

from hack.planted import running
from hack.planted.nodefaults import NODE_FAULTS
from hack.planted.queuefaults import QUEUE_FAULTS
from hack.planted.running import ran

HONEST = "import sys\nsys.exit(0)\n"
SPEAKS = """import sys\nprint('{"net": "history", "message": "m"}')\nsys.exit(1)\n"""
FAILS = "raise ValueError('broken')\n"
LIES = "import sys\nsys.exit(1)\n"
HANGS = "import time\ntime.sleep(60)\n"


def program(folder: Path, text: str) -> Path:
    nets = folder / "hack/planted/nets"
    nets.mkdir(parents=True)
    for package in (folder / "hack", folder / "hack/planted", nets):
        (package / "__init__.py").touch()
    (nets / "tried.py").write_text(text)
    return folder


def test_a_program_that_ends_with_0_has_found_nothing(tmp_path: Path) -> None:
    found = ran(program(tmp_path, HONEST), "tried")
    assert (found.findings, found.error) == ((), "")


def test_what_a_program_printed_are_its_findings(tmp_path: Path) -> None:
    found = ran(program(tmp_path, SPEAKS), "tried")
    assert [(each.net, each.message) for each in found.findings] == [("history", "m")]
    assert found.error == ""


@pytest.mark.parametrize(("text", "error"), [(FAILS, "broken"), (LIES, "ended with 1")])
def test_a_program_that_fails_has_not_judged(tmp_path: Path, text: str, error: str) -> None:
    found = ran(program(tmp_path, text), "tried")
    assert found.findings == ()
    assert error in found.error


def test_a_program_that_hangs_has_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LIMIT_S", 0.3)
    assert "no verdict within" in ran(program(tmp_path, HANGS), "tried").error


def test_the_driver_of_stories_is_asked_about_faults_of_queues_alone() -> None:
    (charge,) = (each for each in QUEUE_FAULTS if each.name == "double charge")
    assert running.programs(charge, outside=False) == ("queues",)
    assert running.programs(charge, outside=True) == ("queues", "hack.outside.net")
    assert all(len(running.programs(each, outside=True)) == 1 for each in NODE_FAULTS)


def test_a_program_may_be_a_module_elsewhere(tmp_path: Path) -> None:
    program(tmp_path, HONEST)
    (tmp_path / "hack/elsewhere.py").write_text(SPEAKS)
    assert len(ran(tmp_path, "hack.elsewhere").findings) == 1
