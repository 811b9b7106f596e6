"""Progress of a long build: one line that rewrites itself on a terminal, a plain line now and then in a pipe."""

import sys
import time
from typing import TextIO

_PIPE_EVERY_S = 15.0
_TERMINAL_EVERY_S = 0.2
_ESTIMATE_AFTER_S = 10.0
_MINUTE_S = 60


def describe(label: str, *, done: int, total: int, elapsed_s: float, note: str = "") -> str:
    """One line: how far, how long already, and how long still once that can be told."""
    share = min(done / total, 0.99)
    line = f"{label}: {done} of about {max(total, done)} packages ({share:.0%}), {_minutes(elapsed_s)}"
    if elapsed_s >= _ESTIMATE_AFTER_S and done > 0:
        line += f", about {_minutes(elapsed_s * (1 - share) / share)} left"
    return f"{line}, {note}" if note else line


def _minutes(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < _MINUTE_S
        else f"{int(seconds // _MINUTE_S)} min {int(seconds % _MINUTE_S):02d} s"
    )


class Progress:
    def __init__(self, label: str, *, total: int, out: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._out = out or sys.stderr
        self._done = 0
        self._note = ""
        self._start = time.monotonic()
        self._shown = float("-inf")
        self._show()

    def step(self) -> None:
        self._done += 1
        self._note = ""
        self._show()

    def note(self, text: str) -> None:
        self._note = text
        self._show()

    def done(self) -> None:
        self._write(f"{self._label}: done in {_minutes(time.monotonic() - self._start)}", last=True)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= (_TERMINAL_EVERY_S if self._out.isatty() else _PIPE_EVERY_S):
            self._shown = now
            elapsed_s = now - self._start
            self._write(describe(self._label, done=self._done, total=self._total, elapsed_s=elapsed_s, note=self._note))

    def _write(self, line: str, *, last: bool = False) -> None:
        if self._out.isatty():
            self._out.write(f"\r\033[K{line}" + ("\n" if last else ""))
        else:
            self._out.write(line + "\n")
        self._out.flush()
