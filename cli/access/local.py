"""Asks a process on this machine over its Unix socket; and the options of all commands that do."""

import http.client
import os
import socket
from pathlib import Path

import click

from cli.words import servers as say

DEFAULT_STATE_DIR = Path("/var/lib/tessera")
TIMEOUT_S = 10.0


class Whole(click.IntRange):
    """A whole number within bounds; click calls it an "integer range" where it reports a mistake."""

    name = "integer"


class Number(click.FloatRange):
    name = "number"


state_dir_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_STATE_DIR,
    envvar="TESSERA_STATE_DIR",
    show_default=True,
    help="The agent's state folder.",
)


def reason(failed: Exception) -> str:
    """The error's reason in words: ``no such file or directory`` rather than ``[Errno 2] No such file ...``."""
    number = failed.errno if isinstance(failed, OSError) else None
    return os.strerror(number).lower() if number else str(failed) or type(failed).__name__


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def fetch(path: Path, resource: str, method: str = "GET") -> bytes:
    """Ask the HTTP server behind the socket for ``resource``. Raises click.ClickException with one line."""
    connection = _UnixConnection(path)
    try:
        connection.request(method, resource)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as failed:
        why = reason(failed)
        raise click.ClickException(say.agent_away(path, why)) from None
    finally:
        connection.close()
    if answer.status == http.client.CONFLICT:
        # The agent understood, and refuses for a reason of its own: one sentence.
        raise click.ClickException(body.decode(errors="replace").strip())
    if answer.status != http.client.OK:
        raise click.ClickException(say.agent_refused(path, answer.status, body[:200].decode(errors="replace")))
    return body
