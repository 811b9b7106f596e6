"""Runs one program of a repair, ends it together with the agent, and keeps the end of what it prints.

    guardian PROGRAM ARGUMENTS...    stdin: a pipe that nobody writes; its end tells that the agent has died

An agent that is killed with SIGKILL ends nothing: its program would go on resetting a GPU, or computing on one, that
the next agent takes for free. So this process stands between them, in a session of its own: when the pipe ends, it
kills all of that session. PR_SET_PDEATHSIG was rejected: it misses the program's children, and takes code between fork
and exec of the agent, which has threads.

What the program prints is read as fast as it comes, and its last KEPT_BYTES are printed when it has ended: a program
that prints without end neither fills memory nor waits for a reader. It has ended when its own process has, whatever its
children do with its output. Exit codes: the program's; 128 and the signal that ended it; 126 or 127 where it cannot be
run. It runs as a file of its own, with the standard library alone.
"""

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

KEPT_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1 << 16
_NOT_RUN: Final = 126
_NOT_THERE: Final = 127
_SIGNALLED: Final = 128


def main(command: Sequence[str]) -> int:
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w)
    out_r, out_w = os.pipe()
    child = os.fork()
    if child == 0:
        _become(command, out_w)
    os.close(out_w)
    os.set_blocking(out_r, False)
    tail, ended = b"", False
    poll = select.poll()
    for descriptor in (0, wake_r, out_r):
        poll.register(descriptor, select.POLLIN)
    while not ended:
        for descriptor, _ in poll.poll():
            if descriptor == 0 and not os.read(0, _CHUNK_BYTES):
                os.killpg(0, signal.SIGKILL)
            elif descriptor == wake_r:
                os.read(wake_r, _CHUNK_BYTES)
                pid, status = os.waitpid(child, os.WNOHANG)
                ended = pid == child
            elif descriptor == out_r:
                chunk = _read(out_r)
                tail = (tail + chunk)[-KEPT_BYTES:]
                if not chunk:
                    poll.unregister(out_r)
    for _ in range(_CHUNK_BYTES // KEPT_BYTES):  # what it printed last; its children may print on
        tail = (tail + (chunk := _read(out_r)))[-KEPT_BYTES:]
        if not chunk:
            break
    os.write(1, tail)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNALLED - code


def _read(descriptor: int) -> bytes:
    """Read what is there; nothing at the end, and where nothing is there now."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return b""


def _become(command: Sequence[str], output: int) -> None:
    """Become the program, in the child; never returns."""
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is wanted
    except OSError as failed:
        os.write(2, (failed.strerror or "an error").encode())
        os._exit(_NOT_THERE if isinstance(failed, FileNotFoundError) else _NOT_RUN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
