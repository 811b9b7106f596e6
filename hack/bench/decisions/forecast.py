"""Forecasts against what became of them, and what they cost: ``python -m hack.bench forecast [--quick]``.

Traces of ``forecasttrace`` on seeds that nothing was tuned on, replayed by the engine under ``policy: tessera``. The
cost is CPU time of all ranges of 1,000 pending workloads, the reading of the engine included.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence

import msgspec

from controller.insight.forecast.forecast import Forecaster
from controller.scheduler.engine import Engine
from hack.bench.decisions.engineload import NOW_S, POLICIES, engine_of, read_workload, workload
from hack.bench.decisions.forecasttrace import SIZES, Answer, answers
from hack.bench.table import Row, show
from inventory.api.names import RUNTIME

SEEDS = range(1000, 1008)
LOADS = (0.9, 1.15, 1.4)
PENDING = 1000
_SHORT_S = 60.0


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench forecast", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds and one load")
    options = parser.parse_args(words)
    seeds, loads = (SEEDS[:2], LOADS[1:2]) if options.quick else (SEEDS, LOADS)
    rows = []
    for name, tells in (("run times told, wrong by 0.3 to 5", True), ("no run times told", False)):
        found = [one for seed in seeds for load in loads for one in answers(seed, tells=tells, load=load)]
        rows += _calibration(name, [one for one in found if not one.again])
        rows += _calibration(f"{name}, just preempted", [one for one in found if one.again])
    show(f"forecasts of workloads that wait, {len(seeds)} seeds, loads {', '.join(map(str, loads))}", rows)
    show(f"cost of {PENDING:,} forecasts", list(_costs()))


def _calibration(name: str, found: Sequence[Answer]) -> list[Row]:
    ranged = [answer for answer in found if answer.forecast.from_s is not None]
    inside = sum(holds(answer) for answer in ranged)
    early = sum(answer.started_s < (answer.forecast.from_s or 0.0) for answer in ranged)
    widths = [
        (answer.forecast.to_s - (answer.forecast.from_s or 0.0)) / max(answer.started_s, _SHORT_S)
        for answer in ranged
        if answer.forecast.to_s is not None
    ]
    waits = sorted(answer.started_s for answer in ranged)
    return [
        Row(f"{name}: forecasts", f"{len(found):,}, median wait {waits[len(waits) // 2] / 60:.0f} min", ""),
        Row("  it started inside of the range", f"{inside / len(ranged):.0%}", "80%"),
        Row("  earlier, later", f"{early / len(ranged):.0%}, {1 - (inside + early) / len(ranged):.0%}", ""),
        Row("  width of the range against the wait, median", f"{statistics.median(widths):.1f}", ""),
    ]


def holds(answer: Answer) -> bool:
    """Whether the truth lay inside of the range."""
    low_s, high_s = answer.forecast.from_s, answer.forecast.to_s
    return low_s is not None and low_s <= answer.started_s and (high_s is None or answer.started_s <= high_s)


def _costs() -> Iterator[Row]:
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    for queues in (1, 10, 30):
        engine = crowded(queues)
        begun_s = last_s = time.process_time()
        longest_s, parts = 0.0, Forecaster().parts(engine, NOW_S + 600.0)
        while True:
            try:
                next(parts)
            except StopIteration as done:
                count = len(done.value)
                break
            finally:
                now_s = time.process_time()
                longest_s, last_s = max(longest_s, now_s - last_s), now_s
        said = f"{last_s - begun_s:.2f} s for {count:,}, the longest part of it {longest_s * 1000:.0f} ms"
        yield Row(f"{queues} ClusterQueues in 2 cohorts, CPU", said, "1 s")


def crowded(queues: int, pending: int = PENDING) -> Engine:
    """About so many wait for what others hold, with run times told and heavy-tailed."""
    draw = random.Random(1)
    engine = engine_of(POLICIES["tessera"], queues, 2, nominal=max(1, 400 // queues))
    for number in range(round(pending * 1.13)):
        job = read_workload(workload(f"job-{number}", f"cq-{draw.randrange(queues)}", draw.choice(SIZES), 0, at=number))
        told_s = draw.lognormvariate(8.0, 1.3) * draw.uniform(0.3, 5.0)
        metadata = msgspec.structs.replace(job.metadata, annotations={RUNTIME: f"{round(told_s) + 1}s"})
        engine.put(msgspec.structs.replace(job, metadata=metadata), NOW_S)
    while not engine.settled(NOW_S):
        engine.cycle(NOW_S)
    return engine
