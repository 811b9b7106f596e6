"""The shell around the pure reconciler of jobs: one job at a time, its actions carried out in order.

    watches of jobs and Workloads -> a queue of jobs -> controller.reconcile.jobs.reconcile -> actions -> API server

A job whose actions fail is reconciled again after a back-off; each success changes an object, whose watch brings it
back. Nothing here knows a kind of job: kinds come with the resources of their objects, from the table.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import WorkQueue
from controller.jobs.framework import names
from controller.jobs.framework.charge import Charge
from controller.jobs.framework.kind import JobKind, api_version
from controller.jobs.framework.marks import NestingTooDeepError, ancestor
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import ClaimDevices, ClusterObjects, Observed, no_claim_devices
from controller.objects import capacityrequests
from controller.objects.meta import OwnerReference, is_true
from controller.objects.nativegroups import NativeGroup
from controller.objects.workload import Workload
from controller.reconcile.jobs import theirgroups
from controller.reconcile.jobs.actions_shell import JobActions
from controller.reconcile.jobs.ending import awaits_pods
from controller.reconcile.jobs.reconcile import is_orphan, reconcile, unowned
from controller.reconcile.jobs.startgroups_shell import StartGroups
from controller.reconcile.jobs.theirgroups import Look, groups_named, least_of, looked, may_be_halved
from controller.reconcile.jobshell.charges_shell import ChargeReader
from controller.reconcile.jobshell.clusterobjects import cluster_objects, is_selected, job_settings
from controller.reconcile.jobshell.indexes import note
from controller.reconcile.jobshell.owners_shell import Owners
from controller.reconcile.jobshell.reconciler_shell import Reconciler
from controller.reconcile.jobshell.watched import (
    JobKinds,
    KeptJob,
    external_kinds,
    read_resource,
    seen_workload,
    serving_kinds,
)
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.lifecycle.schedulerverdict import admitted_s
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Removed
from kube.resources import Resource

_REQUEST: Final = (capacityrequests.API_VERSION, capacityrequests.KIND)
"""The owner of a Workload that its own controller lets go: see ``controller.insight.bargaining``."""


class JobKey(NamedTuple):
    """A job. ``kind`` is its name in the configuration; empty for a Workload without a job, and ``name`` is then the
    Workload's.
    """

    kind: str
    namespace: str
    name: str


_ReadObject = tuple[Resource, str, str]
"""An object by its resource, namespace (empty for the cluster's) and name."""


class JobController(Reconciler[JobKey]):
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled.

    Both indexes of Workloads by owner follow the ledger, and only ``workload`` writes them: ``_by_owner`` by the uid of
    the job that controls them, ``_left`` by its key, then its uid, for what an earlier job of the name has left. Sets
    and dicts in them are never empty. ``_reads`` has the other objects that a job's pod sets follow from, as of its
    last change, and ``_readers`` is its inverse: ``_hear_references`` alone writes both.
    """

    def __init__(  # noqa: PLR0913
        self,
        config: ControllerConfig,
        kinds: JobKinds,
        client: Client,
        feeds: Feeds,
        ledger: Ledger,
        raws: RawWorkloads,
        actions: JobActions,
        workloads: WorkloadActions,
        *,
        own_namespace: str,
        owned: Collection[Resource] = (),
        claim_devices: ClaimDevices = no_claim_devices,
        groups: StartGroups | None = None,
    ) -> None:
        super().__init__(client, feeds, ledger, raws)
        self._queue: WorkQueue[JobKey] = WorkQueue("job", self._reconcile)
        self._groups = groups
        self._actions = actions
        self._workloads = workloads
        self._settings = job_settings(config, own_namespace)
        self._kinds = kinds
        self._resources: dict[str, Resource] = {kind.framework: resource for resource, kind in kinds.items()}
        self._frameworks = {(api_version(kind), kind.kind): kind.framework for kind in kinds.values()}
        externals = external_kinds(config.integrations.external_frameworks)
        self._externals = {one for one in externals if one in feeds}
        self._owned = frozenset(owned)
        known = cluster_objects(
            feeds, kinds, self.is_admitted, externals=self._externals, owned=owned, claim_devices=claim_devices
        )
        self._cluster = replace(known, has_workload=self.has_workload)
        self.owners = Owners(client, (*kinds, *externals, *owned))
        self._kinds_by_name = {(api_version(kind), kind.kind): kind for kind in kinds.values()}
        self.charges = ChargeReader(
            client, self._cluster, workloads=self._workloads_of, children=self._jobs_below, behind=self._is_behind
        )
        self._selectors = config.job_namespaces
        self._has_pods = config.integrations.queue_pods
        self._grouped = {
            (kind.api_version, kind.kind) for kind in serving_kinds(config.integrations.frameworks).values()
        }
        self._by_owner: dict[str, set[WorkloadKey]] = {}
        self._named_in: dict[str, JobKey] = {}
        """Jobs whose templates name a PodGroup, by their uid; taken out when that changes."""
        self._looks: dict[str, Look] = {}
        """The last look at the pods of a job in a gang of others, by its uid. ``_stranded`` alone adds to it."""
        self._left: dict[JobKey, dict[str, set[WorkloadKey]]] = {}
        self._prebuilt: dict[WorkloadKey, set[JobKey]] = {}
        """Jobs by the prebuilt Workload that they name."""
        self._children: dict[str, set[JobKey]] = {}
        """Jobs by the uid of their controller."""
        self._awaiting: set[JobKey] = set()
        """Jobs in ``_children`` with the mark of ``awaits_owner``."""
        self._reads: dict[JobKey, tuple[_ReadObject, ...]] = {}
        self._readers: dict[_ReadObject, set[JobKey]] = {}
        if groups is not None:
            groups.tell(self._group_changed, self._their_group_changed)

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        """Takes a change of a job, or of an object that jobs depend on."""
        kind = self._kinds.get(observed.resource)
        if kind is not None or observed.resource in self._externals or observed.resource in self._owned:
            self._hear_owner(observed.change)
        if isinstance(observed.change, Added | Changed | Removed):
            for reader in self._readers.get((observed.resource, *observed.change.key), ()):
                self._queue.put(reader)
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if kind is not None:
                self._hear_job(JobKey(kind.framework, *key), entry.object)
            case Removed(key=key, old=entry) if kind is not None:
                self._actions.gone(entry.uid)
                self._looks.pop(entry.uid, None)
                self._hear_job(JobKey(kind.framework, *key), entry.object, gone=True)
            case _:
                self._hear_surroundings(observed)

    def _hear_job(self, key: JobKey, job: KeptJob, *, gone: bool = False) -> None:
        if job.prebuilt:
            note(self._prebuilt, WorkloadKey(f"{key.namespace}/{job.prebuilt}"), key, gone=gone)
        if job.controller:
            note(self._children, job.controller, key, gone=gone)
            self._hear_sibling(key, job, gone=gone)
        self._hear_references(key, job, gone=gone)
        self._queue.put(key)

    def _hear_sibling(self, key: JobKey, job: KeptJob, *, gone: bool) -> None:
        """Enqueues the siblings of a child that start by their owner's charge: they depend on each other."""
        if job.awaits:
            (self._awaiting.discard if gone else self._awaiting.add)(key)
        if self._awaiting:
            for sibling in self._children.get(job.controller, ()):
                if sibling in self._awaiting:
                    self._queue.put(sibling)

    def _hear_references(self, key: JobKey, job: KeptJob, *, gone: bool) -> None:
        for read in self._reads.pop(key, ()):
            note(self._readers, read, key, gone=True)
        kind = self._kinds[self._resources[key.kind]]
        if gone or not kind.reads:
            return
        try:
            references = kind.references(job.json)
        except JobError:
            return  # the reconciler refuses the job with this very error
        objects = tuple(
            (read_resource(one.kind), key.namespace if one.kind.namespaced else "", one.name) for one in references
        )
        for read in objects:
            note(self._readers, read, key, gone=False)
        if objects:
            self._reads[key] = objects

    def _hear_owner(self, change: Change[Any]) -> None:
        """Enqueues the parts of a job, because whether it is queued decides about them, and another watch may have
        shown them before.
        """
        match change:
            case Added(new=entry):
                self._enqueue_parts(entry.uid)
            case Changed(old=old, new=new) if old.object.queue != new.object.queue:
                self._enqueue_parts(new.uid)

    def _enqueue_parts(self, uid: str) -> None:
        """Enqueues all jobs below the object with this uid, by controller references."""
        owners, seen = [uid], {uid}
        while owners:
            for child in self._children.get(owners.pop(), ()):
                self._queue.put(child)
                entry = self._feeds[self._resources[child.kind]].get(ObjectKey(child.namespace, child.name))
                if entry is not None and entry.uid not in seen:
                    seen.add(entry.uid)
                    owners.append(entry.uid)

    def _keys(self) -> Iterable[tuple[str, JobKey]]:
        for resource, kind in self._kinds.items():
            for key in self._feeds[resource]:
                yield key.namespace, JobKey(kind.framework, *key)

    def workload(self, workload: Workload, gone: bool) -> None:
        """Takes a Workload that was created, changed or deleted: its job is reconciled."""
        key, meta = WorkloadKey(workload.key), workload.metadata
        for owner in meta.owner_references:
            framework = self._frameworks.get((owner.api_version, owner.kind))
            if owner.controller and framework is not None:
                job = JobKey(framework, meta.namespace, owner.name)
                note(self._by_owner, owner.uid, key, gone=gone)
                note(self._left.setdefault(job, {}), owner.uid, key, gone=gone)
                if not self._left[job]:
                    del self._left[job]
                self._queue.put(job)
                break
            if owner.controller and self._is_external(owner):
                note(self._by_owner, owner.uid, key, gone=gone)
                self._enqueue_parts(owner.uid)
                break
        else:
            self._of_another(workload, key, gone=gone)
            waits = meta.deletion_timestamp is not None or is_orphan(workload)
            if waits and not gone and not self._is_of_pods(workload):
                self._queue.put(JobKey("", meta.namespace, meta.name))
        for job in self._prebuilt.get(key, ()):
            self._queue.put(job)

    def _group_changed(self, key: WorkloadKey) -> None:
        """Enqueues the job by whose Workload a PodGroup was made."""
        entry = self._ledger.get(key)
        if entry is not None:
            self.workload(entry.workload, gone=False)

    def _their_group_changed(self, uid: str) -> None:
        """Enqueues the job with this uid, whose pods are in a PodGroup of others."""
        for key in self._by_owner.get(uid, ()):
            self._group_changed(key)
        if (waiting := self._named_in.pop(uid, None)) is not None:
            self._queue.put(waiting)

    def _of_another(self, workload: Workload, key: WorkloadKey, *, gone: bool) -> None:
        """Handles a Workload that another controller made, for an object of a kind that is not watched here."""
        for owner in workload.metadata.owner_references:
            of_pods = owner.kind == PODS.kind or (owner.api_version, owner.kind) in self._grouped
            if owner.controller and not of_pods:
                note(self._by_owner, owner.uid, key, gone=gone)
                self._enqueue_parts(owner.uid)

    def _is_external(self, owner: OwnerReference) -> bool:
        return any((owner.api_version, owner.kind) == (one.api_version, one.kind) for one in self._externals)

    def _is_of_pods(self, workload: Workload) -> bool:
        """Whether the Workload is to stay until its pods have ended, which were not made by a job."""
        owners = workload.metadata.owner_references
        if any((each.api_version, each.kind) in (*self._grouped, _REQUEST) for each in owners):
            return True
        return self._has_pods and any(owner.kind == "Pod" for owner in owners)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: JobKey) -> None:
        if not key.kind:
            await self._release_unowned(WorkloadKey(f"{key.namespace}/{key.name}"))
            return
        resource, at = self._resources[key.kind], ObjectKey(key.namespace, key.name)
        kind, entry = self._kinds[resource], self._feeds[resource].get(at)
        uid = entry.uid if entry is not None else ""
        if entry is not None and self._actions.behind(kind, at, uid, entry.resource_version):
            return  # the watch brings what was written, and with it the next reconciliation
        if entry is not None and not self._is_ours(key, uid):
            return
        if entry is not None and entry.object.awaits:
            self.charges.rest(key.namespace)
        await self._finish_orphans(key, kind, uid)
        if entry is None:
            self._actions.forget(kind, at)
            return
        job: Json = entry.object.json
        seen = await self._observed(kind, job, uid, entry.object.prebuilt)
        if not entry.object.awaits:
            await self._carry_out(kind, job, seen, self._cluster)
            return
        above = await self.owners.above(job, self._cluster)
        if not self.is_below(job, above.cluster):
            seen = msgspec.structs.replace(seen, unread=above.unread)
            await self._carry_out(kind, job, seen, above.cluster)
            return
        async with self.charges.alone(key.namespace):
            charge = await self.charge_above(job, above.cluster)
            seen = msgspec.structs.replace(seen, charge=charge)
            await self._carry_out(kind, job, seen, above.cluster)

    async def _carry_out(self, kind: JobKind, job: Json, seen: Observed, cluster: ClusterObjects) -> None:
        for action in reconcile(seen, self._settings, cluster):
            await self._actions.carry_out(kind, job, action)

    def is_below(self, child: Json, cluster: ClusterObjects) -> bool:
        """Whether a job above the child is admitted, so that the child may start; ``cluster`` knows its owners."""
        try:
            found = ancestor(child, self._settings, cluster)
        except (JobError, NestingTooDeepError):
            return False  # the reconciler refuses it
        return found is not None and self.is_admitted(found[0].uid)

    async def charge_above(self, child: Json, cluster: ClusterObjects) -> Charge | None:
        """The charge of the job above, without the child itself; None if there is no such job, or no charge.

        ``cluster`` knows the owners of the child.
        """
        found = ancestor(child, self._settings, cluster) if self.is_below(child, cluster) else None
        if found is None:
            return None
        reference, above = found
        kind = self._kinds_by_name.get((reference.api_version, reference.kind))
        job = None if kind is None else (kind, above)
        return await self.charges.read(reference.uid, job=job, child=child)

    def _workloads_of(self, uid: str) -> tuple[SeenWorkload, ...]:
        return self._seen(self._by_owner.get(uid, ()))

    def _jobs_below(self, uid: str) -> list[tuple[JobKind, Json]]:
        """Jobs that the object with this uid controls."""
        below = []
        for child in sorted(self._children.get(uid, ())):
            resource = self._resources[child.kind]
            entry = self._feeds[resource].get(ObjectKey(child.namespace, child.name))
            if entry is not None:
                below.append((self._kinds[resource], entry.object.json))
        return below

    def _is_behind(self, kind: JobKind, job: Json) -> bool:
        meta = job["metadata"]
        key = ObjectKey(meta.get("namespace", ""), meta.get("name", ""))
        return self._actions.behind(kind, key, meta.get("uid", ""), meta.get("resourceVersion", ""))

    def _is_ours(self, key: JobKey, uid: str) -> bool:
        """Whether the job is queued here: a foreign Job is only if its switch selects the namespace, or did when it
        started.
        """
        selector = self._selectors.get(key.kind)
        return selector is None or uid in self._by_owner or is_selected(self._feeds, selector, key.namespace)

    async def _observed(self, kind: JobKind, job: Json, uid: str, prebuilt: str) -> Observed:
        """The job with what belongs to it. ``prebuilt``: the name of the Workload that was made for it."""
        keys = set(self._by_owner.get(uid, ()))
        namespace = job["metadata"].get("namespace", "")
        if prebuilt:
            keys.add(WorkloadKey(f"{namespace}/{prebuilt}"))
        workloads = self._seen(keys)
        gated = 0
        if any(names.ELASTIC_JOB in known.typed.metadata.annotations for known in workloads):
            gated = await self._actions.gated_pods(kind, job, names.ELASTIC_JOB)
        left: dict[str, int] | None = None
        if awaits_pods(kind, job, workloads, self._settings):
            left = await self._actions.left_pods(kind, job)
        groups = await self._groups_of(workloads)
        named = await self._named(kind, job, uid)
        # Only now are all groups known, also where this job is the first that asks for them.
        controlled = self._groups.theirs(uid) if self._groups is not None else ()
        return Observed(
            kind=kind,
            job=job,
            workloads=workloads,
            namespace_labels=self._namespace(namespace).labels,
            gated_pods=gated,
            left_pods=left,
            stranded=await self._stranded(kind, job, workloads, (*controlled, *named.values())),
            groups=groups,
            controlled=controlled,
            named=named,
        )

    async def _stranded(
        self, kind: JobKind, job: Json, workloads: Collection[SeenWorkload], groups: Collection[NativeGroup | None]
    ) -> int:
        """The number of pods of a gang of others that were preempted, have no node for the second look, or are not
        there for long, while others of it run.
        """
        meta = job["metadata"]
        uid = meta.get("uid", "")
        if not may_be_halved(kind, job, workloads, groups):
            self._looks.pop(uid, None)
            return 0
        loop = asyncio.get_running_loop()
        before, needed = self._looks.get(uid), min(least_of(groups), kind.pods_left(job) or 0)
        pods, since_s = await self._actions.pods(kind, job), max(map(admitted_s, workloads))
        look = self._looks[uid] = looked(pods, since_s, needed, before, loop.time())
        if not look.lost and (before is None or look.at_s > before.at_s or before.lost):
            key = JobKey(kind.framework, meta.get("namespace", ""), meta.get("name", ""))
            loop.call_later(theirgroups.LOOKS_EVERY_S, self._queue.put, key)
        return look.lost

    async def _named(self, kind: JobKind, job: Json, uid: str) -> dict[str, NativeGroup | None]:
        """The PodGroups that the job's templates name."""
        named = groups_named(kind, job)
        if self._groups is None or not named:
            return {}
        meta = job["metadata"]
        self._named_in[uid] = JobKey(kind.framework, meta.get("namespace", ""), meta.get("name", ""))
        return await self._groups.named(meta.get("namespace", ""), named, uid)

    async def _groups_of(self, workloads: Collection[SeenWorkload]) -> tuple[NativeGroup, ...] | None:
        """The PodGroups of starts by these Workloads; None if none is made for them."""
        gangs = [each for each in workloads if each.is_live and sum(one.count for one in each.typed.spec.pod_sets) > 1]
        if self._groups is None or not any(each.is_reserved for each in gangs):
            return None
        return await self._groups.of([each.uid for each in gangs])

    async def _finish_orphans(self, key: JobKey, kind: JobKind, uid: str) -> None:
        """Finishes Workloads that an earlier job of this name left, once the API server confirms it: the watch
        may lag.
        """
        earlier = self._left.get(key, {}).items()
        left = self._seen(workload for owner_uid, keys in earlier if owner_uid != uid for workload in keys)
        at = ObjectKey(key.namespace, key.name)
        if not left or await self._exists(self._resources[key.kind], at, uid):
            return
        gone = Observed(kind=kind, job=None, workloads=left)
        for action in reconcile(gone, self._settings, self._cluster):
            job = {"metadata": {"namespace": key.namespace, "name": key.name}}
            await self._actions.carry_out(kind, job, action)

    async def _release_unowned(self, key: WorkloadKey) -> None:
        workload = seen_workload(self._ledger, self._raws, key)
        if workload is None:
            return
        for action in unowned(workload, self._settings):
            await self._workloads.carry_out(action, workload.typed.metadata.namespace, "", ())

    def has_workload(self, uid: str) -> bool:
        """Whether a Workload names the object with this uid as its controller."""
        return uid in self._by_owner

    def is_admitted(self, uid: str) -> bool:
        """Whether the workload of the job with this uid is admitted."""
        kept = (self._ledger.get(key) for key in self._by_owner.get(uid, ()))
        return any(entry is not None and is_true(entry.workload.status.conditions, "Admitted") for entry in kept)
