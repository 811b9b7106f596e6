"""The work of running jobs: what a stop leaves of it, and what is lost. Pure; times are seconds.

A job that writes checkpoints goes on from the last one, after the time that it takes to load it; any other job starts
from zero. A checkpoint is written at each multiple of ``interval_s`` of work, and at a stop that grants ``grace_s`` in
full: that one has all the work up to the stop.
"""

from math import inf

import msgspec

from controller.scheduler.model.resources import WorkloadKey

_ROUNDING_S = 1e-6
"""Work that is short of a multiple by no more than this is taken to have reached it."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """How a job keeps its work. None for an interval or a grace that it does not have."""

    interval_s: float | None = None
    grace_s: float | None = None
    restart_cost_s: float = 0.0


class _Run(msgspec.Struct, frozen=True):
    """One run: since when, on how many GPUs, and how long its checkpoint takes to load."""

    since_s: float
    gpus: float
    loads_s: float


class WorkLedger:
    """The work of all jobs of a simulation."""

    def __init__(self) -> None:
        self.lost_gpu_seconds = 0.0
        self._saved: dict[WorkloadKey, float] = {}
        """Seconds of work in each job's last checkpoint; 0 is left out."""
        self._runs: dict[WorkloadKey, _Run] = {}

    def begin(self, key: WorkloadKey, given: Checkpoints, gpus: float, now_s: float) -> float:
        """A job starts. Returns the seconds that it loads its checkpoint for, less the work that is in it: its run ends
        after these and its run time.
        """
        saved_s = self._saved.get(key, 0.0)
        loads_s = given.restart_cost_s if saved_s else 0.0
        self._runs[key] = _Run(now_s, gpus, loads_s)
        return loads_s - saved_s

    def stop(self, key: WorkloadKey, given: Checkpoints, now_s: float, notice_s: float = inf) -> None:
        """The job is stopped, and has ``notice_s`` from SIGTERM until it is killed. One that does not run loses
        nothing.
        """
        run = self._runs.pop(key, None)
        if run is None:
            return
        before_s = self._saved.get(key, 0.0)
        done_s = before_s + max(0.0, now_s - run.since_s - run.loads_s)
        kept_s = max(before_s, _kept_s(given, done_s, notice_s))
        self.lost_gpu_seconds += run.gpus * (done_s - kept_s)
        if kept_s:
            self._saved[key] = kept_s

    def finish(self, key: WorkloadKey) -> None:
        """The job has ended: nothing of it is needed any more."""
        self._runs.pop(key, None)
        self._saved.pop(key, None)


def _kept_s(given: Checkpoints, done_s: float, notice_s: float) -> float:
    """The work in the last checkpoint of a job that is stopped after ``done_s`` of work."""
    if given.grace_s is not None and notice_s >= given.grace_s:
        return done_s
    if given.interval_s is None:
        return 0.0
    if not given.interval_s:
        return done_s
    return min(done_s, (done_s + _ROUNDING_S) // given.interval_s * given.interval_s)
