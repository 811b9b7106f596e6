"""Processes that have a GPU's device file open are found, and told apart from the host's stewards."""

from pathlib import Path

import pytest

from agent.health.remediation import STEWARDS
from agent.repair.openers import Opener, openers


def process(root: Path, pid: int, name: str, *files: str) -> None:
    folder = root / str(pid) / "fd"
    folder.mkdir(parents=True)
    (root / str(pid) / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / f"{number}").symlink_to(file)


def test_programs_and_stewards_that_have_it_open(tmp_path: Path) -> None:
    process(tmp_path, 20, "python", "/dev/null", "/dev/nvidia3")
    process(tmp_path, 3, "nv-hostengine", "/dev/nvidia3", "/dev/nvidiactl")
    process(tmp_path, 4, "other", "/dev/nvidia30", "/dev/nvidiactl", "socket:[7]")
    found = openers(tmp_path, [3])
    assert (found.found, found.blind) == ((Opener(3, "nv-hostengine"), Opener(20, "python")), False)
    assert [each.is_one_of(STEWARDS) for each in found.found] == [True, False]
    assert [each.is_one_of(("python",)) for each in found.found] == [False, True]
    assert openers(tmp_path, [5]).found == ()


def test_the_kernels_short_names_are_known() -> None:
    assert Opener(1, "nvidia-persiste").is_one_of(STEWARDS)
    assert Opener(1, "nv-fabricmanage").is_one_of(STEWARDS)
    assert not Opener(1, "nvidia-persistx").is_one_of(STEWARDS)


def test_a_process_that_may_not_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 1, "secret")
    process(tmp_path, 2, "python", "/dev/nvidia0")
    look = Path.iterdir

    def refused(path: Path) -> object:
        if path == tmp_path / "1" / "fd":
            raise PermissionError
        return look(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    found = openers(tmp_path, [0])
    assert (found.found, found.blind) == ((Opener(2, "python"),), True)


def test_a_process_that_is_gone_has_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    assert openers(tmp_path, [0]).found == ()
    assert not openers(tmp_path, [0]).blind
