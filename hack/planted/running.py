"""Nets on copies of the tree, each with one fault in it. The checkout is never written to."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec
from msgspec import Struct

from hack.mutants import running
from hack.planted.planting import Fault, Place, is_product, place_of, planted

OUTSIDE: Final = "hack.outside.net"
_QUEUES: Final = "queues"
LIMIT_S: Final = 240.0
LONGER: Final = 4
"""The driver's limit is so many times that: a busy machine makes its stories longer."""
"""A program of nets takes a minute at most on a quiet machine; one that hangs has not judged."""


class Finding(Struct, frozen=True):
    """A line of a net's output."""

    net: str
    message: str


class Ran(Struct, frozen=True):
    """``error``: why it could not judge, empty where it did."""

    findings: tuple[Finding, ...]
    error: str
    seconds: float


class Trial(Struct, frozen=True):
    """A fault, and what each net said of the tree that has it."""

    fault: Fault
    ran: Ran

    @property
    def found_by(self) -> tuple[str, ...]:
        return tuple(sorted({each.net for each in self.ran.findings}))

    @property
    def is_found(self) -> bool:
        return bool(self.ran.findings)


class Tree:
    """The checkout: its files as they are now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = running.tree(root)
        self._sources = {name: (root / name).read_text() for name in self.names if is_product(name)}

    def place(self, fault: Fault) -> Place:
        """Raises UnplantableError."""
        return place_of(fault, self._sources)

    def source(self, place: Place) -> str:
        return planted(self._sources[place.module], place)


def programs(fault: Fault, *, outside: bool) -> tuple[str, ...]:
    """``outside``: the driver of random stories too, where the fault is of queues."""
    return (fault.program, OUTSIDE) if outside and fault.program == _QUEUES else (fault.program,)


def trials(tree: Tree, faults: Sequence[Fault], folder: Path, jobs: int, *, outside: bool = False) -> Iterator[Trial]:
    """Each as soon as it and those before it are known. Raises UnplantableError before anything runs."""
    places = [tree.place(fault) for fault in faults]
    copies: SimpleQueue[Path] = SimpleQueue()  # a copy is in it while no thread has it
    for number in range(min(jobs, len(faults))):
        copies.put(running.copied(tree.root, tree.names, folder / str(number)))

    def tried(fault: Fault, place: Place) -> Trial:
        copy = copies.get()
        try:
            with running.written(copy, place.module, tree.source(place).encode()):
                return Trial(fault, _together([ran(copy, each) for each in programs(fault, outside=outside)]))
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(tried, faults, places)


def _together(runs: Sequence[Ran]) -> Ran:
    findings = tuple(finding for each in runs for finding in each.findings)
    return Ran(findings, "; ".join(each.error for each in runs if each.error), sum(each.seconds for each in runs))


def ran(copy: Path, program: str) -> Ran:
    """A program of nets in a tree. ``program``: a module, by its whole name if it is not in ``hack.planted.nets``."""
    started = time.monotonic()
    command = [sys.executable, "-m", program if "." in program else f"hack.planted.nets.{program}"]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (running.MEMORY, running.MEMORY))
    out, err, error = b"", b"", ""
    limit_s = LIMIT_S * (LONGER if program == OUTSIDE else 1)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        error = f"no verdict within {limit_s:.0f} s"
    finally:
        running.end(process)
    if error:
        process.communicate()
    findings = tuple(msgspec.json.decode(line, type=Finding) for line in out.splitlines() if line.startswith(b"{"))
    # Python too ends with 1 where a program fails.
    if not error and process.returncode != (1 if findings else 0):
        error = f"ended with {process.returncode}: {err.decode(errors='replace').strip()[-400:]}"
    return Ran(findings, error, time.monotonic() - started)
