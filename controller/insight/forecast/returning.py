"""What a forecast makes of GPUs in repair: quota that follows capacity grows when they are back, and nodes offer them.

Quota that is a share of capacity is put at what it will be, and what is not there yet is held by nobody until then.
A share that a calendar of its owner names counts only while no window replaces it: its growth is a change at a time,
as the windows are (``quotachanges``).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from controller.insight.forecast.repairtimes import Comeback, Comebacks
from controller.messages import forecasts as words
from controller.messages.spans import duration
from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import (
    UNLIMITED,
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ResourceName,
)
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.capacity import Capacity
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.state.podsizes import PodSizeNoFit
from inventory.words.catalog import plural

SOONEST_S: Final = 60.0
"""No start that waits for a repair is said to be nearer: a forecast to the second there is none."""


class Growth(NamedTuple):
    """``amount`` of quota that ``node`` has from ``at_s`` on; it is in the node's quota already."""

    node: QuotaNode
    fr: FlavorResource
    amount: Amount
    at_s: float


class Raise(NamedTuple):
    """The share ``fr`` is ``nominal`` from ``at_s`` on, ``more`` than before."""

    at_s: float
    fr: FlavorResource
    nominal: Amount
    more: Amount


def grown(engine: Engine, quota: QuotaTree, comebacks: Comebacks) -> list[Growth]:
    """Raises the quotas in ``quota``, a copy, that are shares of capacity, to what they are once all GPUs are back."""
    if engine.shares is None or not comebacks.gpus:
        return []
    flavors = [_flavors_of(engine, each) for each in comebacks.gpus]
    growths: list[Growth] = []
    for owner, shares in engine.shares.given():
        name, is_queue = owner.metadata.name, isinstance(owner, ClusterQueue)
        node = quota.cluster_queues.get(ClusterQueueName(name)) if is_queue else quota.cohorts.get(CohortName(name))
        if node is None or node.spec is None:
            continue
        by_calendar = _by_calendar(engine, owner)
        quotas, grows = dict(node.spec.quotas), list[Growth]()
        for raised in _raises(engine.shares.capacity, shares, comebacks, flavors):
            fr = raised.fr
            if fr not in by_calendar and fr in quotas and quotas[fr].nominal < UNLIMITED:
                quotas[fr] = msgspec.structs.replace(quotas[fr], nominal=quotas[fr].nominal + raised.more)
                grows.append(Growth(node, fr, raised.more, raised.at_s))
        if grows:
            spec = msgspec.structs.replace(node.spec, quotas=quotas)
            if is_queue:
                quota.set_cluster_queue(ClusterQueueName(name), spec)
            else:
                quota.set_cohort(CohortName(name), spec)
            growths += grows
    return growths


def raises_below_calendars(engine: Engine, comebacks: Comebacks) -> dict[tuple[type, str], tuple[Raise, ...]]:
    """The shares that calendars name and that grow as GPUs come back, by kind and name of the owner, in the order of
    time.
    """
    if engine.shares is None or not comebacks.gpus:
        return {}
    flavors = [_flavors_of(engine, each) for each in comebacks.gpus]
    by_owner: dict[tuple[type, str], tuple[Raise, ...]] = {}
    for owner, shares in engine.shares.given():
        by_calendar = _by_calendar(engine, owner)
        named = {fr: share for fr, share in shares.items() if fr in by_calendar}
        raises = sorted(_raises(engine.shares.capacity, named, comebacks, flavors))
        if raises:
            by_owner[type(owner), owner.metadata.name] = tuple(raises)
    return by_owner


def _raises(
    capacity: Capacity,
    shares: Mapping[FlavorResource, Fraction],
    comebacks: Comebacks,
    flavors: Sequence[frozenset[FlavorName]],
) -> Iterator[Raise]:
    """``flavors``: of each GPU that comes back. Shares are rounded as ``capacity.resolved`` rounds them."""
    for fr, share in shares.items():
        there = capacity.of(fr)
        for gpu, selecting in zip(comebacks.gpus, flavors, strict=True):
            amount = gpu.adds.get(fr.resource, 0) if fr.flavor in selecting else 0
            more = int((there + amount) * share) - int(there * share)
            there += amount
            if more:
                yield Raise(gpu.at_s, fr, int(there * share), more)


def _by_calendar(engine: Engine, owner: ClusterQueue | Cohort) -> frozenset[FlavorResource]:
    """The quotas that the owner's calendar changes at some time."""
    entries = engine.state.calendars.of(type(owner), owner.metadata.name).entries
    return frozenset(
        fr for entry in entries for limits in (entry.nominal, entry.borrowing, entry.lending) for fr in limits
    )


def comes_back(growing: Mapping[FlavorResource, Amount], record: DecisionRecord) -> bool:
    """Whether a workload that exceeds all quota of its tree does so only until GPUs are back. ``growing``: the quota
    that comes back to the tree.
    """
    missing = record.missing() if record.reason is PendingReason.EXCEEDS_MAX_QUOTA else None
    return missing is not None and all(
        each.needed <= each.potential + growing.get(FlavorResource(missing.flavor, each.resource), 0)
        for each in missing.shortfalls
    )


def first_back_s(engine: Engine, pending: PendingWorkload, comebacks: Comebacks) -> float | None:
    """When the first GPU is back that a workload asks for, on a node of its queue's flavors. None for none."""
    queue = engine.queue_of(pending.local_queue)
    if queue is None:
        return None
    asked = {name for pod_set in pending.info.pod_sets for name in pod_set.requests}
    flavors = {fr.flavor for fr in queue.flavor_resources}
    for each in comebacks.gpus:
        if not asked.isdisjoint(each.adds) and not flavors.isdisjoint(_flavors_of(engine, each)):
            return each.at_s
    return None


def fits_again_s(engine: Engine, missing: PodSizeNoFit, comebacks: Comebacks) -> float | None:
    """When a node is large enough for the pods that no node has room for now; None where no repair makes one so."""
    offered: dict[str, Counter[ResourceName]] = {}
    for gpu in comebacks.gpus:
        node = offered.setdefault(gpu.node, Counter(gpu.beside))
        node.update(gpu.adds)
        fits = all(node[name] >= amount for name, amount in missing.asked.items())
        if fits and not _flavors_of(engine, gpu).isdisjoint(missing.flavors):
            return gpu.at_s
    return None


def assumed(comebacks: Comebacks) -> str:
    """What a forecast assumes of GPUs in repair, as a sentence."""
    lasts, gpus = duration(comebacks.typical_s), plural(len(comebacks.gpus), "GPU")
    if not comebacks.seen:
        return words.repairs_assumed(gpus, lasts)
    return words.repairs_last(gpus, lasts, plural(comebacks.seen, "repair"))


def _flavors_of(engine: Engine, comeback: Comeback) -> frozenset[FlavorName]:
    known = engine.state.cluster.flavors.items()
    return frozenset(name for name, flavor in known if flavor.spec.selects(comeback.labels))
