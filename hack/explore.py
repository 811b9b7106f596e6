"""The project's properties with fresh seeds, round after round, then a driver from outside (``hack.outside``), each for
its share of a given time: ``make explore``.

Exits with 1 if something was found: how it fails, and what to add to the test so that it is tried for ever; with 2
where there is nothing to look at.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from hack.exploreplugin import DONE, FOUND, UNTIL
from inventory.words.catalog import plural
from yamlfile.parsers import Unfit, go_duration

LONGEST_SHRINK_S: Final = 400.0
"""Hypothesis makes what it found smaller for five minutes at most, even after the time is up."""
TOLD_EVERY_S: Final = 5.0
_FINE: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
_TIERS: Final = ("e2e", "conformance", "gpu")
_WORKERS: Final = 2
_OUTSIDE: Final = "outside"
_SHARE: Final = 6
"""One of so many parts of the time is the driver's from outside, where no paths are given."""
_ENDED: Final = re.compile(r"outside: \d+ of (\d+) stories")


class WrongCallError(Exception):
    """What was asked for is not there: one line."""


def main(words: Sequence[str], workers: int = _WORKERS) -> int:
    """``[time [path...]]``: a duration such as ``10m``, and where the properties are; ``outside`` among them is the
    driver from outside. 0 workers: pytest is alone.
    """
    time_, only = words[0] if words else "10m", words[1:]
    try:
        lasts_s = _duration(time_)
        paths = [each for each in only or ("tests",) if each != _OUTSIDE]
        for each in paths:
            if not Path(each.partition("::")[0]).exists():
                raise _unknown(each)
        return _explored(paths, lasts_s, workers, outside=not only or _OUTSIDE in only)
    except WrongCallError as wrong:
        print(f"explore: {wrong}", file=sys.stderr)
        return 2


def _duration(text: str) -> float:
    try:
        return go_duration(text)
    except Unfit:
        raise WrongCallError(f'TIME: found {text!r}, expected a duration such as "10m" or "1h30m"') from None


def _unknown(path: str) -> WrongCallError:
    return WrongCallError(
        f"ONLY: found {path!r}, expected outside, or a folder or file with properties, such as tests/controller"
    )


def _explored(paths: Sequence[str], lasts_s: float, workers: int, *, outside: bool) -> int:
    end_s = time.time() + lasts_s
    own_s = lasts_s if not outside else 0.0 if not paths else lasts_s * (1 - 1 / _SHARE)
    parts = [f"properties of {' '.join(paths)} with fresh seeds for {own_s:.0f} s"] if paths else []
    parts += [f"random histories judged from outside for {lasts_s - own_s:.0f} s"] if outside else []
    print(f"explore: {', then '.join(parts)}", flush=True)
    failed = bool(paths) and _properties(paths, end_s - lasts_s + own_s, workers)
    found, stories = _outside(end_s, workers) if outside else (False, 0)
    if not paths and not stories:
        raise WrongCallError(f"TIME: found {lasts_s:.0f} s, in which no story ended, expected more")
    return 1 if failed or found else 0


def _properties(paths: Sequence[str], until_s: float, workers: int) -> bool:
    """Whether something was found. Raises WrongCallError where there is no property."""
    failures: set[str] = set()
    rounds = 0
    while not rounds or time.time() < until_s:
        rounds += 1
        seed = secrets.randbelow(2**32)
        code, last = _round(_command(seed, workers), seed, until_s, paths, failures)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED and rounds == 1:
            raise _unknown(" ".join(paths))
        print(f"explore: round {rounds} with seed {seed}: {last}", flush=True)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            break
    print(f"explore: {len(failures)} found in {plural(rounds, 'round')}")
    return bool(failures)


def _outside(until_s: float, workers: int) -> tuple[bool, int]:
    """Whether something was found, and how many stories ended."""
    seeds = [secrets.randbelow(2**32) for _ in range(max(1, workers))]
    command = [sys.executable, "-m", "hack.outside", "--for", f"{max(0.0, until_s - time.time()):.1f}", "--seed"]
    running = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in seeds]
    ended: list[int] = []
    readers = [
        threading.Thread(target=_relay, args=(process, seed, ended))
        for process, seed in zip(running, seeds, strict=True)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    codes = [process.wait() for process in running]
    print(f"explore: {plural(sum(ended), 'story', 'stories')} from outside", flush=True)
    return any(code not in (0, 2) for code in codes), sum(ended)


def _relay(process: "subprocess.Popen[str]", seed: int, ended: list[int]) -> None:
    """Tell what the process tells, and note how many stories ended."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            print(f"explore: stories from seed {seed}: {line.rstrip()}", flush=True)
            if match := _ENDED.match(line):
                ended.append(int(match[1]))


def _round(command: Sequence[str], seed: int, until_s: float, paths: Sequence[str], found: set[str]) -> tuple[int, str]:
    """Each property once; one that fails is told, goes to ``found`` and is not tried again. pytest's verdict."""
    with tempfile.TemporaryDirectory() as folder:
        file, done = Path(folder) / "found", Path(folder) / "done"
        done.touch()
        files = {FOUND: str(file), DONE: str(done)}
        environment = {**os.environ, "TESSERA_EXPLORE": str(seed), UNTIL: str(until_s), **files}
        # A hash seed of its own too: sets of text are walked in another order then.
        environment["PYTHONHASHSEED"] = str(seed)
        words = [*command, *(f"--deselect={node}" for node in sorted(found)), *paths]
        code, printed = _run(words, environment, until_s, lambda: done.stat().st_size)
        lines = file.read_text().splitlines() if file.exists() else []
        for line in lines:
            told = json.loads(line)
            # Whichever seed it failed with: the next round has others.
            found.add(re.sub(r"\[\d+\]$", "[", told["node"]))
            print(_shown(told["node"], told["error"], told["pins"], seed), flush=True)
    if code == pytest.ExitCode.USAGE_ERROR:
        raise _unknown(" ".join(paths))
    if code not in _FINE or (code == pytest.ExitCode.TESTS_FAILED and not lines):
        sys.exit(f"explore: pytest ended with {code}:\n{printed[-8000:]}")
    return code, next((line.strip("= ") for line in reversed(printed.splitlines()) if line.strip()), "nothing was run")


def _run(words: Sequence[str], environment: dict[str, str], until_s: float, done: Callable[[], int]) -> tuple[int, str]:
    """Exit code and what was printed. Meanwhile it tells how many properties ran."""
    began_s = time.time()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True)
        try:
            while True:
                try:
                    code = process.wait(TOLD_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    now_s = time.time()
                if now_s > max(until_s, began_s) + LONGEST_SHRINK_S:
                    return pytest.ExitCode.OK, f"cut off {LONGEST_SHRINK_S:g} s after its time: a property does not end"
                late = ", the time is up, what has failed is made smaller" if now_s > until_s else ""
                print(
                    f"explore: {now_s - began_s:.0f} s: {plural(done(), 'property', 'properties')} tried{late}",
                    flush=True,
                )
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        return code, out.read()


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
