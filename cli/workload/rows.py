"""The row of a Workload in a list. Pure: objects come as the API server has them, in typed form."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from controller.objects.meta import find_condition, is_true
from controller.objects.workload import Workload
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import ResourceName
from controller.scheduler.quota.queueusage import quantity_of

STATES: Final = ("Pending", "QuotaReserved", "Admitted", "Finished")
"""The states that ``kubectl kueue list workload --status`` tells apart."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row. ``exec_s`` is None until the Workload is admitted, ``position`` (from 1, in its LocalQueue) where it is
    not known.
    """

    namespace: str
    name: str
    job_kind: str
    job_name: str
    local_queue: str
    cluster_queue: str
    state: str
    position: int | None
    exec_s: float | None
    age_s: float
    priority: int
    priority_class: str
    pods: int
    requests: str
    reason: str
    message: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def state_of(workload: Workload) -> str:
    """The state of the Workload: one of STATES, or Evicting (it still holds its quota) or Stopped (it is not tried
    before it is resumed).
    """
    conditions = workload.status.conditions
    if is_true(conditions, "Finished"):
        return "Finished"
    holds = is_true(conditions, "QuotaReserved")
    if holds and is_true(conditions, "Evicted"):
        return "Evicting"
    if holds and is_true(conditions, "Admitted"):
        return "Admitted"
    if holds:
        return "QuotaReserved"
    return "Pending" if workload.spec.active else "Stopped"


def plain_state(state: str) -> str:
    """The one of STATES as which the state counts where there are no others."""
    return {"Evicting": "Admitted", "Stopped": "Pending"}.get(state, state)


def owner(workload: Workload) -> tuple[str, str]:
    """The kind and name of the object that it stands for; empty where it stands for nothing but itself."""
    owners = workload.metadata.owner_references
    found = next((each for each in owners if each.controller), owners[0] if owners else None)
    return (found.kind, found.name) if found is not None else ("", "")


def row(
    workload: Workload, cluster_queues: Mapping[tuple[str, str], str], positions: Mapping[str, int], now: datetime
) -> Row:
    """The row of a Workload. ``cluster_queues``: by namespace and name of a LocalQueue; ``positions``: by key,
    from 0.
    """
    spec, status, meta = workload.spec, workload.status, workload.metadata
    job_kind, job_name = owner(workload)
    admission = status.admission
    state = state_of(workload)
    waits = find_condition(status.conditions, "QuotaReserved") if plain_state(state) == "Pending" else None
    place = positions.get(workload.key) if state == "Pending" else None
    created = meta.creation_timestamp
    return Row(
        namespace=meta.namespace,
        name=meta.name,
        job_kind=job_kind,
        job_name=job_name,
        local_queue=spec.queue_name,
        cluster_queue=admission.cluster_queue
        if admission is not None
        else cluster_queues.get((meta.namespace, spec.queue_name), ""),
        state=state,
        position=None if place is None else place + 1,
        exec_s=_executed(workload, now),
        age_s=(now - created).total_seconds() if created is not None else 0.0,
        priority=spec.priority or 0,
        priority_class=spec.priority_class_ref.name if spec.priority_class_ref is not None else "",
        pods=sum(pod_set.count for pod_set in spec.pod_sets),
        requests=requests(workload),
        reason=waits.reason if waits is not None else "",
        message=waits.message if waits is not None else "",
    )


def requests(workload: Workload) -> str:
    """The requests of all its pods together: ``cpu 16, nvidia.com/gpu 8``."""
    totals: dict[ResourceName, int] = {}
    for pod_set in workload.spec.pod_sets:
        for name, amount in one_pod(pod_set.template.spec).items():
            totals[name] = totals.get(name, 0) + amount * pod_set.count
    return ", ".join(f"{name} {quantity_of(name, amount)}" for name, amount in sorted(totals.items()))


def _executed(workload: Workload, now: datetime) -> float | None:
    """The seconds since it was admitted, until it finished; None where it is neither."""
    conditions = workload.status.conditions
    began = find_condition(conditions, "Admitted")
    if began is None or began.status != "True" or began.last_transition_time is None:
        return None
    ended = find_condition(conditions, "Finished")
    until = ended.last_transition_time if ended is not None and ended.status == "True" else None
    return ((until or now) - began.last_transition_time).total_seconds()


def chosen(
    rows: Iterable[Row], *, cluster_queue: str | None, local_queue: str | None, states: tuple[str, ...]
) -> list[Row]:
    """The rows of the queues and states (of STATES, in small letters; none: all), the oldest first."""
    matching = [
        row
        for row in rows
        if (cluster_queue is None or row.cluster_queue == cluster_queue)
        and (local_queue is None or row.local_queue == local_queue)
        and (not states or plain_state(row.state).lower() in states)
    ]
    return sorted(matching, key=lambda each: (each.namespace, -each.age_s, each.name))
