"""A person's shell at a real cluster: the command with a kubeconfig, and kubectl beside it."""

import asyncio
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click.testing

from cli.main import tessera
from hack.cluster.cluster import Cluster

ROOT = Path(__file__).parents[3]
LATE_S = 60.0


class Person:
    """As the administrator, with namespace ``team`` as the context's."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        command, environment = cluster.kubectl_command()
        shim = programs / "kubectl"
        shim.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        shim.chmod(0o755)
        config = json.loads(cluster.kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = "team"
        kubeconfig = folder / "person.kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        path = f"{programs}:{environment.get('PATH', '')}"
        self._environment = {"KUBECONFIG": str(kubeconfig), "PATH": path}

    async def run(self, *words: str, code: int = 0) -> str:
        """What it prints on standard output; where it is to fail, on standard error."""
        runner = click.testing.CliRunner()
        done = await asyncio.to_thread(lambda: runner.invoke(tessera, words, env=self._environment))
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.stderr

    async def watch(self, *words: str, until: str) -> str:
        """What it draws on a terminal up to ``until``; Ctrl-C then ends it, with 0."""
        return await asyncio.to_thread(self._watch, words, until.encode())

    def _watch(self, words: tuple[str, ...], until: bytes) -> str:
        ours, theirs = os.openpty()
        # A shell's background jobs, which tests may run in, begin with SIGINT ignored; a person's terminal does not.
        heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        command = [sys.executable, "-c", f"{heeds}; from cli.main import main; main()", *words]
        environment = {**os.environ, **self._environment, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        shown = b""
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT, start_new_session=True
        ) as process:
            os.close(theirs)
            try:
                while until not in shown:
                    assert select.select([ours], [], [], LATE_S)[0], shown
                    shown += os.read(ours, 65536)
                process.send_signal(signal.SIGINT)
                # A terminal that nobody reads holds its writer up for ever.
                late_s = time.monotonic() + LATE_S
                while time.monotonic() < late_s:
                    if select.select([ours], [], [], 1.0)[0]:
                        shown += os.read(ours, 65536)
                raise AssertionError(f"it does not end: {shown[-500:]!r}")
            except OSError:  # the terminal's other end is closed: all has been read
                assert until in shown, shown
                assert process.wait(LATE_S) == 0
            finally:
                process.kill()
                os.close(ours)
        return shown.decode(errors="replace")

    async def json(self, *words: str) -> Any:
        return json.loads(await self.run(*words, "-o", "json"))
