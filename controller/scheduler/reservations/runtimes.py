"""How long a workload runs, where that can be known: backfill and forecasts depend on it.

In this order: the annotation ``tessera.dev/runtime`` (a duration as Go writes it: ``90s``, ``2h30m``), the maximum
execution time, the ``activeDeadlineSeconds`` of its pods. All count from admission; from the maximum execution time the
time of earlier admissions is subtracted. A workload that outlives its runtime is expected to go on for a tenth of the
time that it has run.
"""

from typing import Final

from controller.objects.workload import Workload
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.quota.queuestate import Holder
from inventory.api.names import RUNTIME
from yamlfile.parsers import Unfit, go_duration

_MAX_LENGTH: Final = 64
_OVERTIME: Final = 0.1
# An overdue workload is never expected to end now: its quota would count as free while the workload still holds it.
_SHORTEST_S: Final = 1.0


def runtime_s(workload: Workload) -> float | None:
    """Seconds from admission to the end; None where it is not known. An annotation that is no duration is ignored."""
    annotations, spec = workload.metadata.annotations, workload.spec
    text = annotations.get(RUNTIME) if annotations else None
    if text is not None and len(text) <= _MAX_LENGTH:
        try:
            return go_duration(text)
        except Unfit:
            pass
    limit_s = spec.maximum_execution_time_seconds
    if limit_s is not None:
        return float(max(0, limit_s - (workload.status.accumulated_past_execution_time_seconds or 0)))
    longest_s: int | None = None
    for pod_set in spec.pod_sets:
        deadline_s = pod_set.template.spec.active_deadline_seconds
        if deadline_s is None:
            return None
        longest_s = deadline_s if longest_s is None else max(longest_s, deadline_s)
    return None if longest_s is None else float(longest_s)


def ends_at_s(holder: Holder, now_s: float) -> float | None:
    """The time at which the holder is expected to release its quota; None for a job of unknown length."""
    lasts_s = runtime_s(holder.info.workload)
    if lasts_s is None:
        return None
    end_s = holder.reserved_at_s + lasts_s
    if end_s > now_s:
        return end_s
    return now_s + max(_SHORTEST_S, _OVERTIME * (now_s - holder.reserved_at_s))


def would_end_s(info: WorkloadInfo, now_s: float) -> float | None:
    """The time at which a workload that is admitted now would end; None for one of unknown length."""
    lasts_s = runtime_s(info.workload)
    return None if lasts_s is None else now_s + lasts_s
