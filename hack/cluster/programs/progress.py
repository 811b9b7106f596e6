"""Progress of a long build: one line that rewrites itself on a terminal, a plain line now and then in a pipe.

Counted is what the compiler has begun with. How long it still takes is said only while that can be told from the pace
of the last minute: not before the number of packages is known, not beyond it, and not of linking, which comes last.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from inventory.words.catalog import plural

_PIPE_EVERY_S = 15.0
_TERMINAL_EVERY_S = 0.2
_TICK_S = 1.0
_PACE_OF_S = 60.0
_PACE_AFTER_S = 10.0
_PACE_OF_PACKAGES = 10
_MINUTE_S = 60


def describe(
    label: str, *, done: int, total: int | None, elapsed_s: float, pace: float | None = None, note: str = ""
) -> str:
    """One line: how far, how long already, and how long still as far as that can be told.

    ``total``: packages in all, None where that is not known. ``pace``: packages a second of late, None likewise.
    """
    if total is None or done > total:
        line = f"{label}: {plural(done, 'package')}, {_minutes(elapsed_s)}"
    elif done == total:
        # The name of a package comes when its compilation begins: the last of them may go on for a while.
        line = f"{label}: the last of {total} packages, then linking, {_minutes(elapsed_s)}"
    else:
        line = f"{label}: {done} of {plural(total, 'package')} ({100 * done // total}%), {_minutes(elapsed_s)}"
        if pace:
            line += f", about {_minutes((total - done) / pace)} left to compile"
    return f"{line}, {note}" if note else line


def _minutes(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < _MINUTE_S
        else f"{int(seconds // _MINUTE_S)} min {int(seconds % _MINUTE_S):02d} s"
    )


class Progress:
    """``with Progress(...) as progress``: lines go on by themselves while nothing is told, until the block ends."""

    def __init__(self, label: str, *, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._out = out or sys.stderr
        self._clock = clock
        self._lock = threading.Lock()
        self._total: int | None = None
        self._done = 0
        self._note = "finding out what is to be built"
        self._start = clock()
        self._began: float | None = None
        self._steps: deque[float] = deque()
        self._shown = float("-inf")
        self._ended = threading.Event()
        self._show()

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="progress", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if kind is None:
            with self._lock:
                self._write(f"{self._label}: done in {_minutes(self._clock() - self._start)}", last=True)

    def expect(self, total: int | None) -> None:
        """The build begins; so many packages are to be compiled, None where that is unknown."""
        with self._lock:
            self._total, self._note, self._began = total, "", self._clock()
            self._show(at_once=True)

    def step(self) -> None:
        """The compilation of one package begins."""
        with self._lock:
            self._done += 1
            self._note = ""
            self._steps.append(self._clock())
            # What is said last stays there for the whole of linking.
            self._show(at_once=self._done == self._total)

    def note(self, text: str) -> None:
        with self._lock:
            self._note = text
            self._show()

    def tick(self) -> None:
        """Time has passed."""
        with self._lock:
            self._show()

    def _run(self) -> None:
        while not self._ended.wait(_TICK_S):
            self.tick()

    def _pace(self, now: float) -> float | None:
        while self._steps and self._steps[0] < now - _PACE_OF_S:
            self._steps.popleft()
        if self._note or self._began is None:
            return None
        over_s = min(_PACE_OF_S, now - self._began)
        return len(self._steps) / over_s if over_s >= _PACE_AFTER_S and len(self._steps) >= _PACE_OF_PACKAGES else None

    def _show(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if self._ended.is_set():
            return
        if at_once or now - self._shown >= (_TERMINAL_EVERY_S if self._out.isatty() else _PIPE_EVERY_S):
            self._shown = now
            self._write(
                describe(
                    self._label,
                    done=self._done,
                    total=self._total,
                    elapsed_s=now - self._start,
                    pace=self._pace(now),
                    note=self._note,
                )
            )

    def _write(self, line: str, *, last: bool = False) -> None:
        if self._out.isatty():
            self._out.write(f"\r\033[K{line}" + ("\n" if last else ""))
        else:
            self._out.write(line + "\n")
        self._out.flush()
