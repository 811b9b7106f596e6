"""Carries out each pod's policy when a GPU fails under it.

GpuNodes -> controller.reconcile.failures.gpufailures -> pods, read from the API server -> Event, eviction, requeueing

A pod is read once it is known to hold a failed GPU: that is rare, and the pods of a cluster are too many to watch.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from controller.cluster.config.settings import GpuFailureRules, OnGpuFailure
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, PODS, reader
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.messages import repairs as words
from controller.messages.spans import exact
from controller.objects.core import Pod
from controller.objects.decode import GpuNode
from controller.reconcile.failures.gpufailurerecord_shell import GpuFailureRecord
from controller.reconcile.failures.gpufailures import REFUSED_S, GpuFailureAction, GpuFailures, Victim
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
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from inventory.api.gpunode import Health
from kube.client import Client
from kube.clock import Clock, Turns, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed

log = logging.getLogger(__name__)

GPU_FAILED: Final = "GpuFailed"
_TOGETHER_S: Final = 0.2
"""The time for which reports are gathered: GPUs of one node often fail together."""
_AGAIN_S: Final = 1.0

_read_pod = reader(Pod)


class GpuFailureController:
    """``hear`` takes changes of GpuNodes; ``run``, from when all workloads are known, works on them until cancelled.

    ``count`` gets the kind of each action; ``tell`` records an Event: about what, type, reason, note.
    """

    def __init__(  # noqa: PLR0913
        self,
        rules: GpuFailureRules,
        client: Client,
        ledger: Ledger,
        writes: WorkloadWrites,
        record: GpuFailureRecord,
        *,
        clock: Clock,
        may_write: Callable[[], bool],
        count: Callable[[str], None],
        tell: Callable[[ObjectReference, str, str, str], None],
        foretelling: Foretelling,
    ) -> None:
        self.failures = GpuFailures(rules)
        self._client = client
        self._ledger = ledger
        self._writes = writes
        self._may_write = may_write
        self._record = record
        self._clock = clock
        self._count = count
        self._tell = tell
        self._foretelling = foretelling
        self._turns = Turns(clock, together_s=_TOGETHER_S)

    def hear(self, observed: ObjectChange) -> None:
        if observed.resource != GPU_NODES:
            return
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry):
                node = entry.object
                holders = [(holder.physical, holder.pod_key) for holder in node.status.holders]
                self.failures.set_node(key.name, failed(node), holders)
            case Removed(key=key):
                self.failures.remove_node(key.name)
        self._turns.wake()

    async def run(self) -> None:
        await self._recall()
        try:
            while True:
                await self._turns.next(self.failures.next_due_s())
                await self._look_up()
                await self._act(self.failures.due_actions(self._clock.wall()))
        finally:
            self._foretelling.end()

    async def _recall(self) -> None:
        """Reads the previous leader's actions: no action is taken before the budget is known."""
        while True:
            try:
                recent = await self._record.read()
            except ForbiddenError as error:
                log.warning("the record of actions for failed GPUs cannot be read, the budget is full: %s", error)
                return
            except KubeError as error:
                log.warning("the record of actions for failed GPUs cannot be read, trying on: %s", error)
                await sleep(self._clock, _AGAIN_S)
            else:
                self.failures.recall(recent, self._clock.wall())
                return

    async def _act(self, actions: Sequence[GpuFailureAction]) -> None:
        """Takes actions. Those that count are recorded first: if a new leader comes in between, it takes too few rather
        than too many.
        """
        counting = [planned for planned in actions if not planned.held_back and planned.kind is not OnGpuFailure.NOTIFY]
        for action in actions:
            if action not in counting:
                await self._carry_out(action)
        if counting and await self._record.write(self.failures.recent()):
            for action in counting:
                await self._carry_out(action)

    async def _look_up(self) -> None:
        for key in self.failures.unknown():
            namespace, _, name = key.partition("/")
            try:
                pod = _read_pod(bytes(await self._client.get(PODS, name, msgspec.Raw, namespace=namespace)))
            except NotFoundError:
                self.failures.set_pod(key, None)
            except (KubeError, ValueError) as error:
                log.warning("pod %s, which holds a failed GPU, cannot be read, trying on: %s", key, error)
                self._turns.again(_AGAIN_S)
            else:
                self.failures.set_pod(key, self._victim(pod))

    def _victim(self, pod: Pod) -> Victim | None:
        found, invalid = victim(pod, self.failures.rules.policy, self._ledger)
        if invalid:
            self._tell(about_pod(pod.key, pod.metadata.uid), "Warning", "InvalidGpuFailurePolicy", invalid)
        return found

    # -- what is done ------------------------------------------------------------------------------------------------

    async def _carry_out(self, action: GpuFailureAction) -> None:
        gone = f"GPU {action.device} of node {action.node} has failed ({action.cause})"
        if action.held_back:
            self._count("held-back")
            self._say(action, f"{gone}; {action.kind} is held back: {action.held_back}")
            return
        match action.kind:
            case OnGpuFailure.NOTIFY:
                self._count(action.kind.value)
                self._say(action, f"{gone}; the pod keeps running")
            case OnGpuFailure.REQUEUE_GANG if action.victim.workload is not None:
                self._count(action.kind.value)
                self._requeue(action, action.victim.workload, gone)
            case _:
                await self._evict(action, gone)

    def _say(self, action: GpuFailureAction, note: str) -> None:
        self._tell(about_pod(action.pod, action.victim.uid), "Warning", GPU_FAILED, note)

    async def _evict(self, action: GpuFailureAction, gone: str) -> None:
        """Evicts the pod, if its PodDisruptionBudgets allow it. The API server's condition DisruptionTarget tells a
        Job's pod failure policy that the pod is not to blame.
        """
        try:
            uid = action.victim.uid
            await evict(self._client, action.pod, uid, Failpoint.POD_GPU_FAILURE, may_write=self._may_write)
        except NotFoundError:
            return
        except KubeError as error:
            if error.status != TOO_MANY:
                self._failed(action, str(error))
                return
            log.info("pod %s: its eviction is refused, trying on: %s", action.pod, error)
            if self.failures.refused(action, self._clock.wall()):
                self._say(action, words.drain_refused(gone, exact(REFUSED_S), str(error)))
        else:
            self._count(action.kind.value)
            self._say(action, f"{gone}; the pod is evicted")
            if action.victim.workload is not None:
                self._foretelling.begin(action.victim.workload, gone, GPU_FAILED)

    def _requeue(self, action: GpuFailureAction, key: WorkloadKey, gone: str) -> None:
        entry = self._ledger.get(key)
        if entry is None or not runs(entry):
            return
        if entry.writing:
            self._failed(action, "")
            return
        then = partial(self._requeued, action, key, gone)
        requeue(self._writes, entry, gone, then, Failpoint.GPU_FAILURE_REQUEUED, now_s=self._clock.wall())

    def _requeued(self, action: GpuFailureAction, key: WorkloadKey, gone: str, result: Result, why: str) -> None:
        if result is Result.WRITTEN:
            self._say(action, f"{gone}; workload {key} is requeued")
            entry = self._ledger.get(key)
            if entry is not None:
                self._tell(about_workload(entry), "Normal", f"EvictedDueTo{reasons.NODE_FAILURES}", gone)
                self._foretelling.begin(key, gone, GPU_FAILED)
        elif result in (Result.LOST, Result.REFUSED):
            self._failed(action, why)

    def _failed(self, action: GpuFailureAction, why: str) -> None:
        if why:
            log.warning("pod %s: %s was not carried out, trying on: %s", action.pod, action.kind, why)
        self.failures.failed(action)
        self._turns.again(_AGAIN_S)
        self._turns.wake()


def failed(node: GpuNode) -> dict[str, str]:
    """Devices that are not allocatable any more, by UUID of GPU or MIG instance, and why."""
    reasons_by_uuid: dict[str, str] = {}
    for device in node.status.devices:
        if not device.healthy:
            reasons_by_uuid[device.uuid] = _why(device.health)
        for instance in device.mig.instances if device.mig is not None else ():
            health = instance.health if instance.health is not None else device.health
            if health is not None and not health.handed_out:
                reasons_by_uuid[instance.uuid] = _why(health)
    return reasons_by_uuid


def _why(health: Health | None) -> str:
    return "" if health is None else ", ".join(health.reasons) or health.state
