"""The clusters of the end-to-end tests are recorded from their coming up to their end, and judged by ``history``.

A scene that does on purpose what the judge calls wrong says so with ``@pytest.mark.history(allow={...}, why="...")``. A
finding belongs to the scene in which the wrong began.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from hack.cluster.cluster import FOLLOWERS, Cluster
from history.judge import Finding, Judge
from history.record import Fact
from history.rule import Rule
from tests.support.e2e.recording import Gpus, Recording, now_s

RULES: Final = frozenset(rule.name for rule in Rule.__subclasses__())
MARK: Final = "history"
_RECORDINGS: Final[dict[Path, list[Recording]]] = {}
"""Those that run, by the folder of their cluster. Changed by whoever brings clusters up and down alone."""


def hardware(cluster: Cluster, node: str, gpus: Gpus) -> None:
    """Where the cluster is recorded: this says what GPUs its node has."""
    for recording in _RECORDINGS.get(cluster.paths.home, ()):
        recording.hardware[node] = gpus


def promise(cluster: Cluster, config: str) -> None:
    """Where the cluster is recorded: a controller was started with this configuration."""
    for recording in _RECORDINGS.get(cluster.paths.home, ()):
        recording.promise(config)


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Runs it, and others may tell it what they know of its cluster."""
    of_cluster = _RECORDINGS.setdefault(recording.cluster.paths.home, [])
    with recording:
        of_cluster.append(recording)
        try:
            yield recording
        finally:
            of_cluster.remove(recording)


def allowed(marks: Iterable[pytest.Mark]) -> frozenset[str]:
    """The rules that a scene's marks name. ValueError for a mark that names no rule, or says no reason."""
    found: set[str] = set()
    for mark in marks:
        rules, why = mark.kwargs.get("allow"), mark.kwargs.get("why")
        if mark.args or not rules or not set(rules) <= RULES:
            raise ValueError(f"mark history: allow: found {rules!r}, expected some of {', '.join(sorted(RULES))}")
        if not why:
            raise ValueError(f"mark history: why: found {why!r}, expected what the scene does on purpose")
        found |= set(rules)
    return frozenset(found)


@dataclass(frozen=True)
class Scene:
    """``since_s``: on this process' monotonic clock. It lasts until the next begins."""

    name: str
    since_s: float
    allowed: frozenset[str] = frozenset()


class Verdicts:
    """The judge at one record, and the scenes that were played meanwhile. Pure.

    ``wrongs`` are the findings that no scene has allowed; each is told once.
    """

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._judge = Judge()
        self._known: set[Finding] = set()

    def wrongs(self, facts: Iterable[Fact], scenes: "Scenes") -> list[str]:
        for fact in facts:
            self._judge.take(fact)
        new = [each for each in self._judge.verdict().findings if each not in self._known]
        self._known.update(new)
        found = []
        for each in new:
            scene = scenes.at(self._began_s + each.t)
            if each.rule not in scene.allowed:
                found.append(
                    f"{each.rule} at {each.t:.1f} s, in {scene.name}: {', '.join(each.objects)}: {each.message}"
                )
        return found


class Scenes:
    """In the order in which they began."""

    def __init__(self, now_s: float) -> None:
        self._all = [Scene("before all scenes", now_s)]

    def begin(self, scene: Scene) -> None:
        self._all.append(scene)

    def at(self, at_s: float) -> Scene:
        return next((each for each in reversed(self._all) if each.since_s <= at_s), self._all[0])


@dataclass
class _Running:
    recording: Recording
    verdicts: Verdicts
    ended: bool = False
    wrong: bool = False


@dataclass
class Records:
    """Of all clusters of this process. ``kept``: the folder for records in which something is wrong, or for all."""

    folder: Path
    kept: Path
    keeps_all: bool = False
    scenes: Scenes = field(default_factory=lambda: Scenes(now_s()))
    cpu_s: float = 0.0
    """Of recording and judging together."""
    _running: list[_Running] = field(default_factory=list)

    @contextmanager
    def following(self) -> Iterator["Records"]:
        """Every cluster that comes up is recorded until it goes down."""
        FOLLOWERS.append(self.follow)
        try:
            yield self
        finally:
            FOLLOWERS.remove(self.follow)

    def follow(self, cluster: Cluster) -> Callable[[], None]:
        path = self.folder / f"{cluster.name}-{time.monotonic_ns()}.jsonl.gz"
        recording = Recording(cluster, path)
        running = _Running(recording, Verdicts(recording.began_s))
        context = recorded(recording)
        context.__enter__()
        self._running.append(running)

        def end() -> None:
            context.__exit__(None, None, None)
            running.ended = True
            self.cpu_s += recording.cpu_s

        return end

    def begin(self, name: str, marks: Iterable[pytest.Mark]) -> None:
        """A scene, or the module that it stands in, begins."""
        self.scenes.begin(Scene(name, now_s(), allowed(marks)))

    def check(self) -> None:
        """Judges what was recorded since the last time. AssertionError naming each wrong, its scene and the record."""
        began_s, told = time.thread_time(), list[str]()
        for each in tuple(self._running):
            if not each.ended:
                each.recording.tick()
            wrongs = each.verdicts.wrongs(each.recording.take(), self.scenes)
            each.wrong |= bool(wrongs)
            if wrongs:
                told += [*wrongs, f"  its record: {self.kept / each.recording.path.name}"]
            if each.ended:
                self._running.remove(each)
                self._keep(each)
        self.cpu_s += time.thread_time() - began_s
        assert not told, "\n".join(["the judge of histories found:", *told])

    def _keep(self, each: _Running) -> None:
        if each.wrong or self.keeps_all:
            self.kept.mkdir(parents=True, exist_ok=True)
            shutil.move(each.recording.path, self.kept / each.recording.path.name)
        else:
            each.recording.path.unlink()
