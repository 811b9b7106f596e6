"""CPU time of a process until its first request reaches a server: start, imports, kubeconfig, TLS, all of it."""

import os
import select
import selectors
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 60.0
_SCHEDULED: Final = 2
"""CPUCLOCK_SCHED of Linux's process clocks: user and system time of all threads, those that have ended too."""


class NoRequestError(Exception):
    """The process ended, or said nothing for a minute. One line."""


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, to the nanosecond (clock_getcpuclockid(3)). Raises OSError when it is gone."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


class Door:
    """A server whose first request ends a measurement: it is never answered.

    ``tls`` None: a Unix socket at ``path``; else HTTPS on a port of this machine.
    """

    def __init__(self, *, path: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(path))
            self._listener.listen()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        self._listener.close()

    @property
    def listener(self) -> socket.socket:
        return self._listener

    def hears(self) -> bool:
        """Whether who connects asks something: a connection that is given up again is no request."""
        connection, _ = self._listener.accept()
        connection.settimeout(_PATIENCE_S)
        try:
            with connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True) as heard:
                return bool(heard.recv(1))
        except OSError:
            connection.close()
            return False


@contextmanager
def _running(command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    said = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
        try:
            yield process
        finally:
            process.kill()


def to_first_request(command: Sequence[str], env: Mapping[str, str], doors: Sequence[Door]) -> float:
    """CPU seconds until one of the doors hears a request; the process is killed then. Raises NoRequestError."""
    with ExitStack() as stack:
        listening = stack.enter_context(selectors.DefaultSelector())
        for door in doors:
            listening.register(door.listener, selectors.EVENT_READ, door)
        process = stack.enter_context(_running(command, env))
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        listening.register(ended, selectors.EVENT_READ)
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            for key, _ in listening.select(deadline_s - time.monotonic()):
                if key.data is None:
                    raise NoRequestError(f"{' '.join(command)}: ended without a request: {_last_words(process)}")
                if key.data.hears():
                    return cpu_s(process.pid)
        raise NoRequestError(f"{' '.join(command)}: no request within {_PATIENCE_S:.0f} s")


def to_first_line(command: Sequence[str], env: Mapping[str, str]) -> float:
    """CPU seconds until the process says something on standard output; it is killed then. Raises NoRequestError."""
    with _running(command, env) as process:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], _PATIENCE_S)[0] or not os.read(process.stdout.fileno(), 1):
            raise NoRequestError(f"{' '.join(command)}: said nothing: {_last_words(process)}")
        return cpu_s(process.pid)


def to_end(command: Sequence[str], env: Mapping[str, str]) -> float:
    """CPU seconds of a process from its start to its end, without those of its children."""
    with _running(command, env) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        taken_s = cpu_s(process.pid)
        if process.wait() != 0:
            raise NoRequestError(f"{' '.join(command)}: ended with {process.returncode}: {_last_words(process)}")
        return taken_s


def _last_words(process: subprocess.Popen[bytes]) -> str:
    out, err = process.communicate()
    return " ".join((err or out).decode(errors="replace").split()[-30:])
