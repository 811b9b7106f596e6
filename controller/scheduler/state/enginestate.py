"""The state that the parts of the engine share: the cluster, the queues, past usage, and the workloads as their objects
are.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from controller.objects.core import LimitRange, RuntimeClass
from controller.objects.meta import Resources
from controller.scheduler.cluster.cluster import Cluster, DriftError
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.kai.proportion.history import QueueHistory
from controller.scheduler.kai.proportion.measured import MeasuredUsage
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.preemption.moves import Moves
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.queues.pendingqueues import PendingQueues
from controller.scheduler.quota.calendars import Calendars
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.usagehistory import UsageHistory
from controller.scheduler.reservations.backfill import backfill_for
from controller.scheduler.reservations.reservations import (
    RELEASED,
    Effect,
    RunAgain,
    WakeAll,
    WakeTree,
    Withdrawn,
    reservations_for,
)
from controller.scheduler.reservations.runtimes import NodeEnds
from controller.scheduler.state.activity import QueueActivity
from controller.scheduler.state.deviceclaims import DeviceClaims
from controller.scheduler.state.holdernotes import HolderNotes
from controller.scheduler.state.intake import WorkloadPhase, standing
from controller.scheduler.state.workloads import KnownWorkloads
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import Placement


class PodDefaults:
    """What the cluster adds to pod templates that do not say it themselves: LimitRanges, and overheads by RuntimeClass
    name. Only ``ClusterEvents`` writes; methods return True if they changed something.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        self._overheads: dict[str, Resources] = {}
        self.overheads: Mapping[str, Resources] = self._overheads

    def limit_ranges(self, namespace: str) -> list[LimitRange]:
        """The LimitRanges of a namespace sorted by name, because the first default of a resource counts."""
        ranges = self._ranges.get(namespace, {})
        return [ranges[name] for name in sorted(ranges)]

    def set_limit_range(self, given: LimitRange) -> bool:
        ranges = self._ranges.setdefault(given.metadata.namespace, {})
        known = ranges.get(given.metadata.name)
        ranges[given.metadata.name] = given
        return known is None or known.spec != given.spec

    def remove_limit_range(self, namespace: str, name: str) -> bool:
        return self._ranges.get(namespace, {}).pop(name, None) is not None

    def set_runtime_class(self, given: RuntimeClass) -> bool:
        overhead = given.overhead.pod_fixed if given.overhead is not None else {}
        if self._overheads.get(given.metadata.name) == overhead:
            return False
        self._overheads[given.metadata.name] = overhead
        return True

    def remove_runtime_class(self, name: str) -> bool:
        return self._overheads.pop(name, None) is not None


class UnwrittenDecisions:
    """Decisions that count from the moment they were made, and that no object shows yet.

    ``Outcomes`` adds and takes back, ``WorkloadEvents`` drops what an object shows; a rebuilt engine takes them over.

    ``admissions``: key -> the admission. ``evictions``: workloads whose holder is ``evicted`` before their object says
    so. ``ended``: elastic slices that hold nothing any more although their object does. No ended slice holds quota, and
    every workload of ``evictions`` that holds quota is evicted. One workload may be in all three: admitted, preempted
    and replaced before the first write came back.
    """

    def __init__(self) -> None:
        self._admissions: dict[WorkloadKey, Admitted] = {}
        self._evictions: set[WorkloadKey] = set()
        self._ended: set[WorkloadKey] = set()
        self.admissions: Mapping[WorkloadKey, Admitted] = self._admissions
        self.evictions: AbstractSet[WorkloadKey] = self._evictions
        self.ended: AbstractSet[WorkloadKey] = self._ended

    def admit(self, key: WorkloadKey, admitted: Admitted) -> None:
        self._admissions[key] = admitted

    def drop_admission(self, key: WorkloadKey) -> None:
        self._admissions.pop(key, None)

    def evict(self, key: WorkloadKey) -> None:
        self._evictions.add(key)

    def drop_eviction(self, key: WorkloadKey) -> None:
        self._evictions.discard(key)

    def end(self, key: WorkloadKey) -> None:
        self._ended.add(key)

    def drop_end(self, key: WorkloadKey) -> None:
        self._ended.discard(key)

    def validate(self, holders: Mapping[WorkloadKey, Holder]) -> None:
        both = self._ended & holders.keys()
        if both:
            raise DriftError(f"slices that have ended hold quota: {sorted(both)[:5]}")
        spared = [key for key in self._evictions if key in holders and not holders[key].evicted]
        if spared:
            raise DriftError(f"evictions that are being written, of holders that are not evicted: {sorted(spared)[:5]}")


class EngineState:
    """The engine's memory; each part has one owner, which says who writes it.

    ``changes`` grows with everything that may make a cycle decide otherwise: every event that changes a part ends in
    ``touch`` or ``wake``. A workload that has an object is in one place: it holds quota (``cluster.holders``), waits
    (``queues``) or is stranded (``workloads.stranded``); it is in none while it is held back or its slice has ended.
    """

    def __init__(self, config: EngineConfig, placement: Placement | None, before: "EngineState | None" = None) -> None:
        """``before``: the state that this one replaces."""
        fair = config.admission_fair_sharing if config.gates.on("AdmissionFairSharing") else None
        self.config = config
        self.cluster = Cluster(config, placement)
        self.node_ends = NodeEnds() if config.extensions.empty_nodes else None
        """When nodes have no work any more; None where nobody asks."""
        if self.node_ends is not None and isinstance(self.cluster.placement, Topologies):
            self.cluster.observe(self.node_ends)
            self.cluster.placement.busy_until = self.node_ends.busy_until
        self.activity = QueueActivity(self.cluster)
        self.usage = UsageHistory(fair)
        self.reservations = reservations_for(self.cluster)
        self.queues = PendingQueues(self.cluster, self.usage.usage, self.reservations)
        self.preemption = Preemption(self.cluster, self.usage.usage, self.activity.is_open)
        self.assigner = FlavorAssigner(self.cluster, self.preemption.oracle)
        self.backfill = backfill_for(self.cluster, self.assigner)
        self.workloads = KnownWorkloads()
        self.unwritten = UnwrittenDecisions()
        self.notes = HolderNotes()
        self.cluster.promised, self.cluster.coming = self.notes.promised, self.notes.coming
        self.defaults = PodDefaults()
        self.calendars = Calendars()
        self.device_claims = DeviceClaims(self.cluster)
        self.moves: Moves = Moves(config.extensions.consolidation) if before is None else before.moves
        usage = config.queue_usage
        known = before.queue_history if before is not None else None
        self.queue_history: QueueHistory | None = known if known is not None or usage is None else QueueHistory(usage)
        measured = before.measured_usage if before is not None else None
        self.measured_usage: MeasuredUsage | None = (
            measured if measured is not None or usage is None else MeasuredUsage(usage.stale_s)
        )
        self.changes = 0

    def touch(self) -> None:
        self.changes += 1
        self.reservations.scarcity += 1

    def ease(self) -> None:
        """``touch`` for a change that makes nothing scarcer: an evicted workload has gone, a pending one has come, or
        a pod says whether it may be moved.
        """
        self.changes += 1

    def wake_tree(self, node: QuotaNode | None) -> None:
        """Wake every queue below the node's root: its workloads are tried again."""
        found = None if node is None else next(node.root().queue_names(), None)
        if found is not None:
            self.wake(found)
        else:
            self.touch()

    def wake(self, name: ClusterQueueName, departed: WorkloadKey | None = None) -> None:
        if departed is None:
            self.touch()
        else:
            self.ease()
        self.reservations.apply(RELEASED)
        self.queues.wake(name, departed)

    def wake_queue_of(self, key: WorkloadKey) -> None:
        """Wake the queue of a pending workload: it is tried again, whatever was decided on it before."""
        pending = self.queues.get(key)
        if pending is not None and pending.at is not None:
            self.queues.wake(pending.at.name)

    def dequeue(self, key: WorkloadKey) -> PendingWorkload | None:
        """Remove the workload from its queue, if it is in one; its reservations, of a preemptor and of backfill, end
        with its wait.
        """
        pending = self.queues.remove(key)
        if pending is None:
            return None
        if key in self.reservations:
            self.carry_out(self.reservations.apply(Withdrawn(key)))
        reserved_in = self.backfill.drop(key)
        if reserved_in is not None:
            self.wake(reserved_in)
        return pending

    def withdraw(self, preemptors: Iterable[WorkloadKey]) -> None:
        """End the reservations of these workloads."""
        for key in preemptors:
            self.carry_out(self.reservations.apply(Withdrawn(key)))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects of an event that ``reservations`` took in; to be called before the next event."""
        for effect in effects:
            match effect:
                case WakeAll():
                    self.queues.wake_all()
                    self.touch()
                case WakeTree(name):
                    self.wake(name)
                case RunAgain():
                    self.touch()

    def released(self, holder: Holder, departed: WorkloadKey | None = None) -> None:
        """Note that what the holder held, or part of it, is free: quota in its tree, and capacity of nodes."""
        self.wake(holder.cluster_queue, departed)
        if any(pod_set.topology is not None for pod_set in holder.info.pod_sets):
            self.queues.wake_waiting_for_nodes()
            self.cluster.offers += 1
            self.notes.hurry()

    def wake_beside_moved(self) -> None:
        for holder in self.notes.take_moved():
            if holder.cluster_queue in self.cluster.queues:
                self.released(holder)

    def queue_of(self, key: LocalQueueKey) -> QueueState | None:
        """The ClusterQueue that a LocalQueue leads to; None if it leads to none."""
        local = self.cluster.local_queues.get(key)
        return None if local is None else self.cluster.queues.get(ClusterQueueName(local.spec.cluster_queue))

    def audits(self) -> tuple[Callable[[], None], ...]:
        """The checks of every part, and that every workload is in one place. They raise DriftError, QuotaDriftError or
        QueueDriftError.
        """
        return (
            *self.cluster.audits(),
            self.queues.validate,
            self.preemption.validate,
            self.reservations.validate,
            self.backfill.validate,
            self.calendars.validate,
            partial(self.workloads.validate, self.cluster.queues),
            partial(self.unwritten.validate, self.cluster.holders),
            partial(self.notes.validate, self.cluster.holders, self.unwritten.ended),
            *(() if self.measured_usage is None else (self.measured_usage.validate,)),
            *(() if self.node_ends is None else (partial(self.node_ends.validate, self.cluster.holders),)),
            partial(self.device_claims.validate, self.workloads.objects),
            self._validate_places_of_workloads,
        )

    def _validate_places_of_workloads(self) -> None:
        holders, objects = self.cluster.holders, self.workloads.objects
        stranded = {key for keys in self.workloads.stranded.values() for key in keys}
        waiting = {pending.key for pending in self.queues}
        for key, workload in objects.items():
            places = [key in holders, key in waiting, key in stranded]
            phase = standing(workload, self.config)
            held_back = key not in self.unwritten.admissions and phase is WorkloadPhase.HELD_BACK
            if sum(places) != (0 if held_back or key in self.unwritten.ended else 1):
                raise DriftError(f"{key} should be in one place: holding, pending, stranded are {places}")
        preemptors = {reservation.key for reservation in self.reservations}
        if not waiting.issuperset(preemptors):
            raise DriftError(f"reservations outlive waits: {sorted(preemptors - waiting)[:5]}")
        known = {*holders, *waiting, *stranded}
        if not known <= objects.keys():
            raise DriftError(f"kept and not known: {sorted(known - objects.keys())[:5]}")
