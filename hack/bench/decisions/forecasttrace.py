"""Seeded traces for forecasts: jobs with heavy-tailed run times, which they tell wrongly by a factor of 0.3 to 5."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.runtimes import FinishedRun
from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.run import Run
from controller.insight.simulation.submissions import Submission
from controller.insight.simulation.timeline import TimelineEntry, TimelineEvent
from controller.objects.core import Namespace
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from controller.scheduler.model.resources import WorkloadKey
from hack.bench.decisions.engineload import NOW_S, POLICIES, local_queue, queue, read_workload, workload
from inventory.api.names import RUNTIME

QUEUES, GPUS, JOBS = 4, 64, 250
SIZES: Final = (1, 1, 1, 2, 2, 4, 8, 16)
HIGH: Final = 0.05
"""This part of the jobs has a higher priority."""
WRONG: Final = (0.3, 5.0)
"""Told by actual: log-uniform between these. So far each queue's users lean one way by themselves."""
_LOOKS: Final = 12


class Answer(NamedTuple):
    """One forecast and what became of it, in seconds from when it was made. ``again``: of a workload that had just been
    preempted.
    """

    forecast: Forecast
    started_s: float
    again: bool = False


class Trace(NamedTuple):
    submissions: tuple[Submission, ...]
    told: dict[str, float | None]


def trace(seed: int, *, tells: bool = True, jobs: int = JOBS, load: float = 1.15) -> Trace:
    """``tells``: whether jobs say how long they run. ``load``: GPU seconds asked for by those there are."""
    draw = random.Random(seed)
    lean = [draw.uniform(-0.5, 0.5) for _ in range(QUEUES)]
    made: list[Submission] = []
    announced_s: dict[str, float | None] = {}
    at_s, work = 0.0, 0.0
    lasting = [min(draw.lognormvariate(7.5, 1.4), 5 * 86_400.0) for _ in range(jobs)]
    sizes = [draw.choice(SIZES) for _ in range(jobs)]
    work = sum(size * seconds for size, seconds in zip(sizes, lasting, strict=True))
    between_s = work / (GPUS * load) / jobs
    low, high = map(math.log, WRONG)
    for number, (size, lasts_s) in enumerate(zip(sizes, lasting, strict=True)):
        at_s += draw.expovariate(1.0 / between_s)
        line = draw.randrange(QUEUES)
        wrong = math.exp(min(max(draw.uniform(low, high) + lean[line], low), high))
        name = f"job-{number}"
        priority = 100 if draw.random() < HIGH else 0
        job = read_workload(workload(name, f"cq-{line}", size, priority, at=number))
        announced_s[job.key] = lasts_s * wrong if tells else None
        if tells:
            metadata = msgspec.structs.replace(
                job.metadata, annotations={RUNTIME: f"{max(1, round(lasts_s * wrong))}s"}
            )
            job = msgspec.structs.replace(job, metadata=metadata)
        made.append(Submission(order=number, arrival_s=at_s, runtime_s=lasts_s, workload=job))
    return Trace(tuple(made), announced_s)


def scenario(submissions: tuple[Submission, ...]) -> Scenario:
    objects = [
        decode({"metadata": {"name": "team"}}, Namespace),
        decode({"metadata": {"name": "default"}}, ResourceFlavor),
    ]
    for number in range(QUEUES):
        objects += [queue(f"cq-{number}", "all", nominal=GPUS // QUEUES, borrowing=None), local_queue(f"cq-{number}")]
    return Scenario(base_s=NOW_S, objects=tuple(objects), submissions=submissions, warnings=())


class Starts:
    """The starts of workloads in a timeline, by its order: a victim may be admitted and preempted in the same instant,
    so the time of a start does not say whether it came before a forecast or after it.
    """

    def __init__(self, timeline: Sequence[TimelineEntry]) -> None:
        self._of: dict[str, list[tuple[int, float]]] = {}
        """The places in the timeline and the seconds of each workload's starts."""
        for place, entry in enumerate(timeline):
            if entry.event is TimelineEvent.ADMITTED:
                self._of.setdefault(entry.workload, []).append((place, entry.t))

    def next_s(self, workload: str, place: int) -> float:
        """The second of the workload's first start at that place of the timeline or behind it."""
        return next(at_s for each, at_s in self._of[workload] if each >= place)


class _Made(NamedTuple):
    """Forecasts of one moment. ``entries``: the number of entries of the timeline before it."""

    t: float
    entries: int
    forecasts: dict[WorkloadKey, Forecast]
    again: bool


class _Learning:
    """Two forecasters that learn from starts and ends, each from its own forecasts, as the controller's does: what
    victims are told is an audit of its own.
    """

    def __init__(self, told: Mapping[str, float | None]) -> None:
        self.waiting, self.victims = Forecaster(), Forecaster()
        self._told = told
        self._began: dict[str, float] = {}

    def heard(self, entry: TimelineEntry) -> None:
        if entry.event is TimelineEvent.ADMITTED:
            self._began[entry.workload] = entry.t
        for forecaster in (self.waiting, self.victims):
            if entry.event is TimelineEvent.ADMITTED:
                forecaster.calibration.started(WorkloadKey(entry.workload), NOW_S + entry.t)
            elif entry.event is TimelineEvent.FINISHED and entry.t > self._began[entry.workload]:
                lasted = FinishedRun(entry.t - self._began[entry.workload], self._told[entry.workload])
                forecaster.history.note(entry.cluster_queue, entry.workload, lasted)


def answers(seed: int, *, tells: bool = True, jobs: int = JOBS, load: float = 1.15) -> Iterator[Answer]:
    """The trace replayed by the engine; at some moments everything that waits is forecast, and victims of preemption
    are when they have been preempted.
    """
    replayed = trace(seed, tells=tells, jobs=jobs, load=load)
    run = Run(scenario(replayed.submissions), POLICIES["tessera"], until_s=None, check=False)
    last_s = replayed.submissions[-1].arrival_s
    looks = [last_s * (number + 1) / (_LOOKS + 1) for number in range(_LOOKS)]
    learning = _Learning(replayed.told)
    made = list[_Made]()
    seen = 0

    def progress(t: float, _done: int, _all: int) -> None:
        nonlocal seen
        victims: set[str] = set()
        for entry in run.entries[seen:]:
            learning.heard(entry)
            if entry.event is TimelineEvent.PREEMPTED:
                victims.add(entry.workload)
            elif entry.event is TimelineEvent.ADMITTED:
                victims.discard(entry.workload)
        seen = len(run.entries)
        if looks and t >= looks[0]:
            del looks[0]
            made.append(_Made(t, seen, learning.waiting.all(run.engine, run.now_s), again=False))
        if victims:
            every = learning.victims.all(run.engine, run.now_s)
            made.append(_Made(t, seen, {key: every[key] for key in every if key in victims}, again=True))

    run.result(progress)
    starts = Starts(run.entries)
    for t, entries, forecasts, again in made:
        for key, forecast in forecasts.items():
            yield Answer(forecast, starts.next_s(key, entries) - t, again)
