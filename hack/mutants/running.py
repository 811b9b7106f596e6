"""Copies of the tree, and pytest in them: the checkout itself is never written to.

A copy belongs to one thread at a time; between two mutants it is as the checkout was.
"""

import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from hack.mutants.planting import Mutant, planted

MEMORY: Final = 4 << 30
"""Bytes of address space: a mutant that fills its memory ends with a MemoryError."""
TEST_LIMIT_S: Final = 40
"""The longest test takes three seconds; one that takes this long does not end."""
_OUR_FAULT: Final = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
_CUT: Final = "Timeout ("
"""How faulthandler begins what it says of a test that took too long."""
_NEVER: Final = "not bench and not e2e and not gpu"


class CannotTell(Exception):  # noqa: N818 - a verdict, not a fault of the code
    """The tests could not be run, or fail without any mutant."""


class Ran(Struct, frozen=True):
    passed: bool
    hung: bool
    failed: str
    """The test that failed, or how the run ended; empty when all passed."""
    seconds: float


def tree(root: Path) -> list[str]:
    """The files of the checkout as they are now, committed or not, without what git ignores."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(words, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({name for name in names if name and (root / name).is_file()})


def copied(root: Path, names: Sequence[str], target: Path) -> Path:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target / name)
    return target


@contextmanager
def mutated(copy: Path, mutant: Mutant) -> Generator[None]:
    with written(copy, mutant.module, planted((copy / mutant.module).read_bytes(), mutant)):
        yield


@contextmanager
def written(copy: Path, module: str, source: bytes) -> Generator[None]:
    """The module is another, for a while."""
    path = copy / module
    original = path.read_bytes()
    _write(path, source)
    try:
        yield
    finally:
        _write(path, original)


def _write(path: Path, source: bytes) -> None:
    """Byte code goes by the second of the write and by length: both may be the same as before."""
    path.write_bytes(source)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def run(copy: Path, tests: Sequence[str], limit_s: float, shared: Path | None = None) -> Ran:
    """pytest over these files until the first that fails. ``shared``: for other systems' cases, where they are."""
    started = time.monotonic()
    process = subprocess.Popen(
        _command(tests),
        cwd=copy,
        env=_environment(copy, shared),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
    hung = False
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        hung = True
    finally:
        end(process)
    if hung:
        printed, _ = process.communicate()
    seconds = time.monotonic() - started
    if process.returncode in _OUR_FAULT:
        raise CannotTell(f"pytest ended with {process.returncode}:\n{printed[-4000:]}")
    if hung or _CUT in printed:
        return Ran(passed=False, hung=True, failed="a test that does not end", seconds=seconds)
    passed = process.returncode == pytest.ExitCode.OK
    return Ran(passed, hung=False, failed="" if passed else _first(printed, process.returncode), seconds=seconds)


def _command(tests: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"),
        *("--hypothesis-profile=unshrunk", "-m", _NEVER),
        *("-o", f"faulthandler_timeout={TEST_LIMIT_S}", "-o", "faulthandler_exit_on_timeout=true"),
        *tests,
    ]


def _environment(copy: Path, shared: Path | None) -> dict[str, str]:
    """The copy's packages come before those of the virtual environment, which are the checkout's."""
    more = {"TESSERA_SHARED": str(shared)} if shared else {}
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0", **more}


def end(process: subprocess.Popen[Any]) -> None:
    """With everything it started: some tests start processes of the product."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _first(printed: str, code: int) -> str:
    for told in printed.splitlines():
        if told.startswith(("FAILED ", "ERROR ")):
            return told.split(" - ")[0].split(" ", 1)[1]
    return f"pytest ended with {code}"
