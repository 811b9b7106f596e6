"""The shell around the lifecycle of Volcano Jobs: one job at a time, its decision carried out write by write.

    Volcano Jobs, their pods, Commands -> a queue of jobs -> controller.foreign.jobs.lifecycle -> API server

Each write leaves objects from which the rest follows, so a controller that is killed at any point goes on from there.
A job is queued by ``controller.jobs``, which gives it its placement and takes it away.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from controller.cluster.config.settings import ForeignSystem
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FOREIGN_JOB_PODS, NAMESPACES, PODS, VOLCANO_COMMANDS, reader
from controller.cluster.watching.ledger import WrittenVersions
from controller.cluster.watching.workqueue import ActionFailedError, WorkQueue
from controller.cluster.writing.stampedwrites import failure, is_taken, stamped_write, why_not, written
from controller.foreign.jobs import bodies
from controller.foreign.jobs.gang import Seen
from controller.foreign.jobs.kind import ForeignJobKind, queued
from controller.foreign.jobs.lifecycle import Decision, decide
from controller.foreign.jobs.placement import is_placed, placement
from controller.foreign.jobs.plugins.plugin import Kept
from controller.foreign.jobs.plugins.table import made
from controller.foreign.jobs.podfacts import JOB_NAME, OUT_OF_SYNC, PodFacts, pod_facts
from controller.foreign.jobs.podgroup_shell import JobGroups
from controller.foreign.jobs.spec import job_plan, read_job
from controller.foreign.jobs.status import status_patch
from controller.foreign.objects.volcanojob import JOB_VERSION, VolcanoCommand
from controller.jobs.framework.kind import Patch
from controller.jobs.framework.marks import controller_of, is_elastic
from controller.jobs.framework.podsets import StartConflictError
from controller.jobs.framework.raw import JobError, Json, labels, text
from controller.jobs.framework.tiers import Tiers
from controller.objects.meta import LabelSelector
from controller.reconcile.jobshell.clusterobjects import is_selected
from controller.reconcile.jobshell.indexes import note
from controller.reconcile.jobshell.watched import JobKinds, KeptJob
from controller.reconcile.jobshell.watched import read_job as read_raw_job
from failpoints.names import Failpoint
from kube.client import Decode
from kube.clock import Clock, sleep
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb, Written

JOBS: Final = Resource(ForeignJobKind.group, ForeignJobKind.version, ForeignJobKind.plural, "Job", namespaced=True)

_SEEN_WITHIN_S: Final = 30.0
"""The time within which the watch shows a pod that was made, or the pod is taken to be gone."""
_KINDS: Final = {
    ("v1", "Service"): Resource("", "v1", "services", "Service", namespaced=True),
    ("v1", "ConfigMap"): Resource("", "v1", "configmaps", "ConfigMap", namespaced=True),
    ("v1", "Secret"): Resource("", "v1", "secrets", "Secret", namespaced=True),
    ("v1", "PersistentVolumeClaim"): Resource(
        "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True
    ),
    ("networking.k8s.io/v1", "NetworkPolicy"): Resource(
        "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True
    ),
}


class VolcanoKey(NamedTuple):
    namespace: str
    name: str


class VolcanoPod(msgspec.Struct, frozen=True):
    """A pod in the cache. ``owner``: the uid of its controller; ``facts``: None if it is not a pod of a Volcano Job."""

    job: str
    owner: str
    facts: PodFacts | None


def foreign_kinds(tiers: Tiers) -> JobKinds:
    """The kind, for controllers that queue jobs of all kinds."""
    return {JOBS: ForeignJobKind(tiers)}


def foreign_readers() -> dict[Resource, Decode[Any]]:
    """The resources that are watched for Volcano Jobs, with their decoders. Jobs are read with the queue that they
    name.
    """
    return {
        JOBS: lambda raw: KeptJob.of(queued(read_raw_job(raw))),
        FOREIGN_JOB_PODS: read_volcano_pod,
        VOLCANO_COMMANDS: reader(VolcanoCommand),
    }


def read_volcano_pod(raw: bytes) -> VolcanoPod:
    pod: Json = msgspec.json.decode(raw)
    owner = controller_of(pod)
    return VolcanoPod(labels(pod).get(JOB_NAME, ""), "" if owner is None else owner.uid, pod_facts(pod))


class ForeignJobController:
    """Runs Volcano Jobs. ``hear`` takes changes; ``run`` works on them until cancelled. ``tell`` records an Event about
    a job.

    ``managed``: namespaces whose jobs are queued at all; a job is run in the namespaces of both selectors. ``groups``
    writes the jobs' PodGroups; None if another scheduler writes them. ``tells_ready``: the condition PodsReady is kept.

    ``_pods`` and ``_commands`` follow their watches, by job; their sets are never empty. ``_made`` has the pods that
    were created and that the watch has not shown, with the time until which they are awaited: while there are some,
    nothing is decided about their job. ``_deleted`` has the uids of pods that were deleted and are still shown.
    """

    def __init__(
        self,
        switch: ForeignSystem,
        feeds: Feeds,
        writer: Writer,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
        *,
        managed: LabelSelector,
        groups: JobGroups | None = None,
        tells_ready: bool = False,
    ) -> None:
        self._switch = switch
        self._tells_ready = tells_ready
        self._namespaces = (managed, switch.namespaces)
        self._groups = groups
        self._feeds = feeds
        self._writer = writer
        self._clock = clock
        self._tell = tell
        self._queue: WorkQueue[VolcanoKey] = WorkQueue("volcano-jobs", self._reconcile)
        self._pods: dict[VolcanoKey, set[ObjectKey]] = {}
        self._commands: dict[VolcanoKey, set[ObjectKey]] = {}
        self._made: dict[VolcanoKey, dict[str, float]] = {}
        self._deleted: set[str] = set()
        self._jobs_written = WrittenVersions()
        self._pods_written = WrittenVersions()
        self._refused: dict[VolcanoKey, str] = {}
        self._timers: dict[VolcanoKey, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            await self._queue.run()
        finally:
            for timer in self._timers.values():
                timer.cancel()

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key) | Changed(key=key) if observed.resource == JOBS:
                self._queue.put(VolcanoKey(*key))
            case Removed(key=key, old=entry) if observed.resource == JOBS:
                self._forget(VolcanoKey(*key))
                if self._groups is not None:
                    self._groups.forget(entry.uid)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == FOREIGN_JOB_PODS:
                self._pod(key, entry.object)
            case Removed(key=key, old=entry) if observed.resource == FOREIGN_JOB_PODS:
                self._deleted.discard(entry.uid)
                self._pods_written.forget(key)
                self._pod(key, entry.object, gone=True)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == VOLCANO_COMMANDS:
                self._command(key, entry.object)
            case Removed(key=key, old=entry) if observed.resource == VOLCANO_COMMANDS:
                self._command(key, entry.object, gone=True)
            case Added(key=key) | Changed(key=key) if observed.resource == NAMESPACES:
                for job in self._feeds[JOBS]:
                    if job.namespace == key.name:
                        self._queue.put(VolcanoKey(*job))

    def _forget(self, key: VolcanoKey) -> None:
        self._jobs_written.forget(ObjectKey(*key))
        self._made.pop(key, None)
        self._refused.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _pod(self, key: ObjectKey, pod: VolcanoPod, *, gone: bool = False) -> None:
        job = VolcanoKey(key.namespace, pod.job)
        note(self._pods, job, key, gone=gone)
        self._made.get(job, {}).pop(key.name, None)
        self._queue.put(job)

    def _command(self, key: ObjectKey, command: VolcanoCommand, *, gone: bool = False) -> None:
        if (command.target.api_version, command.target.kind) == (JOB_VERSION, "Job"):
            job = VolcanoKey(key.namespace, command.target.name)
            note(self._commands, job, key, gone=gone)
            self._queue.put(job)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: VolcanoKey) -> None:
        entry = self._feeds[JOBS].get(ObjectKey(*key))
        if entry is None or self._jobs_written.behind(ObjectKey(*key), entry.uid, entry.resource_version):
            return  # the watch brings what was written, and with it the next reconciliation
        job: Json = entry.object.json
        if text(job, "metadata", "deletionTimestamp") or not self._has_seen_all(key):
            return
        if not (is_placed(job) or all(is_selected(self._feeds, each, key.namespace) for each in self._namespaces)):
            return  # another controller runs it
        about = ObjectReference(JOB_VERSION, "Job", key.name, entry.uid, key.namespace)
        try:
            await self._carry_out(key, job, about)
        except (JobError, StartConflictError) as error:
            self._refuse(key, about, str(error))
        else:
            self._refused.pop(key, None)

    def _has_seen_all(self, key: VolcanoKey) -> bool:
        """Whether the watch shows all pods that were made."""
        now_s = self._clock.wall()
        waited = {name: until_s for name, until_s in self._made.get(key, {}).items() if until_s > now_s}
        if not waited:
            self._made.pop(key, None)
            return True
        self._later(key, min(waited.values()) - now_s)
        return False

    def _refuse(self, key: VolcanoKey, about: ObjectReference, sentence: str) -> None:
        if self._refused.get(key) != sentence:
            self._refused[key] = sentence
            self._tell(about, "Warning", "InvalidVolcanoJob", sentence)

    async def _carry_out(self, key: VolcanoKey, job: Json, about: ObjectReference) -> None:
        typed = read_job(job)
        pods = self._seen_pods(key, about.uid)
        seen = Seen(
            plan=job_plan(typed),
            status=typed.status,
            pods=pods or (),
            placed=placement(job),
            commands=self._seen_commands(key, about.uid),
            sliced=is_elastic(job),
        )
        if (patch := bodies.rescaled(job, seen, self._clock.wall())) is not None:
            await self._patch_job(job, patch)
            return
        if pods is None:
            return
        decision = decide(seen, self._clock.wall())
        if (patch := bodies.given_back(job, seen, decision)) is not None:
            await self._patch_job(job, patch)
            return
        if self._tells_ready and (patch := bodies.told_ready(job, seen)) is not None:
            await self._patch_job(job, patch)
            return
        for complaint in await self._write(job, seen, decision):
            self._tell(about, "Warning", "PluginArguments", complaint)
        for order in decision.told:
            self._tell(about, "Normal", order.action, order.message)
        if decision.due_s is not None and not decision.expired:
            self._later(key, decision.due_s - self._clock.wall())

    async def _write(self, job: Json, seen: Seen, decision: Decision) -> tuple[str, ...]:
        """Carries out a decision in its order, see ``Decision``, and returns what is wrong in the arguments of plugins.
        Objects beside the pods are made before the status names them.
        """
        here = bodies.job_here(job, seen.here)
        names = {pod.name: pod for pod in seen.pods}
        keeping = bodies.keeping(here, seen, decision)
        new = list(bodies.pod_bodies(here, seen, decision.status, decision.created, self._switch.binds))
        for name, retry in decision.marks.items():
            await self._mark(job, names[name], retry)
        for kept in keeping.made:
            await self._make(kept)
        for kept in keeping.removed:
            await self._delete(_resource(kept.body), kept.body["metadata"])
        after = msgspec.structs.replace(decision.status, controlled_resources=keeping.controlled)
        if patch := status_patch(job.get("status") or {}, after):
            version = {field: text(job, "metadata", field) for field in ("uid", "resourceVersion")}
            await self._patch_job(job, Patch(body={"metadata": version, "status": patch}, subresource="status"))
        await asyncio.gather(*(self._delete_pod(job, names[name]) for name in decision.deleted))
        await asyncio.gather(*(self._create(job, body) for body in new))
        for command in decision.read:
            meta = command.metadata
            await self._delete(VOLCANO_COMMANDS, {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid})
        if decision.expired:
            await self._delete(JOBS, job["metadata"], foreground=True)
        elif self._groups is not None:
            await self._groups.keep(job, seen, after)
        return keeping.complaints

    def _seen_pods(self, key: VolcanoKey, uid: str) -> tuple[PodFacts, ...] | None:
        """The pods of the job itself. None while the watch does not show yet what was written to one of them."""
        pods = []
        for name in sorted(self._pods.get(key, ())):
            entry = self._feeds[FOREIGN_JOB_PODS].get(name)
            if entry is None or self._pods_written.behind(name, entry.uid, entry.resource_version):
                return None
            facts: PodFacts | None = entry.object.facts
            if facts is None or entry.object.owner != uid:
                continue
            if entry.uid in self._deleted and not facts.is_terminating:
                facts = msgspec.structs.replace(facts, deleted_s=self._clock.wall())
            pods.append(facts)
        return tuple(pods)

    def _seen_commands(self, key: VolcanoKey, uid: str) -> tuple[VolcanoCommand, ...]:
        entries = (self._feeds[VOLCANO_COMMANDS].get(name) for name in self._commands.get(key, ()))
        found = [entry.object for entry in entries if entry is not None and entry.object.target.uid in ("", uid)]
        return tuple(sorted(found, key=lambda command: (str(command.metadata.creation_timestamp), command.key)))

    def _later(self, key: VolcanoKey, seconds: float) -> None:
        async def wait() -> None:
            await sleep(self._clock, max(0.0, seconds))
            self._queue.put(key)

        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._timers[key] = asyncio.create_task(wait(), name="volcano-job-due")

    # -- writes ------------------------------------------------------------------------------------------------------

    async def _patch_job(self, job: Json, patch: Patch) -> None:
        meta = job["metadata"]
        write = stamped_write(
            Verb.MERGE_PATCH, JOBS, meta, patch.body, Failpoint.VOLCANO_JOB, subresource=patch.subresource or None
        )
        answer = await written(self._writer.put, write)
        if answer is not None:
            key = ObjectKey(meta["namespace"], meta["name"])
            self._jobs_written.wrote(key, meta["uid"], answer.metadata.resource_version)

    async def _mark(self, job: Json, pod: PodFacts, retry: int) -> None:
        meta = {"namespace": job["metadata"]["namespace"], "name": pod.name}
        body = {"metadata": {"uid": pod.uid, "annotations": {OUT_OF_SYNC: str(retry)}}}
        write = stamped_write(Verb.MERGE_PATCH, PODS, meta, body, Failpoint.VOLCANO_POD_MARKED)
        answer = await written(self._writer.put, write, Missing)
        if answer is not None:
            key = ObjectKey(meta["namespace"], pod.name)
            self._pods_written.wrote(key, pod.uid, answer.metadata.resource_version)

    async def _delete_pod(self, job: Json, pod: PodFacts) -> None:
        await self._delete(PODS, {"namespace": job["metadata"]["namespace"], "name": pod.name, "uid": pod.uid})
        key = VolcanoKey(job["metadata"]["namespace"], job["metadata"]["name"])
        if ObjectKey(key.namespace, pod.name) in self._pods.get(key, ()):
            self._deleted.add(pod.uid)

    async def _create(self, job: Json, body: Json) -> None:
        """Creates a pod. It is awaited from before the request: the answer may be lost, or come after the watch's."""
        meta = job["metadata"]
        key, name = VolcanoKey(meta["namespace"], meta["name"]), body["metadata"]["name"]
        awaited = self._made.setdefault(key, {})
        awaited[name] = self._clock.wall() + _SEEN_WITHIN_S
        outcome = await self._writer.put(
            stamped_write(Verb.CREATE, PODS, body["metadata"], body, Failpoint.VOLCANO_POD)
        )
        if isinstance(outcome, Written):
            return
        awaited.pop(name, None)
        raise ActionFailedError(f"pod {name}: {why_not(outcome)}")

    async def _make(self, kept: Kept) -> None:
        """Creates an object. Keys of a Secret take a while to make, so a thread makes them."""
        resource, meta = _resource(kept.body), kept.body["metadata"]
        body = await asyncio.to_thread(made, kept) if kept.body["kind"] == "Secret" else made(kept)
        outcome = await self._writer.put(stamped_write(Verb.CREATE, resource, meta, body, Failpoint.VOLCANO_KEPT))
        taken = is_taken(outcome)
        if taken and kept.follows:
            # A patch of nothing answers with the version, and needs no right to read what may be a user's.
            version: Json = {}
            for data in ({}, {key: value for key, value in body.items() if key in ("data", "spec")}):
                patch = {**version, **data}
                write = stamped_write(Verb.MERGE_PATCH, resource, meta, patch, Failpoint.VOLCANO_KEPT)
                if (answer := await written(self._writer.put, write)) is not None:
                    version = {"metadata": {"resourceVersion": answer.metadata.resource_version}}
        elif not taken and not isinstance(outcome, Written):
            raise failure(outcome)

    async def _delete(self, resource: Resource, meta: Json, *, foreground: bool = False) -> None:
        write = stamped_write(
            Verb.DELETE, resource, meta, meta.get("uid"), Failpoint.VOLCANO_REMOVED, foreground=foreground
        )
        await written(self._writer.put, write, Missing, Conflicted)


def _resource(body: Json) -> Resource:
    return _KINDS[body["apiVersion"], body["kind"]]
