"""Times that objects tell of themselves: how long a workload runs, moments, durations. What cannot be read is not told.

The run time is, in this order: the annotation ``tessera.dev/runtime`` (a duration as Go writes it: ``90s``, ``2h30m``),
the maximum execution time, the ``activeDeadlineSeconds`` of its pods. All count from admission; from the maximum
execution time the time of earlier admissions is subtracted.
"""

import re
from datetime import UTC, datetime
from typing import Final

from controller.objects.workload import Workload
from inventory.api.names import RUNTIME
from yamlfile.parsers import Unfit, go_duration

_MOST_TEXT: Final = 64
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def runtime_s(workload: Workload) -> float | None:
    """Seconds from admission to the end; None where it is not known. An annotation that is no duration is ignored."""
    annotations, spec = workload.metadata.annotations, workload.spec
    text = annotations.get(RUNTIME) if annotations else None
    if text is not None and len(text) <= _MOST_TEXT:
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


def duration_s(text: str | None) -> float | None:
    """The seconds of a duration as Go writes it; ``0`` needs no unit."""
    if text is None or len(text) > _MOST_TEXT:
        return None
    try:
        return 0.0 if text == "0" else go_duration(text)
    except Unfit:
        return None


def rfc3339_s(text: str | None) -> float | None:
    """The seconds since 1970 of a time as RFC 3339 writes it, zone included; None for any other text."""
    if text is None or len(text) > _MOST_TEXT or not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def written_moment(at_s: float) -> str:
    """Seconds since 1970 in RFC 3339, without the fraction of a second."""
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%dT%H:%M:%SZ}"
