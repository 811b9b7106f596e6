"""Changes of quotas that calendars bring within a forecast: when which cell of the model has which quota."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, CohortName, FlavorResource
from controller.scheduler.quota.calendar import next_change_s, overlaid
from controller.scheduler.quota.cells import Cell, Quota
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.quotaspec import cluster_queue_spec, cohort_spec

_MOST: Final = 60
"""Times of one object at which its quotas change: a month of nights."""


class QuotaChange(NamedTuple):
    """A cell of the model has ``quota`` from ``at_s`` on."""

    at_s: float
    cell: Cell
    quota: Quota


def changes_below(engine: Engine, quota: QuotaTree, root: QuotaNode, now_s: float) -> tuple[QuotaChange, ...]:
    """The coming changes of all that stands in one tree of the model ``quota``, in their order."""
    found: list[QuotaChange] = []
    for owner, node in _owners(engine, quota):
        if node.root() is root:
            found += _changes(engine, owner, node, now_s)
    return tuple(sorted(found, key=lambda change: change.at_s))


def _owners(engine: Engine, quota: QuotaTree) -> Iterator[tuple[ClusterQueue | Cohort, QuotaNode]]:
    """The objects with a calendar, without what it changes, each with its node in the model."""
    for owner in engine.state.calendars.owners():
        name = owner.metadata.name
        if isinstance(owner, ClusterQueue):
            if ClusterQueueName(name) in quota.cluster_queues:
                yield owner, quota.cluster_queue(ClusterQueueName(name))
        elif CohortName(name) in quota.cohorts:
            yield owner, quota.cohorts[CohortName(name)]


def _changes(engine: Engine, owner: ClusterQueue | Cohort, node: QuotaNode, now_s: float) -> Iterator[QuotaChange]:
    entries = engine.state.calendars.of(type(owner), owner.metadata.name).entries
    before = _quotas(overlaid(owner, entries, now_s))
    at_s = next_change_s(entries, now_s)
    for _ in range(_MOST):
        if at_s is None:
            return
        after = _quotas(overlaid(owner, entries, at_s))
        for fr, changed in after.items():
            if changed != before.get(fr) and fr in node.cells:
                yield QuotaChange(at_s, node.cells[fr], changed)
        before, at_s = after, next_change_s(entries, at_s)


def _quotas(now: ClusterQueue | Cohort) -> dict[FlavorResource, Quota]:
    return dict((cluster_queue_spec(now) if isinstance(now, ClusterQueue) else cohort_spec(now)).quotas)
