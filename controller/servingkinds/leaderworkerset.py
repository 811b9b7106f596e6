"""``leaderworkerset.x-k8s.io/v1`` LeaderWorkerSet: one Workload for each group of a leader and its workers.

Facts (the controller of LeaderWorkerSets):
- One StatefulSet has the leaders, and each leader is the owner of a StatefulSet with its workers. All pods carry labels
  with the set's name and the group's number, the workers an annotation with their leader's name.
- With ``startupPolicy: LeaderReady`` workers are made once the leader is Ready: a group is admitted by its declared
  size.
- Scaled down, it gives up the groups of the highest numbers. A rollout with ``maxSurge`` makes groups beyond
  ``replicas``, which ``status.replicas`` counts.
- A pod that fails or is deleted takes its group along (``restartPolicy: RecreateGroupOnPodRestart``): the new pods come
  under the same number.
"""

from types import MappingProxyType
from typing import Any, Final

from controller.jobframework.podview import SERVING
from controller.jobframework.raw import Json, annotations, at, integer, labels, strings, text
from controller.servingkinds.kind import MARKS, ServingGroup, ServingKind, Stamp, pod_set

_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
NAME: Final = f"{_PREFIX}name"
GROUP_INDEX: Final = f"{_PREFIX}group-index"
WORKER_INDEX: Final = f"{_PREFIX}worker-index"
LEADER_NAME: Final = f"{_PREFIX}leader-name"

_BASE: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = (*_BASE, "leaderTemplate")
_WORKER: Final = (*_BASE, "workerTemplate")
_SERVING: Final = MappingProxyType({SERVING: "true"})


class LeaderWorkerSet(ServingKind):
    """See ``kind.ServingKind``."""

    framework = "leaderworkerset.x-k8s.io/leaderworkerset"
    group = "leaderworkerset.x-k8s.io"
    version = "v1"
    kind = "LeaderWorkerSet"
    plural = "leaderworkersets"
    stamps = (
        Stamp(path=_LEADER, copied=MARKS, annotations=_SERVING),
        Stamp(path=_WORKER, copied=MARKS, annotations=_SERVING, offset_beside=_LEADER),
    )

    def groups(self, owner: Json) -> tuple[ServingGroup, ...]:
        name = text(owner, "metadata", "name")
        count = _group_count(owner)
        sets = _pod_sets(owner) if count else ()
        return tuple(ServingGroup(name=f"{name}-{index}", index=index, pod_sets=sets) for index in range(count))

    def owner_name(self, pod: Json) -> str:
        return labels(pod).get(NAME, "")

    def group_name(self, owner: Json, pod: Json) -> str:
        index = labels(pod).get(GROUP_INDEX, "")
        return f"{text(owner, 'metadata', 'name')}-{index}" if index.isdecimal() else ""

    def role(self, owner: Json, pod: Json) -> str:
        if at(owner, *_LEADER) is None:
            return "main"
        return "worker" if LEADER_NAME in annotations(pod) else "leader"

    def keeps_workload(self, _owner: Json) -> bool:
        return False


def _group_count(owner: Json) -> int:
    """More than asked for while a rollout has groups to spare: scaling down, ``status.replicas`` merely lags behind."""
    replicas = integer(owner, "spec", "replicas", default=1)
    there = integer(owner, "status", "replicas", default=0)
    surges = _is_above_zero(at(owner, "spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"))
    rolling = integer(owner, "status", "updatedReplicas", default=0) < replicas
    return there if there > replicas and surges and rolling else replicas


def _is_above_zero(amount: Any) -> bool:
    """A number, or a share such as ``25%``."""
    return str(amount if amount is not None else 0).removesuffix("%").strip("0") != ""


def _pod_sets(owner: Json) -> tuple[Any, ...]:
    size = integer(owner, *_BASE, "size", default=1)
    if at(owner, *_LEADER) is None:
        return (_set(owner, _WORKER, "main", size),)
    return (_set(owner, _LEADER, "leader", 1), _set(owner, _WORKER, "worker", size - 1))


def _set(owner: Json, path: tuple[str, ...], name: str, count: int) -> Any:
    metadata = {
        key: kept
        for key in ("labels", "annotations")
        if (kept := {name: value for name, value in strings(owner, *path, "metadata", key).items() if _is_kept(name)})
    }
    index_label = None if name == "leader" else WORKER_INDEX
    return pod_set(owner, path, name, count, metadata=metadata, index_label=index_label)


def _is_kept(key: str) -> bool:
    """What the set's controller writes tells its groups apart, except for the set's name."""
    return key == NAME or not key.startswith(_PREFIX)
