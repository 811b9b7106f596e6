"""A terminal as a person has it, drawn by tmux: what is typed, and what stands on the screen then."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from hack.cluster import prerequisites
from hack.cluster.errors import ClusterError
from tests.support.e2e.lab import ROOT, until

_COMMAND: Final = (sys.executable, "-c", "from cli.main import main; main()")
_PROMPT: Final = "ready> "
_ENDED: Final = re.compile(r"ended: \d+")


def ensure() -> None:
    """Return when tmux is there; Debian's package is installed where we may. Raises ClusterError."""
    if not shutil.which("tmux"):
        prerequisites.install(["tmux"])


class Terminal:
    """One shell in a screen of ``columns`` and ``lines``, on a tmux server of its own."""

    def __init__(self, server: str) -> None:
        self._server = server

    def tessera(self, *words: str, pipe: str = "") -> None:
        """Types the command on an empty screen; ``ended`` waits for its end."""
        self.type("clear")
        self.until_prompt()
        self.type(shlex.join([*_COMMAND, *words]) + f" {pipe}; echo ended: $?")

    def ended(self) -> int:
        """The exit code of ``tessera``, once the shell waits for the next command."""
        found: list[int] = []

        def holds() -> bool:
            told = [line for line in self.screen() if _ENDED.fullmatch(line.strip())]
            found[:] = [int(line.partition(": ")[2]) for line in told[-1:]]
            return bool(found)

        until(holds, f"the command ends:\n{self._tmux('capture-pane', '-p')}")
        self.until_prompt()
        return found[0]

    def type(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self.keys("Enter")

    def keys(self, *names: str) -> None:
        """By tmux's names: ``C-c``, ``Enter``, ``q``."""
        self._tmux("send-keys", *names)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self) -> list[str]:
        """Its lines as they are read, without colours."""
        return self._tmux("capture-pane", "-p").splitlines()

    def coloured(self) -> str:
        """The screen with the escape sequences of its colours."""
        return self._tmux("capture-pane", "-p", "-e")

    @property
    def is_alternate(self) -> bool:
        """Whether a program has the whole screen, as ``top`` and ``less`` have."""
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def until(self, wanted: str) -> str:
        """The screen once it shows that text."""
        shown: list[str] = []

        def holds() -> bool:
            shown[:] = self.screen()
            return any(wanted in line for line in shown)

        try:
            until(holds, f"{wanted!r} on the screen")
        except ClusterError as never:
            never.add_note("\n".join(["the screen at the end:", *shown]))
            raise
        return "\n".join(shown)

    def until_gone(self, text: str) -> None:
        """The screen no longer shows it."""
        until(lambda: not any(text in line for line in self.screen()), f"{text!r} leaves the screen")

    def until_prompt(self) -> None:
        """The shell waits for the next command."""
        until(lambda: self._last() == _PROMPT.strip(), "the shell's prompt")

    def _last(self) -> str:
        return next((line.strip() for line in reversed(self.screen()) if line.strip()), "")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._server, *words], capture_output=True, text=True, check=True)
        return done.stdout


@contextmanager
def terminal(name: str, env: Mapping[str, str], *, columns: int = 120, lines: int = 40) -> Iterator[Terminal]:
    """A shell with that environment beside the test's own; it and what it started end with the block."""
    ensure()
    server = f"{name}-{os.getpid()}"
    # This process may have exported a size of its own (GNU readline does): programs believe it, and not tmux.
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    given = {**own, **env, "ENV": "", "LC_ALL": "C.UTF-8"}
    start = ["tmux", "-L", server, "-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(lines)]
    # Not by the environment: a bash in between, which is no user's, would drop the prompt.
    subprocess.run([*start, "env", f"PS1={_PROMPT}", "sh"], env=given, cwd=ROOT, check=True)
    try:
        shell = Terminal(server)
        shell.until_prompt()
        yield shell
    finally:
        subprocess.run(["tmux", "-L", server, "kill-server"], check=True)
