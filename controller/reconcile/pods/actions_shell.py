"""Carries out the actions about pods and their workload. Patches of many pods are sent side by side, all else in
order.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.ledger import WrittenVersions
from controller.cluster.watching.workqueue import ActionFailedError, NotYetError
from controller.cluster.writing.stampedwrites import Stamped, failure, stamped_write, written
from controller.jobs.framework.actions import AwaitOwner, EmitEvent, Refuse
from controller.jobs.framework.podview import TERMINATION_TARGET
from controller.jobs.framework.raw import Json
from controller.objects.meta import to_json
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.pods.actions import DeletePod, PatchPod, PodAction
from controller.scheduler.decisions import status
from failpoints.names import Failpoint
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Refused, Verb, Written

_AT_ONCE: Final = 8
"""Patches in flight at a time. More would keep the engine from deciding: a gang of thousands must not delay
admissions."""
_Told = tuple[ObjectReference, str, str, str]
"""An Event: about what, type, reason and note."""


class PodActions:
    """``carry_out`` raises ActionFailedError and KubeError. ``tell`` records an Event: about what, type, reason, note.

    ``written`` holds this controller's last patches of pods that no watch has shown. Only patches here add to it; the
    shell, which hears of pods, asks it and forgets pods that are gone.
    """

    def __init__(
        self,
        writer: Writer,
        workloads: WorkloadActions,
        tell: Callable[[ObjectReference, str, str, str], None],
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._workloads = workloads
        self._tell = tell
        self._clock = clock
        self._patching = asyncio.Semaphore(_AT_ONCE)
        self.written = WrittenVersions()
        self._told: dict[str, tuple[_Told, ...]] = {}
        """Events of the last reconciliation by the uid of their object: they are not repeated."""

    async def carry_out(
        self,
        about: ObjectReference,
        pods: Mapping[str, Json],
        actions: Sequence[PodAction],
        still: Callable[[], bool] = lambda: True,
        *,
        made_for: Collection[Json] | None = None,
    ) -> None:
        """Carries out the actions. ``about``: the object of Events, and its namespace. ``pods``: by name, as they were
        seen.

        ``still``: whether the decision holds. Patches of a large gang take a while; patches that are not sent when it
        ceases to hold are dropped. ``made_for``: the objects of that kind that a new Workload is for; None: the pods.
        """
        objects = pods.values() if made_for is None else made_for
        events: list[_Told] = []
        repeated = self._told.get(about.uid, ())
        for kind, run in groupby(actions, type):
            together = list(run)
            if kind is PatchPod:
                patches = [patch for patch in together if isinstance(patch, PatchPod)]
                await _all(self._patch(about, pods[patch.name], patch, still) for patch in patches)
                continue
            for action in together:
                match action:
                    case DeletePod():
                        await self._delete(pods[action.name], action)
                    case EmitEvent(type=type_, reason=reason, message=note):
                        events.append((about, type_, reason, note))
                    case AwaitOwner(message=note):
                        events.append((about, "Normal", "AwaitsOwner", note))
                    case Refuse(reason=reason, sentence=note):
                        events += [(each, "Warning", reason, note) for each in _refused(about, pods.values())]
                    case PatchPod():
                        raise AssertionError("sent above")
                    case _:
                        await self._workloads.carry_out(action, about.namespace, about.kind, objects)
        for event in events:
            if event not in repeated:
                self._tell(*event)
        self._told[about.uid] = tuple(events)
        if waiting := next((action.message for action in actions if isinstance(action, AwaitOwner)), ""):
            raise NotYetError(waiting)

    def forget(self, uid: str) -> None:
        """Forgets the Events of an object that is gone."""
        self._told.pop(uid, None)

    async def _patch(self, about: ObjectReference, pod: Json, action: PatchPod, still: Callable[[], bool]) -> None:
        async with self._patching:
            if not still():
                raise ActionFailedError(f"{about.kind} {about.name} has changed meanwhile")
            outcome = await self._writer.put(
                stamped_write(Verb.MERGE_PATCH, PODS, pod["metadata"], action.body, Failpoint.POD_PATCHED)
            )
        match outcome:
            case Written(object=answer):
                self._note(pod, answer)
            case Missing():
                pass  # the watch says so in a moment
            case Refused(error=error):
                self._tell(about, "Warning", "PodNotChanged", f"Pod {action.name}: {error}")
                raise ActionFailedError(str(error))
            case _:
                raise failure(outcome)

    async def _delete(self, pod: Json, action: DeletePod) -> None:
        if not await self._mark(pod, action):
            return
        if action.uncounted:
            await self._leave_job(pod, action)
        write = stamped_write(Verb.DELETE, PODS, pod["metadata"], action.uid, Failpoint.POD_DELETED)
        await written(self._writer.put, write, Missing, Conflicted)

    async def _leave_job(self, pod: Json, action: DeletePod) -> None:
        write = stamped_write(Verb.JSON_PATCH, PODS, pod["metadata"], list(action.uncounted), Failpoint.POD_LEFT_JOB)
        answer = await written(self._writer.put, write, Missing)
        self._note(pod, answer)

    async def _mark(self, pod: Json, action: DeletePod) -> bool:
        """Sets the condition that says that the queue deletes the pod; False if the pod is gone already."""
        had = [
            condition for condition in (pod.get("status") or {}).get("conditions") or [] if isinstance(condition, dict)
        ]
        if any(existing.get("type") == TERMINATION_TARGET and existing.get("status") == "True" for existing in had):
            return True
        condition = {
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": action.reason,
            "message": action.message,
            "lastTransitionTime": to_json(status.moment(self._clock.wall())),
        }
        meta = pod["metadata"]
        kept = [existing for existing in had if existing.get("type") != TERMINATION_TARGET]
        body = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": {"conditions": [*kept, condition]},
        }
        write = stamped_write(Verb.MERGE_PATCH, PODS, pod["metadata"], body, Failpoint.POD_MARKED, subresource="status")
        outcome = await self._writer.put(write)
        if isinstance(outcome, Missing):
            return False
        if not isinstance(outcome, Written):
            raise failure(outcome)
        self._note(pod, outcome.object)
        return True

    def _note(self, pod: Json, answer: Stamped | None) -> None:
        if answer is not None:
            meta = pod["metadata"]
            self.written.wrote(
                ObjectKey(meta["namespace"], meta["name"]), meta["uid"], answer.metadata.resource_version
            )


async def _all(patches: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Sends all patches; then raises the first failure."""
    results = await asyncio.gather(*patches, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _refused(about: ObjectReference, pods: Iterable[Json]) -> list[ObjectReference]:
    """The objects that are told of a refusal: each of the pods, as people look at any of them."""
    if about.kind != PODS.kind:
        return [about]
    metas = [pod["metadata"] for pod in pods]
    return [
        ObjectReference(PODS.api_version, PODS.kind, each["name"], each.get("uid", ""), about.namespace)
        for each in metas
    ]
