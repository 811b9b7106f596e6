"""A person's shell beside an API server in this process: the command runs as it would there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click.testing

from cli.access.cluster import _logged_in
from cli.main import tessera
from tests.support.cli.frontdoor import FrontDoor
from tests.support.controller.stage import Stage


def terminal(width: int | None) -> dict[str, str]:
    """The environment in which a command folds its tables as on a terminal of so many columns; None: in a pipe."""
    return {} if width is None else {"FORCE_COLOR": "1", "COLUMNS": str(width)}


class Shell:
    """A person's shell beside a cluster; ``door`` is the API server's address."""

    def __init__(self, scene: Stage, door: FrontDoor, file: Path) -> None:
        self.scene = scene
        self.door = door
        self.kubeconfig = file

    async def run(
        self, *words: str, code: int = 0, width: int | None = None, answer: str | None = None
    ) -> click.testing.Result:
        """``width``: as on a terminal of so many columns; without it in a pipe. ``answer``: what is typed."""
        env = {"KUBECONFIG": str(self.kubeconfig), **terminal(width)}
        result = await asyncio.to_thread(
            lambda: click.testing.CliRunner().invoke(tessera, words, env=env, input=answer)
        )
        assert result.exit_code == code, result.output
        return result

    def log_in(self, token: str) -> None:
        """With a token from now on."""
        found = json.loads(self.kubeconfig.read_text())
        found["users"][0]["user"] = {"token": token}
        self.kubeconfig.write_text(json.dumps(found))
        _logged_in.cache_clear()  # each command is a process of its own

    async def json(self, *words: str) -> Any:
        return json.loads((await self.run(*words, "-o", "json")).stdout)
