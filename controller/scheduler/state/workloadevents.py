"""Takes in Workload objects: a workload becomes pending, becomes a holder, or leaves."""

from collections.abc import Iterable
from typing import Final

import msgspec

from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.placeencoding import TopologyEncodingError
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import checks_for, checks_ready
from controller.scheduler.flavors.spot import words_of
from controller.scheduler.kueue.secondpass import Awaits, awaited, wants_second_pass
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo, sisters_of
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservations import WakeAll
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.intake import Shapes, WorkloadPhase, holder_of, local_queue_of, replaced_slice, standing
from inventory.api.names import MOVED

_NO_LIMITS = LimitSummary()


_NO_SIGNS: Final = str.maketrans("/.", "|_")


class WorkloadEvents:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._shapes = Shapes()

    def put(self, workload: Workload, now_s: float) -> None:
        """Store a new or changed workload. An object that is known already changes nothing."""
        state, key = self._state, WorkloadKey(workload.key)
        where = standing(workload, state.config)
        if where is WorkloadPhase.FINISHED:
            self.remove(key)
            return
        known = state.workloads.objects.get(key)
        if known is not None and known.spec.queue_name != workload.spec.queue_name:
            state.usage.pardon(local_queue_of(known), key)
        unchanged = known is not None and known.spec == workload.spec
        if not unchanged:
            self._note_outside(workload)
            state.device_claims.tell(key, workload)
        elif known is not None:
            # Conditions change; an equal spec is kept in memory once.
            workload = msgspec.structs.replace(workload, spec=known.spec)
        state.workloads.tell(key, workload)
        if state.config.extensions.consolidation is not None:
            self._note_move(key, workload)
        decided = key in state.unwritten.admissions
        if decided:
            if where is WorkloadPhase.PENDING:
                # The object is the one from before the admission that is being written.
                return
            state.unwritten.drop_admission(key)
        if where is not WorkloadPhase.HOLDS:
            state.unwritten.drop_end(key)
        if where is WorkloadPhase.HOLDS:
            waited = not decided and state.queues.get(key) is not None
            self._hold(key, workload, now_s)
            if waited and key in state.cluster.holders:
                state.notes.note_undecided(key)
        elif where is WorkloadPhase.PENDING:
            self._queue(key, workload, now_s)
        else:
            self._release(key)
            self._unqueue(key)

    def _note_move(self, key: WorkloadKey, workload: Workload) -> None:
        """Note a move that an earlier leader may have made."""
        moved = find_condition(workload.status.conditions, MOVED)
        if moved is not None and moved.status == "True" and moved.last_transition_time is not None:
            self._state.moves.seen(key, epoch_s(moved.last_transition_time))

    def remove(self, key: WorkloadKey) -> None:
        """Remove a workload that has finished or is gone."""
        state = self._state
        state.moves.served(key)
        known = state.workloads.forget(key)
        for sister in state.workloads.together.get(sisters_of(known) or "", ()) if known is not None else ():
            state.wake_queue_of(sister)  # without this one the others may fit
        state.device_claims.forget(key)
        if known is not None:
            state.usage.pardon(local_queue_of(known), key)
        if known is not None and state.config.extensions.no_eviction_cycles:
            self._outside(known)
            state.preemption.history.forget(key)
        state.unwritten.drop_admission(key)
        state.unwritten.drop_end(key)
        self._release(key)
        self._unqueue(key)

    def refill(self, now_s: float, *, namespace: str | None = None) -> None:
        """Make pending workloads anew after a change of defaults, in one namespace or in all."""
        self._shapes.forget()
        for pending in list(self._state.queues):
            if namespace is None or pending.info.workload.metadata.namespace == namespace:
                self._queue(pending.key, self._state.workloads.objects[pending.key], now_s)

    def recount(self, keys: Iterable[WorkloadKey], now_s: float) -> None:
        """Make these workloads anew, as far as they are pending: their claims count differently."""
        state = self._state
        for key in keys:
            if state.queues.get(key) is not None:
                self._queue(key, state.workloads.objects[key], now_s)

    def settle_claims(self, now_s: float) -> None:
        """Charge claims that several workloads share to the first of them; called before anything is decided."""
        state = self._state
        eased, recount = state.device_claims.settle()
        for holder in eased:
            state.released(holder)
        self.recount(sorted(recount), now_s)

    def adopt(self, name: ClusterQueueName, now_s: float) -> None:
        """Make holders of the workloads that have quota in a ClusterQueue that exists now."""
        for key, workload in self._state.workloads.adopted(name):
            self._hold(key, workload, now_s)

    def strand(self, name: ClusterQueueName, gone: tuple[Holder, ...]) -> None:
        """Strand the holders of a ClusterQueue that went: they hold nothing until it is back."""
        for holder in gone:
            self._state.workloads.strand(name, holder.key)
            self._state.notes.forget(holder.key)
            self._state.unwritten.drop_eviction(holder.key)

    # -- holders -----------------------------------------------------------------------------------------------------

    def _hold(self, key: WorkloadKey, workload: Workload, now_s: float) -> None:
        state, cluster = self._state, self._state.cluster
        if key in state.unwritten.ended:
            return
        state.dequeue(key)
        known = cluster.holders.get(key)
        holder = state.device_claims.carried(_holder(workload, state, known))
        state.workloads.unstrand(key)
        if key in state.unwritten.evictions and not holder.evicted:
            holder = msgspec.structs.replace(holder, evicted=True)
        else:
            state.unwritten.drop_eviction(key)
        if holder.cluster_queue not in cluster.queues:
            self._release(key)
            state.workloads.strand(holder.cluster_queue, key)
            return
        self._replace(known, holder)
        self._note(holder, now_s)

    def _replace(self, known: Holder | None, holder: Holder) -> None:
        state, cluster = self._state, self._state.cluster
        if known is None:
            cluster.add_holder(holder)
            state.touch()
            return
        cluster.replace_holder(holder)
        moved = known.cluster_queue != holder.cluster_queue
        if moved or any(holder.usage.get(fr, 0) < amount for fr, amount in known.usage.items()):
            state.released(known)
        elif known.usage != holder.usage or known.evicted != holder.evicted or known.priority != holder.priority:
            state.touch()

    def _note(self, holder: Holder, now_s: float) -> None:
        """Store what else depends on the holder's conditions."""
        state, key, workload = self._state, holder.key, holder.info.workload
        conditions = workload.status.conditions
        waits = holder.admitted and not is_true(conditions, reasons.PODS_READY)
        if state.notes.set_unready(key, unready=waits):
            state.touch()
        if holder.admitted and workload.spec.active and state.usage.penalised(holder.local_queue, key):
            state.usage.settle(holder.local_queue, key, now_s)
        old = replaced_slice(workload, state.config)
        if old is not None and old in state.cluster.holders:
            state.notes.set_replaced(key, old)
        queue = state.cluster.queues[holder.cluster_queue].object
        checks = checks_for(queue, (fr.flavor for fr in holder.usage))
        ready = checks_ready(workload, checks)
        if state.config.extensions.requests_withdrawn and not holder.evicted:
            ready |= self._note_awaited(key, awaited(workload, checks, state.cluster.checks))
        elif state.notes.set_coming(key, coming=False):
            self._left_without(holder, now_s)
        if wants_second_pass(workload, checks_ready=ready, gates=state.config.gates) and not holder.evicted:
            state.notes.want_pass(key, now_s)
        else:
            state.notes.drop_pass(key)

    def _note_awaited(self, key: WorkloadKey, awaits: Awaits) -> bool:
        """Note what the workload awaits of an autoscaler. Returns whether it takes places as soon as there are some."""
        awaiting = awaits in (Awaits.NODES, Awaits.PROMISED)
        notes = self._state.notes
        ended = notes.set_awaiting(key, awaiting=awaiting, promised=awaits is Awaits.PROMISED)
        coming = awaits is Awaits.COMING and self._state.config.extensions.coming_nodes
        if notes.set_coming(key, coming=coming) or ended:
            self._state.carry_out((WakeAll(),))
        return awaiting

    def _left_without(self, holder: Holder, now_s: float) -> None:
        """A workload that waited for nodes is evicted: what was kept for it is free. If they did not come in time none
        of their flavor comes for now.
        """
        conditions = holder.info.workload.status.conditions
        evicted = find_condition(conditions, reasons.EVICTED)
        if evicted is not None and evicted.status == "True" and evicted.reason == reasons.NODES_DID_NOT_COME:
            self._state.cluster.coming_backoff.failed(sorted(self._state.cluster.awaited_flavors(holder)), now_s)
        self._state.carry_out((WakeAll(),))

    def _release(self, key: WorkloadKey, *, waits: bool = False) -> None:
        """Remove the holder. ``waits``: the workload goes back into its queue, and keeps the penalty of the reservation
        that came to nothing, as in Kueue: an eviction does not erase it.
        """
        state = self._state
        state.workloads.unstrand(key)
        holder = state.cluster.remove_holder(key)
        if state.notes.forget(key):
            state.carry_out((WakeAll(),))
        state.unwritten.drop_eviction(key)
        known = state.workloads.objects.get(key)
        if known is not None and not waits:
            state.usage.pardon(local_queue_of(known), key)
        if holder is not None:
            if not waits:
                state.usage.pardon(holder.local_queue, key)
            state.released(holder, key if holder.evicted else None)

    # -- pending -----------------------------------------------------------------------------------------------------

    def _queue(self, key: WorkloadKey, workload: Workload, now_s: float) -> None:
        state = self._state
        self._release(key, waits=True)
        pending, compact = self.pending_of(key, workload)
        state.workloads.tell(key, compact)
        known = state.queues.get(key)
        if known is not None and _same(known, pending):
            known.info = pending.info
            return
        if known is not None:
            # Something that a try depends on has changed, though the workload's place in the queue may be the same.
            state.dequeue(key)
        state.queues.put(pending, now_s)
        state.ease()

    def pending_of(self, key: WorkloadKey, workload: Workload) -> tuple[PendingWorkload, Workload]:
        """The pending workload as it would be queued, and the workload as it would be kept. Nothing is queued."""
        state = self._state
        pending, compact = self._shapes.pending_of(
            key,
            workload,
            state.config,
            limits=state.cluster.limits.get(workload.metadata.namespace, _NO_LIMITS),
            overheads=state.defaults.overheads,
            claims=state.device_claims.count(workload),
        )
        pending.takes_over = self._asks_for_nothing_new(pending)
        if state.config.extensions.spot_words and any(words_of(state.cluster.local_queues.get(pending.local_queue))):
            # What its LocalQueue says of spot nodes holds for this workload, and not for others that request the same.
            # The signs that divide a shape are replaced by such as no name has.
            of = pending.local_queue.translate(_NO_SIGNS)
            pending.shape = f"{of}|{pending.shape}"
        return pending, compact

    def reshape(self, local_queue: LocalQueueKey, now_s: float) -> None:
        """Queue the pending workloads of a LocalQueue anew, since what it says of spot nodes has changed."""
        for key in self._state.queues.through(local_queue):
            self._queue(key, self._state.workloads.objects[key], now_s)

    def _asks_for_nothing_new(self, pending: PendingWorkload) -> bool:
        """Whether the workload requests no more than what the workload that it replaces holds in the same
        ClusterQueue.
        """
        state, workload = self._state, pending.info.workload
        if not state.config.extensions.takeovers_first or not workload.metadata.annotations:
            return False
        old = replaced_slice(workload, state.config)
        holder = state.cluster.holders.get(old) if old is not None else None
        queue = state.queue_of(pending.local_queue)
        if holder is None or queue is None or queue.name != holder.cluster_queue:
            return False
        held = requested(holder.info)
        return all(amount <= held.get(resource, 0) for resource, amount in requested(pending.info).items())

    def _unqueue(self, key: WorkloadKey) -> None:
        if self._state.dequeue(key) is not None:
            self._state.touch()

    # -- changes from outside ----------------------------------------------------------------------------------------

    def _note_outside(self, workload: Workload) -> None:
        """Note a change from outside: a new workload or a changed spec may let others evict each other again."""
        if self._state.config.extensions.no_eviction_cycles:
            self._outside(workload)

    def _outside(self, workload: Workload) -> None:
        queue = self._state.queue_of(local_queue_of(workload))
        admission = workload.status.admission
        names = {queue.name} if queue is not None else set()
        if admission is not None and ClusterQueueName(admission.cluster_queue) in self._state.cluster.queues:
            names.add(ClusterQueueName(admission.cluster_queue))
        for name in sorted(names):
            self._state.preemption.history.outside_change(name)


def _holder(workload: Workload, state: EngineState, known: Holder | None) -> Holder:
    """The holder of a workload. A topology assignment that contradicts itself is dropped: the quota counts all the
    same.
    """
    try:
        return holder_of(workload, state.config, known)
    except TopologyEncodingError:
        admission = workload.status.admission
        if admission is None:
            raise
        sets = tuple(
            msgspec.structs.replace(assignment, topology_assignment=None)
            for assignment in admission.pod_set_assignments
        )
        bare = msgspec.structs.replace(admission, pod_set_assignments=sets)
        status = msgspec.structs.replace(workload.status, admission=bare)
        return holder_of(msgspec.structs.replace(workload, status=status), state.config, known)


def _same(known: PendingWorkload, given: PendingWorkload) -> bool:
    """Whether nothing has changed that a try depends on. Conditions are written by the engine's caller and not read
    here.
    """
    states = [
        [(check.name, check.state) for check in pending.info.workload.status.admission_checks]
        for pending in (known, given)
    ]
    gates = [pending.info.workload.status.preemption_gates for pending in (known, given)]
    return (
        states[0] == states[1]
        and gates[0] == gates[1]
        and known.shape == given.shape
        and known.priority == given.priority
        and known.local_queue == given.local_queue
        and known.queued_at_s == given.queued_at_s
    )


def requested(info: WorkloadInfo) -> dict[ResourceName, int]:
    """What all pods of the workload request together, by resource."""
    totals: dict[ResourceName, int] = {}
    for pod_set in info.pod_sets:
        for resource, amount in pod_set.requests.items():
            totals[resource] = totals.get(resource, 0) + amount
    return totals


def requests_of(holder: Holder) -> dict[ResourceName, int]:
    """What a holder takes, by resource."""
    totals: dict[ResourceName, int] = {}
    for fr, amount in holder.usage.items():
        totals[fr.resource] = totals.get(fr.resource, 0) + amount
    return totals
