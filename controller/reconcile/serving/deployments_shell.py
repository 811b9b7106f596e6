"""The shell around the replicas of Deployments: which are above the minimum, and which replica takes over whose quota.

Deployments, ReplicaSets, their pods, Workloads -> a queue of Deployments -> reconcile.serving.replicas -> marks

Their Workloads are made, started and stopped one by one in ``controller.pods``.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import DEPLOYMENTS, QUEUED_PODS, REPLICA_SETS
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.watching.workqueue import WorkQueue
from controller.jobs.framework import names
from controller.jobs.framework.actions import UpdateWorkload
from controller.jobs.framework.marks import controller_of, min_replicas
from controller.jobs.framework.raw import JobError, Json, annotations, text
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.steps import event, refuse
from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.workload import Workload
from controller.reconcile.jobshell.indexes import note
from controller.reconcile.pods.actions import PodAction
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.compose import workload_name
from controller.reconcile.pods.group import Group
from controller.reconcile.pods.reconcile_shell import QueuedPod
from controller.reconcile.serving.replicas import Replica, changed_marks, takeovers
from controller.scheduler.decisions.records import Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MIN_REPLICAS
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Changed, Removed

_REVISION: Final = "deployment.kubernetes.io/revision"
_PACE_S: Final = 0.001
"""The pause between two reconciliations for each pod: a reconciliation costs about a tenth of it."""
_LONGEST_S: Final = 1.0
_AGAIN_S: Final = 1.0
"""The time after which a replica that fits and is not admitted yet is checked again: another may take what is free."""
_STUCK: Final = frozenset({Rule.NO_FIT, Rule.NO_CANDIDATES, Rule.HELD_BACK})


class Scaled(msgspec.Struct, frozen=True):
    """A Deployment or ReplicaSet in the cache. ``owner`` is the uid of its controller; ``error`` says why its minimum
    cannot be read.
    """

    owner: str
    revision: int
    minimum: int | None
    error: str = ""


def read_scaled(raw: bytes) -> Scaled:
    body: Json = msgspec.json.decode(raw)
    owner = controller_of(body)
    number = annotations(body).get(_REVISION, "")
    revision = int(number) if number.isdecimal() else 0
    uid = "" if owner is None else owner.uid
    try:
        return Scaled(uid, revision, min_replicas(body))
    except JobError as error:
        return Scaled(uid, revision, None, str(error))


def may_be_spare(feeds: Feeds) -> Callable[[Json], bool]:
    """Whether a new pod may be above the minimum of its Deployment; true also while the watches do not show that
    yet.
    """

    def answer(pod: Json) -> bool:
        reference = controller_of(pod)
        if reference is None or reference.kind != REPLICA_SETS.kind:
            return False
        namespace = text(pod, "metadata", "namespace")
        replica_set = feeds[REPLICA_SETS].get(ObjectKey(namespace, reference.name))
        if replica_set is None or replica_set.uid != reference.uid:
            return True
        name = _deployment_name(reference.name)
        deployment = feeds[DEPLOYMENTS].get(ObjectKey(namespace, name))
        if deployment is None or deployment.uid != replica_set.object.owner:
            return True
        return deployment.object.minimum is not None

    return answer


def _deployment_name(replica_set: str) -> str:
    """The name of a ReplicaSet's Deployment: it is named as that and the hash of its template; its owner's uid tells
    whether it is one.
    """
    return replica_set.rpartition("-")[0]


class DeploymentKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class DeploymentController:
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled.

    ``_sets`` has the ReplicaSets by the uid of their Deployment, ``_pods`` the pods by the uid of their ReplicaSet, and
    ``_set_of`` the ReplicaSets by their own uid. All follow the watches, and only ``hear`` writes them; their sets are
    never empty.
    """

    def __init__(
        self,
        engine: Engine,
        feeds: Feeds,
        ledger: Ledger,
        actions: PodActions,
        settings: JobSettings,
        *,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._feeds = feeds
        self._ledger = ledger
        self._actions = actions
        self._settings = settings
        self._clock = clock
        self._queue: WorkQueue[DeploymentKey] = WorkQueue("deployments", self._reconcile)
        self._sets: dict[str, set[ObjectKey]] = {}
        self._pods: dict[str, set[ObjectKey]] = {}
        self._set_of: dict[str, ObjectKey] = {}

    async def run(self) -> None:
        await self._queue.run()

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == DEPLOYMENTS:
                self._put(DeploymentKey(key.namespace, key.name, entry.uid))
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == REPLICA_SETS:
                note(self._sets, entry.object.owner, key, gone=False)
                self._set_of[entry.uid] = key
                self._touch(entry.uid)
            case Removed(key=key, old=entry) if observed.resource == REPLICA_SETS:
                note(self._sets, entry.object.owner, key, gone=True)
                self._set_of.pop(entry.uid, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == QUEUED_PODS:
                if entry.object.owner:
                    note(self._pods, entry.object.owner, key, gone=False)
                    self._touch(entry.object.owner)
            case Removed(key=key, old=entry) if observed.resource == QUEUED_PODS:
                note(self._pods, entry.object.owner, key, gone=True)
                self._touch(entry.object.owner)

    def workload(self, workload: Workload, _gone: bool) -> None:
        """Takes a Workload that was created, changed or deleted: its pod's Deployment is reconciled."""
        for reference in workload.metadata.owner_references:
            if reference.controller and reference.kind == "Pod":
                entry = self._feeds[QUEUED_PODS].get(ObjectKey(workload.metadata.namespace, reference.name))
                if entry is not None:
                    self._touch(entry.object.owner)

    def _touch(self, replica_set: str) -> None:
        """Reconciles the Deployment of the ReplicaSet with this uid. A ReplicaSet without a queued Deployment is not in
        the watches.
        """
        key = self._set_of.get(replica_set)
        entry = None if key is None else self._feeds[REPLICA_SETS].get(key)
        if key is not None and entry is not None:
            self._put(DeploymentKey(key.namespace, _deployment_name(key.name), entry.object.owner))

    def _put(self, key: DeploymentKey, least_s: float = 0.0) -> None:
        """Enqueues a Deployment, a large one a moment later: its pods are created and change one by one."""
        pods = sum(len(self._pods.get(uid, ())) for uid in self._uids_of_sets(key))
        self._queue.put_soon(key, max(least_s, min(pods * _PACE_S, _LONGEST_S)))

    def _uids_of_sets(self, key: DeploymentKey) -> list[str]:
        entries = (self._feeds[REPLICA_SETS].get(name) for name in self._sets.get(key.uid, ()))
        return [entry.uid for entry in entries if entry is not None]

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: DeploymentKey) -> None:
        deployment = self._feeds[DEPLOYMENTS].get(ObjectKey(key.namespace, key.name))
        if deployment is None or deployment.uid != key.uid:
            return
        scaled: Scaled = deployment.object
        by_name = self._replicas(key)
        replicas = [replica for replica, _ in by_name.values()]
        actions: list[PodAction] = []
        if scaled.error:
            actions.append(refuse(JobError(scaled.error)))
        patches = {name: _mark(wanted) for name, wanted in changed_marks(replicas, scaled.minimum).items()}
        not_stuck: set[str] = set()

        def is_stuck(name: str) -> bool:
            stuck = self._is_stuck(WorkloadKey(f"{key.namespace}/{name}"))
            if not stuck:
                not_stuck.add(name)
            return stuck

        for name, giver in takeovers(replicas, is_stuck).items():
            patches[name] = {**patches.get(name, {}), **_takeover(key.namespace, giver)}
            if giver:
                actions.append(event("TakesOverQuota", f"Workload {name} takes over the quota of {giver}"))
        for name, marks in patches.items():
            actions.append(_patch(by_name[name][1], marks))
        if not_stuck:
            self._put(key, least_s=_AGAIN_S)
        about = ObjectReference("apps/v1", "Deployment", key.name, key.uid, key.namespace)
        await self._actions.carry_out(about, {}, actions)

    def _is_stuck(self, key: WorkloadKey) -> bool:
        tried = self._engine.explain(key, self._clock.wall())
        return tried is not None and tried.record.rule in _STUCK

    def _replicas(self, key: DeploymentKey) -> dict[str, tuple[Replica, LedgerEntry]]:
        """The replicas of a Deployment by the names of their Workloads; those without a Workload, or with one that is
        over, are left out.
        """
        replicas = {}
        for set_key in self._sets.get(key.uid, ()):
            replica_set = self._feeds[REPLICA_SETS].get(set_key)
            for pod_key in () if replica_set is None else self._pods.get(replica_set.uid, ()):
                entry = self._feeds[QUEUED_PODS].get(pod_key)
                kept = None if entry is None else self._workload_of(entry)
                if replica_set is not None and entry is not None and kept is not None:
                    replica = _replica(entry.object, kept.workload, replica_set.object.revision)
                    replicas[replica.name] = (replica, kept)
        return replicas

    def _workload_of(self, entry: CachedObject[QueuedPod]) -> LedgerEntry | None:
        pod = entry.object.seen()
        name = workload_name(Group(name="", total=1, minimum=1), pod, self._settings.gates)
        kept = self._ledger.get(WorkloadKey(f"{text(pod.raw, 'metadata', 'namespace')}/{name}"))
        if kept is None or kept.workload.metadata.deletion_timestamp is not None:
            return None
        return None if is_true(kept.workload.status.conditions, "Finished") else kept


def _replica(queued: QueuedPod, workload: Workload, revision: int) -> Replica:
    pod, status = queued.seen(), workload.status
    evicted = is_true(status.conditions, "Evicted")
    reserved = status.admission is not None
    waits = find_condition(status.conditions, "Requeued")
    return Replica(
        name=workload.metadata.name,
        created_s=epoch_s(workload.metadata.creation_timestamp),
        revision=revision,
        holds=reserved and not evicted and is_true(status.conditions, "Admitted"),
        waits=not reserved and pod.is_gated and pod.stays and (waits is None or waits.status != "False"),
        leaves=pod.is_terminating and not pod.is_deleted_by_queue,
        is_ready=pod.is_ready,
        is_spare=ABOVE_MIN_REPLICAS in workload.metadata.annotations,
        follows=workload.metadata.annotations.get(names.REPLACEMENT_FOR, "").rpartition("/")[2],
    )


def _mark(wanted: bool) -> dict[str, str | None]:
    return {ABOVE_MIN_REPLICAS: "true" if wanted else None}


def _takeover(namespace: str, giver: str) -> dict[str, str | None]:
    return {names.REPLACEMENT_FOR: f"{namespace}/{giver}" if giver else None}


def _patch(entry: LedgerEntry, marks: dict[str, str | None]) -> UpdateWorkload:
    meta = entry.workload.metadata
    body: Json = {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": marks}
    return UpdateWorkload(name=meta.name, patch={"metadata": body})
