"""How the demos talk: short headed steps, and the command a reader would type for each."""

import contextlib
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOLD, DIM, RESET = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def step(title: str) -> None:
    print(f"\n{BOLD}{folded(title)}{RESET}", flush=True)


def say(line: str) -> None:
    print(folded(line), flush=True)


def command(words: Sequence[str]) -> None:
    """The command whose output follows; where the terminal is too narrow for it, it goes on behind a backslash."""
    line = " ".join(("$", *words))
    whole = line if "'" in line else folded(line, " \\", "    ")  # within such quotes a backslash joins no lines
    print(f"{DIM}{whole}{RESET}", flush=True)


def folded(text: str, end: str = "", indent: str = "") -> str:
    """``text`` with no word broken on a terminal; as it is in a pipe."""
    width = terminal_columns()
    if width is None:
        return text
    wrapped = textwrap.wrap(
        text, width - len(end), break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
    )
    return f"{end}\n".join(wrapped)


def terminal_columns() -> int | None:
    """None where nobody looks on."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def on_terminal() -> dict[str, str]:
    """What makes a command whose output is taken and printed here write as on this terminal; nothing in a pipe."""
    width = terminal_columns()
    return {} if width is None else {"FORCE_COLOR": "1", "COLUMNS": str(width)}


def script(name: str) -> str:
    """A console script of this environment, beside the interpreter that runs."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise SystemExit(f"{name} is not installed beside {sys.executable}: run `make setup`")
    return found


def run(words: Sequence[str], cwd: Path | None = None) -> str:
    """What a command printed, in the width of the terminal; SystemExit with its error output where it failed."""
    environment = {**os.environ, **on_terminal()}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr or done.stdout}")
    return done.stdout


class Stopwatch:
    def __init__(self) -> None:
        self._start = time.monotonic()

    def __str__(self) -> str:
        return f"{time.monotonic() - self._start:.1f} s"


QUIET_S = 8.0
"""So long at most nothing is said while something takes its time."""


@contextlib.contextmanager
def patience(what: str, every_s: float = QUIET_S) -> Iterator[None]:
    """Say ``what`` is being done, and for how long already, as long as it is."""
    over, watch = threading.Event(), Stopwatch()

    def tell() -> None:
        while not over.wait(every_s):
            say(f"   ... {what} ({watch})")

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()
