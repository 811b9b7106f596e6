"""A command several times in a row beside busy loops: ``python -m hack.nightly.busy --times 3 --loops 4 make check``.

Exits with 0 if the command did each time, else with what it exited with first. The loops end with this program, however
it ends.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

LOOP: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(1_000_000): pass\n"
"""A process that looks every few hundredths of a second whether its parent is there. A killed parent ends nothing."""


@contextmanager
def busy(loops: int) -> Iterator[list[int]]:
    """So many processes that each take a core if they get it; their pids."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(loops):
            # In a session of their own: Ctrl+C reaches the command, and us.
            words = [sys.executable, "-c", LOOP, str(os.getpid())]
            started.append(subprocess.Popen(words, start_new_session=True))
        yield [loop.pid for loop in started]
    finally:
        for loop in started:
            loop.kill()
        for loop in started:
            loop.wait()


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="hack.nightly.busy", description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="with its arguments")
    options = parser.parse_args(words)
    if not options.command:
        parser.error("command: found none, expected one")
    with busy(options.loops):
        for number in range(1, options.times + 1):
            begun_s = time.monotonic()
            code = subprocess.run(options.command, check=False).returncode
            took_s, load = time.monotonic() - begun_s, os.getloadavg()[0]
            verdict = "green" if code == 0 else f"RED (exit code {code})"
            print(f"busy: {number} of {options.times}: {verdict} in {took_s:.0f} s, load {load:.0f}", flush=True)
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
