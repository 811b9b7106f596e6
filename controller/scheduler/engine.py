"""The engine: takes events, returns decisions. The live controller, ``tessera simulate`` and conformance all use it.

It decides which workloads start, wait and are evicted: in a ``Cycle`` by Kueue's rules, in ``treeturns`` by those of
other systems. Objects may come in any order and any number of times: one whose queue, flavor or cohort is not known yet
is stored. A decision counts from the moment it is made; ``failed`` takes one back whose write was refused. The same
events bring the same decisions: time is an argument, nothing is random. Sums are kept, and ``validate`` recomputes
them: one decision without places takes 35 to 280 us, however many workloads run or wait (docs/benchmarks.md).
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from controller.objects.decode import GpuNode
from controller.objects.deviceclaims import CLAIM_TYPES
from controller.objects.meta import KubernetesObject
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.consolidation.turn import PackTurn
from controller.scheduler.decisions.decisions import Decision, Decisions, Pending
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.stories import Stories
from controller.scheduler.decisions.takennodes import with_taken_nodes
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.kueue.cycle import Cycle
from controller.scheduler.kueue.following import following_in
from controller.scheduler.kueue.nomination import Nominator
from controller.scheduler.mirror.mirror import Mirror
from controller.scheduler.mirror.specs import ADOPTED, Adoption, System
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.outcomes import Outcomes, slice_ended
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingState, PendingWorkload
from controller.scheduler.queues.tries import Try, try_of
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.quotashares import QuotaShares
from controller.scheduler.quota.usagehistory import UsageRecord
from controller.scheduler.reservations.reservation import in_vain, not_tried
from controller.scheduler.state.activity import Inactive
from controller.scheduler.state.beside import BesideOthers
from controller.scheduler.state.clusterevents import ClusterEvents
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.intake import SLICE_REPLACES, local_queue_of
from controller.scheduler.state.minimums import validate as validate_minimums
from controller.scheduler.state.mirrorevents import MirrorEvents
from controller.scheduler.state.workloadevents import WorkloadEvents
from controller.scheduler.topology.port import Placement
from controller.scheduler.treeturns import FairTurns
from controller.scheduler.volcano.futurecapacity import FutureCapacity
from inventory.api.claimplan import ClaimPlan

_SETTERS: Final[Mapping[type, Callable[[ClusterEvents, Any], None]]] = {
    Pod: ClusterEvents.set_pod,
    GpuNode: ClusterEvents.set_gpu_node,
    Topology: ClusterEvents.set_topology,
    AdmissionCheck: ClusterEvents.set_check,
    Namespace: ClusterEvents.set_namespace,
}
"""Setters that need no time: the objects mean the same at any time."""

_PUTTERS: Final[Mapping[type, Callable[[ClusterEvents, Any, float], None]]] = {
    LimitRange: ClusterEvents.set_limit_range,
    RuntimeClass: ClusterEvents.set_runtime_class,
    **dict.fromkeys(CLAIM_TYPES, ClusterEvents.set_claim_object),
}
"""Setters that take the time: by these objects pending workloads are queued anew."""


class QuotaHeld(NamedTuple):
    """``amount`` of one flavor-resource, held by ``workload`` in ``cluster_queue``."""

    workload: WorkloadKey
    cluster_queue: ClusterQueueName
    amount: Amount


class Engine:
    """The engine. ``put`` and ``drop`` take events, ``cycle`` decides, ``failed`` takes back. Others only read
    ``state``.
    """

    def __init__(self, config: EngineConfig | None = None, placement: Placement | None = None) -> None:
        self.stories = Stories()
        self._cycles = itertools.count()
        self._begin(config or EngineConfig(), placement)

    def _begin(self, config: EngineConfig, placement: Placement | None, before: EngineState | None = None) -> None:
        """Make an engine that knows no objects yet; past moves and use are taken over from ``before``."""
        self.state = EngineState(config, placement, before)
        more = self.state.config.extensions
        self.shares = QuotaShares(coming=more.coming_nodes) if more.quota_from_capacity else None
        self._workloads = WorkloadEvents(self.state)
        self._cluster = ClusterEvents(self.state, self._workloads)
        self._mirrored = MirrorEvents(self.state, self._cluster)
        state = self.state
        self._nominator = Nominator(
            state.cluster, state.assigner, state.preemption, state.activity.is_open, BesideOthers(state)
        )
        self._outcomes = Outcomes(state, self.stories)
        self._turns = FairTurns(
            state.cluster,
            state.assigner,
            state.queues,
            self.mirror,
            state.moves,
            state.queue_history,
            state.measured_usage,
        )
        limits, history = self.state.config.extensions.consolidation, state.preemption.history
        self._packing: PackTurn | None = None
        if limits is not None and limits.every_queue:
            self._packing = PackTurn(state.cluster, state.assigner, state.reservations, state.moves, history, limits)
        self._elastic = self.state.config.gates.on("ElasticJobsViaWorkloadSlices")
        self._tried: set[Try] = set()
        self._tried_at = -1
        self._settled = False
        self._floors_at = -1
        """The count of changes up to which no gang is below its minimum: ``cycle`` sees to it."""

    @property
    def mirror(self) -> Mirror:
        """Queues of Volcano and KAI; others only read it."""
        return self._mirrored.mirror

    # -- events ------------------------------------------------------------------------------------------------------

    def imply(self, system: System, now_s: float, how: Adoption = ADOPTED) -> None:
        """Serve Volcano's or KAI's jobs: the queues that the system has without objects exist from now on."""
        self._mirrored.imply(system, how)
        self._mirrored.flush(now_s)

    def put(self, given: KubernetesObject, now_s: float) -> None:
        """The object is new or has changed. Kinds that affect no decision are ignored."""
        cluster, shares = self._cluster, self.shares
        match given:
            case Workload():
                self._workloads.put(given, now_s)
                if self.mirror:
                    self._mirrored.reach(local_queue_of(given), now_s)
            case ClusterQueue() | Cohort():
                if isinstance(given, ClusterQueue):
                    self._mirrored.name_taken(given.metadata.name, now_s)
                cluster.put_quotas(shares.through(given) if shares is not None else given, now_s)
            case KaiQueue() | VolcanoQueue():
                self._mirrored.put(given)
            case LocalQueue():
                self._mirrored.given(LocalQueueKey(given.key))
                cluster.set_local_queue(given, now_s)
            case ResourceFlavor():
                cluster.set_flavor(given, now_s)
                self._retell(shares.flavor(given) if shares is not None else (), now_s)
            case Node():
                cluster.set_node(given)
                self._mirrored.node(given)
                self._retell(shares.node(given) if shares is not None else (), now_s)
            case Pod() | GpuNode() | Topology() | AdmissionCheck() | Namespace():
                _SETTERS[type(given)](cluster, given)
            case _ if (put := _PUTTERS.get(type(given))) is not None:
                put(cluster, given, now_s)

    def drop(self, kind: type[KubernetesObject], namespace: str, name: str, now_s: float) -> None:
        """The object is gone. Kinds that affect no decision are ignored."""
        cluster, key = self._cluster, f"{namespace}/{name}"
        removals: dict[type, tuple[Callable[..., None], tuple[object, ...]]] = {
            Workload: (self._drop_workload, (WorkloadKey(key),)),
            ClusterQueue: (cluster.remove_cluster_queue, (ClusterQueueName(name), now_s)),
            LocalQueue: (cluster.remove_local_queue, (LocalQueueKey(key), now_s)),
            Cohort: (cluster.remove_cohort, (CohortName(name),)),
            ResourceFlavor: (cluster.remove_flavor, (FlavorName(name),)),
            Topology: (cluster.remove_topology, (name,)),
            Node: (cluster.remove_node, (name,)),
            Pod: (cluster.remove_pod, (key,)),
            GpuNode: (cluster.remove_gpu_node, (name,)),
            AdmissionCheck: (cluster.remove_check, (name,)),
            Namespace: (cluster.remove_namespace, (name,)),
            LimitRange: (cluster.remove_limit_range, (namespace, name, now_s)),
            RuntimeClass: (cluster.remove_runtime_class, (name, now_s)),
            **dict.fromkeys(CLAIM_TYPES, (cluster.remove_claim_object, (kind, namespace, name, now_s))),
        }
        if kind in removals:
            remove, what = removals[kind]
            remove(*what)
        if self.shares is not None:
            self._retell(self.shares.gone(kind, name), now_s)
        self._dropped_beside_mirror(kind, LocalQueueKey(key), name, now_s)

    def _dropped_beside_mirror(self, kind: type[KubernetesObject], key: LocalQueueKey, name: str, now_s: float) -> None:
        """Update mirrored queues after an object of any kind is gone."""
        if kind is KaiQueue or kind is VolcanoQueue:
            self._mirrored.gone(kind, name)
        elif kind is Node:
            self._mirrored.node_gone(name)
        elif kind is ClusterQueue:
            self._mirrored.name_free(name)
        elif kind is LocalQueue and self.mirror:
            self._mirrored.reach(key, now_s)

    def rebuild(self, objects: Iterable[KubernetesObject], now_s: float) -> list[tuple[KubernetesObject, Exception]]:
        """Forget every sum and compute all of them anew from ``objects``: all that exist, Workloads last.

        Decisions that are being written still count. What only this engine remembers begins anew, as for a new leader:
        reservations, back-offs of second passes, past evictions. Returns objects that could not be taken in, and why.
        """
        before, refused = self.state, list[tuple[KubernetesObject, Exception]]()
        systems = self.mirror.implied()
        self._begin(before.config, None, before)
        for system, how in sorted(systems.items()):
            self.imply(system, now_s, how)
        for stored in objects:
            try:
                self.put(stored, now_s)
            except Exception as error:  # noqa: BLE001  one object must not leave the engine half built
                refused.append((stored, error))
        self._outcomes.adopt(before.unwritten)
        return refused

    def _drop_workload(self, key: WorkloadKey) -> None:
        self._workloads.remove(key)
        self.stories.forget(key)

    def _retell(self, changed: Iterable[ClusterQueue | Cohort], now_s: float) -> None:
        for given in changed:
            self._cluster.put_quotas(given, now_s)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def cycle(self, now_s: float) -> Decisions:
        """Try one workload of each ClusterQueue that has one, and all second passes that are due."""
        state = self.state
        self._cluster.keep_times(now_s)
        self._mirrored.flush(now_s)
        self._workloads.settle_claims(now_s)
        state.preemption.oracle.now_s = now_s
        self._nominator.cycle = next(self._cycles)
        self._prune_reservations()
        state.wake_beside_moved()
        state.cluster.placement.begin(now_s)
        for name in state.preemption.due(now_s):
            state.wake(name)
        replaced = [*self._outcomes.replaced_slices(now_s), *self._outcomes.beyond_quota(now_s)]
        entries = [*self._second_passes(now_s), *self._heads(now_s)]
        before = state.changes
        cycle = Cycle(
            state.cluster,
            self._nominator,
            state.reservations,
            state.backfill,
            now_s,
            blocks=self._blocks,
            ready=not state.notes.unready,
        )
        run = cycle.run(entries, following_in(state.config, state.queues, self._entry))
        if self._packing is not None:
            self._packing.note(entries, now_s)
        made = replaced + self._outcomes.of(run, now_s)
        if self.mirror:
            made += self._mirrored_turns(now_s)
        made += self._outcomes.below_minimum(now_s)
        self._floors_at = state.changes
        self._notice(entries, changed=state.changes != before or bool(replaced))
        if self._packing is not None and self._packing.due(state.changes, now_s) and self._cycles_settled(now_s):
            made += self._moved(self._packing, now_s)
        return Decisions(tuple(made), len(entries), cycle.skipped, cycle.recomputed)

    def follow(self, now_s: float) -> None:
        """Do what cycles begin with, for an engine that makes none: another leader decides on what is admitted."""
        self.state.notes.take_undecided()
        self._cluster.keep_times(now_s)
        self._mirrored.flush(now_s)
        self._workloads.settle_claims(now_s)
        self.state.queues.release_due(now_s)
        self.state.cluster.placement.follow(now_s)

    def failed(self, decision: Decision, now_s: float, detail: str) -> bool:
        """Take back a decision that could not be written; what it was about is tried again. Returns False where the
        objects have changed since and nothing is left to take back.
        """
        taken_back = self._outcomes.failed(decision, now_s, detail)
        key = WorkloadKey(decision.key)
        workload = self.state.workloads.objects.get(key)
        if taken_back and workload is not None and key not in self.state.cluster.holders:
            self._workloads.put(workload, now_s)
        old = slice_ended(decision)
        if taken_back and old is not None and old in self.state.cluster.holders:
            # The old slice holds quota again: a second pass that ended with it is wanted again.
            self._workloads.put(self.state.workloads.objects[old], now_s)
        return taken_back

    def settled(self, now_s: float) -> bool:
        """Whether another cycle would decide nothing new: the next event or ``next_wakeup_s`` may change that."""
        if not self._cycles_settled(now_s):
            return False
        return self._packing is None or not self._packing.due(self.state.changes, now_s)

    def _cycles_settled(self, now_s: float) -> bool:
        """Like ``settled``, but does not count a pending consolidation (``PackTurn``)."""
        self._mirrored.flush(now_s)
        self._workloads.settle_claims(now_s)
        self._prune_reservations()
        due_s = self._cycles_due_s()
        if self.state.cluster.placement.is_behind or (due_s is not None and due_s <= now_s):
            return False
        if self.mirror and self._turns.due(self.state.changes, now_s, self.state.activity.open_now()):
            return False
        if self.state.workloads.above and self._floors_at != self.state.changes:
            return False
        if self._settled and self._tried_at == self.state.changes:
            return True
        if self.state.notes.ask_for_a_cycle or self.state.queues.busy(open_for=self._open_for()):
            return False
        return not self._passed_over()

    def next_wakeup_s(self, *, calendars: bool = True, without: Collection[WorkloadKey] = ()) -> float | None:
        """When the clock alone may change something: a back-off or a minimum runtime ends, a second pass is due, but
        none of ``without``. Past usage decays by the caller's timer, see ``sample_usage``.
        """
        packing_s = self._packing.next_due_s(self.state.changes) if self._packing is not None else None
        return min(filter(None, (self._cycles_due_s(calendars=calendars, without=without), packing_s)), default=None)

    def _cycles_due_s(self, *, calendars: bool = True, without: Collection[WorkloadKey] = ()) -> float | None:
        times = [coming.due_s for key, coming in self.state.notes.passes.items() if key not in without]
        state = self.state
        backoff = state.cluster.coming_backoff
        later = (state.queues, state.preemption, self._turns, backoff, *((state.calendars,) if calendars else ()))
        times += filter(None, (each.next_due_s() for each in later))
        return min(times, default=None)

    def sample_usage(self, now_s: float) -> dict[LocalQueueKey, UsageRecord]:
        """Sample past usage where it is due. Returns the records to be written into LocalQueues' status."""
        state = self.state
        taken: dict[LocalQueueKey, UsageRecord] = {}
        if not state.usage.on:
            return taken
        for key in state.cluster.local_queues:
            queue = state.queue_of(key)
            if queue is None or not queue.policies.usage_based_admission or not state.usage.due(key, now_s):
                continue
            running: dict[ResourceName, Amount] = {}
            for holder in queue.holders.values():
                if holder.local_queue == key and holder.admitted:
                    for fr, amount in holder.usage.items():
                        running[fr.resource] = running.get(fr.resource, 0) + amount
            taken[key] = state.usage.sample(key, running, now_s)
        if taken:
            state.touch()
        return taken

    def sample_queues(self, now_s: float) -> dict[QueueName, str]:
        """Count what KAI's Queues have towards their past use. Returns the records to be stored with them."""
        if self.state.queue_history is None or not self.mirror:
            return {}
        self.state.touch()
        return self._turns.sample(now_s)

    def measured_use(self, usage: Mapping[QueueName, Amounts], now_s: float) -> bool:
        """Take in past use of KAI's Queues as others measured it. Returns whether queries failed until now."""
        measured = self.state.measured_usage
        self.state.touch()
        return measured is not None and measured.take(usage, now_s)

    # -- questions ---------------------------------------------------------------------------------------------------

    def inactive(self, name: ClusterQueueName) -> tuple[Inactive, ...]:
        """Why the ClusterQueue admits nothing; empty while it is active."""
        return self.state.activity.problems(name)

    def explain(self, key: WorkloadKey, now_s: float) -> Pending | None:
        """A pending workload tried now, by itself and without effect. None for one that is not pending."""
        state = self.state
        pending = state.queues.get(key)
        queue = None if pending is None else state.queue_of(pending.local_queue)
        if pending is None or queue is None:
            return None
        if self.mirror.is_leaf(queue.name):
            return self._last_told(pending, queue, now_s)
        entry = self._asked(pending, queue, now_s)
        if self._packing is not None:
            self._packing.tell(entry, now_s)
        awaited = () if entry.targets else state.preemption.awaited(entry.incoming, entry.assignment, now_s)
        spared = state.preemption.spared(entry.incoming, entry.assignment, entry.targets or awaited, now_s)
        return Pending(info=pending.info, record=entry.record(now_s).beside(awaited, spared), gates=state.config.gates)

    def with_taken_nodes(self, record: DecisionRecord, now_s: float, *, every_name: bool = False) -> DecisionRecord:
        """The record with the holders of the nodes that it lacks; see ``with_taken_nodes``."""
        return with_taken_nodes(self.state.cluster, record, now_s, every_name=every_name)

    def as_pending(self, workload: Workload) -> PendingWorkload:
        """The pending workload of an object that is not in the engine, or asks for something else. Queues nothing."""
        return self._workloads.pending_of(WorkloadKey(workload.key), workload)[0]

    def tried(self, pending: PendingWorkload, now_s: float, *, in_turns: bool = False) -> DecisionRecord | None:
        """Dry-run one workload that is not in the engine; None if its queue does not exist. For a queue of Volcano or
        KAI None too, unless ``in_turns``: a turn of the whole tree is then simulated, which takes as long.
        """
        self._mirrored.flush(now_s)
        queue = self.queue_of(pending.local_queue)
        if queue is None or not self.mirror.is_leaf(queue.name):
            return None if queue is None else self._asked(pending, queue, now_s).record(now_s)
        self.state.cluster.placement.begin(now_s)
        opens = self.state.activity.open_now()
        entry = self._turns.asked(pending, queue.name, now_s, self._refusal, opens) if in_turns else None
        return None if entry is None else entry.record(now_s)

    def future_capacity(self, pending: PendingWorkload, now_s: float) -> FutureCapacity | None:
        """What the workload would find after others have ended; to be asked in a trial of the cluster."""
        queue = self.queue_of(pending.local_queue)
        if queue is None:
            return None
        bounds = self._turns.bounds(queue.name, now_s) if self.mirror.is_leaf(queue.name) else None
        return FutureCapacity(self.state.cluster, self.state.assigner, pending.incoming(queue), bounds)

    def queue_of(self, key: LocalQueueKey) -> QueueState | None:
        """The ClusterQueue that a LocalQueue leads to, or would lead to if a workload named it."""
        return self._mirrored.queue_of(key)

    def _asked(self, pending: PendingWorkload, queue: QueueState, now_s: float) -> Entry:
        """Decide on the workload by itself, without any effect."""
        state = self.state
        entry = self._entry(pending, queue)
        state.preemption.oracle.now_s = now_s
        state.cluster.placement.begin(now_s)
        bookmark = pending.bookmark
        pending.bookmark = None
        try:
            Cycle(
                state.cluster,
                self._nominator,
                state.reservations,
                state.backfill,
                now_s,
                blocks=False,
                ready=True,
                asks=True,
            ).run([entry])
        finally:
            pending.bookmark = bookmark
        return entry

    def _last_told(self, pending: PendingWorkload, queue: QueueState, now_s: float) -> Pending:
        """The last decision, again: one workload of a Volcano or KAI tree cannot be decided alone."""
        record = self.stories.last(pending.key)
        if record is None or record.rule is Rule.FITS:
            record = DecisionRecord(at_s=now_s, workload=pending.key, cluster_queue=queue.name, rule=Rule.NO_FIT)
        return Pending(info=pending.info, record=record, gates=self.state.config.gates)

    def queue_allocations(self) -> tuple[Mapping[QueueName, Amounts], Amounts]:
        """What each of KAI's Queues has, with those below it, and the total; empty where there are none."""
        kai = any(spec.system is System.KAI for spec in self.mirror.queues.leaves())
        return self._turns.allocated() if kai else ({}, {})

    def device_plan(self, key: WorkloadKey, pod_set: str, node: str) -> Sequence[tuple[str, ...]]:
        """The UUIDs of GPUs or MIG instances for each pod of the set on the node; fewer where some got none.

        Sets that no pod is reported to hold yet come first. Empty where the workload has no places, the node has no
        GpuNode, or its pods ask for nothing that is known there.
        """
        return self.state.cluster.placement.device_plan(key, pod_set, node)

    def claim_plan(self, key: WorkloadKey, pod_set: str) -> ClaimPlan:
        """The devices for pods of the set that have none yet, by claim and request; empty without places."""
        return self.state.cluster.placement.claim_plan(key, pod_set)

    def held_by(self, queue: ClusterQueueName, fr: FlavorResource, limit: int = 5) -> list[QuotaHeld]:
        """The workloads that hold most of a flavor-resource in the ClusterQueue's tree now, its own included."""
        node = self.state.cluster.queue(queue).node
        holders = [
            QuotaHeld(holder.key, holder.cluster_queue, amount)
            for name in node.root().queue_names()
            for holder in self.state.cluster.queues[name].holders.values()
            if (amount := holder.usage.get(fr, 0))
        ]
        return heapq.nsmallest(limit, holders, key=lambda held: (-held.amount, held.workload))

    def validate(self) -> None:
        """Recompute every sum and look for every workload. DriftError, QuotaDriftError or QueueDriftError."""
        for audit in self.audits():
            audit()

    def audits(self) -> tuple[Callable[[], None], ...]:
        """The parts of ``validate``, each of which must hold by itself between any two events."""
        floors = (partial(validate_minimums, self.state),) if self._floors_at == self.state.changes else ()
        packing = () if self._packing is None else (self._packing.validate,)
        return (*self.state.audits(), *floors, self.mirror.validate, *packing)

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _blocks(self) -> bool:
        rules = self.state.config.wait_for_pods_ready
        return rules is not None and rules.block_admission and not self.state.config.gates.on("DisableWaitForPodsReady")

    def _prune_reservations(self) -> None:
        """End reservations of workloads that no cycle tries; not to be called within a trial."""
        state = self.state
        if state.reservations:
            state.withdraw(not_tried(state.reservations, state.queues, state.activity.open_now()))

    def _passed_over(self) -> bool:
        """End reservations that wait in vain, once nothing is left to try. Returns whether there is something to
        try again.
        """
        state = self.state
        if not state.reservations:
            return False
        before = state.changes
        tried = {key for key, _ in self._tried} if self._tried_at == before else set[WorkloadKey]()
        # All are found before any ends: the end of one reservation wakes the others.
        state.withdraw(in_vain(state.reservations, state.queues, state.cluster.holders.keys(), tried))
        return state.changes != before

    def _heads(self, now_s: float) -> list[Entry]:
        heads = self.state.queues.heads(now_s, open_for=self._open_for())
        queues = self.state.cluster.queues
        return [self._entry(head, queues[head.at.name]) for head in heads if head.at is not None]

    def _open_for(self) -> Callable[[ClusterQueueName], bool]:
        """Which ClusterQueues' heads a cycle tries: mirrored ones have turns of their own."""
        open_now = self.state.activity.open_now()
        if not self.mirror:
            return open_now
        return lambda name: not self.mirror.is_leaf(name) and open_now(name)

    def _mirrored_turns(self, now_s: float) -> list[Decision]:
        taken = self._turns.take(self.state.changes, now_s, self._refusal, self.state.activity.open_now())
        return self._outcomes.of(taken, now_s)

    def _refusal(self, pending: PendingWorkload, incoming: Incoming) -> tuple[Rule, str] | None:
        return self._nominator.refusal(pending, incoming.queue)

    def _moved(self, packing: PackTurn, now_s: float) -> list[Decision]:
        """Decide on moves that let a workload fit which only lacks places."""
        state = self.state

        def ask(key: WorkloadKey) -> Entry | None:
            pending = state.queues.get(key)
            queue = None if pending is None else state.queue_of(pending.local_queue)
            return None if pending is None or queue is None else self._asked(pending, queue, now_s)

        is_open, waits = state.activity.is_open, lambda key: state.queues.get(key) is not None
        entry = packing.take(state.changes, now_s, ask, waits, is_open)
        if entry is None or entry.pending is None:
            freed = packing.freed(state.changes, now_s, is_open, lambda: state.queues.any_waits(is_open))
            return [] if freed is None else self._outcomes.freed(freed, now_s)
        state.queues.take(entry.pending)
        return self._outcomes.of([entry], now_s)

    def _entry(self, pending: PendingWorkload, queue: QueueState) -> Entry:
        old = pending.info.workload.metadata.annotations.get(SLICE_REPLACES) if self._elastic else None
        replaces = queue.holders.get(WorkloadKey(old)) if old else None
        return Entry(pending.incoming(queue, replaces), pending=pending)

    def _second_passes(self, now_s: float) -> list[Entry]:
        return [self._again(self.state.cluster.holders[key]) for key in self.state.notes.passes_due(now_s)]

    def _again(self, holder: Holder) -> Entry:
        incoming = Incoming(
            info=holder.info,
            queue=self.state.cluster.queue(holder.cluster_queue),
            local_queue=holder.local_queue,
            priority=holder.priority,
            queued_at_s=holder.queued_at_s,
        )
        return Entry(incoming, holder=holder)

    def _notice(self, entries: list[Entry], *, changed: bool) -> None:
        """Note whether the run is settled: a cycle has tried nothing but what was tried before, nothing came of it, and
        no workload was parked ahead of others. A preemptor whose nomination stood before the cycle and stands after it
        counts as tried before: the next cycle would find the same heads, nominated alike.
        """
        if changed or self._tried_at != self.state.changes:
            self._tried.clear()
            self._settled = False
            self._tried_at = self.state.changes
        if changed:
            return
        now = {try_of(entry) for entry in entries if entry.pending is not None}
        waits = all(entry.pending.state is PendingState.QUEUED for entry in entries if entry.pending is not None)
        again = all(entry.recalled and entry.rule is Rule.PREEMPTS for entry in entries if entry.pending is not None)
        self._settled = waits and (again or now <= self._tried)
        self._tried |= now
        if self._settled:
            self._passed_over()
