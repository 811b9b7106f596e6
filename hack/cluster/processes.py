"""Finding and ending processes without ever hitting a stranger.

A process id alone is reused by the kernel; an id with its start time is not. Signals go through a pidfd, opened first
and checked after, so that the process that is checked is the process that is hit. The start is the kernel's own count
of ticks: psutil's is a time of day, which moves when the clock is set. Besides the recorded processes, everything that
carries the cluster's mark in its environment is found, so a crash before recording loses nothing.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from hack.cluster.layout import MARK_ENV

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_START_FIELD = 19  # of /proc/PID/stat behind the command's closing bracket: starttime, in clock ticks since boot


@dataclass(frozen=True)
class Identity:
    """One process for ever: its id and its start, in clock ticks since boot."""

    pid: int
    start: int


def parse_stat(text: str) -> tuple[str, int]:
    """State letter and start time out of /proc/PID/stat. The command may hold spaces and brackets: split behind it."""
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[_START_FIELD])


def identify(pid: int) -> Identity | None:
    """The living process ``pid``, or None; a zombie is not living."""
    try:
        state, start = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else Identity(pid, start)


def alive(identity: Identity | None) -> bool:
    return identity is not None and identify(identity.pid) == identity


def every_process() -> Iterator[Identity]:
    for pid in psutil.pids():
        if (found := identify(pid)) is not None:
            yield found


def _carries_mark(pid: int, home: Path) -> bool:
    try:
        return psutil.Process(pid).environ().get(MARK_ENV) == str(home)
    except psutil.Error:
        return False


def marked(home: Path) -> list[Identity]:
    """All living processes that belong to the cluster in ``home``."""
    me = os.getpid()
    return [each for each in every_process() if each.pid != me and _carries_mark(each.pid, home)]


def command_line(pid: int) -> list[str]:
    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def pid_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def beside(init: Identity) -> list[Identity]:
    """All living processes in the pid namespace of ``init``, itself included; none if it is dead or is ours."""
    space = pid_namespace(init.pid)
    if not alive(init) or not space or space == pid_namespace(os.getpid()):
        return []
    return [each for each in every_process() if pid_namespace(each.pid) == space]


def child_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a cluster's process: ours, marked, without proxies (all traffic stays on the machine)."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    kept.pop("KUBECONFIG", None)
    return {**kept, MARK_ENV: str(home), **(extra or {})}


# The shell leaves at once, so that the daemon is nobody's child: whoever called us has no zombie to wait for.
_DETACH = 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 & echo $!'


def detached(argv: Sequence[str], log: Path) -> list[str]:
    """The command line that starts ``argv`` as a daemon with its output appended to ``log``, and prints its pid."""
    return ["/bin/sh", "-c", _DETACH, "detach", str(log), *argv]


def spawn(
    argv: Sequence[str], *, home: Path, log: Path, extra_env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Identity:
    """Start a daemon of the cluster; OSError or CalledProcessError if not even the shell starts.

    A daemon that has ended already is returned with a start time of 0, which no living process has.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = detached(argv, log)
    environment = child_environment(home, extra_env)
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=cwd or home, env=environment, text=True, check=True)
    pid = int(done.stdout)
    return identify(pid) or Identity(pid, 0)


def _open_pidfd(identity: Identity) -> int | None:
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if alive(identity):
        return fd
    os.close(fd)
    return None


def end(identities: Iterable[Identity], *, grace_s: float, timeout_s: float = 60.0) -> list[Identity]:
    """Terminate, after ``grace_s`` kill, and return those that were still there after ``timeout_s``.

    A grace of 0 kills at once.
    """
    fds = {fd: each for each in identities if (fd := _open_pidfd(each)) is not None}
    try:
        if grace_s > 0:
            _signal_all(fds, signal.SIGTERM)
            _await_exit(fds, grace_s)
        _signal_all(fds, signal.SIGKILL)
        _await_exit(fds, timeout_s)
        return [each for each in fds.values() if alive(each)]
    finally:
        for fd in fds:
            os.close(fd)


def _signal_all(fds: Mapping[int, Identity], number: signal.Signals) -> None:
    for fd in fds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)


def _await_exit(fds: Mapping[int, Identity], timeout_s: float) -> None:
    """Until every process has exited. A pidfd becomes readable when its process ends, also as a zombie."""
    deadline = time.monotonic() + timeout_s
    waiting = select.poll()
    for fd in fds:
        waiting.register(fd, select.POLLIN)
    left = len(fds)
    while left and (rest_s := deadline - time.monotonic()) > 0:
        for fd, _ in waiting.poll(rest_s * 1000):
            waiting.unregister(fd)
            left -= 1


def is_namespace_init(pid: int) -> bool:
    """Whether the process is number 1 of a pid namespace below ours: its death ends all that is inside."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"
