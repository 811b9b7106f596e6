"""Other processes that have a GPU's device file open, as /proc tells."""

from pathlib import Path

import pytest

from agent.mig.nvmlmig import MAX_CLIENTS, open_by


def process(root: Path, pid: int, name: str | None, *files: str) -> None:
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    if name is not None:
        (folder / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


def test_processes_that_have_the_device_open_are_named(tmp_path: Path) -> None:
    process(tmp_path, 7, "nv-hostengine", "/dev/null", "/dev/nvidia3")
    process(tmp_path, 8, "python", "/dev/nvidia30", "/dev/nvidiactl")
    process(tmp_path, 9, None, "/dev/nvidia3")
    process(tmp_path, 10, "tessera-agent", "/dev/nvidia3")
    (tmp_path / "11").mkdir()  # gone meanwhile, or not ours to look at
    (tmp_path / "self").symlink_to("10")
    assert open_by(tmp_path, "/dev/nvidia3", but=10) == ["a process (9)", "nv-hostengine (7)"]
    assert open_by(tmp_path / "nowhere", "/dev/nvidia3", but=10) == []


@pytest.mark.parametrize("count", [MAX_CLIENTS, MAX_CLIENTS + 5])
def test_a_long_list_is_cut(tmp_path: Path, count: int) -> None:
    for pid in range(100, 100 + count):
        process(tmp_path, pid, "train", "/dev/nvidia0")
    assert len(open_by(tmp_path, "/dev/nvidia0", but=1)) == MAX_CLIENTS
