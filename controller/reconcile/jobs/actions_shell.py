"""Carries out the reconciler's actions: one write each, answered before the next."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.ledger import WrittenVersions
from controller.cluster.watching.workqueue import ActionFailedError, NotYetError
from controller.cluster.writing.stampedwrites import stamped_write, written
from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    Action,
    AwaitOwner,
    AwaitPods,
    EmitEvent,
    LowerGroup,
    MakeGroup,
    Refuse,
    RemoveGroup,
    StartJob,
    StopJob,
    UngatePods,
)
from controller.jobs.framework.kind import JobKind, Patch, api_version
from controller.jobs.framework.raw import Json, annotations, labels, sequence, text
from controller.jobs.framework.steps import not_startable
from controller.messages.jobs import no_group_made
from controller.messages.statuses import gang_has_no_group
from controller.objects.core import ENDED_PHASES
from controller.reconcile.jobs.dropped import dropped
from controller.reconcile.jobs.startgroups_shell import GroupRefusedError, StartGroups
from controller.reconcile.jobshell.watched import resource_of
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.scheduler.decisions.status import MESSAGE_LIMIT
from failpoints.names import Failpoint
from inventory.api.names import ABOVE_MINIMUM_OF
from inventory.words.catalog import plural
from kube.client import Client, Selection
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.writing.writer import Writer
from kube.writing.writes import Verb, Write


class JobActions:
    """``carry_out`` raises ActionFailedError and KubeError. ``tell`` records an Event: about what, type, reason, note.

    ``started`` and ``suspended`` get the kind of a job whose start or suspension was written. ``groups`` writes the
    PodGroups of starts. ``_waiting``: by uid, the
    last Event of a child that waits for its owner. ``_written`` holds this controller's last patches of jobs that no
    watch has shown, by the framework of their kind: only ``_patch_job`` adds to it.
    """

    def __init__(
        self,
        client: Client,
        writer: Writer,
        workloads: WorkloadActions,
        tell: Callable[[ObjectReference, str, str, str], None],
        *,
        started: Callable[[str], None],
        suspended: Callable[[str], None],
        groups: StartGroups | None = None,
    ) -> None:
        self._groups = groups
        self._client = client
        self._writer = writer
        self._workloads = workloads
        self._tell = tell
        self._started = started
        self._suspended = suspended
        self._written: dict[str, WrittenVersions] = {}
        self._waiting: dict[str, str] = {}

    def behind(self, kind: JobKind, key: ObjectKey, uid: str, resource_version: str) -> bool:
        """Whether this view of a job is older than this controller's own last write to it: nothing may be decided by
        it.
        """
        return self._versions(kind).behind(key, uid, resource_version)

    def gone(self, uid: str) -> None:
        """Forgets the Events of the job with this uid, which is gone."""
        self._waiting.pop(uid, None)

    def forget(self, kind: JobKind, key: ObjectKey) -> None:
        """Forgets the writes of a job that is gone."""
        self._versions(kind).forget(key)

    def _versions(self, kind: JobKind) -> WrittenVersions:
        found = self._written.get(kind.framework)
        if found is None:
            found = self._written[kind.framework] = WrittenVersions()
        return found

    async def carry_out(self, kind: JobKind, job: Json, action: Action) -> None:
        match action:
            case StartJob():
                await self._start(kind, job, action)
            case StopJob(patches=patches):
                await self._stop(kind, job, patches)
                if not kind.is_suspended(job):
                    self._suspended(kind.kind)
            case EmitEvent(type=type_, reason=reason, message=note):
                self._tell(_reference(kind, job), type_, reason, note)
            case Refuse(reason=reason, sentence=sentence):
                self._tell(_reference(kind, job), "Warning", reason, sentence)
            case AwaitPods(count=count, patches=patches):
                await self._stop(kind, job, patches)
                raise NotYetError(f"{plural(count, 'of its pods has', 'of its pods have')} not ended")
            case AwaitOwner(message=note):
                uid = text(job, "metadata", "uid")
                if self._waiting.get(uid) != note:
                    self._tell(_reference(kind, job), "Normal", "AwaitsOwner", note)
                self._waiting[uid] = note
                raise NotYetError(note)
            case MakeGroup() | LowerGroup() | RemoveGroup():
                await self._group(kind, job, action)
            case UngatePods(gate=gate, counts=counts):
                await self._ungate(kind, job, gate, counts)
            case _:
                await self._workloads.carry_out(action, job["metadata"].get("namespace", ""), kind.kind, [job])

    async def _group(self, kind: JobKind, job: Json, action: MakeGroup | LowerGroup | RemoveGroup) -> None:
        assert self._groups is not None, "an action about groups follows from groups that are known"
        try:
            await self._groups.carry_out(action, job["metadata"]["namespace"])
        except ActionFailedError as error:
            if isinstance(action, MakeGroup):
                self._tell(_reference(kind, job), "Warning", "PodGroupNotMade", no_group_made(str(error)))
                await self._refused(kind, job, action, error)
            raise

    async def _refused(self, kind: JobKind, job: Json, action: MakeGroup, error: ActionFailedError) -> None:
        """Tells a refusal on the Workload, once: the time after which its quota is taken back counts from then."""
        message = gang_has_no_group(str(error))[:MESSAGE_LIMIT]
        if isinstance(error, GroupRefusedError) and message != action.told:
            await self.carry_out(kind, job, msgspec.structs.replace(action.refused, message=message))

    async def _start(self, kind: JobKind, job: Json, start: StartJob) -> None:
        """Starts the job. The answer shows what was stored: a job that is not told where to run must neither run nor
        hold quota.
        """
        for patch in start.patches:
            stored = await self._patch_job(kind, job, patch, Failpoint.JOB_STARTED)
            field = dropped(stored, patch.body) if stored is not None and not patch.subresource else ""
            if field:
                sentence = f"The job cannot start: the API server does not keep {field}: expected a CRD with this field"
                for action in not_startable(start.name, start.uid, sentence):
                    await self.carry_out(kind, job, action)
                raise ActionFailedError(sentence)
        if any(not patch.subresource for patch in start.patches):
            self._started(kind.kind)

    async def _stop(self, kind: JobKind, job: Json, patches: Sequence[Patch]) -> None:
        for patch in patches:
            await self._patch_job(kind, job, patch, Failpoint.JOB_STOPPED)

    async def _patch_job(self, kind: JobKind, job: Json, patch: Patch, failpoint: Failpoint) -> Json | None:
        """Sends the patch, and returns the job as it is stored then."""
        meta = job["metadata"]
        write = Write(
            verb=Verb.MERGE_PATCH,
            resource=resource_of(kind),
            namespace=meta["namespace"],
            name=meta["name"],
            subresource=patch.subresource or None,
            body=patch.body,
            kind=dict[str, Any],
            failpoint=failpoint,
        )
        answer = await written(self._writer.put, write)
        if answer is not None:
            key, version = ObjectKey(meta["namespace"], meta["name"]), text(answer, "metadata", "resourceVersion")
            self._versions(kind).wrote(key, meta.get("uid", ""), version)
        return answer

    # -- pods --------------------------------------------------------------------------------------------------------

    async def gated_pods(self, kind: JobKind, job: Json, gate: str) -> int:
        return sum(gate in _gates(pod) for pod in await self.pods(kind, job))

    async def left_pods(self, kind: JobKind, job: Json) -> dict[str, int]:
        """The number of the job's pods that have not ended, by the pod set that a start has labelled them with.

        Pods above its minimum are left out: they have quota of their own.
        """
        pods = [pod for pod in _going(await self.pods(kind, job)) if not annotations(pod).get(ABOVE_MINIMUM_OF)]
        return dict(Counter(labels(pod).get(names.POD_SET, "") for pod in pods))

    async def pods(self, kind: JobKind, job: Json) -> Sequence[Json]:
        chosen = Selection(namespace=job["metadata"]["namespace"], label_selector=kind.pod_selector(job))
        return (await self._client.list_all(PODS, dict[str, Any], chosen)).items

    async def _ungate(self, kind: JobKind, job: Json, gate: str, counts: dict[str, int]) -> None:
        """Removes the gate from the oldest pods of each pod set until as many as were admitted are without it."""
        for pod in pods_to_ungate(await self.pods(kind, job), gate, counts):
            gates = [entry for entry in sequence(pod, "spec", "schedulingGates") if entry.get("name") != gate]
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "spec": {"schedulingGates": gates or None}}
            write = stamped_write(Verb.MERGE_PATCH, PODS, pod["metadata"], body, Failpoint.JOB_PODS_UNGATED)
            await written(self._writer.put, write)


def pods_to_ungate(pods: Sequence[Json], gate: str, counts: dict[str, int]) -> list[Json]:
    """Pods that may lose ``gate``, so that ``counts`` of each pod set are without it.

    A start labels the pods with their pod set. A pod without the label belongs to the one pod set of a job that has no
    other; where there are several it was not charged, and keeps its gate.
    """
    live = _going(pods)
    losing: list[Json] = []
    for name, count in counts.items():
        own = [pod for pod in live if len(counts) == 1 or labels(pod).get(names.POD_SET) == name]
        free = sum(gate not in _gates(pod) for pod in own)
        held = sorted(
            (pod for pod in own if gate in _gates(pod)),
            key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]),
        )
        losing += held[: max(0, count - free)]
    return losing


def _going(pods: Sequence[Json]) -> list[Json]:
    """The pods that have not ended."""
    return [pod for pod in pods if pod.get("status", {}).get("phase") not in ENDED_PHASES]


def _reference(kind: JobKind, job: Json) -> ObjectReference:
    meta = job["metadata"]
    return ObjectReference(api_version(kind), kind.kind, meta["name"], meta.get("uid", ""), meta["namespace"])


def _gates(pod: Json) -> list[str]:
    return [str(gate.get("name")) for gate in sequence(pod, "spec", "schedulingGates")]
