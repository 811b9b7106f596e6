"""KAI's queues and pod groups: ``scheduling.run.ai/v2`` Queue, ``scheduling.run.ai/v2alpha2`` PodGroup.

Any user who may create them writes them, so they are hostile until they are checked: a number that makes no sense for a
queue is refused. Units are KAI's: CPU in thousandths of a core, memory in 10^6 bytes, GPUs in devices, -1 for no bound.
"""

import math
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from controller.objects.meta import Condition, Int32, KubernetesObject, Struct, Time
from controller.objects.quantity import Quantity

KAI_QUEUE: Final = "scheduling.run.ai/v2"
KAI_POD_GROUP: Final = "scheduling.run.ai/v2alpha2"
UNBOUNDED: Final = -1.0
PREEMPTIBLE_BELOW: Final = 100
"""The priority below which a pod group is preemptible unless it says otherwise."""

Preemptibility = Literal["preemptible", "non-preemptible"]
MOST_SUBGROUPS: Final = 1024
DEEPEST_SUBGROUP: Final = 32
"""The deepest nesting of subgroups, the subgroup itself included. Readers recurse on the tree."""


class KaiQuota(Struct, frozen=True, kw_only=True):
    """The quota of one resource. An absent field is 0: no quota, no weight, and a limit that allows nothing at all."""

    quota: float = 0.0
    over_quota_weight: float = 0.0
    limit: float = 0.0

    def __post_init__(self) -> None:
        for name, amount in (("quota", self.quota), ("limit", self.limit)):
            if not (math.isfinite(amount) and (amount >= 0 or amount == UNBOUNDED)):
                raise ValueError(f"{name}: expected -1 or a number of at least 0, found {amount:g}")
        # KAI's own default queues have a weight of -1, which counts as none.
        if not (math.isfinite(self.over_quota_weight) and (self.over_quota_weight >= 0 or self.unweighted)):
            raise ValueError(f"overQuotaWeight: expected a number of at least 0, found {self.over_quota_weight:g}")

    @property
    def unweighted(self) -> bool:
        return self.over_quota_weight == UNBOUNDED


class KaiQueueResources(Struct, frozen=True, kw_only=True):
    cpu: KaiQuota = KaiQuota()
    gpu: KaiQuota = KaiQuota()
    memory: KaiQuota = KaiQuota()


class KaiQueueSpec(Struct, frozen=True, kw_only=True):
    """A KAI queue's spec. ``preempt_min_runtime`` and ``reclaim_min_runtime`` are durations as Go writes them; None:
    the parent's.
    """

    display_name: str = ""
    parent_queue: str = ""
    priority: int | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None
    resources: KaiQueueResources = KaiQueueResources()


class KaiQueueCondition(Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    last_probe_time: Time | None = None


class KaiQueueStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[KaiQueueCondition, ...] = ()
    child_queues: tuple[str, ...] = ()
    allocated: dict[str, Quantity] = msgspec.field(default_factory=dict)
    allocated_non_preemptible: dict[str, Quantity] = msgspec.field(default_factory=dict)
    requested: dict[str, Quantity] = msgspec.field(default_factory=dict)


class KaiQueue(KubernetesObject, frozen=True, kw_only=True):
    """A KAI queue. Its kind is Queue; it has no namespace."""

    spec: KaiQueueSpec = KaiQueueSpec()
    status: KaiQueueStatus = KaiQueueStatus()


class TopologyConstraint(Struct, frozen=True, kw_only=True):
    """A topology constraint. ``topology`` names a Topology of kai.scheduler, the levels are labels of nodes."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(Struct, frozen=True, kw_only=True):
    """A subgroup. A leaf sets ``min_member``, a group of groups ``min_sub_group``."""

    name: str
    min_member: Int32 | None = None
    min_sub_group: Int32 | None = None
    parent: str = ""
    topology_constraint: TopologyConstraint | None = None


class KaiPodGroupSpec(Struct, frozen=True, kw_only=True):
    min_member: Int32 | None = None
    min_sub_group: Int32 | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: Preemptibility | None = None
    topology_constraint: TopologyConstraint | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    mark_unschedulable: bool | None = None
    scheduling_backoff: Int32 | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class KaiPodGroupStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class KaiPodGroup(KubernetesObject, frozen=True, kw_only=True):
    """A KAI pod group. Its kind is PodGroup; it has a namespace. ``problems`` tells why no gang can be made of it."""

    spec: KaiPodGroupSpec = KaiPodGroupSpec()
    status: KaiPodGroupStatus = KaiPodGroupStatus()


def problems(group: KaiPodGroup) -> Iterator[str]:
    """The reasons why the pod group is no gang: one sentence each with field, value found, value expected."""
    spec = group.spec
    if spec.min_member is not None and spec.min_sub_group is not None:
        yield f"spec.minSubGroup: expected none beside minMember {spec.min_member}, found {spec.min_sub_group}"
    if spec.min_sub_group is not None and spec.min_sub_group < 0:
        yield f"spec.minSubGroup: expected at least 0, found {spec.min_sub_group}"
    if len(spec.sub_groups) > MOST_SUBGROUPS:
        yield f"spec.subGroups: expected {MOST_SUBGROUPS} at most, found {len(spec.sub_groups)}"
        return
    names: dict[str, SubGroup] = {}
    for at, sub_group in enumerate(spec.sub_groups):
        if not sub_group.name:
            yield f"spec.subGroups[{at}].name: expected the name of a subgroup, found an empty one"
        elif sub_group.name in names:
            yield f"spec.subGroups[{at}].name: expected a name of its own, found {sub_group.name!r} again"
        names[sub_group.name] = sub_group
    parents = {sub_group.parent for sub_group in spec.sub_groups if sub_group.parent}
    for at, sub_group in enumerate(spec.sub_groups):
        for problem in (_of_parent(sub_group, names), *_of_minimums(sub_group, is_leaf=sub_group.name not in parents)):
            if problem:
                yield f"spec.subGroups[{at}].{problem}"


def _of_parent(sub_group: SubGroup, names: dict[str, SubGroup]) -> str:
    if sub_group.parent and sub_group.parent not in names:
        return f"parent: expected the name of a subgroup, found {sub_group.parent!r}"
    deep = _depth(sub_group, names)
    if deep is None:
        return f"parent: expected a tree, found {sub_group.name!r} above itself"
    return f"parent: expected {DEEPEST_SUBGROUP} levels at most, found {deep}" if deep > DEEPEST_SUBGROUP else ""


def _of_minimums(sub_group: SubGroup, *, is_leaf: bool) -> Iterator[str]:
    members, groups = sub_group.min_member, sub_group.min_sub_group
    if members is not None and not is_leaf:
        yield f"minMember: expected none where other subgroups are below, found {members}"
    if groups is not None and is_leaf:
        yield f"minSubGroup: expected none where no subgroup is below, found {groups}"
    for key, least in (("minMember", members), ("minSubGroup", groups)):
        if least is not None and least < 0:
            yield f"{key}: expected at least 0, found {least}"


def _depth(sub_group: SubGroup, names: dict[str, SubGroup]) -> int | None:
    """The number of subgroups from this one up to the top; None if it is its own ancestor."""
    above: SubGroup | None = sub_group
    for depth in range(1, len(names) + 1):
        above = names.get(above.parent) if above is not None and above.parent else None
        if above is None:
            return depth
    return None
