"""``tessera top`` in a terminal of its own: however it ends, the terminal is as it was."""

import asyncio
import os
import pty
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from controller.cluster.watching.kinds import GPU_NODES
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status

START = """
import os, signal, sys
os.login_tty(0)
signal.signal(signal.SIGINT, signal.{handler})
sys.argv[0] = "tessera"
from cli.main import main
main()
"""
"""As a shell starts it in the foreground, with this done about SIGINT."""
ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
WITHIN_S = 60.0


class Terminal:
    """``shown``: all that was written to it."""

    def __init__(self, master: int, slave: int) -> None:
        self.master, self.slave = master, slave
        self.shown = b""
        self.modes = termios.tcgetattr(slave)
        self._more = asyncio.Event()
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self.read)

    def read(self) -> None:
        with suppress(BlockingIOError):
            while more := os.read(self.master, 65_536):
                self.shown += more
        self._more.set()

    async def until(self, text: bytes) -> None:
        while text not in self.shown:
            self._more.clear()
            await self._more.wait()

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def as_it_was(self) -> bool:
        """The screen was given back once, the cursor is seen, and keys are shown again, line by line."""
        after = self.shown.rpartition(ENTER)[2]
        same = termios.tcgetattr(self.slave) == self.modes
        return same and after.count(LEAVE) == 1 and after.rfind(SHOW_CURSOR) > 0


@asynccontextmanager
async def top(shell: Shell, handler: str) -> AsyncIterator[tuple[Terminal, Process]]:
    """Once its screen is drawn."""
    shell.scene.server.create(GPU_NODES, "n-0", {"status": full_status({"devices": [], "holders": []})})
    master, slave = pty.openpty()
    there = Terminal(master, slave)
    code = START.format(handler=handler)
    words = ("top", "--kubeconfig", str(shell.kubeconfig), "--every", "3600")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *words),
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            await there.until(b"No GpuNode has GPUs.")
            yield there, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("keys", ["q", "xQ", "\x03q"])
async def test_where_sigint_is_ignored_it_ends_by_a_key(shell: Shell, keys: str) -> None:
    async with top(shell, "SIG_IGN") as (there, process):
        there.type(keys)
        assert await process.wait() == 0
        there.read()
        assert there.as_it_was()


@pytest.mark.parametrize("handler", ["SIG_IGN", "default_int_handler"])
async def test_it_ends_by_sigterm(shell: Shell, handler: str) -> None:
    async with top(shell, handler) as (there, process):
        process.terminate()
        assert await process.wait() == 0
        there.read()
        assert there.as_it_was()


async def test_it_ends_by_ctrl_c_where_that_is_not_ignored(shell: Shell) -> None:
    async with top(shell, "default_int_handler") as (there, process):
        there.type("\x03")
        assert await process.wait() == 0
        there.read()
        assert there.as_it_was()
