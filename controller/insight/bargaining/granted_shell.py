"""Pods that name a CapacityRequest: they start inside of its grant, and end with it."""

from collections.abc import Callable, Iterable, Sequence

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import CAPACITY_PODS
from controller.insight.bargaining.grantpods import Grant, Start, inside, is_inside, waiting
from controller.insight.bargaining.inside import places_of
from controller.insight.bargaining.kept import KeptRequest
from controller.insight.bargaining.life import State
from controller.insight.bargaining.wishes import POD_SET, Wish
from controller.jobs.framework import names
from controller.jobs.framework.offspot import off_spot
from controller.jobs.framework.podsets import FlavorMissingError, PodSetInfo, SeenWorkload, StartConflictError
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import ClusterObjects
from controller.messages import bargains as words
from controller.objects.capacityrequests import API_VERSION, KIND
from controller.objects.workload import Admission
from controller.reconcile.pods.actions import DeletePod, PatchPod
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.start import infos_by_set, start_patch
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.spot import never_spot
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import GRANTED_UNITS
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey

WAITS = "WaitingForGrant"
ENDED = "GrantEnded"
Tell = Callable[[ObjectReference, str, str, str], None]


class GrantedPods:
    """Starts and ends pods of grants. Its writes raise ActionFailedError and KubeError."""

    def __init__(self, engine: Engine, feeds: Feeds, actions: PodActions, cluster: ClusterObjects, tell: Tell) -> None:
        self._engine = engine
        self._feeds = feeds
        self._actions = actions
        self._cluster = cluster
        self._tell = tell
        self._told: dict[str, str] = {}
        """Why each pod waits, by its uid, as its last Event says."""

    def of(self, keys: Iterable[ObjectKey]) -> list[SeenPod] | None:
        """The pods; None while the watch does not show what was written to one of them."""
        pods: list[SeenPod] = []
        for key in keys:
            entry = self._feeds[CAPACITY_PODS].get(key)
            if entry is None:
                continue
            if self._actions.written.behind(key, entry.uid, entry.resource_version):
                return None
            pods.append(SeenPod(entry.object.json))
        return pods

    def forget(self, key: ObjectKey, uid: str) -> None:
        self._actions.written.forget(key)
        self._told.pop(uid, None)

    def used(self, workload: SeenWorkload, pods: Sequence[SeenPod]) -> int:
        """Units that pods run on."""
        inside_it = [pod for pod in pods if is_inside(pod) and _workload_of(pod) == workload.name]
        return sum(len([each for each in pod.annotations[GRANTED_UNITS].split(",") if each]) for pod in inside_it)

    async def start(
        self,
        kept: KeptRequest,
        workload: SeenWorkload,
        wish: Wish,
        state: State,
        pods: Sequence[SeenPod],
        now_s: float,
    ) -> None:
        """Starts the pods for which there are units, and ends those that run inside of an earlier grant."""
        admission = workload.typed.status.admission
        holder = self._engine.state.cluster.holders.get(WorkloadKey(workload.typed.key))
        if admission is None or holder is None:
            return
        strangers = [pod for pod in pods if is_inside(pod) and _workload_of(pod) != workload.name]
        mine = [pod for pod in pods if pod not in strangers]
        grant = Grant(
            name=kept.request.metadata.name,
            units=state.units,
            places=places_of(admission, sum(each.count for each in workload.typed.spec.pod_sets)),
            unit=wish.unit,
            counted=self._engine.state.cluster.queue(holder.cluster_queue).group_of,
            begins_s=now_s if state.from_s is None else state.from_s,
        )
        outcome = inside(grant, mine, now_s)
        try:
            config = self._engine.state.config
            off = off_spot(never_spot(config.extensions)) if self._cluster.is_off_spot(workload.typed) else ()
            info = infos_by_set(workload, self._cluster, config.gates, off)[POD_SET]
            patches = [_patch(each, info, admission) for each in outcome.start]
        except (FlavorMissingError, StartConflictError, KeyError) as error:
            self._wait([(each.pod, f"{error}") for each in outcome.start], kept)
            return
        self._wait(outcome.waits, kept)
        await self._end(_about(kept), strangers, words.grant_is_another(grant.name))
        await self._actions.carry_out(_about(kept), {each.pod.name: each.pod.raw for each in outcome.start}, patches)

    async def refuse(self, key: ObjectKey, pods: Sequence[SeenPod], why: str) -> None:
        """Ends pods that run inside of a grant that is no more, and says of others why they wait."""
        about = ObjectReference(API_VERSION, KIND, key.name, "", key.namespace)
        await self._end(about, [pod for pod in pods if is_inside(pod)], why)
        for pod in waiting(pods):
            self._say(pod, key.namespace, why)

    async def stop(self, workload: SeenWorkload, pods: Sequence[SeenPod], why: str) -> bool:
        """Ends the pods that run inside of the Workload. Returns whether some may run still."""
        left = [pod for pod in pods if is_inside(pod) and _workload_of(pod) == workload.name]
        meta = workload.typed.metadata
        await self._end(
            ObjectReference("kueue.x-k8s.io/v1beta2", "Workload", meta.name, meta.uid, meta.namespace), left, why
        )
        return bool(left)

    async def _end(self, about: ObjectReference, pods: Sequence[SeenPod], why: str) -> None:
        leaving = [pod for pod in pods if not pod.is_terminating]
        deletions = [DeletePod(name=pod.name, uid=pod.uid, reason=ENDED, message=why) for pod in leaving]
        if deletions:
            await self._actions.carry_out(about, {pod.name: pod.raw for pod in leaving}, deletions)

    def _wait(self, waits: Iterable[tuple[SeenPod, str]], kept: KeptRequest) -> None:
        for pod, why in waits:
            self._say(pod, kept.request.metadata.namespace, why)

    def _say(self, pod: SeenPod, namespace: str, why: str) -> None:
        if self._told.get(pod.uid) != why:
            self._told[pod.uid] = why
            self._tell(ObjectReference("v1", "Pod", pod.name, pod.uid, namespace), "Normal", WAITS, why)


def _patch(start: Start, info: PodSetInfo, admission: Admission) -> PatchPod:
    """The patch that starts a pod with what flavor and place require, and its units."""
    levels = next(
        (each.topology_assignment.levels for each in admission.pod_set_assignments if each.topology_assignment), ()
    )
    place = dict(zip(levels, start.place, strict=True)) if start.place else {}
    body: Json = start_patch(start.pod, info, place)
    noted = {**body["metadata"].get("annotations", {}), GRANTED_UNITS: start.note}
    return PatchPod(name=start.pod.name, body={**body, "metadata": {**body["metadata"], "annotations": noted}})


def _workload_of(pod: SeenPod) -> str:
    try:
        return pod.annotations.get(names.WORKLOAD, "")
    except JobError:
        return ""


def _about(kept: KeptRequest) -> ObjectReference:
    meta = kept.request.metadata
    return ObjectReference(API_VERSION, KIND, meta.name, meta.uid, meta.namespace)
