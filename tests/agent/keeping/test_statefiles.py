"""What is known is on disk soon, and at the end; where nothing is known nothing is written."""

import asyncio
import logging
from pathlib import Path

import pytest

from agent.keeping.statefiles import VERSION, Checkpoint, Known, LayoutState, StateFiles, load_checkpoint, load_layout
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
