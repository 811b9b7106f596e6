"""The project's properties with fresh seeds, round after round, then a driver from outside (``hack.outside``), each for
its share of a given time: ``make explore``.

Exits with 1 if something was found: how it fails, and what to add to the test so that it is tried for ever.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from hack.exploreplugin import FOUND, UNTIL
from inventory.words.catalog import plural
from yamlfile.parsers import Unfit, go_duration

LONGEST_SHRINK_S: Final = 400.0
"""Hypothesis makes what it found smaller for five minutes at most, even after the time is up."""
_FINE: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
_TIERS: Final = ("e2e", "conformance", "gpu")
_WORKERS: Final = 2
_OUTSIDE: Final = 6
"""One of so many parts of the time is the driver's from outside, where no paths are given."""
_STORIES: Final = 16
"""Of one round of that driver, of each of its processes."""


def main(words: Sequence[str], workers: int = _WORKERS) -> int:
    """``[time [path...]]``: a duration such as ``10m``, and where the properties are; ``outside`` in their place is the
    driver from outside alone. 0 workers: pytest is alone.
    """
    try:
        lasts_s = go_duration(words[0] if words else "10m")
    except Unfit:
        print(f'explore: TIME: found {words[0]!r}, expected a duration such as "10m" or "1h30m"', file=sys.stderr)
        return 2
    paths, end_s = words[1:] or ["tests"], time.time() + lasts_s
    if paths == ["outside"]:
        return 1 if _outside(end_s, workers) else 0
    failed = _properties(paths, end_s - (0 if words[1:] else lasts_s / _OUTSIDE), workers)
    outside = not words[1:] and _outside(end_s, workers)
    return 1 if failed or outside else 0


def _properties(paths: Sequence[str], until_s: float, workers: int) -> bool:
    """Whether something was found."""
    found: set[str] = set()
    rounds = 0
    while not rounds or time.time() < until_s:
        rounds += 1
        seed = secrets.randbelow(2**32)
        code, last = _round(_command(seed, workers), seed, until_s, paths, found)
        print(f"explore: round {rounds} with seed {seed}: {last}", flush=True)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            break
    print(f"explore: {len(found)} found in {plural(rounds, 'round')}")
    return bool(found)


def _outside(until_s: float, workers: int) -> bool:
    """Whether something was found. At least one round."""
    found, stories = False, 0
    while not stories or time.time() < until_s:
        seeds = [secrets.randbelow(2**32) for _ in range(max(1, workers))]
        command = [sys.executable, "-m", "hack.outside", "--stories", str(_STORIES), "--seed"]
        running = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in seeds]
        for seed, process in zip(seeds, running, strict=True):
            printed, _ = process.communicate()
            stories += _STORIES
            found = found or process.returncode != 0
            said = printed.strip() or f"ended with {process.returncode}"
            print(f"explore: stories from seed {seed}: {said}", flush=True)
    print(f"explore: {stories} stories from outside")
    return found


def _round(command: Sequence[str], seed: int, until_s: float, paths: Sequence[str], found: set[str]) -> tuple[int, str]:
    """Each property once; one that fails is told, goes to ``found`` and is not tried again. pytest's verdict."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found"
        environment = {**os.environ, "TESSERA_EXPLORE": str(seed), UNTIL: str(until_s), FOUND: str(file)}
        # A hash seed of its own too: sets of text are walked in another order then.
        environment["PYTHONHASHSEED"] = str(seed)
        words = [*command, *(f"--deselect={node}" for node in sorted(found)), *paths]
        code, printed = _run(words, environment, max(0.0, until_s - time.time()) + LONGEST_SHRINK_S)
        lines = file.read_text().splitlines() if file.exists() else []
        for line in lines:
            told = json.loads(line)
            # Whichever seed it failed with: the next round has others.
            found.add(re.sub(r"\[\d+\]$", "[", told["node"]))
            print(_shown(told["node"], told["error"], told["pins"], seed), flush=True)
    if code not in _FINE or (code == pytest.ExitCode.TESTS_FAILED and not lines):
        sys.exit(f"explore: pytest ended with {code}:\n{printed[-8000:]}")
    return code, next((line.strip("= ") for line in reversed(printed.splitlines()) if line.strip()), "nothing was run")


def _run(words: Sequence[str], environment: dict[str, str], timeout_s: float) -> tuple[int, str]:
    """Exit code and what was printed."""
    out, err = subprocess.PIPE, subprocess.STDOUT
    try:
        done = subprocess.run(words, env=environment, stdout=out, stderr=err, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return pytest.ExitCode.OK, f"cut off {LONGEST_SHRINK_S:g} s after its time: a property does not end"
    return done.returncode, done.stdout


def _command(seed: int, workers: int) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal", "-p", "hack.exploreplugin"),
        *(f"--ignore=tests/{tier}" for tier in _TIERS),
        *("-m", "hypothesis or explored", f"--hypothesis-seed={seed}"),
    ]


def _shown(node: str, error: str, pins: Sequence[str], seed: int) -> str:
    return "\n".join([f"FOUND {node} (seed {seed})", f"  {error}", "  to pin:", *("\n".join(pins).splitlines())])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
