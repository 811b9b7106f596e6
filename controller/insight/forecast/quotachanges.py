"""Changes of quotas that calendars bring within a forecast: when which cell of the model has which quota.

A quota that a calendar names may be a share of live capacity where no window is open: it grows as GPUs come back from
repair, at once or when the window ends that they come back in.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.insight.forecast.returning import Raise, raises_below_calendars
from controller.objects.queues import ClusterQueue, Cohort, ResourceQuota
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import UNLIMITED, Amount, ClusterQueueName, CohortName, FlavorResource
from controller.scheduler.quota.calendar import CalendarEntry, next_change_s, overlaid
from controller.scheduler.quota.cells import Cell, Quota
from controller.scheduler.quota.queueusage import quantity_of
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.quotaspec import QuotaOwner, cluster_queue_spec, cohort_spec, requoted

_MOST: Final = 60
"""Times of one object at which its quotas change: a month of nights."""


class QuotaChange(NamedTuple):
    """A cell of the model has ``quota`` from ``at_s`` on. ``repaired``: GPUs that are back by then count in it."""

    at_s: float
    cell: Cell
    quota: Quota
    repaired: bool = False


def changes_below(
    engine: Engine, quota: QuotaTree, root: QuotaNode, now_s: float, comebacks: Comebacks = NO_COMEBACKS
) -> tuple[QuotaChange, ...]:
    """The coming changes of all that stands in one tree of the model ``quota``, in their order. ``comebacks``: GPUs
    whose return raises shares that calendars name.
    """
    changes: list[QuotaChange] = []
    raises = raises_below_calendars(engine, comebacks)
    for owner, node in _owners(engine, quota):
        if node.root() is root:
            changes += _changes(engine, owner, node, now_s, raises.get((type(owner), owner.metadata.name), ()))
    return tuple(sorted(changes, key=lambda change: change.at_s))


def _owners(engine: Engine, quota: QuotaTree) -> Iterator[tuple[ClusterQueue | Cohort, QuotaNode]]:
    """The objects with a calendar, without what it changes, each with its node in the model."""
    for owner in engine.state.calendars.owners():
        name = owner.metadata.name
        if isinstance(owner, ClusterQueue):
            if ClusterQueueName(name) in quota.cluster_queues:
                yield owner, quota.cluster_queue(ClusterQueueName(name))
        elif CohortName(name) in quota.cohorts:
            yield owner, quota.cohorts[CohortName(name)]


def _changes(
    engine: Engine, owner: ClusterQueue | Cohort, node: QuotaNode, now_s: float, raises: Sequence[Raise]
) -> Iterator[QuotaChange]:
    entries = engine.state.calendars.of(type(owner), owner.metadata.name).entries
    before = _quotas(overlaid(owner, entries, now_s))
    shares: dict[FlavorResource, Amount] = {}
    back = iter(raises)
    due = next(back, None)
    for at_s in sorted({*_windows(entries, now_s), *(each.at_s for each in raises)}):
        while due is not None and due.at_s <= at_s:
            shares[due.fr], due = due.nominal, next(back, None)
        after = _quotas(overlaid(_raised(owner, shares), entries, at_s))
        for fr, changed in after.items():
            if changed != before.get(fr) and fr in node.cells:
                yield QuotaChange(at_s, node.cells[fr], changed, repaired=fr in shares)
        before = after


def _windows(entries: Sequence[CalendarEntry], now_s: float) -> Iterator[float]:
    """The next times at which a window begins or ends."""
    at_s = next_change_s(entries, now_s)
    for _ in range(_MOST):
        if at_s is None:
            return
        yield at_s
        at_s = next_change_s(entries, at_s)


def _raised(owner: QuotaOwner, shares: Mapping[FlavorResource, Amount]) -> QuotaOwner:
    """The object with these nominal quotas where nothing else is in force."""

    def changed(fr: FlavorResource, quota: ResourceQuota) -> ResourceQuota:
        nominal = shares.get(fr)
        return (
            quota
            if nominal is None
            else msgspec.structs.replace(quota, nominal_quota=quantity_of(fr.resource, min(nominal, UNLIMITED)))
        )

    return requoted(owner, changed) if shares else owner


def _quotas(now: ClusterQueue | Cohort) -> dict[FlavorResource, Quota]:
    return dict((cluster_queue_spec(now) if isinstance(now, ClusterQueue) else cohort_spec(now)).quotas)
