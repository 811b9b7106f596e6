"""What the commands talk to: an agent's local socket and a simulator's, each answering as told and writing down."""

import json
import socketserver
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import click.testing
import pytest

from cli.main import tessera
from tests.support.cli.frontdoor import front_door, kubeconfig
from tests.support.cli.shell import Shell
from tests.support.controller.stage import stage

Run = Callable[..., click.testing.Result]


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """An agent's state folder, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="cli-") as folder:
        yield Path(folder)


@pytest.fixture
def run(state_dir: Path) -> Run:
    """``run("node", "gpus")``: the command on that state folder, its output not a terminal."""

    def call(*words: str) -> click.testing.Result:
        return click.testing.CliRunner().invoke(tessera, words, env={"TESSERA_STATE_DIR": str(state_dir)})

    return call


class _Handler(BaseHTTPRequestHandler):
    server: "AgentSocket"

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 - the base class calls them so

    def address_string(self) -> str:
        return "local"

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the base class's name


class AgentSocket(socketserver.ThreadingUnixStreamServer):
    """``agent.sock``: gives ``answer`` and keeps what was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.answer: tuple[int, bytes] = (200, b"{}")
        self.asked: list[tuple[str, str]] = []


class _Lines(socketserver.StreamRequestHandler):
    server: "SimulatorSocket"

    def handle(self) -> None:
        for line in self.rfile:
            self.server.orders.append(json.loads(line))
            self.wfile.write(json.dumps(self.server.answer).encode() + b"\n")


class SimulatorSocket(socketserver.ThreadingUnixStreamServer):
    """``sim.sock``: one order a line in, ``answer`` out."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Lines)
        self.answer: dict[str, Any] = {"ok": True, "live": True}
        self.orders: list[dict[str, Any]] = []


@pytest.fixture
def agent(state_dir: Path) -> Iterator[AgentSocket]:
    with AgentSocket(state_dir / "agent.sock") as server:
        yield from _served(server)


@pytest.fixture
def simulator(state_dir: Path) -> Iterator[SimulatorSocket]:
    with SimulatorSocket(state_dir / "sim.sock") as server:
        yield from _served(server)


def _served(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with stage() as scene, front_door(scene.server) as door:
        yield Shell(scene, door, kubeconfig(tmp_path, door.url))
