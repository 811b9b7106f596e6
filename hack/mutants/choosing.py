"""Which mutants are tried, and which tests look for them: the draw by number, the mirror by path."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from hack.mutants.planting import Mutant

ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": ("controller/scheduler",),
    "jobs": (
        "controller/jobs/framework",
        "controller/jobs/kinds",
        *(f"controller/reconcile/{name}" for name in ("jobs", "jobshell", "placing", "pods")),
    ),
    "health": ("agent/health",),
    "mig": ("agent/mig",),
    "deviceplugin": ("deviceplugin",),
}
"""The rooms that decide, by name: their folders. Below ``tests/`` the same folders hold their tests."""
_AWAY: Final = 3
"""The last of the ranks of a test."""
_STAND_INS: Final = frozenset({"testing.py", "__init__.py"})


class Mirror(Struct, frozen=True):
    """Test files, the likeliest to fail first. ``far`` follows only when ``near`` found nothing."""

    near: list[str]
    far: list[str]


def is_mutated(path: str, folders: Iterable[str]) -> bool:
    """A module of these folders that the product runs: not a stand-in for tests."""
    return path.endswith(".py") and PurePosixPath(path).name not in _STAND_INS and is_below(path, folders)


def is_test(path: str, folders: Iterable[str]) -> bool:
    name = PurePosixPath(path).name
    return (
        name.startswith("test_") and name.endswith(".py") and is_below(path, (f"tests/{folder}" for folder in folders))
    )


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def drawn(rooms: Mapping[str, Sequence[Mutant]], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """``count`` mutants with their rooms, or all there are; no two of one line. Fewer are some of those of more."""
    ranked = {room: _ranked(mutants, seed) for room, mutants in rooms.items()}
    counts = _shares(count, {room: len(mutants) for room, mutants in ranked.items()})
    return [(room, mutant) for room, mutants in ranked.items() for mutant in mutants[: counts[room]]]


def _ranked(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    lines: set[tuple[str, int]] = set()
    ranked = []
    for mutant in sorted(mutants, key=lambda mutant: _number(mutant, seed)):
        if (mutant.module, mutant.line) not in lines:
            lines.add((mutant.module, mutant.line))
            ranked.append(mutant)
    return ranked


def _number(mutant: Mutant, seed: int) -> bytes:
    return hashlib.sha256(repr((seed, *mutant.name)).encode()).digest()


def _shares(count: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Each room by its size, one at least: each next mutant goes to the room that has the least for its size."""
    shares = dict.fromkeys(sizes, 0)
    for _ in range(min(count, sum(sizes.values()))):
        room = min((room for room in sizes if shares[room] < sizes[room]), key=lambda room: shares[room] / sizes[room])
        shares[room] += 1
    return shares


def mirror(module: str, tests: Mapping[str, str]) -> Mirror:
    """``tests`` are the room's: text by path. A test of the module's name first, then one that imports it, then the
    module's folder, then by how far away the folder is.
    """
    ranks = {path: _rank(module, path, text) for path, text in tests.items()}
    ordered = sorted(tests, key=lambda path: (ranks[path], path))
    near = [path for path in ordered if ranks[path][0] < _AWAY]
    return Mirror(near, ordered[len(near) :])


def _rank(module: str, test: str, text: str) -> tuple[int, int]:
    source, looking = PurePosixPath(module), PurePosixPath(test)
    distance = _distance(source.parent.parts, looking.parent.parts[1:])
    if re.match(rf"test_{re.escape(source.stem)}(_|$)", looking.stem):
        return 0, distance
    parent, dotted = ".".join(source.parent.parts), ".".join(source.with_suffix("").parts)
    whole = rf"(?:from|import) {re.escape(dotted)}\b"
    named = rf"from {re.escape(parent)} import [^#\n]*\b{source.stem}\b"
    if re.search(rf"^\s*(?:{whole}|{named})", text, re.MULTILINE):
        return 1, distance
    return (2 if distance == 0 else _AWAY), distance


def _distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Steps up and down from one folder to the other."""
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return len(one) + len(other) - 2 * common
