"""The work of running jobs: what a stop leaves of it, and what is lost. Pure; times are seconds.

A job that writes checkpoints goes on from the last one, after the time that it takes to load it; any other job starts
from zero. A checkpoint is written at each multiple of ``interval_s`` of work, and at a stop that grants ``grace_s`` in
full: that one has all the work up to the stop.
"""

from math import inf

import msgspec

from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.preemption.price import Checkpoints, kept_s


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
        saved_s = max(before_s, kept_s(given, done_s, notice_s))
        self.lost_gpu_seconds += run.gpus * (done_s - saved_s)
        if saved_s:
            self._saved[key] = saved_s

    def finish(self, key: WorkloadKey) -> None:
        """The job has ended: nothing of it is needed any more."""
        self._runs.pop(key, None)
        self._saved.pop(key, None)
