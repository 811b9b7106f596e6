"""MPS daemons that cost nothing: a process that sleeps, and its answers from memory. Each command of the simulated
control program is an interpreter's start, and a test of all deaths has hundreds.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent.mps import control, process, runner
from agent.mps.control import MpsError
from agent.mps.paths import PIPE_ENV


class Daemons:
    """By pipe folder what clients get; it outlives the agent, as the processes do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._said: dict[tuple[str, ...], str] = {}
        self._spawn = process.spawn
        monkeypatch.setattr(runner, "spawn", self._start)
        monkeypatch.setattr(control, "run", self._run)
        monkeypatch.setattr(runner, "run", self._run)

    def _start(self, words: Sequence[str], env: Mapping[str, str], output: Path) -> int:
        del words
        pid = self._spawn(["sleep", "1000"], env, output)
        (Path(env[PIPE_ENV]) / "nvidia-cuda-mps-control.pid").write_text(f"{pid}\n")
        return pid

    async def _run(
        self, words: Sequence[str], env: Mapping[str, str], text: str = "", timeout_s: float | None = None
    ) -> str:
        del words, timeout_s
        pipe, (command, *args) = env[PIPE_ENV], text.split() or ["canary"]
        file = Path(pipe) / "nvidia-cuda-mps-control.pid"
        if not file.exists() or not Path(f"/proc/{file.read_text().strip()}").exists():
            raise MpsError("no daemon")
        if command == "quit":
            os.kill(int(file.read_text()), signal.SIGKILL)
        if command.startswith("set_default_"):
            self._said[(pipe, command.removeprefix("set_"), *args[:-1])] = args[-1]
        return self._said.get((pipe, command.removeprefix("get_"), *args), "")
