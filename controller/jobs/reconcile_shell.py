"""Jobs: the pure reconciler's eyes and hands. One job at a time is looked at, its actions carried out in order.

    Job and Workload watches -> a queue of jobs -> controller.jobs.reconcile -> actions -> API server

A job whose actions fail is looked at again after a pause; each success changes an object, whose watch brings it back.
"""

from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from controller.config.settings import JOB, POD, ControllerConfig
from controller.engine.model.resources import WorkloadKey
from controller.jobframework import names
from controller.jobframework.kind import JobKind
from controller.jobframework.marks import prebuilt_workload
from controller.jobframework.podsets import SeenWorkload
from controller.jobframework.raw import JobError, Json
from controller.jobframework.settings import Observed
from controller.jobkinds.batchjob import BatchJob
from controller.jobs.actions_shell import Hands
from controller.jobs.reconcile import reconcile
from controller.jobshell.lookups import job_settings, lookups
from controller.objects.meta import OwnerReference, is_true
from controller.objects.workload import Workload
from controller.watching.feeds import Feeds
from controller.watching.kinds import FLAVORS, JOBS, NAMESPACES, POD_CLASSES, WORKLOAD_CLASSES
from controller.watching.ledger import Ledger
from controller.watching.readers import RawWorkloads
from controller.watching.workqueue import WorkQueue
from kube.client import Client
from kube.errors import NotFoundError
from kube.reading.reflector import Added, Change, Changed, Key, Removed
from kube.resources import Resource

K = TypeVar("K")
V = TypeVar("V")

_ORPHANS: Final = "FinishOrphanedWorkloads"
KINDS: Final[dict[str, JobKind]] = {JOB: BatchJob()}


class JobKey(NamedTuple):
    """A name that begins with a slash is a workload's that has no job."""

    namespace: str
    name: str


def read_job(raw: bytes) -> Json:
    """A Job as JSON, less what nobody here reads and what fills most of it."""
    job: Json = msgspec.json.decode(raw)
    job.get("metadata", {}).pop("managedFields", None)
    return job


class JobShell:
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled."""

    def __init__(
        self,
        config: ControllerConfig,
        client: Client,
        feeds: Feeds,
        ledger: Ledger,
        raws: RawWorkloads,
        hands: Hands,
        *,
        own_namespace: str,
    ) -> None:
        self._client = client
        self._feeds = feeds
        self._ledger = ledger
        self._raws = raws
        self._hands = hands
        self._settings = job_settings(config, own_namespace)
        self._kind = KINDS[JOB]
        self._lookups = lookups(feeds, KINDS.values(), self.is_admitted)
        self._has_pods = POD in config.integrations.frameworks
        self._looks: WorkQueue[JobKey] = WorkQueue("job", self._look)
        self._by_owner: dict[str, set[WorkloadKey]] = {}
        self._left: dict[JobKey, dict[str, set[WorkloadKey]]] = {}
        """The same by the owner's name, then its uid: what an earlier job of a name has left."""
        self._prebuilt: dict[WorkloadKey, set[JobKey]] = {}

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, resource: Resource, change: Change[Any]) -> None:
        """A job, or something that jobs are judged by."""
        match change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if resource is JOBS:
                self._note_prebuilt(JobKey(*key), entry.object)
                self._enqueue(JobKey(*key))
            case Removed(key=key, old=entry) if resource is JOBS:
                self._note_prebuilt(JobKey(*key), entry.object, gone=True)
                self._enqueue(JobKey(*key))
            case Added() | Changed() if resource in (FLAVORS, POD_CLASSES, WORKLOAD_CLASSES):
                for key in self._feeds[JOBS]:
                    self._enqueue(JobKey(*key))
            case Changed(key=key, old=old, new=new) if resource is NAMESPACES:
                if old.object.metadata.labels != new.object.metadata.labels:
                    for one in self._feeds[JOBS]:
                        if one.namespace == key.name:
                            self._enqueue(JobKey(*one))

    def workload(self, workload: Workload, gone: bool) -> None:
        """A Workload came, changed or went: its job is looked at."""
        key = WorkloadKey(workload.key)
        owner = self._owner(workload)
        if owner is not None:
            job = JobKey(workload.metadata.namespace, owner.name)
            _note(self._by_owner, owner.uid, key, gone=gone)
            _note(self._left.setdefault(job, {}), owner.uid, key, gone=gone)
            if not self._left[job]:
                del self._left[job]
            self._enqueue(job)
        elif workload.metadata.deletion_timestamp is not None and not gone and not self._is_of_pods(workload):
            self._enqueue(JobKey(workload.metadata.namespace, f"/{workload.metadata.name}"))
        for job in self._prebuilt.get(key, ()):
            self._enqueue(job)

    def _owner(self, workload: Workload) -> OwnerReference | None:
        """The job that controls it; None for one that nobody does, or a kind that we do not manage."""
        kind = self._kind
        api_version = f"{kind.group}/{kind.version}"
        for owner in workload.metadata.owner_references:
            if owner.controller and (owner.api_version, owner.kind) == (api_version, kind.kind):
                return owner
        return None

    def _is_of_pods(self, workload: Workload) -> bool:
        """Whether it is to stay until its plain pods have ended."""
        return self._has_pods and any(owner.kind == "Pod" for owner in workload.metadata.owner_references)

    def _note_prebuilt(self, key: JobKey, job: Json, *, gone: bool = False) -> None:
        try:
            name = prebuilt_workload(job)
        except JobError:
            return
        if name:
            _note(self._prebuilt, WorkloadKey(f"{key.namespace}/{name}"), key, gone=gone)

    def _enqueue(self, key: JobKey) -> None:
        self._looks.put(key)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await self._looks.run()

    async def _look(self, key: JobKey) -> None:
        if key.name.startswith("/"):
            await self._bare(WorkloadKey(f"{key.namespace}{key.name}"))
            return
        entry = self._feeds[JOBS].get(Key(*key))
        job: Json | None = entry.object if entry is not None else None
        uid = entry.uid if entry is not None else ""
        if entry is not None and self._hands.behind(Key(*key), uid, entry.resource_version):
            return  # the watch brings what we wrote, and with it the next look
        await self._orphans(key, uid)
        if job is None:
            self._hands.forget(Key(*key))
            return
        seen = await self._observed(job, uid)
        for action in reconcile(seen, self._settings, self._lookups):
            await self._hands.act(self._kind, job, action)

    async def _observed(self, job: Json, uid: str) -> Observed:
        keys = set(self._by_owner.get(uid, ()))
        namespace = job["metadata"].get("namespace", "")
        try:
            if name := prebuilt_workload(job):
                keys.add(WorkloadKey(f"{namespace}/{name}"))
        except JobError:
            pass  # the reconciler says so
        workloads = tuple(seen for one in sorted(keys) if (seen := self._seen(one)) is not None)
        labels = self._feeds[NAMESPACES].get(Key("", namespace))
        gated = 0
        if any(names.ELASTIC_JOB in one.typed.metadata.annotations for one in workloads):
            gated = await self._hands.gated_pods(job, names.ELASTIC_JOB)
        return Observed(
            kind=self._kind,
            job=job,
            workloads=workloads,
            namespace_labels=labels.object.metadata.labels if labels is not None else {},
            gated_pods=gated,
        )

    def _seen(self, key: WorkloadKey) -> SeenWorkload | None:
        kept, raw = self._ledger.get(key), self._raws.of(key)
        return None if kept is None or raw is None else SeenWorkload(typed=kept.workload, raw=raw)

    async def _orphans(self, key: JobKey, uid: str) -> None:
        """Workloads that an earlier job of this name left, as the API server confirms: our watch may lag."""
        if not self._settings.gates.on(_ORPHANS):
            return
        left = [
            kept.workload
            for owner_uid, keys in self._left.get(key, {}).items()
            if owner_uid != uid
            for one in keys
            if (kept := self._ledger.get(one)) is not None
        ]
        if not left or await self._lives(key, uid):
            return
        seen = tuple(found for one in left if (found := self._seen(WorkloadKey(one.key))) is not None)
        gone = Observed(kind=self._kind, job=None, workloads=seen)
        for action in reconcile(gone, self._settings, self._lookups):
            await self._hands.act(self._kind, {"metadata": {"namespace": key.namespace, "name": key.name}}, action)

    async def _lives(self, key: JobKey, known_uid: str) -> bool:
        """Whether there is a job of that name which our watch does not show yet."""
        try:
            found = await self._client.get(JOBS, key.name, dict[str, Any], namespace=key.namespace)
        except NotFoundError:
            return False
        return bool(found["metadata"].get("uid") != known_uid)

    async def _bare(self, key: WorkloadKey) -> None:
        """Nobody's workload that is being deleted: nothing runs by it, so it may go."""
        kept = self._ledger.get(key)
        if kept is not None and names.RESOURCE_IN_USE in kept.workload.metadata.finalizers:
            await self._hands.remove_finalizer(key, kept.uid)

    def is_admitted(self, uid: str) -> bool:
        """Whether the workload of the job of that uid is."""
        kept = (self._ledger.get(key) for key in self._by_owner.get(uid, ()))
        return any(one is not None and is_true(one.workload.status.conditions, "Admitted") for one in kept)


def _note(index: dict[K, set[V]], key: K, value: V, *, gone: bool) -> None:
    """Keep an index of sets without empty ones."""
    if not gone:
        index.setdefault(key, set()).add(value)
    elif key in index:
        index[key].discard(value)
        if not index[key]:
            del index[key]
