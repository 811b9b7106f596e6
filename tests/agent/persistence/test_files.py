"""Files are the old ones or the new ones."""

import os
import signal
import stat
from pathlib import Path

import pytest

from agent.persistence.files import remove_half_written, write_atomically
from failpoints import points
from failpoints.names import Failpoint


def test_a_file_is_made_with_its_folders_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"new", Failpoint.LAYOUT)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "file", b"new", Failpoint.LAYOUT, mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_reader_of_the_old_file_keeps_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old content", Failpoint.LAYOUT)
    with path.open("rb") as reader:
        write_atomically(path, b"new", Failpoint.LAYOUT)
        assert reader.read() == b"old content"
    assert path.read_bytes() == b"new"


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old", Failpoint.LAYOUT)

    def full(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new", Failpoint.LAYOUT)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def killed_in_the_middle(path: Path) -> None:
    """A child process writes ``path`` and is killed when the content is on disk and not yet in its place."""

    def before(failpoint: Failpoint | None) -> None:  # noqa: ARG001 - the failpoint's
        os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            points.before = before
            write_atomically(path, b"new", Failpoint.LAYOUT)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_what_a_kill_leaves_half_written_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "layout.json"
    write_atomically(path, b"old", Failpoint.LAYOUT)
    for name in (".hidden", ".layout.json.old", ".kept.json.20261129T0828", "agent.lock"):
        (tmp_path / name).touch()
    (tmp_path / ".a.folder_1").mkdir()
    before = {*tmp_path.iterdir()}
    killed_in_the_middle(path)
    assert len({*tmp_path.iterdir()} - before) == 1
    remove_half_written(tmp_path)
    assert {*tmp_path.iterdir()} == before
    assert path.read_bytes() == b"old"


def test_in_a_folder_of_many_writers_only_files_of_ones_own_are_removed(tmp_path: Path) -> None:
    for name in ("ours-gpu.json", "ours-mig.json", "theirs.json"):
        killed_in_the_middle(tmp_path / name)
    remove_half_written(tmp_path, "ours-gpu", "ours-mig")
    assert [path.name.rpartition(".")[0] for path in tmp_path.iterdir()] == [".theirs.json"]


def test_a_folder_that_is_not_there_has_nothing_half_written(tmp_path: Path) -> None:
    remove_half_written(tmp_path / "nowhere")


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / "file").symlink_to(target)
    write_atomically(tmp_path / "file", b"new", Failpoint.LAYOUT)
    assert target.read_bytes() == b"untouched"
    assert not (tmp_path / "file").is_symlink()
