"""How the demos talk: short headed steps, and the command a reader would type for each."""

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOLD, DIM, RESET = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def step(title: str) -> None:
    print(f"\n{BOLD}{title}{RESET}", flush=True)


def say(line: str) -> None:
    print(line, flush=True)


def command(words: Sequence[str]) -> None:
    """The command whose output follows."""
    print(f"{DIM}$ {' '.join(words)}{RESET}", flush=True)


def script(name: str) -> str:
    """A console script of this environment, beside the interpreter that runs."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise SystemExit(f"{name} is not installed beside {sys.executable}: run `make setup`")
    return found


def run(words: Sequence[str], cwd: Path | None = None) -> str:
    """What a command printed; SystemExit with its error output where it failed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)
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
