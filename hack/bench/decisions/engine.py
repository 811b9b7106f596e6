"""The engine alone: how fast it drains, what a decision costs beside many others, what a parked workload weighs.

``python -m hack.bench engine [--quick]``. Nothing but the engine runs: objects in, decisions out, the statuses that
they make in again as the watch would bring them. Objects are read from JSON off the clock. Times are CPU seconds of
this process, its collector of garbage set as the controller sets it; wall seconds stand beside them.
"""

import argparse
import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted, Decisions, Evicted, Pending
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from hack.bench.decisions.engineload import NOW_S, POLICIES, echoed, engine_of, finished, load, read_workload, workload
from hack.bench.table import Row, show

EVALUATIONS, ADMISSIONS, BYTES, FACTOR = 20_000, 3_000, 2048, 1.5


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench engine", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    parser.add_argument("--only", choices=["drain", "decision", "memory"], help="one part")
    options = parser.parse_args(words)
    part = 10 if options.quick else 1
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    if options.only in (None, "drain"):
        _show_drains(1000 // part, 50 // min(part, 5))
    if options.only in (None, "decision"):
        _show_decisions(100_000 // part)
    if options.only in (None, "memory"):
        _show_memory(50_000 // part)


# -- drain -------------------------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """CPU and wall seconds spent under it."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        yield
        self.cpu_s += time.process_time() - cpu_s
        self.wall_s += time.perf_counter() - wall_s


@dataclass
class Drain:
    workloads: int = 0
    tried: int = 0
    admitted: int = 0
    evicted: int = 0
    cycles: int = 0
    arrivals: Clock = field(default_factory=Clock)
    deciding: Clock = field(default_factory=Clock)
    """Inside ``Engine.cycle``."""
    telling: Clock = field(default_factory=Clock)
    """Making the statuses, and taking in what the watch brings."""


def drain(config: EngineConfig, queues: int, cohorts: int, each: int) -> Drain:
    """All wait at the start. Whatever runs when nothing more can be admitted finishes, and the next are admitted."""
    engine, drained = engine_of(config, queues, cohorts), Drain()
    for index in range(queues):
        arriving = [read_workload(raw) for raw in load(f"cq-{index}", each)]
        drained.workloads += len(arriving)
        with drained.arrivals.running():
            for workload in arriving:
                engine.put(workload, NOW_S)
    now_s, done = NOW_S, 0
    while done < drained.workloads:
        running: list[Workload] = []
        while not engine.settled(now_s):
            with drained.deciding.running():
                decisions = engine.cycle(now_s)
            drained.cycles += 1
            drained.tried += decisions.tried
            running += _told(engine, decisions, drained, now_s)
        if not running:
            raise RuntimeError(f"nothing runs and {drained.workloads - done} workloads wait")
        ended = list(map(finished, running))
        with drained.telling.running():
            for workload in ended:
                engine.put(workload, now_s)
        done += len(ended)
        now_s += 1.0
    engine.validate()
    return drained


def _told(engine: Engine, decisions: Decisions, found: Drain, now_s: float) -> list[Workload]:
    """The statuses written and seen again; those that run now."""
    with found.telling.running():
        written = [decision.status() for decision in decisions.made if isinstance(decision, Admitted)]
    found.evicted += sum(isinstance(decision, Evicted) for decision in decisions.made)
    found.admitted += len(written)
    seen = list(map(echoed, written))
    with found.telling.running():
        for decision in seen:
            engine.put(decision, now_s)
    return seen


def _show_drains(queues: int, cohorts: int) -> None:
    rows = []
    peer_s = 0.0
    for name, config in POLICIES.items():
        one = drain(config, queues, cohorts, 50)
        if one.evicted:
            raise RuntimeError(f"{one.evicted} evictions in a drain that needs none")
        deciding, telling, arrivals = one.deciding, one.telling, one.arrivals
        loop_s, wall_s = deciding.cpu_s + telling.cpu_s, deciding.wall_s + telling.wall_s
        peer_s = peer_s or loop_s
        rows += [
            Row(
                f"{name}: evaluations a second",
                f"{one.tried / deciding.cpu_s:7,.0f} (by wall time {one.tried / deciding.wall_s:,.0f})",
                f"{EVALUATIONS:,}",
            ),
            Row(
                "  admissions a second",
                f"{one.admitted / loop_s:7,.0f} (by wall time {one.admitted / wall_s:,.0f})",
                f"{ADMISSIONS:,}",
            ),
            Row("  arrivals a second", f"{one.workloads / arrivals.cpu_s:7,.0f}", ""),
            Row("  evaluations, cycles", f"{one.tried:,}, {one.cycles}", ""),
            Row("  time against policy kueue", f"{loop_s / peer_s:7.2f} x", ""),
        ]
    show(f"drain of {queues * 50:,} workloads in {queues:,} ClusterQueues and {cohorts} cohorts", rows)


# -- one decision ------------------------------------------------------------------------------------------------------

QUEUES, COHORTS, TIMES = 30, 5, 60


def _show_decisions(many: int) -> None:
    rows = []
    for crowd, prepare in (("admitted", _with_admitted), ("parked", _with_parked)):
        for policy in ("kueue", "tessera"):
            few, lots = prepare(POLICIES[policy], 100), prepare(POLICIES[policy], many)
            for name, question in _QUESTIONS.items():
                few_us, lots_us = _least_us([few, lots], question)
                rows.append(
                    Row(
                        f"{policy}: {name}, 100 or {many:,} {crowd}",
                        f"{few_us:6.0f} us, {lots_us:6.0f} us, factor {lots_us / few_us:.2f}",
                        f"{FACTOR}",
                    )
                )
    show("one decision (a cycle that tries one workload)", rows)


def _with_admitted(config: EngineConfig, count: int) -> Engine:
    """So many hold one CPU each; queue 0 has 20 CPUs left."""
    engine = engine_of(config, QUEUES, COHORTS, nominal=count // QUEUES + 21, borrowing=0)
    _admit(engine, (_arriving(index, 1) for index in range(count)))
    return engine


def _with_parked(config: EngineConfig, count: int) -> Engine:
    """So many wait for more than their queue can have now, in three sizes; beside them 100 hold one CPU each."""
    engine = engine_of(config, QUEUES, COHORTS, nominal=100 // QUEUES + 21, borrowing=0)
    _admit(engine, (_arriving(index, 1) for index in range(100)))
    for index in range(count):
        engine.put(_arriving(100 + index, 22 + index % 3, priority=0), NOW_S)
    _settle(engine)
    return engine


def _arriving(index: int, cpus: int, *, priority: int = 10) -> Workload:
    return read_workload(workload(f"job-{index}", f"cq-{index % QUEUES}", cpus, priority, at=index))


def _admit(engine: Engine, some: Iterable[Workload]) -> None:
    for each in some:
        engine.put(each, NOW_S)
    while not engine.settled(NOW_S):
        for decision in engine.cycle(NOW_S).made:
            if isinstance(decision, Admitted):
                engine.put(echoed(decision.status()), NOW_S)


def _settle(engine: Engine) -> None:
    while not engine.settled(NOW_S + 1):
        engine.cycle(NOW_S + 1)


def _ask(engine: Engine, cpus: int, priority: int, expected: type, number: int) -> float:
    """One workload comes, is decided on, and all is as it was. Seconds of the cycle."""
    engine.put(read_workload(workload("asking", "cq-0", cpus, priority, at=200_000)), NOW_S + 1)
    start_s = time.thread_time()
    decisions = engine.cycle(NOW_S + 1)
    spent_s = time.thread_time() - start_s
    found = [decision for decision in decisions.made if isinstance(decision, expected)]
    if decisions.tried != 1 or len(found) != number:
        raise RuntimeError(f"expected {number} {expected.__name__}, found {decisions}")
    for decision in decisions.made:
        if isinstance(decision, Evicted):
            engine.failed(decision, NOW_S + 1, "a question")
    engine.drop(Workload, "team", "asking", NOW_S + 1)
    _settle(engine)
    return spent_s


_sizes = itertools.count()
_QUESTIONS: dict[str, Callable[[Engine], float]] = {
    "it fits": lambda engine: _ask(engine, 2, 5, Admitted, 1),
    # Never the same twice: what is known not to fit would not be tried.
    "it does not fit": lambda engine: _ask(engine, 1_000_000 + next(_sizes), 5, Pending, 1),
    "it preempts": lambda engine: _ask(engine, 23, 100, Evicted, 3),
}


def _least_us(engines: Sequence[Engine], question: Callable[[Engine], float]) -> list[float]:
    """In turn; the median of the quicker half, because others on the machine only ever add."""
    taken: list[list[float]] = [[] for _ in engines]
    for _ in range(TIMES):
        for engine, times in zip(engines, taken, strict=True):
            times.append(question(engine))
    return [statistics.median(sorted(times)[: TIMES // 2]) * 1e6 for times in taken]


# -- memory ------------------------------------------------------------------------------------------------------------


def _show_memory(count: int) -> None:
    gc.collect()
    before = _resident()
    engine = _with_parked(POLICIES["kueue"], count)
    gc.collect()
    resident = (_resident() - before) / count
    del engine
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    engine = _with_parked(POLICIES["kueue"], count)
    gc.collect()
    traced = (tracemalloc.get_traced_memory()[0] - base) / count
    tracemalloc.stop()
    parked = sum(engine.state.queues.counts(name)[1] for name in engine.state.cluster.queues)
    if parked != count:
        raise RuntimeError(f"{parked} of {count} are parked")
    show(
        f"a parked workload, of {count:,}",
        [
            Row("objects of the engine and the workload's own", f"{traced:,.0f} bytes", f"{BYTES:,}"),
            Row("growth of the resident memory", f"{resident:,.0f} bytes", ""),
        ],
    )


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main()
