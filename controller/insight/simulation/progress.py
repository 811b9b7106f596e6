"""The work of running jobs: what a stop leaves of it, and what is lost. Pure; times are seconds.

A job that writes checkpoints goes on from the last one, after the time that it takes to load it; any other job starts
from zero. What is lost is what the price of a preemption says (``price.lost_s``), so the sum over all stops is what the
victims were told, and the rest of the work is in the checkpoint.
"""

from collections.abc import Mapping
from math import inf

import msgspec

from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.preemption.price import Checkpoints, lost_s
from inventory.api.names import RUNTIME


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

    def begin(self, key: WorkloadKey, given: Checkpoints, gpus: float, now_s: float) -> None:
        """A job starts; it loads its checkpoint first, if it has one."""
        self._runs[key] = _Run(now_s, gpus, self._loads_s(key, given))

    def left_s(self, key: WorkloadKey, given: Checkpoints, runtime_s: float | None) -> float | None:
        """The seconds from the next start of a job to its end: those of its run time that are not saved, and those
        that its checkpoint takes to load. None for a job that runs for ever.
        """
        if runtime_s is None:
            return None
        return max(0.0, runtime_s + self._loads_s(key, given) - self._saved.get(key, 0.0))

    def goes_on(self, workload: Workload, left_s: float | None) -> Workload:
        """The stopped workload with what is left of its run time in place of it, if some of its work is saved:
        placement, backfill and forecasts count from the next admission.
        """
        if left_s is None or WorkloadKey(workload.key) not in self._saved:
            return workload
        annotations: Mapping[str, str] = {**workload.metadata.annotations, RUNTIME: f"{left_s:.6f}s"}
        replace = msgspec.structs.replace
        return replace(workload, metadata=replace(workload.metadata, annotations=annotations))

    def _loads_s(self, key: WorkloadKey, given: Checkpoints) -> float:
        return given.restart_cost_s if key in self._saved else 0.0

    def stop(self, key: WorkloadKey, given: Checkpoints, now_s: float, notice_s: float = inf) -> None:
        """The job is stopped, and has ``notice_s`` from SIGTERM until it is killed. One that does not run loses
        nothing.
        """
        run = self._runs.pop(key, None)
        if run is None:
            return
        lost = lost_s(given, run.since_s, now_s, notice_s)
        self.lost_gpu_seconds += run.gpus * lost
        saved_s = max(0.0, now_s - run.since_s - run.loads_s - lost)
        if saved_s:
            self._saved[key] = self._saved.get(key, 0.0) + saved_s

    def finish(self, key: WorkloadKey) -> None:
        """The job has ended: nothing of it is needed any more."""
        self._runs.pop(key, None)
        self._saved.pop(key, None)
