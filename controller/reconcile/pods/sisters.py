"""Pods of one PodGroup of Kubernetes' own that are queued apart: those above its minimum, or all if it is no gang.

kube-scheduler 1.37 keeps one entry in its queue for all waiting pods of a group, of a tree for all below its topmost
group, and tries none of them while one has a scheduling gate (pkg/scheduler/backend/queue, ``runPreEnqueuePlugins``).
The deletion of that one does not make it look again; that a gate of another is lifted does. So a pod that has quota
keeps its gate until every sister has quota too or is gone, and a sister that got none is deleted right before: see
decision 169.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from controller.jobs.framework.podview import MANAGED, SeenPod
from controller.jobs.framework.raw import Json, sequence, text
from controller.jobs.framework.steps import event
from controller.messages import jobs as words
from controller.messages import pending
from controller.objects.meta import find_condition
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

    Pods are told by ``see`` and ``leave``. The sets of ``_pods`` are never empty; a group leaves ``_looking`` when it
    is told.
    """

    def __init__(self) -> None:
        self._entry: dict[K, tuple[str, str]] = {}
        self._pods: dict[tuple[str, str], set[K]] = {}
        self._looking: dict[tuple[str, str], set[T]] = {}

    def see(self, key: K, namespace: str, entry: str) -> None:
        self.leave(key)
        found = self._entry[key] = (namespace, entry)
        self._pods.setdefault(found, set()).add(key)

    def leave(self, key: K) -> None:
        entry = self._entry.pop(key, None)
        if entry is None:
            return
        self._pods[entry].discard(key)
        if not self._pods[entry]:
            del self._pods[entry]

    def look(self, group: T, key: K) -> Collection[K]:
        """The pods of this pod's entry, itself among them. The group is told of the next change of one."""
        entry = self._entry.get(key)
        if entry is None:
            return ()
        self._looking.setdefault(entry, set()).add(group)
        return list(self._pods[entry])

    def looking(self, key: K) -> Collection[T]:
        """The groups that look at this pod; they have to look again."""
        entry = self._entry.get(key)
        return () if entry is None else self._looking.pop(entry, ())


def entry_of(pod: SeenPod) -> str:
    """The name of the pod's entry in kube-scheduler's queue, in its namespace; empty for a pod without a group."""
    name = pod.native_group
    return name and (pod.annotations.get(COMPOSITE_GROUP, "") or name)


def way(group: str, unmarked: Iterable[SeenPod], sisters: Iterable[Sister]) -> Way:
    """What stands between pods of ``group`` that have quota, and their start. ``unmarked``: pods beyond its minimum
    that are not queued by themselves yet.
    """
    listed = [each for each in sisters if each.pod.is_gated and each.pod.stays]
    waiting = [*unmarked, *(each.pod for each in listed if not (_has_quota(each) or _got_none(each)))]
    if waiting:
        told = words.waits_for_sisters(group, _names(waiting))
        return Way(is_free=False, actions=(event("WaitsForSisters", told),))
    left = [each.pod for each in listed if _got_none(each)]
    if not left:
        return Way(is_free=True)
    told = words.sisters_deleted(group, _names(left))
    deletions = (_deleted(pod, words.held_back_its_group(group)) for pod in left)
    return Way(is_free=True, actions=(*deletions, event("PodsAboveDeleted", told, warning=True)))


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
    told = find_condition(sister.workload.typed.status.conditions, "QuotaReserved")
    if told is None or told.status != "False" or not told.message or told.reason in _STILL_TRIED:
        return False
    minimum = f"{text(sister.pod.raw, 'metadata', 'namespace')}/{sister.pod.above_minimum_of}"
    return told.message != pending.below_minimum(minimum)


def _deleted(pod: SeenPod, why: str) -> DeletePod:
    """The deletion, of which nothing is left to wait for: kube-scheduler counts a pod until its object is gone."""
    found = uncounted(pod)
    finalizers = sequence(pod.raw, "metadata", "finalizers")
    if not found and MANAGED in finalizers:
        kept: Json = {"op": "replace", "path": "/metadata/finalizers", "value": [x for x in finalizers if x != MANAGED]}
        listed: Json = {"op": "test", "path": "/metadata/finalizers", "value": finalizers}
        found = ({"op": "test", "path": "/metadata/uid", "value": pod.uid}, listed, kept)
    return DeletePod(name=pod.name, uid=pod.uid, reason="HeldBackItsGroup", message=why, uncounted=found)
