"""One part within its limit: its output goes to a file, and its progress to the terminal each minute."""

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.nightly.parts import Part

ROOT: Final = Path(__file__).parents[2]
LOGS: Final = ROOT / "build/nightly"
PROGRESS_S: Final = 60.0
END_WITHIN_S: Final = 30.0
"""So long a part over its limit has to put away what it started, before it is killed."""
SHOWN: Final = 40
"""Lines of a part that is red."""


@dataclass(frozen=True)
class Ended:
    """``why``: empty for a part that is green."""

    why: str
    minutes: float

    @property
    def green(self) -> bool:
        return not self.why


def run(part: Part, day: int, logs: Path = LOGS, progress_s: float = PROGRESS_S) -> Ended:
    """Run it, and end it where it takes longer than its limit."""
    logs.mkdir(parents=True, exist_ok=True)
    log, begun_s = logs / f"{part.name}.log", time.monotonic()
    words = part.words(day)
    say(f"{part.name}: {' '.join(words)} (output in {log})")
    with log.open("wb", buffering=0) as out:
        out.write(f"{' '.join(words)}\n".encode())
        process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            why = _watched(process, part, log, progress_s, begun_s)
        finally:
            _end(process)
    minutes = (time.monotonic() - begun_s) / 60
    if why:
        say(f"{part.name}: RED, {why}. The end of its output:")
        print("\n".join(f"  {line}" for line in _last(log, SHOWN)), flush=True)
    else:
        say(f"{part.name}: green in {minutes:.0f} min")
    return Ended(why, minutes)


def _watched(process: "subprocess.Popen[bytes]", part: Part, log: Path, progress_s: float, begun_s: float) -> str:
    """Why it is red; empty once it has exited with 0."""
    limit_s = part.limit_min * 60
    while (left_s := begun_s + limit_s - time.monotonic()) > 0:
        try:
            code = process.wait(min(progress_s, left_s))
        except subprocess.TimeoutExpired:
            spent_min = (time.monotonic() - begun_s) / 60
            said = " ".join(_last(log, 1))
            say(f"{part.name}: {spent_min:.0f} of {part.limit_min:g} min: {said[:120]}")
            continue
        return f"exit code {code}" if code else ""
    return f"over its limit of {part.limit_min:g} min"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It and what it started: clusters are put away on SIGTERM."""
    for number, within_s in ((signal.SIGTERM, END_WITHIN_S), (signal.SIGKILL, None)):
        if process.poll() is None:
            _signal(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(within_s)
    _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _last(log: Path, lines: int) -> list[str]:
    """That are not empty."""
    with log.open(errors="replace") as text:
        return list(deque((line.rstrip() for line in text if line.strip()), lines))


def say(what: str) -> None:
    print(f"nightly: {what}", flush=True)
