"""Drains GPUs whose repair was granted that, and nodes whose reboot is planned for a repair, live.

GpuNodes, Nodes -> drains and holders -> controller.reconcile.repairs.draining -> Events, evictions, requeued workloads

A drain holds while its agent asks for it and has the grant, as the GpuNode says, or while the Node says that its
reboot is planned: a new leader goes on with it. Pods are evicted by the Eviction API, which PodDisruptionBudgets may
refuse.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from controller.cluster.config.settings import OnGpuFailure
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, NODES, PODS, reader
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.messages import repairs as words
from controller.messages.spans import exact
from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.meta import find_condition
from controller.reconcile.failures.holders_shell import (
    TOO_MANY,
    Foretelling,
    about_pod,
    about_workload,
    evict,
    requeue,
    runs,
    victim,
)
from controller.reconcile.repairs.draining import REFUSED_S, Drain, DrainAction, Draining, DrainKind, DrainReason
from controller.reconcile.repairs.grants import DRAIN, REBOOT, node_repairs
from controller.reconcile.repairs.repairs_shell import about_node
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from inventory.api.gpunode import GRANT_LASTS_S
from inventory.api.names import MAINTENANCE_PLANNED, REPAIR_PLANNED
from kube.client import Client
from kube.clock import Clock, Turns
from kube.errors import KubeError, NotFoundError
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed

log = logging.getLogger(__name__)

GPU_DRAINED: Final = "GpuDrained"
NOTICE_S: Final = GRANT_LASTS_S / 2
"""The seconds that a pod which may finish has from the grant at least; the grant still holds then."""
_TOGETHER_S: Final = 0.2
"""The time for which reports are gathered: a gang whose GPUs fail together is decided on once."""
_AGAIN_S: Final = 1.0
_REFUSED_AGAIN_S: Final = 5.0

_read_pod = reader(Pod)


class DrainController:
    """``hear`` takes changes of GpuNodes and Nodes; ``run``, from when all workloads are known, works until cancelled.

    ``usual``: the policy of pods that have none. ``wait_s``: how long a pod that its policy leaves alone may stay, from
    when its GPU's repair began. ``count`` gets the kind of each action; ``tell`` records an Event: about what, type,
    reason, note.
    """

    def __init__(  # noqa: PLR0913
        self,
        usual: OnGpuFailure,
        wait_s: float,
        client: Client,
        ledger: Ledger,
        writes: WorkloadWrites,
        *,
        clock: Clock,
        may_write: Callable[[], bool],
        count: Callable[[str], None],
        tell: Callable[[ObjectReference, str, str, str], None],
        foretelling: Foretelling,
    ) -> None:
        self.draining = Draining()
        self._usual = usual
        self._wait_s = wait_s
        self._client = client
        self._ledger = ledger
        self._writes = writes
        self._clock = clock
        self._may_write = may_write
        self._count = count
        self._tell = tell
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._foretelling = foretelling
        self._gpu_nodes: dict[str, GpuNode] = {}
        """GpuNodes that ask for a reboot, or for a drain."""
        self._planned_s: dict[str, float] = {}
        """Since when a reboot is planned, by node."""
        self._refused: dict[str, str] = {}
        """Why evictions were refused last, as it was logged, by pod."""

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                if any(repair.asks in (DRAIN, REBOOT) for repair in entry.object.status.repairs):
                    self._gpu_nodes[key.name] = entry.object
                elif self._gpu_nodes.pop(key.name, None) is None:
                    return
            case Removed(key=key) if observed.resource == GPU_NODES:
                self._gpu_nodes.pop(key.name, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                planned_s = reboot_planned_s(entry.object)
                if planned_s == self._planned_s.get(key.name):
                    return
                if planned_s is None:
                    del self._planned_s[key.name]
                else:
                    self._planned_s[key.name] = planned_s
            case Removed(key=key) if observed.resource == NODES:
                self._planned_s.pop(key.name, None)
            case _:
                return
        self._take_in(key.name)

    def _take_in(self, name: str) -> None:
        node_drains: tuple[Drain, ...] = ()
        holders: list[tuple[str, str]] = []
        node = self._gpu_nodes.get(name)
        if node is not None:
            node_drains = (*drains(node, self._wait_s), *reboot_drains(node, self._planned_s.get(name), self._wait_s))
            holders = [(each.physical, each.pod_key) for each in node.status.holders] if node_drains else []
        if self.draining.set_node(name, node_drains, holders):
            self._turns.wake()

    async def run(self) -> None:
        try:
            while True:
                await self._turns.next(self.draining.next_due_s())
                await self._look_up()
                for action in self.draining.due_actions(self._clock.wall()):
                    await self._carry_out(action)
        finally:
            self._foretelling.end()

    async def _look_up(self) -> None:
        for key in self.draining.unknown():
            namespace, _, name = key.partition("/")
            try:
                pod = _read_pod(bytes(await self._client.get(PODS, name, msgspec.Raw, namespace=namespace)))
            except NotFoundError:
                self.draining.set_pod(key, None)
            except (KubeError, ValueError) as error:
                log.warning("pod %s, which holds a GPU that is drained, cannot be read, trying on: %s", key, error)
                self._turns.again(_AGAIN_S)
            else:
                # An agent says who holds its GPUs: no pod of another node leaves by its word.
                is_there = pod.spec.node_name in self.draining.nodes_of(key)
                self.draining.set_pod(key, victim(pod, self._usual, self._ledger)[0] if is_there else None)

    # -- what is done ------------------------------------------------------------------------------------------------

    async def _carry_out(self, action: DrainAction) -> None:
        match action.kind:
            case DrainKind.TELL:
                self._count(action.kind.value)
                until = datetime.fromtimestamp(action.until_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
                self._say(action, "Normal", words.may_finish(action.drain.cause, until))
            case DrainKind.REQUEUE:
                self._requeue(action)
            case DrainKind.EVICT:
                await self._evict(action)

    def _say(self, action: DrainAction, type_: str, note: str) -> None:
        for pod, uid in action.pods:
            self._tell(about_pod(pod, uid), type_, GPU_DRAINED, note)

    async def _evict(self, action: DrainAction) -> None:
        """Evicts the one pod of the action, and no other of its name."""
        ((pod, uid),) = action.pods
        try:
            await evict(self._client, pod, uid, Failpoint.DRAIN_EVICTED, may_write=self._may_write)
        except NotFoundError:
            return
        except KubeError as error:
            self._not_evicted(action, error)
        else:
            self._count(action.kind.value)
            self._say(action, "Warning", words.drain_evicted(action.drain.cause))
            if action.workload is not None:
                self._foretelling.begin(action.workload, action.drain.cause, GPU_DRAINED)

    def _not_evicted(self, action: DrainAction, error: KubeError) -> None:
        pod, why = action.pods[0][0], str(error)
        if self._refused.get(pod) != why:
            log.info("pod %s: its eviction is refused, trying on: %s", pod, why)
            self._refused = {each: said for each, said in self._refused.items() if self.draining.nodes_of(each)}
            self._refused[pod] = why
        if error.status != TOO_MANY:
            self.draining.failed(action)
            self._turns.again(_AGAIN_S)
            return
        if self.draining.refused(action, self._clock.wall()):
            self._count("refused")
            since = exact(REFUSED_S)
            self._say(action, "Warning", words.drain_refused(action.drain.cause, since, why))
            # People who look after the node do not look at each pod.
            held_up = words.drain_held_up(action.drain.cause, action.pods[0][0], since, why)
            self._tell(about_node(action.node), "Warning", GPU_DRAINED, held_up)
        self._turns.again(_REFUSED_AGAIN_S)

    def _requeue(self, action: DrainAction) -> None:
        assert action.workload is not None
        entry = self._ledger.get(action.workload)
        if entry is None or not runs(entry):
            return  # it is evicted already, and its pods are on their way out
        if entry.writing:
            self.draining.failed(action)
            self._turns.again(_TOGETHER_S)
            return
        then = partial(self._requeued, action)
        requeue(self._writes, entry, action.drain.cause, then, Failpoint.DRAIN_REQUEUED, now_s=self._clock.wall())

    def _requeued(self, action: DrainAction, result: Result, why: str) -> None:
        if result is Result.WRITTEN:
            self._count(action.kind.value)
            self._say(action, "Warning", words.drain_requeued(action.drain.cause, str(action.workload)))
            entry = self._ledger.get(action.workload) if action.workload is not None else None
            if entry is not None:
                note = action.drain.cause
                self._tell(about_workload(entry), "Normal", f"EvictedDueTo{reasons.NODE_FAILURES}", note)
                self._foretelling.begin(WorkloadKey(entry.workload.key), action.drain.cause, GPU_DRAINED)
        elif result in (Result.LOST, Result.REFUSED):
            log.warning("workload %s: it was not requeued for a drain, trying on: %s", action.workload, why)
            self.draining.failed(action)
            self._turns.again(_AGAIN_S)
            self._turns.wake()


def drains(node: GpuNode, wait_s: float) -> Iterator[Drain]:
    """The GPUs whose agent asks for a drain and has the grant, with those that their reset takes along, and the MIG
    instances of all. The grant before counts too
    until it ends: a drain that lasts longer is asked for with a new generation, and does not begin anew. A pod that may
    finish has NOTICE_S from the grant at least, should that come late.
    """
    found = node_repairs(node.metadata.name, node.status)
    repairs = {repair.gpu: repair for repair in node.status.repairs}
    for ask in found.asks:
        grant = found.grants.get(ask.gpu)
        if ask.action != DRAIN or grant is None or grant.action != DRAIN or grant.generation > ask.generation:
            continue
        repair, since_s = repairs[ask.gpu], ask.since_s or grant.granted_s
        if all(device.uuid != ask.gpu for device in node.status.devices):
            continue
        for device in node.status.devices:
            if device.uuid == ask.gpu or device.uuid in repair.takes_along:
                yield Drain(
                    devices=frozenset(device.uuids),
                    reason=DrainReason.REPAIR,
                    cause=words.drained_for_repair(ask.gpu, node.metadata.name, repair.cause),
                    until_s=max(since_s + wait_s, grant.granted_s + min(wait_s, NOTICE_S)),
                    ends_s=grant.granted_s + GRANT_LASTS_S,
                    failed=not device.healthy,
                )


def reboot_planned_s(node: Node) -> float | None:
    """Since when the Node says that it is to be rebooted for a repair; None where it does not."""
    planned = find_condition(node.status.conditions, MAINTENANCE_PLANNED)
    if planned is None or planned.status != "True" or planned.reason != REPAIR_PLANNED:
        return None
    return planned.last_transition_time.timestamp() if planned.last_transition_time is not None else 0.0


def reboot_drains(node: GpuNode, planned_s: float | None, wait_s: float) -> Iterator[Drain]:
    """All GPUs of a node whose reboot is planned for a repair, where its agent may let pods be asked to leave
    (``remediation.reset: drain``): the reboot is asked for when nobody holds one of them.

    Pods of each policy may finish until their time is over, on GPUs that are well: ``wait_s`` after the repair wanted
    the reboot, and NOTICE_S after it was planned at least. ``planned_s`` is None where it is not.
    """
    if planned_s is None or node.status.reset_mode != DRAIN:
        return
    asking = [repair for repair in node.status.repairs if repair.asks == REBOOT]
    if not asking:
        return
    since_s = min(repair.since.timestamp() if repair.since is not None else planned_s for repair in asking)
    for device in node.status.devices:
        yield Drain(
            devices=frozenset(device.uuids),
            reason=DrainReason.REBOOT,
            cause=words.drained_for_reboot(node.metadata.name, asking[0].gpu, asking[0].cause),
            until_s=max(since_s + wait_s, planned_s + min(wait_s, NOTICE_S)),
            failed=not device.healthy,
            waits=True,
        )
