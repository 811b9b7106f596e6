"""What the leader knows of one CapacityRequest, and what is seen of its Workload. Pure.

The state is what was told last, or is about to be: a leader that begins takes it from the status, and asks anew for
what it had not told.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from controller.insight.bargaining.desk import is_preempting
from controller.insight.bargaining.kept import Json, KeptRequest, state_of, status_of
from controller.insight.bargaining.life import Phase, Seen, State, Step, Want
from controller.insight.bargaining.wishes import Wish, name_problem, order_problem, problems, wish_of
from controller.jobs.framework.podsets import SeenWorkload
from controller.objects.capacityrequests import CapacityRequest
from controller.objects.meta import epoch_s
from controller.objects.workload import Workload
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import CAPACITY_OFFER

_PATIENCE_S: Final = 5.0
"""Seconds after which a Workload counts as one that waits though it was not tried: others are before it."""


class File:
    """One request. ``request`` is its newest state.

    ``CapacityController`` alone writes ``kept``, ``state``, ``written``, ``asking``, ``waits``, ``withdrawn``,
    ``most``, ``tries``, ``preempting_s``, ``used`` and ``due_s``.
    """

    def __init__(self, kept: KeptRequest) -> None:
        self.kept = kept
        self.state: State = state_of(kept.request.status)
        status = kept.request.status
        self.written: Json = status_of(self.state, status.workload) if status.state else {}
        """The status that was written last; empty if none was."""
        self.asking: Step | None = None
        """The step that wants offers, until they are found."""
        self.want: Want | None = None
        """The Workload that is to be there."""
        self.waits = False
        """Whether nothing of what ``want`` says is free, so that no Workload was made for it."""
        self.lost = False
        """Whether somebody deleted the Workload that ``want`` says."""
        self.withdrawn: set[str] = set()
        """The uids of Workloads that the controller deletes."""
        self.most: int | None = None
        """The most units that are asked for: fewer than wanted after more were asked for in vain."""
        self.tries = 0
        """How often fewer units were asked for."""
        self.preempting_s = 0.0
        """When victims of its Workload were last seen to hold quota; seconds since 1970."""
        self.used = 0
        """Units that pods run on."""
        self.due_s: float | None = None

    @property
    def request(self) -> CapacityRequest:
        return self.kept.request

    @property
    def uid(self) -> str:
        return self.request.metadata.uid

    @property
    def wish(self) -> Wish:
        return wish_of(self.request, epoch_s(self.request.metadata.creation_timestamp))

    @property
    def problem(self) -> str:
        """The sentence about the first wrong field; empty if all are right."""
        spec = self.request.spec
        found = name_problem(self.request.metadata.name) or next(problems(spec), None)
        found = found or order_problem(spec, epoch_s(self.request.metadata.creation_timestamp))
        return "" if found is None else found.sentence

    def wants_anew(self, want: Want) -> None:
        """Notes that another Workload is wanted."""
        if self.want is None or self.want.offer != want.offer:
            self.forget()
        self.want = want

    def gone(self, uid: str, offer: str) -> None:
        """Notes that one of its Workloads is gone: it is lost unless the controller has deleted it, or another one is
        wanted by now.
        """
        if uid in self.withdrawn:
            self.withdrawn.discard(uid)
        elif self.want is not None and self.want.offer == offer:
            self.lost = True

    def forget(self) -> None:
        self.want, self.most, self.tries, self.waits, self.lost = None, None, 0, False, False


class Own(NamedTuple):
    """A Workload of a request."""

    seen: SeenWorkload

    @property
    def typed(self) -> Workload:
        return self.seen.typed

    @property
    def offer(self) -> str:
        return self.typed.metadata.annotations.get(CAPACITY_OFFER, "")

    @property
    def units(self) -> int:
        return sum(each.count for each in self.typed.spec.pod_sets)

    @property
    def flavor(self) -> str:
        admission = self.typed.status.admission
        given = () if admission is None else admission.pod_set_assignments
        return ", ".join(sorted({flavor for each in given for flavor in each.flavors.values()}))


def current(owns: Sequence[Own]) -> Own | None:
    """The Workload that counts of those of a request: one that holds quota before one that waits, the newest first."""
    return max(owns, key=lambda each: (each.seen.is_reserved, each.seen.age_key), default=None)


def seen_of(file: File, own: Own | None, engine: Engine, now_s: float) -> Seen | None:
    """What became of the request's Workload; None if none was asked for."""
    if own is None:
        if file.want is None:
            return None
        phase = Phase.LOST if file.lost else Phase.WAITS if file.waits else Phase.QUEUED
        return Seen(phase=phase, units=file.want.least, offer=file.want.offer)
    seen = Seen(phase=Phase.QUEUED, units=own.units, offer=own.offer)
    replace = msgspec.structs.replace
    if own.seen.eviction is not None:
        return replace(seen, phase=Phase.LOST, why=own.seen.eviction.message)
    if own.seen.is_finished or own.seen.is_terminating:
        return replace(seen, phase=Phase.LOST)
    if own.seen.is_admitted:
        return replace(seen, phase=Phase.HOLDS, flavor=own.flavor, used=file.used)
    if is_decided(own.typed, engine, now_s, file.preempting_s):
        return replace(seen, phase=Phase.WAITS)
    return replace(seen, preempts=is_preempting(engine, WorkloadKey(own.typed.key), now_s))


def is_decided(workload: Workload, engine: Engine, now_s: float, waited_since_s: float = 0.0) -> bool:
    """Whether a Workload without quota stays without it for now: one whose victims are on their way out does not,
    before it has been tried without them. ``waited_since_s``: when they were last seen to hold quota.
    """
    if workload.status.admission is not None:
        return False
    key = WorkloadKey(workload.key)
    pending = engine.state.queues.get(key)
    if pending is None or pending.at is None:
        return pending is not None
    if is_preempting(engine, key, now_s):
        return False
    found = pending.at.found_for(pending)
    if found is not None:
        return found.reason is not PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
    waited_s = now_s - max(waited_since_s, epoch_s(workload.metadata.creation_timestamp))
    return engine.settled(now_s) or waited_s > _PATIENCE_S
