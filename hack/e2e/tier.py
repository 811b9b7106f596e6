"""The end-to-end tier: ``make e2e``. Three files at a time, then alone what bears no other, then what failed once more.

Exits with 0 if each test passed, at its second try at the latest. What could not run, or found no test, is red.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from hack.cluster.errors import UsageError
from hack.cluster.layout import AUDIT_ENV
from hack.cluster.programs import binaries
from hack.e2e.plugin import AGAIN, NOTES, PASSED, read, read_failures, write

PLACES: Final = ("tests/e2e", "tests/hack/cluster")
"""Where tests of the tier are: to look at all other tests takes longer than a scene."""
PASSES: Final = (
    # A file is one worker's, with its cluster; files are sent in the order in which they were collected.
    (
        "three files at a time",
        ("-m", "e2e and not alone", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"),
    ),
    ("alone what bears no other", ("-m", "e2e and alone")),
)
SECOND_TRY: Final = ("what failed, a second time in clusters of its own; what fails twice is red", ("-m", "e2e"))
COLLECTOR: Final = {"GOGC": "400"}
"""Go's collector lets a heap grow to five times what it keeps, in place of twice: an API server starts, and takes an
installation, with four fifths of the CPU. What the environment says goes first. Benchmarks measure with Go's default.
"""
SECOND_TRIES: Final = Path("build/second-tries.txt")
LATE: Final = "passed only at the second try, each a FAULT of the product or of the test"
_RAN: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


@dataclass(frozen=True)
class Ended:
    """``code``: pytest's. ``failed``: tests, and files that could not be collected, with how in a line."""

    code: int
    failed: Mapping[str, str] = field(default_factory=dict)


Run = Callable[[Sequence[str], frozenset[str]], Ended]
"""Runs pytest with these words, and only these tests; all where none is named."""


def tier(run: Run, *, of_some: bool = False, told: Path = SECOND_TRIES) -> int:
    """Exit code of the whole. ``of_some``: files that somebody chose, of which one pass may find no test.

    ``told``: the file for what passed only at the second try; it is not there where nothing did.
    """
    told.unlink(missing_ok=True)
    failed: dict[str, str] = {}
    for title, words in PASSES:
        _say(title)
        ended = run(words, frozenset())
        if of_some and ended.code == pytest.ExitCode.NO_TESTS_COLLECTED:
            continue
        if ended.code not in _RAN or bool(ended.code) != bool(ended.failed):
            return ended.code or 1
        failed |= ended.failed
    if not failed:
        return 0
    title, words = SECOND_TRY
    _say(title)
    again = run(words, frozenset(failed))
    if again.code not in _RAN:
        _tell("had no second try", failed)
        return again.code
    _tell("failed twice", again.failed)
    late = {test: how for test, how in failed.items() if test not in again.failed}
    if late:
        # The last words of a run that is green: such a fault is looked into like a red one.
        _tell(LATE, late)
        told.parent.mkdir(exist_ok=True)
        told.write_text(_lines(late))
        _say(f"also in {told}")
    return again.code


def _say(what: str) -> None:
    print(f"e2e: {what}", flush=True)


def _tell(what: str, tests: Mapping[str, str]) -> None:
    if tests:
        _say(f"{len(tests)} {what}:\n{_lines(tests)}".rstrip("\n"))


def _lines(tests: Mapping[str, str]) -> str:
    """``file::test``, and below it how it failed first."""
    return "".join(f"  {test}\n    {how}\n" for test, how in sorted(tests.items()))


def main() -> int:
    try:
        binaries.check_kubernetes(os.environ.get(binaries.KUBERNETES_ENV, ""))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="tessera-e2e-") as name:
        return tier(Pytest(Path(name)))


@dataclass
class Pytest:
    """Runs it. ``folder`` is kept from call to call: with the audit logs of all.

    ``passed`` and ``failed``: how each test ended when it was run last.
    """

    folder: Path
    places: Sequence[str] = PLACES
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()

    def __call__(self, words: Sequence[str], only: frozenset[str]) -> Ended:
        audit, notes, good, again = (self.folder / part for part in ("audit", "failed", "passed", "again"))
        audit.mkdir(exist_ok=True)
        for file in (notes, good):
            file.unlink(missing_ok=True)
        here = {**COLLECTOR, **os.environ, **self.environment}
        environment = {**here, AUDIT_ENV: str(audit), NOTES: str(notes), PASSED: str(good)}
        if only:
            write(again, only)
            environment[AGAIN] = str(again)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "hack.e2e.plugin", *words, *self.places]
        done = subprocess.run(command, env=environment, check=False)
        ended = Ended(done.returncode, read_failures(notes))
        self.failed = (self.failed - only) | ended.failed.keys()
        # A test whose fixture fails as it is taken down has passed before, and has failed all the same.
        self.passed = (self.passed | read(good)) - self.failed
        return ended
