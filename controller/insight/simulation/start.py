"""The start of virtual time, and objects as they are at that time."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.problems import shown
from controller.messages.queues import wrong_annotation
from controller.objects.core import Node
from controller.objects.meta import Condition, KubernetesObject, epoch_s
from controller.objects.queues import AdmissionCheck, AdmissionCheckStatus, LocalQueue
from controller.scheduler.decisions.status import moment
from controller.scheduler.model.toldtimes import duration_s, rfc3339_s, written_moment
from inventory.api.names import CHECKPOINT_WAIT, DRAIN_AT, LAST_CHECKPOINT, YIELD

EPOCH_S: Final = 946684800.0
"""The start of virtual time if no object carries a time: 2000-01-01T00:00:00Z."""
_WHEN_CHECKPOINTED: Final = "when-checkpointed"
LAST_YEAR: Final = 8999
"""The last year in which virtual time may start: no time after year 9999 can be written, and a thousand years are left
for what runs.
"""


def base_of(objects: Iterable[KubernetesObject], start_s: float | None) -> float:
    """The start of virtual time: ``start_s``, or the latest time at which past usage was written. Raises InputError if
    usage was written after ``start_s``: it would have to fade backwards.
    """
    times = [(epoch_s(found), loaded.key) for loaded in objects if (found := _usage_time(loaded)) is not None]
    latest_s, key = max(times, default=(EPOCH_S, ""))
    if moment(latest_s).year > LAST_YEAR:
        raise InputError(
            f"LocalQueue {key}: lastUpdate: found {written_moment(latest_s)}, expected a time of year {LAST_YEAR} or "
            "before: virtual time starts then"
        )
    if start_s is None:
        return float(int(latest_s))
    if key and latest_s > start_s:
        told, since = (f"{moment(each):%Y-%m-%dT%H:%M:%SZ}" for each in (start_s, latest_s))
        raise InputError(
            f"--start: found {told}, expected {since} or later: LocalQueue {key} tells its usage until then"
        )
    return start_s


def wait_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a ClusterQueue's annotation ``CHECKPOINT_WAIT``; empty if it has none."""
    text = annotations.get(CHECKPOINT_WAIT)
    if text is None or duration_s(text) is not None:
        return ""
    found = f"metadata.annotations[{CHECKPOINT_WAIT}]: found {shown(text)}"
    return f"{found}, expected a duration such as 90s or 5m. Correct it"


def drain_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a Node's annotation ``DRAIN_AT``; empty if it has none."""
    text = annotations.get(DRAIN_AT)
    if text is None or rfc3339_s(text) is not None or duration_s(text) is not None:
        return ""
    found = f"metadata.annotations[{DRAIN_AT}]: found {shown(text)}"
    return f"{found}, expected a time such as 2026-01-05T18:00:00Z, or a duration from the start such as 2h. Correct it"


def yield_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a job's annotation ``YIELD``; empty if it has none."""
    text = annotations.get(YIELD)
    if text is None or text == _WHEN_CHECKPOINTED:
        return ""
    return wrong_annotation(YIELD, text, _WHEN_CHECKPOINTED)


def saved_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a job's annotation ``LAST_CHECKPOINT``; empty if it has none."""
    text = annotations.get(LAST_CHECKPOINT)
    if text is None or rfc3339_s(text) is not None:
        return ""
    found = f"metadata.annotations[{LAST_CHECKPOINT}]: found {shown(text)}"
    return f"{found}, expected a time with its zone such as 2026-01-05T18:00:00Z. Correct it"


def _usage_time(given: KubernetesObject) -> datetime | None:
    sharing = given.status.fair_sharing if isinstance(given, LocalQueue) else None
    usage = sharing.admission_fair_sharing_status if sharing is not None else None
    return usage.last_update if usage is not None else None


def as_at_start(given: KubernetesObject, base_s: float) -> KubernetesObject:
    """The object at the start: past usage without a time gets the start's, admission checks are active, and a drain
    after a duration has its time.
    """
    replace = msgspec.structs.replace
    if isinstance(given, Node):
        after_s = duration_s(given.metadata.annotations.get(DRAIN_AT))
        if after_s is None:
            return given
        annotations = {**given.metadata.annotations, DRAIN_AT: written_moment(base_s + after_s)}
        return replace(given, metadata=replace(given.metadata, annotations=annotations))
    if isinstance(given, AdmissionCheck):
        active = Condition(type="Active", status="True", reason="Active", last_transition_time=moment(base_s))
        return replace(given, status=AdmissionCheckStatus(conditions=(active,)))
    if not isinstance(given, LocalQueue) or given.status.fair_sharing is None:
        return given
    sharing = given.status.fair_sharing
    usage = sharing.admission_fair_sharing_status
    if usage is None or usage.last_update is not None:
        return given
    dated = replace(sharing, admission_fair_sharing_status=replace(usage, last_update=moment(base_s)))
    return replace(given, status=replace(given.status, fair_sharing=dated))
