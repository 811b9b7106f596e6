"""What is known is on disk soon, and at the end; where nothing is known nothing is written."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from agent.persistence import statefiles
from agent.persistence.statefiles import (
    VERSION,
    Checkpoint,
    Known,
    LayoutState,
    StateFiles,
    load_checkpoint,
    load_layout,
)
from inventory.layout.entries import Fractional
from kube.testing import eventually
from tests.support.inventory.builders import gpu, node, uuid


def known(energy_mj: int) -> Known:
    return Known(
        Checkpoint(version=VERSION, boot_id="one", node=node([gpu(0)]), energy_mj={uuid(0): energy_mj}),
        LayoutState(modes={uuid(0): Fractional(energy_mj)}),
    )


def on_disk(folder: Path) -> Known | None:
    found = load_checkpoint(folder, node_name="node-a")
    return None if found is None else Known(found, load_layout(folder))


async def test_a_change_is_written_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    at_present = [known(1)]
    files = StateFiles(tmp_path, lambda: at_present[-1])
    task = asyncio.create_task(files.run())
    files.changed()
    await eventually(lambda: on_disk(tmp_path) == known(1))
    at_present.append(known(2))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await files.close()
    assert on_disk(tmp_path) == known(2)
    assert files.layout == known(2).layout
    assert StateFiles(tmp_path, lambda: None).layout == known(2).layout


async def test_while_nothing_is_known_what_was_known_before_stays(tmp_path: Path) -> None:
    await StateFiles(tmp_path, lambda: known(1)).close()
    await StateFiles(tmp_path, lambda: None).close()
    assert on_disk(tmp_path) == known(1)


async def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        await StateFiles(tmp_path / "file", lambda: known(1)).close()
    assert [record.message for record in caplog.records] == ["state files not saved"]


async def test_a_kill_loses_what_has_changed_since_the_last_write_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the disk takes: what comes meanwhile is in the write after it."""
    begun, go_on = threading.Event(), threading.Event()
    save = statefiles.save_checkpoint

    def slow(folder: Path, checkpoint: Checkpoint) -> None:
        begun.set()
        assert go_on.wait(60)
        save(folder, checkpoint)

    monkeypatch.setattr(statefiles, "save_checkpoint", slow)
    at_present = [known(1)]
    files = StateFiles(tmp_path, lambda: at_present[-1])
    task = asyncio.create_task(files.run())
    files.changed()
    await eventually(begun.is_set)
    at_present.append(known(2))
    files.changed()
    assert on_disk(tmp_path) is None, "a kill now loses both"
    begun.clear()
    go_on.set()
    await eventually(lambda: on_disk(tmp_path) == known(2))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_modes_can_be_waited_for_until_they_are_on_disk(tmp_path: Path) -> None:
    """A MIG change takes no step before."""
    at_present = [known(1)]
    files = StateFiles(tmp_path, lambda: at_present[-1])
    await asyncio.gather(files.flush(), files.flush())
    assert load_layout(tmp_path) == known(1).layout
    at_present.append(known(2))
    await files.flush()
    assert load_layout(tmp_path) == known(2).layout


async def test_a_folder_that_cannot_be_written_holds_nobody_up_and_is_told_when_that_changes(tmp_path: Path) -> None:
    folder, told = tmp_path / "state", list[str]()
    folder.touch()
    files = StateFiles(folder, lambda: known(1), lambda: told.append(files.failed))
    await files.flush()
    await files.flush()
    assert len(told) == 1
    assert str(folder) in told[0]
    folder.unlink()
    await files.flush()
    assert (told[1:], on_disk(folder)) == ([""], known(1))
