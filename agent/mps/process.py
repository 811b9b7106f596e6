"""A control daemon's process: started to outlive the agent, or found running; watched through a pidfd either way.

There is no subprocess object: its end would take the daemon and every client down with an agent that is only being
restarted.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.mps.control import MpsError
from failpoints import points
from failpoints.names import Failpoint


class DaemonProcess:
    """One process with its group. ``on_exit`` gets, once and on the event loop, one line that says how it ended."""

    def __init__(self, pid: int, on_exit: Callable[["DaemonProcess", str], None]) -> None:
        """Raises OSError where there is no such process."""
        self.pid = pid
        self.ended = asyncio.Event()
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._fd = os.pidfd_open(pid)
        self._loop.add_reader(self._fd, self._exited)

    def _exited(self) -> None:
        self.release()
        self.ended.set()
        self._on_exit(self, self._end())

    def _end(self) -> str:
        try:
            _, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return "the MPS daemon ended"  # a process that is not our child: its exit code is its parent's
        code = os.waitstatus_to_exitcode(status)
        return f"the MPS daemon ended: exit code {code}" if code >= 0 else f"the MPS daemon was ended by signal {-code}"

    def kill_group(self) -> None:
        """Kill the process and the servers that it started."""
        points.before(Failpoint.MPS_KILLED)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        points.after(Failpoint.MPS_KILLED)

    async def wait(self, timeout_s: float) -> bool:
        """Whether the process has ended within that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        return self.ended.is_set()

    def release(self) -> None:
        """Stop watching the process, which runs on."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def spawn(words: Sequence[str], env: Mapping[str, str], output: Path) -> int:
    """Start a program in a session of its own, its output in a file; return its pid. Raises MpsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    points.before(Failpoint.MPS_STARTED)
    try:
        pid = os.posix_spawnp(
            words[0],
            list(words),
            {**os.environ, **env},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as missing:
        raise MpsError(f"cannot run {words[0]}: {missing.strerror}") from None
    points.after(Failpoint.MPS_STARTED)
    return pid


def is_running(pid: int, name: str, value: str | Path) -> bool:
    """Whether that process lives and has that variable, such as its pipe folder: the kernel reuses pids."""
    import psutil  # here, so that a node without MPS daemons does not load it

    try:
        return psutil.Process(pid).environ().get(name) == str(value)
    except psutil.Error:
        return False
