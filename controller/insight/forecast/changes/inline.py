"""Which workloads come first when quota gets free: those that stand before a workload in its queue, by the sums of one
flavor and resource.
"""

from collections.abc import Collection, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from controller.insight.forecast.changes.never import HOPELESS, on_free_quota
from controller.scheduler.engine import Engine, QuotaHeld
from controller.scheduler.model.resources import Amount, FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.queues.found import last_found
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.queuestate import QueueState

_MOST: Final = 100
"""Workloads before one that are considered: further behind, too much happens to name whose end would do."""


class Ahead(NamedTuple):
    """A workload that stands before. ``flavor``: the one that it waits for; None where that is not known. ``stuck``: it
    never starts as things are.
    """

    key: WorkloadKey
    needs: dict[ResourceName, Amount]
    flavor: FlavorName | None
    stuck: bool


class Turn(NamedTuple):
    """How a workload comes to its turn. ``ended``: the holders whose ends let it in, once ``first`` have started.
    ``has_to_end``: ``first`` take all that gets free, so the workload starts when they have ended as well.
    """

    ended: tuple[QuotaHeld, ...]
    first: tuple[WorkloadKey, ...] = ()
    has_to_end: bool = False


def in_line(engine: Engine, pending: PendingWorkload, queue: QueueState) -> list[Ahead] | None:
    """The workloads that are tried before this one in its queue, in order. None if it is too far behind."""
    queues = engine.state.queues
    others = (each for each in (*queues.active(queue.name), *queues.parked(queue.name)) if each.key != pending.key)
    before = takewhile(lambda each: each is not pending, queues.in_order([*others, pending]))
    ahead = list(islice(before, _MOST + 1))
    if len(ahead) > _MOST:
        return None
    by_shape: dict[str, bool] = {}
    return [_ahead(engine, each, by_shape) for each in ahead]


def _ahead(engine: Engine, pending: PendingWorkload, stuck: dict[str, bool]) -> Ahead:
    """A pending workload as ``Ahead``. ``stuck``: a cache by shape of whether its workloads never start."""
    needs: dict[ResourceName, Amount] = {}
    for pod_set in pending.info.pod_sets:
        for name, amount in pod_set.requests.items():
            needs[name] = needs.get(name, 0) + amount
    record = last_found(engine.stories, pending)
    missing = record.missing() if record is not None else None
    flavor = missing.flavor if missing is not None else None
    if record is not None and pending.shape not in stuck:
        stuck[pending.shape] = on_free_quota(engine, pending, record).reason in HOPELESS
    return Ahead(pending.key, needs, flavor, record is not None and stuck[pending.shape])


class Line:
    """A workload that needs an amount, and those before it. ``strict``: no workload passes one that does not fit."""

    def __init__(
        self, fr: FlavorResource, free: Amount, needed: Amount, ahead: Sequence[Ahead], *, strict: bool
    ) -> None:
        self._free = free
        self._needed = needed
        self._strict = strict
        self._blocked = strict and any(each.stuck for each in ahead)
        self._ahead = [
            (each.key, need)
            for each in ahead
            if not each.stuck and each.flavor in (None, fr.flavor) and (need := each.needs.get(fr.resource, 0))
        ]

    def turn(self, holders: Sequence[QuotaHeld]) -> Turn | None:
        """The turn of the workload. ``holders``: by their likely ends. None if their ends do not bring it to its
        turn.
        """
        if self._blocked:
            return None
        ended: list[QuotaHeld] = []
        for held in holders:
            ended.append(held)
            left, first = self._started(sum(each.amount for each in ended))
            if self._needed <= left:
                return self._least(ended, first)
        return self._after(sum(each.amount for each in ended))

    def _after(self, freed: Amount) -> Turn | None:
        """The turn of a workload if those before it take all that gets free: they start and end, as many at a time as
        fit, until it fits beside the others. None if it never does.
        """
        gone: dict[WorkloadKey, None] = {}
        while True:
            left, first = self._started(freed, gone)
            if self._needed <= left:
                return Turn((), tuple(gone), has_to_end=True) if gone else None
            if not first:
                return None
            gone |= dict.fromkeys(first)

    def _started(self, freed: Amount, gone: Collection[WorkloadKey] = ()) -> tuple[Amount, list[WorkloadKey]]:
        """The amount that is left once all before it that fit have started, except for those that are ``gone``, and
        which these are; zero where a strict queue stands still.
        """
        left, first = self._free + freed, list[WorkloadKey]()
        for key, need in self._ahead:
            if key in gone:
                continue
            if need <= left:
                left -= need
                first.append(key)
            elif self._strict:
                return 0, first
        return left, first

    def _least(self, ended: list[QuotaHeld], first: list[WorkloadKey]) -> Turn:
        """The turn without the ends that the last ones make superfluous."""
        for held in sorted(ended, key=lambda held: held.amount):
            fewer = [each for each in ended if each is not held]
            left, started = self._started(sum(each.amount for each in fewer))
            if self._needed <= left and started == first:
                ended = fewer
        return Turn(tuple(ended), tuple(first))
