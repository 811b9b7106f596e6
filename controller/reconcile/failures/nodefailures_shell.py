"""Writes lost nodes into the status of the workloads that had pods there.

nodes, pods, workloads -> reconcile.failures.nodefailures -> status.unhealthyNodes | eviction | pods that fail

The engine places the lost domain anew as soon as it sees the node named. A pod that was assigned to the node and never
bound to it would wait for ever: it is marked Failed, so that its controller creates another, which gets the new place.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import NODES, PODS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.stampedwrites import stamped_write
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.jobs.framework import names
from controller.jobs.framework.podsets import first_slice
from controller.jobs.framework.podview import workload_of
from controller.messages import statuses
from controller.objects.alike import one_set
from controller.objects.core import Node, Pod, Toleration
from controller.objects.meta import epoch_s, find_condition, is_true, object_key
from controller.objects.placeencoding import HOSTNAME_LABEL, TopologyEncodingError, decode
from controller.objects.workload import PodSetAssignment, UnhealthyNode, Workload
from controller.reconcile.failures.nodefailures import (
    NOWHERE,
    NodeFailures,
    NodeState,
    PlacedWorkload,
    PodOnHost,
    PodState,
    Verdict,
    sentence,
)
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.decisions.reasons import EventType
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.topology.nodes import asks_for_topology
from failpoints.names import Failpoint
from kube.clock import Clock, Turns
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Outcome, Verb, Write

log = logging.getLogger(__name__)

FEATURES: Final = ("TopologyAwareScheduling", "TASFailedNodeReplacement")
UNHEALTHY_NODE: Final = "UnhealthyNode"
_MOST_NAMED: Final = 8
"""The most hosts that the API allows in ``status.unhealthyNodes``."""
_TOGETHER_S: Final = 0.05
_AGAIN_S: Final = 1.0


class NodeFailureController:
    """``hear`` takes changes of nodes and pods, ``workload`` of Workloads; ``run`` works on them until cancelled.

    ``ready``: whether all objects that the watches listed have been heard. ``tell`` records Events. ``let_go``:
    releases an eviction of the workload that is held back.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        ready: Callable[[], bool],
        tell: Callable[[tuple[Event, ...]], None],
        let_go: Callable[[WorkloadKey], None] = lambda _: None,
    ) -> None:
        self.failures = NodeFailures(engine.state.config.gates)
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._put = put
        self._clock = clock
        self._ready = ready
        self._tell = tell
        self._let_go = let_go
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._later: dict[WorkloadKey, float] = {}

    async def run(self) -> None:
        while True:
            await self._turns.next(self._due_s())
            if self._ready():
                self.reconcile()
            elif self.failures.has_work:
                self._turns.wake()

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                self.failures.set_node(key.name, node_state(entry.object))
            case Removed(key=key) if observed.resource == NODES:
                self.failures.remove_node(key.name)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == PODS:
                self.failures.set_pod(object_key(*key), pod_on_host(entry.object))
            case Removed(key=key) if observed.resource == PODS:
                self.failures.set_pod(object_key(*key), None)
        if self.failures.has_work:
            self._turns.wake()

    def workload(self, workload: Workload, _gone: bool) -> None:
        named = first_slice(workload)
        entry = self._ledger.current(named)
        self.failures.set_workload(named, None if entry is None else self._placed(entry.workload))
        if self.failures.has_work:
            self._turns.wake()

    def reconcile(self) -> None:
        """Writes the verdicts that are due."""
        now_s = self._clock.wall()
        for key in [key for key, due_s in self._later.items() if due_s <= now_s]:
            del self._later[key]
            self.failures.touch(key)
        for verdict in self.failures.verdicts(now_s):
            self._write(verdict, now_s)

    def _due_s(self) -> float | None:
        times = [self.failures.next_due_s(), *self._later.values()]
        return min((time for time in times if time is not None), default=None)

    def _write(self, verdict: Verdict, now_s: float) -> None:
        entry = self._ledger.current(verdict.workload)
        if entry is None:
            return
        key = WorkloadKey(entry.workload.key)
        if (
            entry.writing
            or key in self._engine.state.unwritten.admissions
            or key in self._engine.state.unwritten.evictions
        ):
            self._let_go(key)
            self._later[verdict.workload] = now_s + _TOGETHER_S
            return
        before, hosts = entry.workload, verdict.unhealthy[:_MOST_NAMED]
        stuck = {pod: self.failures.uid(pod) for pod in verdict.stuck}
        named = tuple(UnhealthyNode(name=host) for host in hosts)
        if named == before.status.unhealthy_nodes and not verdict.evict:
            self._fail(stuck, hosts)
            return
        if verdict.evict:
            after = evicted(before, reasons.NODE_FAILURES, sentence(hosts), now_s=now_s)
            event = Event(key, EventType.NORMAL, f"EvictedDueTo{reasons.NODE_FAILURES}", sentence(hosts))
        else:
            after = msgspec.structs.replace(
                before, status=msgspec.structs.replace(before.status, unhealthy_nodes=named)
            )
            event = Event(key, EventType.WARNING, UNHEALTHY_NODE, statuses.node_of_pods_lost(", ".join(hosts)))

        def then(result: Result, _why: str) -> None:
            if result is Result.WRITTEN:
                if hosts:
                    self._tell((event,))
                self._fail({} if verdict.evict else stuck, hosts)
            elif result is not Result.GONE:
                self._later[verdict.workload] = self._clock.wall() + _AGAIN_S
                self._turns.wake()

        self._writes.status(entry, after, then, Failpoint.NODE_FAILURE)

    def _fail(self, pods: dict[str, str], hosts: tuple[str, ...]) -> None:
        """``pods``: uids by ``namespace/name``. Another pod of the name, which may be well, is not failed."""
        for name, uid in pods.items():
            namespace, _, pod = name.partition("/")
            message = f"Assigned to {', '.join(hosts) or 'a node'}, which was lost"
            status = {"phase": "Failed", "reason": UNHEALTHY_NODE, "message": message}
            self._put(
                stamped_write(
                    Verb.MERGE_PATCH,
                    PODS,
                    {"namespace": namespace, "name": pod},
                    {"metadata": {"uid": uid}, "status": status},
                    Failpoint.POD_NODE_FAILURE,
                    subresource="status",
                    slot=UNHEALTHY_NODE,
                )
            )

    def _placed(self, workload: Workload) -> PlacedWorkload | None:
        try:
            return placed(workload, self._tolerations)
        except TopologyEncodingError as error:
            log.warning("workload %s: its places cannot be read: %s", workload.key, error)
            return None

    def _tolerations(self, flavor: str) -> tuple[Toleration, ...]:
        found = self._engine.state.cluster.flavors.get(FlavorName(flavor))
        return found.spec.tolerations if found is not None else ()


def placed(workload: Workload, tolerations: Callable[[str], tuple[Toleration, ...]]) -> PlacedWorkload | None:
    """The workload's topology assignment by host; None if it has none to hosts, or is over. Raises
    TopologyEncodingError.
    """
    status = workload.status
    if status.admission is None:
        return None if is_true(status.conditions, reasons.FINISHED) else _named(workload, {}, frozenset(), {})
    ends = (reasons.EVICTED, reasons.FINISHED, reasons.DEACTIVATION_TARGET)
    if not is_true(status.conditions, reasons.ADMITTED) or any(is_true(status.conditions, end) for end in ends):
        return None
    pods: dict[str, int] = {}
    tolerated: dict[str, tuple[Toleration, ...]] = {}
    sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    assigned = status.admission.pod_set_assignments
    by_host = one_set(each.name for each in assigned if _is_by_host(each) and each.name in sets)
    for pod_set_assignment in assigned:
        topology = pod_set_assignment.topology_assignment
        if topology is None or pod_set_assignment.name not in by_host:
            continue
        flavors = sorted(set(pod_set_assignment.flavors.values()))
        added = (
            *sets[pod_set_assignment.name].template.spec.tolerations,
            *(each for flavor in flavors for each in tolerations(flavor)),
            *_of_checks(workload, pod_set_assignment.name),
        )
        for domain in decode(topology):
            host = domain.values[-1]
            pods[host] = pods.get(host, 0) + domain.pods
            if added:
                tolerated[host] = tuple(dict.fromkeys((*tolerated.get(host, ()), *added)))
    return _named(workload, pods, by_host, tolerated) if pods else None


def _named(
    workload: Workload,
    pods: dict[str, int],
    pod_sets: frozenset[str],
    tolerated: dict[str, tuple[Toleration, ...]],
) -> PlacedWorkload:
    named = tuple(unhealthy_node.name for unhealthy_node in workload.status.unhealthy_nodes)
    if not (pods or named):
        return NOWHERE
    return PlacedWorkload(pods=pods, pod_sets=pod_sets, unhealthy=named, tolerations=tolerated or NOWHERE.tolerations)


def _is_by_host(assignment: PodSetAssignment) -> bool:
    given = assignment.topology_assignment
    return given is not None and bool(given.levels) and given.levels[-1] == HOSTNAME_LABEL


def _of_checks(workload: Workload, pod_set: str) -> Iterator[Toleration]:
    """Tolerations that admission checks added to the pod set."""
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name == pod_set:
                yield from update.tolerations


def node_state(node: Node) -> NodeState:
    ready = find_condition(node.status.conditions, "Ready")
    return NodeState(
        host=node.metadata.labels.get(HOSTNAME_LABEL, node.metadata.name),
        ready=None if ready is None else ready.status == "True",
        since_s=epoch_s(ready.last_transition_time) if ready is not None else 0.0,
        taints=node.spec.taints,
    )


def pod_on_host(pod: Pod) -> PodOnHost | None:
    """The pod with its host; None for a pod of no workload, and for one that has a scheduling gate."""
    key, spec = workload_of(pod), pod.spec
    host = spec.node_selector.get(HOSTNAME_LABEL, spec.node_name)
    if key is None or not host:
        return None
    state = _state(pod)
    if state is None:
        return None
    pod_set = pod.metadata.labels.get(names.POD_SET, "")
    return PodOnHost(key, host, state, pod_set, asks_for_topology(pod), pod.metadata.uid)


def _state(pod: Pod) -> PodState | None:
    if pod.status.phase == "Succeeded":
        return PodState.SUCCEEDED
    if pod.status.phase == "Failed" or pod.metadata.deletion_timestamp is not None:
        return PodState.TERMINATING
    if pod.spec.node_name:
        return PodState.RUNNING
    return None if pod.spec.scheduling_gates else PodState.WAITING
