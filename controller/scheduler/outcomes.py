"""Turns decided entries into decisions, and applies them to the engine's own state from that moment on.

As in Kueue's scheduler, an admitted workload is assumed: its quota is charged before its status is written. Victims are
reported before the workloads that wait for them, and every other workload is requeued with the reason for which it
lost. Invariant: an entry leads to at most one decision about its own workload, and ``Engine.failed`` takes back what a
decision did whose write was refused. A decision costs what its own workload and its victims hold; it looks at no other.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from controller.messages import statuses
from controller.objects.alike import one_dict
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.consolidation.emptying import Emptied
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.decisions import (
    Admitted,
    Decision,
    Evicted,
    Pending,
    SecondPassFailed,
    SliceReplaced,
)
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.sentences import loses, moves, told_to
from controller.scheduler.decisions.stories import Stories
from controller.scheduler.flavors.assignment import held_of
from controller.scheduler.flavors.spot import SpotWords
from controller.scheduler.kueue.secondpass import Awaits, awaited, placed_holder, with_places
from controller.scheduler.model.resources import Usage, WorkloadKey
from controller.scheduler.model.workload import (
    LOWEST_PRIORITY,
    PodSetRequests,
    WorkloadInfo,
    effective_priority,
    is_growth,
    usage_of,
)
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import RequeueReason
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservations import decided
from controller.scheduler.state.enginestate import EngineState, UnwrittenDecisions
from controller.scheduler.state.minimums import without_minimum
from controller.scheduler.state.workloadevents import requests_of


class Outcomes:
    def __init__(self, state: EngineState, stories: Stories) -> None:
        self._state = state
        self._stories = stories
        self._keeps_progress = state.config.gates.on("FlavorFungibilityPreserveScanProgress")
        self._whole_searches = state.config.extensions.whole_searches
        self._spots = SpotWords(state.cluster) if state.config.extensions.spot_words else None

    def of(self, entries: Iterable[Entry], now_s: float) -> list[Decision]:
        """Evictions and admissions in the order in which they were decided, then the workloads that stay pending."""
        made: list[Decision] = []
        waiting: list[Decision] = []
        state, tell = self._state, self._stories.tell
        placed: dict[WorkloadKey, Admitted] = {}
        for entry in entries:
            record = entry.record(now_s)
            before = tell(record)
            if (entry.rule is Rule.PREEMPTS or record.workload in state.reservations) and not entry.mirrored:
                state.carry_out(state.reservations.apply(decided(entry, state.cluster)))
            if entry.second_pass:
                if entry.key in state.unwritten.evictions:
                    # An entry that was decided on earlier has preempted the workload.
                    state.notes.drop_pass(entry.key)
                elif entry.rule is Rule.NOT_PLACED and (
                    entry.key in state.notes.awaiting or entry.key in state.notes.coming
                ):
                    state.notes.pass_later(entry.key, now_s)  # its nodes are to come: nothing has failed
                else:
                    made.append(passed := self._second_pass(entry, record))
                    if isinstance(passed, Admitted):
                        placed[entry.key] = passed
            elif entry.rule is Rule.FITS:
                made.append(self._admit(entry, record))
                if entry.incoming.replaces is not None:
                    made.append(SliceReplaced(holder=entry.incoming.replaces, by=entry.key, record=record))
            else:
                if entry.targets:
                    made += self._evict(entry, record, placed)
                again = before is not None and before.rule is record.rule
                waiting.append(self._wait(entry, record, again=again))
        return made + waiting

    # -- admission ---------------------------------------------------------------------------------------------------

    def _admit(self, entry: Entry, record: DecisionRecord) -> Admitted:
        state, incoming = self._state, entry.incoming
        holder, key = _holder(entry, record.at_s), record.workload
        if is_growth(incoming.info.workload):
            priority = effective_priority(incoming.info.workload, state.config.gates, holds=True)
            holder = msgspec.structs.replace(holder, priority=priority)
        queue = incoming.queue
        checks = status.checks_for(queue.object, [fr.flavor for fr in holder.usage])
        admitted = Admitted(
            workload=incoming.info.workload,
            holder=holder,
            checks=checks,
            record=record,
            gates=state.config.gates,
            replaces=incoming.replaces,
        )
        state.dequeue(key)
        state.moves.served(key)
        if incoming.replaces is not None:
            state.cluster.remove_holder(incoming.replaces.key)
            state.unwritten.end(incoming.replaces.key)
            state.notes.drop_pass(incoming.replaces.key)
        state.cluster.add_holder(holder, charged=entry.charged)
        state.unwritten.admit(key, admitted)
        if any(pod_set.coming is not None for pod_set in entry.assignment.pod_sets):
            state.notes.set_coming(key, coming=True)
        if queue.policies.usage_based_admission:
            state.usage.penalise(incoming.local_queue, key, requests_of(holder))
        for above in state.workloads.above.get(key, ()):
            state.wake_queue_of(above)
        self._wake_behind(holder)
        state.touch()
        return admitted

    def _wake_behind(self, holder: Holder) -> None:
        """What this workload holds on demand may open spot nodes to those behind it, where its queue has a floor."""
        queue = self._state.cluster.queue(holder.cluster_queue)
        if self._spots is not None and self._spots.has_floor(holder.local_queue, queue):
            self._state.queues.wake(queue.name)

    def _second_pass(self, entry: Entry, record: DecisionRecord) -> Decision:
        state, holder = self._state, entry.holder
        if holder is None or holder.info.workload.status.admission is None:
            raise ValueError(f"{entry.key} holds no quota: there is no second pass for it")
        if entry.rule is Rule.NOT_PLACED:
            state.notes.pass_later(entry.key, record.at_s)
            return SecondPassFailed(holder=holder, record=record)
        state.notes.drop_pass(entry.key)
        if entry.rule is Rule.NODE_LOST:
            return self._lost(holder, record)
        placed = placed_holder(holder, entry.places)
        state.cluster.replace_holder(placed)
        state.notes.set_coming(entry.key, coming=False)
        state.notes.note_moved(placed)
        self._wake_behind(placed)
        state.touch()
        flavors = {fr.flavor for fr in holder.usage}
        return Admitted(
            workload=holder.info.workload,
            holder=placed,
            placed=with_places(holder.info.workload.status.admission, entry.places, state.config.gates),
            checks=status.checks_for(entry.incoming.queue.object, flavors),
            record=record,
            gates=state.config.gates,
        )

    def _lost(self, holder: Holder, record: DecisionRecord) -> Evicted:
        """Evict the holder: some of its pods have no node any more, and no other node takes them."""
        nodes = ", ".join(node.name for node in holder.info.workload.status.unhealthy_nodes)
        return self._gone(holder, reasons.NODE_FAILURES, f"Lost {nodes}; {record.detail}", record)

    # -- preemption --------------------------------------------------------------------------------------------------

    def _evict(
        self, entry: Entry, record: DecisionRecord, placed: Mapping[WorkloadKey, Admitted]
    ) -> Iterator[Decision]:
        """Evict the entry's victims, except those that are being evicted already. ``placed``: workloads that got new
        places earlier in this cycle, which they have from then on.
        """
        state = self._state
        if entry.rule is Rule.PREEMPTS:
            state.preemption.history.evicted(entry.incoming, entry.targets)
        by = _holder(entry, record.at_s)
        for target in (_as_placed(target, placed) for target in entry.targets):
            if target.holder.evicted:
                continue
            self._tell(target.holder)
            if target.move is not None:
                state.moves.moved(target.holder.key, entry.key, record.at_s)
            yield _eviction(entry, target, by, record)

    def freed(self, node: Emptied, now_s: float) -> list[Decision]:
        """Evict the workloads of a node that is to be free: each has been found another place."""
        made: list[Decision] = []
        why = PreemptionReason.CONSOLIDATION
        for holder, move, _ in node.moves:
            self._tell(holder)
            self._state.moves.seen(holder.key, now_s)
            message = statuses.moved_to_free(node.node, moves(move))
            made.append(
                Evicted(
                    holder=holder,
                    reason=reasons.PREEMPTED,
                    preemption=why,
                    by=None,
                    message=message,
                    after=evicted(holder.info.workload, reasons.PREEMPTED, message, now_s=now_s, preemption=why),
                    record=_record(holder, Rule.FREES_NODE, now_s, node.node),
                    move=move,
                )
            )
        return made

    def below_minimum(self, now_s: float) -> Iterator[Evicted]:
        """Evict pods of elastic gangs whose minimum leaves, or has left, for whatever cause: they leave with it."""
        # A workload that leaves may be the minimum of others: the search is repeated until it finds none.
        while found := tuple(without_minimum(self._state)):
            for holder, minimum in found:
                yield self._without(holder, minimum, now_s)

    def _without(self, holder: Holder, minimum: WorkloadKey, now_s: float) -> Evicted:
        record = _record(holder, Rule.BELOW_MINIMUM, now_s, minimum)
        return self._gone(holder, reasons.BELOW_MINIMUM, statuses.minimum_gone(minimum), record)

    def beyond_quota(self, now_s: float) -> Iterator[Evicted]:
        """Evict workloads whose admission an earlier leader wrote, and whose quota this one has given away: the write
        came late, or was taken for lost.
        """
        state = self._state
        for key in state.notes.take_undecided():
            holder = state.cluster.holders[key]
            queue = state.cluster.queues[holder.cluster_queue]
            if not holder.evicted and queue.node.is_exceeded(holder.usage):
                record = _record(holder, Rule.NO_LONGER_FITS, now_s)
                yield self._gone(holder, reasons.QUOTA_TAKEN, statuses.quota_taken(queue.name), record)

    def _gone(self, holder: Holder, reason: str, message: str, record: DecisionRecord) -> Evicted:
        """Evict the holder for a reason other than another workload."""
        self._tell(holder)
        return Evicted(
            holder=holder,
            reason=reason,
            preemption=None,
            by=None,
            message=message,
            after=evicted(holder.info.workload, reason, message, now_s=record.at_s),
            record=record,
        )

    def _tell(self, holder: Holder) -> None:
        told = msgspec.structs.replace(holder, evicted=True)
        self._state.cluster.replace_holder(told)
        self._state.unwritten.evict(told.key)
        self._state.touch()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, entry: Entry, record: DecisionRecord, *, again: bool) -> Decision:
        """Requeue the workload of an entry. ``again``: its last try had the same result."""
        pending = entry.pending
        if pending is None:
            raise ValueError(f"{entry.key} is not pending")
        if entry.rule in _FLAVOR_STANDS or (entry.rule in _OVERTAKEN and not self._keeps_progress):
            pending.bookmark = None
        elif entry.rule in _OVERTAKEN and self._whole_searches and pending.bookmark is not None:
            pending.bookmark = msgspec.structs.replace(pending.bookmark, overtaken=True)
        # If a variant that loses again were requeued at the head, it would stay there for as long as the other runs.
        reason = RequeueReason.GENERIC if again and entry.rule in _LOSES else entry.requeue
        if reason is RequeueReason.NO_FIT and self._state.cluster.placement.overruns(pending.info.workload):
            reason = RequeueReason.NO_TIME
        self._state.queues.requeue(pending, reason, record.at_s, record)
        return Pending(info=pending.info, record=record, gates=self._state.config.gates, preemption_gated=entry.gated)

    def replaced_slices(self, now_s: float) -> Iterator[Decision]:
        """End slices that still hold quota beside the ones that replaced them: their end was decided and not
        written.
        """
        state = self._state
        for by, old in tuple(state.notes.replaced.items()):
            state.notes.drop_replaced(by)
            holder = state.cluster.remove_holder(old)
            if holder is not None:
                state.unwritten.end(old)
                state.notes.drop_pass(old)
                state.released(holder)
                record = DecisionRecord(at_s=now_s, workload=by, cluster_queue=holder.cluster_queue, rule=Rule.FITS)
                yield SliceReplaced(holder=holder, by=by, record=record)

    # -- an engine made anew -----------------------------------------------------------------------------------------

    def adopt(self, unwritten: UnwrittenDecisions) -> None:
        """Take over decisions that are being written: they count although no object shows them yet."""
        state = self._state
        for key in unwritten.ended:
            if state.cluster.remove_holder(key) is not None:
                state.unwritten.end(key)
        for key in unwritten.evictions:
            holder = state.cluster.holders.get(key)
            if holder is not None and not holder.evicted:
                state.unwritten.evict(key)
                state.cluster.replace_holder(msgspec.structs.replace(holder, evicted=True))
        for key, admitted in unwritten.admissions.items():
            queue = state.cluster.queues.get(admitted.holder.cluster_queue)
            # A workload that is not pending any more has a newer object, which says what it holds now.
            if queue is None or state.dequeue(key) is None:
                continue
            state.cluster.add_holder(admitted.holder)
            state.unwritten.admit(key, admitted)
            if awaited(admitted.status(), admitted.checks, state.cluster.checks) is Awaits.COMING:
                state.notes.set_coming(key, coming=state.config.extensions.coming_nodes)
            if queue.policies.usage_based_admission:
                state.usage.penalise(admitted.holder.local_queue, key, requests_of(admitted.holder))
        state.touch()

    # -- failures ----------------------------------------------------------------------------------------------------

    def failed(self, decision: Decision, now_s: float, detail: str) -> bool:
        """Take back a decision whose write was refused. Returns whether there was anything left to take back."""
        if isinstance(decision, Admitted) and not decision.second_pass:
            return self._unadmit(decision, now_s, detail)
        if isinstance(decision, Evicted):
            if decision.by is not None:
                self._state.preemption.history.taken_back(decision.by.key, decision.key)
            if decision.move is not None:
                by = decision.by.key if decision.by is not None else None
                self._state.moves.taken_back(decision.key, by, decision.record.at_s)
            untold = self._untell(decision.key)
            if untold and decision.reason == reasons.NODE_FAILURES:
                self._state.notes.pass_soon(decision.key, now_s)
            return untold
        if isinstance(decision, SliceReplaced):
            return self._unend(decision)
        return False

    def _unend(self, decision: SliceReplaced) -> bool:
        """Let a slice count again whose end was not written. Its successor runs already, so its end is decided anew."""
        state, key = self._state, decision.key
        if key not in state.unwritten.ended or decision.by not in state.cluster.holders:
            return False
        state.unwritten.drop_end(key)
        state.cluster.add_holder(decision.holder)
        state.notes.set_replaced(decision.by, key)
        state.touch()
        return True

    def _unadmit(self, decision: Admitted, now_s: float, detail: str) -> bool:
        state, key = self._state, decision.key
        if state.unwritten.admissions.get(key) is not decision:
            return False
        state.unwritten.drop_admission(key)
        state.cluster.remove_holder(key)
        state.notes.set_coming(key, coming=False)
        state.usage.pardon(decision.holder.local_queue, key)
        replaced = decision.replaces
        if (
            replaced is not None
            and replaced.key in state.workloads.objects
            and replaced.key not in state.cluster.holders
        ):
            state.unwritten.drop_end(replaced.key)
            state.cluster.add_holder(replaced)
        self._stories.tell(msgspec.structs.replace(decision.record, at_s=now_s, rule=Rule.WRITE_FAILED, detail=detail))
        state.released(decision.holder)
        return True

    def _untell(self, key: WorkloadKey) -> bool:
        state = self._state
        holder = state.cluster.holders.get(key)
        if key not in state.unwritten.evictions or holder is None:
            return False
        state.unwritten.drop_eviction(key)
        state.cluster.replace_holder(msgspec.structs.replace(holder, evicted=False))
        state.touch()
        return True


# The flavor is found, and only its time has not come: the next try begins with all flavors.
_FLAVOR_STANDS = frozenset(
    {Rule.PREEMPTS, Rule.MIGRATES, Rule.FITS_AFTER_PREEMPTION, Rule.PODS_NOT_READY, Rule.SISTERS}
)
# Others of the same cycle were in the way, and the flavor itself was not judged.
_OVERTAKEN = frozenset({Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS})
_LOSES = frozenset({Rule.BETTER_VARIANT_ADMITTED, Rule.VARIANT_NOT_ACCEPTABLE})


def _holder(entry: Entry, now_s: float) -> Holder:
    """The holder that the assignment makes of the workload; for a slice with all it holds, not only the increase."""
    incoming, assignment = entry.incoming, entry.assignment
    info, queue = incoming.info, incoming.queue
    sets = assignment.held
    usage: Usage = assignment.usage
    if sets is None:
        sets = tuple(map(held_of, assignment.pod_sets))
        usage = usage_of(sets).assigned
    if info.claims is not None:
        once = {pod_set.name: pod_set for pod_set in info.pod_sets}
        sets = tuple(_of_itself(held, once[held.name]) for held in sets)
    return Holder(
        info=WorkloadInfo(
            workload=info.workload, cluster_queue=queue.name, pod_sets=sets, key=info.key, claims=info.claims
        ),
        cluster_queue=queue.name,
        local_queue=incoming.local_queue,
        usage=one_dict(usage),
        priority=incoming.priority,
        # The same as the condition will say: what the watch brings back must change nothing.
        reserved_at_s=float(int(now_s)),
        queued_at_s=incoming.queued_at_s,
    )


def _record(holder: Holder, rule: Rule, now_s: float, detail: str = "") -> DecisionRecord:
    """The record of an eviction for no other workload."""
    return DecisionRecord(at_s=now_s, workload=holder.key, cluster_queue=holder.cluster_queue, rule=rule, detail=detail)


def _of_itself(held: PodSetRequests, pending: PodSetRequests) -> PodSetRequests:
    """The requests without shared claims: the usage has these as long as the workload is charged for them."""
    if not pending.once:
        return held
    own = msgspec.structs.replace(held, once=pending.once).without_once()
    return msgspec.structs.replace(held, requests=own)


def _as_placed(target: Target, placed: Mapping[WorkloadKey, Admitted]) -> Target:
    passed = placed.get(target.holder.key)
    if passed is None:
        return target
    info = msgspec.structs.replace(passed.holder.info, workload=passed.status())
    return target._replace(holder=msgspec.structs.replace(passed.holder, info=info))


def _eviction(entry: Entry, target: Target, by: Holder, record: DecisionRecord) -> Evicted:
    migrates = entry.rule is Rule.MIGRATES
    reason = reasons.FLAVOR_MIGRATION if migrates else reasons.PREEMPTED
    rule: PreemptionReason | None = None if migrates else target.reason
    message = _message(entry, target)
    return Evicted(
        holder=target.holder,
        reason=reason,
        preemption=rule,
        by=by,
        message=message,
        after=evicted(target.holder.info.workload, reason, message, now_s=record.at_s, preemption=rule),
        record=record,
        move=target.move,
    )


_WHY = {
    PreemptionReason.IN_CLUSTER_QUEUE: "of the same ClusterQueue ({rank})",
    PreemptionReason.IN_COHORT_RECLAMATION: "of ClusterQueue {queue}, which reclaims quota that it lent",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "of ClusterQueue {queue}, which has the lower share of the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "of ClusterQueue {queue}, which borrows for it ({rank})",
    PreemptionReason.CONSOLIDATION: "of ClusterQueue {queue}, which fits once this one has moved",
}

_TAKES = "of Queue {queue}, which takes what is its part"


def _message(entry: Entry, target: Target) -> str:
    metadata = entry.incoming.info.workload.metadata
    preemptor = f"{told_to(target.holder.key, entry.key, entry.incoming.queue.name)} (UID {metadata.uid or 'unknown'})"
    if entry.rule is Rule.MIGRATES:
        return statuses.migrated(preemptor)
    ours, theirs = entry.incoming.priority, target.holder.priority
    below = theirs if theirs > LOWEST_PRIORITY else "the lowest, which all above a minimum have"
    rank = f"priority {ours} over {below}" if ours > theirs else f"equal priority {ours}, queued earlier"
    of_others = entry.mirrored and target.reason is PreemptionReason.IN_COHORT_RECLAMATION
    why = (_TAKES if of_others else _WHY[target.reason]).format(queue=entry.incoming.queue.name, rank=rank)
    where = f" {moves(target.move)}" if target.move is not None else ""
    return statuses.preempted(preemptor, f"{why}{where}{loses(target)}")


def slice_ended(decision: Decision) -> WorkloadKey | None:
    """The elastic slice that the decision ends; None for none."""
    if isinstance(decision, SliceReplaced):
        return WorkloadKey(decision.key)
    return decision.replaces.key if isinstance(decision, Admitted) and decision.replaces is not None else None
