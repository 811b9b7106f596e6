"""``leaderworkerset.x-k8s.io/v1`` LeaderWorkerSet: one Workload for each group of a leader and its workers.

Facts (the controller of LeaderWorkerSets):
- One StatefulSet has the leaders, and each leader is the owner of a StatefulSet with its workers. All pods carry labels
  with the set's name and the group's number, the workers an annotation with their leader's name.
- With ``startupPolicy: LeaderReady`` workers are made once the leader is Ready: a group is admitted by its declared
  size.
- Scaled down, it gives up the groups of the highest numbers. A rollout with ``maxSurge`` makes groups beyond
  ``replicas``, which ``status.replicas`` counts.
- With a ``subGroupPolicy`` the pods of a group are in subgroups by their index. The leader is one of the first, or an
  extra pod of it where only the workers can be divided; with type LeaderExcluded it is in none. The annotations
  ``exclusive-topology`` and ``subgroup-exclusive-topology`` name a label of nodes: all pods of a group, or subgroup,
  are on nodes with one value of it, which no other has (by affinities that the controller writes into the pods).
- A pod that fails or is deleted takes its group along (``restartPolicy: RecreateGroupOnPodRestart``): the new pods come
  under the same number.
"""

from types import MappingProxyType
from typing import Any, Final

from controller.jobs.framework.podsets import JobPodSet
from controller.jobs.framework.podview import SERVING
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    at,
    integer,
    labels,
    mapping,
    shown,
    strings,
    text,
)
from controller.jobs.serving.kind import MARKS, ServingGroup, ServingKind, Stamp, pod_set
from controller.objects.meta import Struct
from controller.scheduler.model.gangshape import GangShape, Subgroup
from inventory.words.catalog import plural

_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
NAME: Final = f"{_PREFIX}name"
GROUP_INDEX: Final = f"{_PREFIX}group-index"
WORKER_INDEX: Final = f"{_PREFIX}worker-index"
LEADER_NAME: Final = f"{_PREFIX}leader-name"
TOPOLOGY: Final = f"{_PREFIX}exclusive-topology"
SUBGROUP_TOPOLOGY: Final = f"{_PREFIX}subgroup-exclusive-topology"

_BASE: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = (*_BASE, "leaderTemplate")
_WORKER: Final = (*_BASE, "workerTemplate")
_POLICY: Final = (*_BASE, "subGroupPolicy")
_MOST_SUBGROUPS: Final = 16
"""The most subgroups: a Workload has 18 pod sets; one is the leader's, and one its own if it is in no subgroup."""
_MOST_GROUPS: Final = 100_000
_MOST_DIGITS: Final = 9
_SERVING: Final = MappingProxyType({SERVING: "true"})


class LeaderWorkerSet(ServingKind):
    """LeaderWorkerSets, see ``kind.ServingKind``."""

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
        return _groups(owner, _group_count(owner))

    def first_group(self, owner: Json) -> ServingGroup | None:
        return next(iter(_groups(owner, min(1, _group_count(owner)))), None)

    def owner_name(self, pod: Json) -> str:
        return labels(pod).get(NAME, "")

    def group_name(self, owner: Json, pod: Json) -> str:
        index = labels(pod).get(GROUP_INDEX, "")
        return f"{text(owner, 'metadata', 'name')}-{index}" if index.isdecimal() else ""

    def role(self, owner: Json, pod: Json) -> str:
        leads = LEADER_NAME not in annotations(pod)
        if leads and at(owner, *_LEADER) is not None:
            return "leader"
        subgroups = _subgroups(owner)
        if subgroups is None:
            return "main" if at(owner, *_LEADER) is None else "worker"
        rank = labels(pod).get(WORKER_INDEX, "0" if leads else "")
        if not rank.isdecimal() or len(rank) > _MOST_DIGITS:
            where = f"pod {text(pod, 'metadata', 'name')}: metadata.labels[{WORKER_INDEX}]"
            raise JobError(f"{where}: expected the pod's number in its group, found {shown(rank)}")
        return subgroups.pod_set(int(rank))

    def keeps_workload(self, _owner: Json) -> bool:
        return False


def _groups(owner: Json, count: int) -> tuple[ServingGroup, ...]:
    name = text(owner, "metadata", "name")
    sets = _pod_sets(owner) if count else ()
    gang = _gang(owner) if count else None
    return tuple(ServingGroup(name=f"{name}-{index}", index=index, pod_sets=sets, gang=gang) for index in range(count))


def _group_count(owner: Json) -> int:
    """The number of groups: more than requested while a rollout has groups to spare. After scaling down
    ``status.replicas`` merely lags behind.

    Raises JobError above a bound: each group is made at once, and the API allows two billion.
    """
    replicas = integer(owner, "spec", "replicas", default=1)
    there = integer(owner, "status", "replicas", default=0)
    surges = _is_above_zero(at(owner, "spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"))
    rolling = integer(owner, "status", "updatedReplicas", default=0) < replicas
    count = there if there > replicas and surges and rolling else replicas
    if count > _MOST_GROUPS:
        raise JobError(f"spec.replicas: expected at most {_MOST_GROUPS} groups, found {count}")
    return count


def _is_above_zero(amount: Any) -> bool:
    """Whether the amount, a number or a share such as ``25%``, is above zero."""
    return str(amount if amount is not None else 0).removesuffix("%").strip("0") != ""


class _Subgroups(Struct, frozen=True, kw_only=True):
    """The subgroups of a group of ``size`` pods; each is to be on nodes with one value of ``level``.

    ``extra``: the leader is a pod more than its subgroup has; ``excluded``: it is in none.
    """

    size: int
    each: int
    level: str
    extra: bool
    excluded: bool

    @property
    def count(self) -> int:
        return (self.size - self.extra) // self.each

    def of(self, rank: int) -> int | None:
        """The number of the pod's subgroup; None for a leader that is in none."""
        if self.excluded and not rank:
            return None
        return max(0, rank - 1) // self.each if self.extra else rank // self.each

    def counts(self, *, leads: bool) -> dict[str, int]:
        """Pods by pod set. ``leads``: without the leader."""
        by_pod_set = {} if leads or not self.excluded else {self.pod_set(0): 1}
        by_pod_set |= {self.name(number): self.each for number in range(self.count)}
        if not self.excluded:
            by_pod_set[self.name(0)] += self.extra - leads
        return by_pod_set

    def name(self, number: int) -> str:
        return f"subgroup-{number}"

    def pod_set(self, rank: int) -> str:
        """The pod set of a pod that is made of the workers' template."""
        number = self.of(rank)
        return "main" if number is None else self.name(number)


def _subgroups(owner: Json) -> _Subgroups | None:
    """The subgroups of an object; None if it requests no level for them. Raises JobError."""
    policy, level = mapping(owner, *_POLICY), annotations(owner).get(SUBGROUP_TOPOLOGY, "")
    if not policy or not level:
        return None
    size, pods_each = integer(owner, *_BASE, "size", default=1), integer(owner, *_POLICY, "subGroupSize", default=0)
    extra = pods_each > 0 and size > 1 and (size - 1) % pods_each == 0
    excluded = text(owner, *_POLICY, "subGroupPolicyType") == "LeaderExcluded"
    path = f"{'.'.join(_POLICY)}.subGroupSize"
    if not 0 < pods_each <= size or not (extra or (size % pods_each == 0 and not excluded)):
        workers = f"the {plural(size - 1, 'worker')}"
        pods = workers if excluded else f"{plural(size, 'pod')} or {workers}"
        raise JobError(f"{path}: expected a number by which {pods} of a group are divided, found {pods_each}")
    found = _Subgroups(size=size, each=pods_each, level=level, extra=extra, excluded=excluded)
    if not 0 < found.count <= _MOST_SUBGROUPS:
        raise JobError(f"{path}: expected 1 to {_MOST_SUBGROUPS} subgroups of a group, found {found.count}")
    return found


def _pod_sets(owner: Json) -> tuple[JobPodSet, ...]:
    size, subgroups = integer(owner, *_BASE, "size", default=1), _subgroups(owner)
    leads = at(owner, *_LEADER) is not None
    first = (_set(owner, _LEADER, "leader", 1),) if leads else ()
    if subgroups is None:
        return (*first, _set(owner, _WORKER, "worker" if leads else "main", size - leads))
    counts = subgroups.counts(leads=leads)
    # Ranks count through all of a group: within a subgroup places are given in any order.
    return (*first, *(_set(owner, _WORKER, name, count, index_label=None) for name, count in counts.items() if count))


def _gang(owner: Json) -> GangShape | None:
    """The levels of a group; None if the object requests none. Raises JobError."""
    level, subgroups = annotations(owner).get(TOPOLOGY, ""), _subgroups(owner)
    if subgroups is None:
        return GangShape(required_level=level, exclusive=True) if level else None
    groups = tuple(
        Subgroup(name=subgroups.name(number), required_level=subgroups.level, exclusive=True)
        for number in range(subgroups.count)
    )
    leads = at(owner, *_LEADER) is not None
    members = {group.name: group.name for group in groups}
    leading = subgroups.of(0)
    if leads and leading is not None:
        members["leader"] = subgroups.name(leading)
    return GangShape(required_level=level, exclusive=level != "", groups=groups, members=members)


def _set(
    owner: Json, path: tuple[str, ...], name: str, count: int, *, index_label: str | None = WORKER_INDEX
) -> JobPodSet:
    metadata = {
        key: kept
        for key in ("labels", "annotations")
        if (kept := {name: value for name, value in strings(owner, *path, "metadata", key).items() if _is_kept(name)})
    }
    index_label = None if name == "leader" else index_label
    return pod_set(owner, path, name, count, metadata=metadata, index_label=index_label)


def _is_kept(key: str) -> bool:
    """Whether a label is kept. The labels that the set's controller writes tell its groups apart, except for the set's
    name.
    """
    return key == NAME or not key.startswith(_PREFIX)
