"""Programs that are run: nothing of them outlives whoever ran them."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.process.tasks import started
from kube.testing import eventually
from tests.agent.kubelet.test_cdifiles import is_running

HANGS = "import os, pathlib, subprocess, sys; c = subprocess.Popen(['sleep', '600']); "
TELLS = "pathlib.Path(sys.argv[1] + '.new').write_text(str(c.pid)); os.rename(sys.argv[1] + '.new', sys.argv[1]); "
PIPE = asyncio.subprocess.PIPE


async def run(child: Path) -> None:
    async with started(sys.executable, "-c", HANGS + TELLS + "c.wait()", str(child), stdout=PIPE) as process:
        await process.wait()


async def test_cancelled_while_it_starts_it_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio is still setting up pipes while the program has long been running, on a busy machine."""
    child, start, let = tmp_path / "child", asyncio.create_subprocess_exec, asyncio.Event()

    async def slow(*words: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*words, **options)
        await let.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    running = asyncio.create_task(run(child))
    await eventually(child.exists)
    running.cancel()
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not is_running(int(child.read_text())))


async def test_cancelled_while_it_runs_it_ends_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    running = asyncio.create_task(run(child))
    await eventually(child.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not is_running(int(child.read_text())))


async def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_missing(tmp_path / "missing")


async def run_missing(path: Path) -> None:
    async with started(str(path)):
        pass
