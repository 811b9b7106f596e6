"""The actions about pods and their workload, carried out. Patches of many pods go side by side, all else in order."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from controller.engine.conditions import status
from controller.jobframework.actions import CreateWorkload, EmitEvent
from controller.jobframework.podview import TERMINATION_TARGET
from controller.jobframework.raw import Json
from controller.jobs.actions_shell import Hands, age_s
from controller.objects.meta import to_json
from controller.pods.actions import DeletePod, PatchPod, PodAction, RefusePod
from controller.watching.kinds import PODS
from controller.watching.ledger import WrittenVersions
from controller.watching.workqueue import ActionFailedError
from controller.writing.events import People
from controller.writing.workloadwrites import Stamped
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.reflector import Key
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Refused, Verb, Write, Written

_AT_ONCE: Final = 8
"""Fewer than stop the core from deciding: a gang of thousands must not hold up admissions."""


class PodHands:
    """``carry_out`` raises ActionFailedError and KubeError."""

    def __init__(self, writer: Writer, hands: Hands, people: People, clock: Clock) -> None:
        self._writer = writer
        self._hands = hands
        self._people = people
        self._clock = clock
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.echoes = WrittenVersions()
        self._said: dict[str, tuple[tuple[str, str, str], ...]] = {}
        """By whom it is about: what was said when it was looked at last."""

    async def carry_out(
        self,
        about: ObjectReference,
        pods: Mapping[str, Json],
        actions: Sequence[PodAction],
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        """``about``: whom Events are about, and whose namespace it is. ``pods``: by name, as they were seen.

        ``still``: whether what was decided holds. Patches of a large gang take a while, and those that are not sent
        when it does not hold any more are not sent at all.
        """
        saying: list[tuple[str, str, str]] = []
        said = self._said.get(about.uid, ())
        for kind, run in groupby(actions, type):
            together = list(run)
            if kind is PatchPod:
                patches = [one for one in together if isinstance(one, PatchPod)]
                await _all(self._patch(about, pods[one.name], one, still) for one in patches)
                continue
            for action in together:
                match action:
                    case DeletePod():
                        await self._delete(pods[action.name], action)
                    case EmitEvent(type=type_, reason=reason, message=note):
                        saying.append((type_, reason, note))
                    case RefusePod(reason=reason, sentence=note):
                        saying.append(("Warning", reason, note))
                    case PatchPod():
                        raise AssertionError("sent above")
                    case _:
                        await self._hands.workload(about.namespace, action)
                        if isinstance(action, CreateWorkload) and pods:
                            now_s = self._clock.wall()
                            self._hands.created("Pod", max(age_s(pod, now_s) for pod in pods.values()))
        for sentence in saying:
            if sentence not in said:
                self._people.tell(about, *sentence)
        self._said[about.uid] = tuple(saying)

    def forget(self, uid: str) -> None:
        """The one it was about has gone."""
        self._said.pop(uid, None)

    async def _patch(self, about: ObjectReference, pod: Json, action: PatchPod, still: Callable[[], bool]) -> None:
        async with self._room:
            if not still():
                raise ActionFailedError(f"{about.kind} {about.name} has changed meanwhile")
            outcome = await self._writer.put(_write(Verb.MERGE_PATCH, pod, action.body))
        match outcome:
            case Written(object=answer):
                self._note(pod, answer)
            case Missing():
                pass  # the watch says so in a moment
            case Refused(error=error):
                self._people.tell(about, "Warning", "PodNotChanged", f"Pod {action.name}: {error}")
                raise ActionFailedError(str(error))
            case _:
                raise ActionFailedError(str(getattr(outcome, "error", outcome)))

    async def _delete(self, pod: Json, action: DeletePod) -> None:
        if not await self._tell_why(pod, action):
            return
        outcome = await self._writer.put(_write(Verb.DELETE, pod, action.uid))
        if not isinstance(outcome, Written | Missing | Conflicted):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))

    async def _tell_why(self, pod: Json, action: DeletePod) -> bool:
        """The condition that says that the queue deletes it; False where the pod has gone already."""
        had = [one for one in (pod.get("status") or {}).get("conditions") or [] if isinstance(one, dict)]
        if any(one.get("type") == TERMINATION_TARGET and one.get("status") == "True" for one in had):
            return True
        told = {
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": action.reason,
            "message": action.message,
            "lastTransitionTime": to_json(status.moment(self._clock.wall())),
        }
        meta = pod["metadata"]
        kept = [one for one in had if one.get("type") != TERMINATION_TARGET]
        body = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": {"conditions": [*kept, told]},
        }
        outcome = await self._writer.put(_write(Verb.MERGE_PATCH, pod, body, subresource="status"))
        if isinstance(outcome, Missing):
            return False
        if not isinstance(outcome, Written):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))
        self._note(pod, outcome.object)
        return True

    def _note(self, pod: Json, answer: Stamped | None) -> None:
        if answer is not None:
            meta = pod["metadata"]
            self.echoes.wrote(Key(meta["namespace"], meta["name"]), meta["uid"], answer.metadata.resource_version)


def _write(verb: Verb, pod: Json, body: Any, *, subresource: str | None = None) -> Write[Stamped]:
    meta = pod["metadata"]
    return Write(
        verb=verb,
        resource=PODS,
        namespace=meta["namespace"],
        name=meta["name"],
        subresource=subresource,
        body=body,
        kind=Stamped,
    )


async def _all(patches: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All are tried; then the first failure is raised."""
    results = await asyncio.gather(*patches, return_exceptions=True)
    for one in results:
        if isinstance(one, BaseException):
            raise one
