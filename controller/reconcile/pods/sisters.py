"""Pods of one PodGroup of Kubernetes' own that are queued apart: those above its minimum, or all if it is no gang.

kube-scheduler 1.37 keeps one entry in its queue for all waiting pods of a group, of a tree for all below its topmost
group, and tries none of them while one has a scheduling gate (its function runPreEnqueuePlugins). The deletion of that
one does not make it look again; that a gate of another is lifted does. So a pod that has quota keeps its gate until
every sister has quota too or is gone, and a sister that got none is deleted right before. Where it is kept instead, a
pod that is queued by itself gives its quota back: all get some in one cycle of the engine (decision 169).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from controller.jobs.framework.actions import ReleaseQuota
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import MANAGED, GroupName, SeenPod
from controller.jobs.framework.raw import Json, sequence, text
from controller.jobs.framework.steps import event
from controller.messages import jobs as words
from controller.messages import pending
from controller.objects.meta import epoch_s, find_condition
from controller.reconcile.jobshell.indexes import Index, note
from controller.reconcile.pods.actions import DeletePod, PodAction, uncounted
from controller.reconcile.pods.group import Sister
from controller.scheduler.decisions.reasons import PendingReason
from inventory.api.names import COMPOSITE_GROUP

_STILL_TRIED: Final = (PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS, PendingReason.PENDING_EVALUATION)
_NAMED: Final = 5

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Way:
    """``actions`` of the present step. ``is_free``: whether gates may be lifted after them."""

    is_free: bool
    actions: tuple[PodAction, ...] = ()


class Sisters(Generic[K, T]):
    """Which pods share an entry of kube-scheduler's queue, and which groups (``T``) look at them. ``K``: keys of pods.

    Pods are told by ``see`` and ``leave``, with the name from ``queue_of``. A group leaves ``_looking``
    when it is told.
    """

    def __init__(self) -> None:
        self._pods = Index[tuple[str, str], K]()
        self._looking: dict[tuple[str, str], set[T]] = {}

    def see(self, key: K, namespace: str, entry: str) -> None:
        self._pods.put(key, (namespace, entry))

    def leave(self, key: K) -> None:
        self._pods.drop(key)

    def look(self, group: T, key: K) -> Collection[K]:
        """The pods of this pod's entry, itself among them. The group is told of the next change of one."""
        entry = self._pods.key(key)
        if entry is None:
            return ()
        note(self._looking, entry, group, gone=False)
        return list(self._pods.of(entry))

    def of(self, namespace: str, entry: str) -> Collection[K]:
        return self._pods.of((namespace, entry))

    def every(self) -> Collection[K]:
        return self._pods.values()

    def looking(self, key: K) -> Collection[T]:
        """The groups that look at this pod; they have to look again."""
        entry = self._pods.key(key)
        return () if entry is None else self._looking.pop(entry, ())


def entry_of(pod: SeenPod) -> str:
    """The name of the pod's entry in kube-scheduler's queue, in its namespace; empty for a pod without a group."""
    name = pod.native_group
    return name and (pod.annotations.get(COMPOSITE_GROUP, "") or name)


def queue_of(pod: SeenPod) -> str:
    """The name that the Workload of the pod's entry has where that is one gang; empty for a pod without a group."""
    entry = entry_of(pod)
    return entry and GroupName(None, entry, composite=COMPOSITE_GROUP in pod.annotations).workload


def way(
    group: str,
    unmarked: Iterable[SeenPod],
    sisters: Iterable[Sister],
    kept: Callable[[SeenPod], bool] = lambda _: False,
    own: SeenWorkload | None = None,
) -> Way:
    """What stands between pods of ``group`` that have quota, and their start. ``unmarked``: pods beyond its minimum
    that are not queued by themselves yet. ``kept``: whether a pod waits where it gets no quota. ``own``: the Workload
    of a pod that gets quota together with its sisters, and gives it back while one of them has none; None for others.
    """
    listed = [each for each in sisters if each.pod.is_gated and each.pod.stays]
    staying = [each.pod for each in listed if _got_none(each) and kept(each.pod)]
    waiting = [*unmarked, *(each.pod for each in listed if not (_has_quota(each) or _got_none(each)))]
    if own is not None and any(each.pod in staying and _is_newer(each, own) for each in listed):
        why = words.quota_given_back(group, _names(staying))
        back = ReleaseQuota(name=own.name, uid=own.uid, reason="WaitsForSisters", message=why, requeue=True)
        return Way(is_free=False, actions=(back, event("WaitsForSisters", why)))
    if waiting or staying:
        sentence = words.waits_for_sisters(group, _names([*waiting, *staying]))
        return Way(is_free=False, actions=(event("WaitsForSisters", sentence),))
    left = [each.pod for each in listed if _got_none(each)]
    if not left:
        return Way(is_free=True)
    sentence = words.sisters_deleted(group, _names(left))
    deletions = (_deleted(pod, words.held_back_its_group(group)) for pod in left)
    return Way(is_free=True, actions=(*deletions, event("PodsAboveDeleted", sentence, warning=True)))


def _is_newer(sister: Sister, own: SeenWorkload) -> bool:
    """Whether the sister has waited for less long than ``own`` has held quota. One that waited before it may have
    got quota in the same cycle, of which its status does not tell yet.
    """
    conditions = () if sister.workload is None else sister.workload.typed.status.conditions
    waits, holds = (find_condition(each, "QuotaReserved") for each in (conditions, own.typed.status.conditions))
    if waits is None or holds is None:
        return False
    return epoch_s(waits.last_transition_time) >= epoch_s(holds.last_transition_time)


def _names(pods: Sequence[SeenPod]) -> str:
    names = sorted(pod.name for pod in pods)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _has_quota(sister: Sister) -> bool:
    return sister.workload is not None and sister.workload.is_reserved


def _got_none(sister: Sister) -> bool:
    """Whether the engine has looked at the pod since its group has its minimum, and gave it no quota."""
    if sister.workload is None:
        return False
    reserved = find_condition(sister.workload.typed.status.conditions, "QuotaReserved")
    if reserved is None or reserved.status != "False" or not reserved.message or reserved.reason in _STILL_TRIED:
        return False
    minimum = f"{text(sister.pod.raw, 'metadata', 'namespace')}/{sister.pod.above_minimum_of}"
    return reserved.message != pending.below_minimum(minimum)


def _deleted(pod: SeenPod, why: str) -> DeletePod:
    """The deletion, of which nothing is left to wait for: kube-scheduler counts a pod until its object is gone."""
    operations = uncounted(pod)
    finalizers = sequence(pod.raw, "metadata", "finalizers")
    if not operations and MANAGED in finalizers:
        kept: Json = {"op": "replace", "path": "/metadata/finalizers", "value": [x for x in finalizers if x != MANAGED]}
        listed: Json = {"op": "test", "path": "/metadata/finalizers", "value": finalizers}
        operations = ({"op": "test", "path": "/metadata/uid", "value": pod.uid}, listed, kept)
    return DeletePod(name=pod.name, uid=pod.uid, reason="HeldBackItsGroup", message=why, uncounted=operations)
