"""Mutants against the tests that mirror them, some at a time, each in a copy of the tree of its own."""

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from hack.mutants import choosing, running
from hack.mutants.choosing import Mirror
from hack.mutants.planting import Mutant, mutants_of
from hack.mutants.running import CannotTell, Ran
from hack.mutants.verdict import Name, Outcome, Result

T = TypeVar("T")
_UNMUTATED_LIMIT_S: Final = 600.0
_CASES: Final = "tests/conformance/kueue"
"""Kueue's own cases, which know the engine."""


class Tree:
    """A checkout: what can be mutated in these rooms, and the tests that mirror them. ``within``: the only folders in
    which something is mutated, below those of the rooms; empty for all.
    """

    def __init__(self, root: Path, rooms: Mapping[str, Sequence[str]], *, within: Sequence[str] = ()) -> None:
        self.root = root
        self.names = running.tree(root)
        mutants = {room: self._mutants_of(folders, within) for room, folders in rooms.items()}
        self._mutants = {room: found for room, found in mutants.items() if found}
        self._tests = {room: self._tests_of(folders) for room, folders in rooms.items()}

    def drawn(self, count: int, seed: int) -> list[tuple[str, Mutant]]:
        return choosing.drawn(self._mutants, count, seed)

    def mirror(self, room: str, module: str) -> Mirror:
        return choosing.mirror(module, self._tests[room])

    def tests(self, room: str) -> list[str]:
        return sorted(self._tests[room])

    def _mutants_of(self, folders: Sequence[str], within: Sequence[str]) -> list[Mutant]:
        below = [folder.rstrip("/") for folder in within]
        modules = [name for name in self.names if choosing.is_mutated(name, folders)]
        modules = [name for name in modules if not below or choosing.is_below(name, below)]
        return [mutant for name in modules for mutant in mutants_of(name, (self.root / name).read_bytes())]

    def _tests_of(self, folders: Sequence[str]) -> dict[str, str]:
        return {name: (self.root / name).read_text() for name in self.names if choosing.is_test(name, folders)}


class Trial:
    """``shared`` holds the corpus, if Kueue's cases look for the engine's mutants too."""

    def __init__(
        self, tree: Tree, folder: Path, known: Mapping[Name, str], *, jobs: int = 1, shared: Path | None = None
    ) -> None:
        self._tree, self._known, self._jobs, self._shared = tree, known, jobs, shared
        self._limits: dict[str, float] = {}
        # A copy is in the queue while no thread has it.
        self._copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            self._copies.put(running.copied(tree.root, tree.names, folder / str(number)))

    def results(self, chosen: Sequence[tuple[str, Mutant]]) -> Iterator[Result]:
        """In the order of ``chosen``, each as soon as it is known. Raises CannotTell."""
        rooms = list(dict.fromkeys(room for room, _ in chosen))
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                limits = pool.map(lambda room: self._in_copy(lambda copy: self._limit_s(copy, room)), rooms)
                self._limits = dict(zip(rooms, limits, strict=True))
                yield from pool.map(lambda pick: self._in_copy(lambda copy: self._try(copy, *pick)), chosen)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _in_copy(self, what: Callable[[Path], T]) -> T:
        copy = self._copies.get()
        try:
            return what(copy)
        finally:
            self._copies.put(copy)

    def _limit_s(self, copy: Path, room: str) -> float:
        """How long the room's tests may take, after they passed without a mutant."""
        ran = running.run(copy, self._tree.tests(room), _UNMUTATED_LIMIT_S)
        if not ran.passed:
            raise CannotTell(f"the tests of {room} fail without any mutant: {ran.failed}")
        # Other work of the machine comes and goes; a mutant that hangs is rare.
        return 3 * ran.seconds + 30

    def _try(self, copy: Path, room: str, mutant: Mutant) -> Result:
        seconds = 0.0
        with running.mutated(copy, mutant):
            for ran in self._runs(copy, room, mutant.module):
                seconds += ran.seconds
                if not ran.passed:
                    return Result(room, mutant, Outcome.TIMED_OUT if ran.hung else Outcome.KILLED, ran.failed, seconds)
        reason = self._known.get(mutant.name)
        return Result(room, mutant, Outcome.SURVIVED if reason is None else Outcome.LISTED, reason or "", seconds)

    def _runs(self, copy: Path, room: str, module: str) -> Iterator[Ran]:
        """Stops where the caller does: those likeliest to fail come first."""
        mirror = self._tree.mirror(room, module)
        for tests in (mirror.near, mirror.far):
            if tests:
                yield running.run(copy, tests, self._limits[room])
        if self._shared and room == "engine":
            yield running.run(copy, [_CASES], _UNMUTATED_LIMIT_S, self._shared)
