"""PodGroups of Volcano and KAI as their pods are grouped by them: how many, in which queue, in which subgroups. Pure.

Sources: ``scheduling.volcano.sh/v1beta1`` and ``scheduling.run.ai/v2alpha2``. Where the minimums of Volcano's tasks add
up to more than the group's own, they do not count, as in Volcano's gang plugin.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from controller.engine.mirror.specs import System
from controller.engine.model.gangshape import GangShape, Subgroup
from controller.jobframework.foreignmarks import DEFAULT_QUEUES
from controller.jobframework.marks import queue_name
from controller.jobframework.names import QUEUE_NAME
from controller.jobframework.podsets import SeenWorkload
from controller.jobframework.podview import KAI_GROUP, VOLCANO_GROUPS, GroupName, SeenPod
from controller.jobframework.raw import JobError, Json, annotations, labels, mapping, parsed_integer, shown, text
from controller.objects.decode import DecodeError, decode
from controller.objects.kai import KaiPodGroup, TopologyConstraint, problems
from controller.objects.volcanogroup import PodGroup, PodGroupSpec, SubGroupPolicy
from controller.objects.volcanojob import NetworkTopology
from inventory.api.names import SUBGROUP
from yamlfile.parsers import Unfit, go_duration

TASK: Final = "volcano.sh/task-spec"
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
"""Of a Deployment or StatefulSet, and of pods that are stamped with it: their group has no object."""
KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"
GROUPS: Final[Mapping[System, str]] = {
    System.VOLCANO: "scheduling.volcano.sh",
    System.KAI: "scheduling.run.ai",
}
"""API groups of the two PodGroups."""

_MARK: Final = {System.VOLCANO: VOLCANO_GROUPS[0], System.KAI: KAI_GROUP}
_NO_LEVELS: Final = TopologyConstraint()

T = TypeVar("T", PodGroup, KaiPodGroup)


@dataclass(frozen=True, kw_only=True)
class ForeignGroup:
    """``minimum``: pods that start together. ``groups``: its tree, ``policies`` by which Volcano's comes about.

    ``preemptibility`` is KAI's word for it, empty where the priority says. ``staleness_s``: see ``GangShape``.
    """

    system: System
    name: str
    minimum: int
    queue: str
    priority_class: str = ""
    preemptibility: str = ""
    groups: tuple[Subgroup, ...] = ()
    top_minimum: int = 0
    policies: tuple[SubGroupPolicy, ...] = ()
    levels: TopologyConstraint = _NO_LEVELS
    staleness_s: float | None = None
    network: NetworkTopology | None = None
    """Volcano's: levels for all pods together."""

    def subgroup(self, pod: SeenPod) -> str:
        """The leaf that the pod is in; empty for none. Raises JobError."""
        if self.system is System.KAI:
            return self._named(pod.labels.get(KAI_SUBGROUP, "")) if self.groups else ""
        for policy in self.policies:
            if policy.label_selector is None or policy.label_selector.matches(pod.labels):
                return _leaf(policy, pod.labels)
        task = task_of(pod)
        return task if any(group.name == task for group in self.groups) else ""

    def _named(self, name: str) -> str:
        leaves = [group.name for group in GangShape(groups=self.groups).leaves]
        if name not in leaves:
            where = f"metadata.labels[{KAI_SUBGROUP}]"
            raise JobError(f"{where}: expected one of {', '.join(leaves)}, found {shown(name) if name else 'none'}")
        return name

    def shape(self, members: Mapping[str, str]) -> GangShape:
        """``members``: by pod set the leaf that its pods are in."""
        names = sorted(set(members.values()))
        groups = [*self.groups, *(leaf for policy in self.policies for leaf in _leaves(policy, names))]
        return GangShape(
            minimum=self.top_minimum if self.groups else self.minimum,
            groups=tuple({group.name: group for group in reversed(groups)}.values())[::-1],
            members={name: leaf for name, leaf in sorted(members.items()) if leaf},
            topology=self.levels.topology,
            required_level=self.levels.required_topology_level,
            preferred_level=self.levels.preferred_topology_level,
            staleness_s=self.staleness_s,
        )


def read_group(name: GroupName, given: Json | None, minimum: str = "") -> ForeignGroup:
    """``minimum``: what its pods say, for a group without an object. Raises JobError where it cannot be read."""
    if given is None and minimum and name.system is System.VOLCANO:
        found = _minimum(name.name, parsed_integer(minimum, f"metadata.annotations[{MIN_MEMBER}]"))
        return ForeignGroup(system=name.system, name=name.name, minimum=found, queue=DEFAULT_QUEUES[name.system])
    if given is None:
        where = f"metadata.annotations[{_MARK[name.system]}]"
        raise JobError(f"{where}: no PodGroup {shown(name.name)} of {GROUPS[name.system]}")
    if name.system is System.VOLCANO:
        return _of_volcano(name.name, _read(name.name, given, PodGroup).spec)
    return _of_kai(name.name, _read(name.name, given, KaiPodGroup))


def as_admitted(name: GroupName, workload: SeenWorkload) -> ForeignGroup:
    """What the workload was made for, where its PodGroup has gone."""
    spec = workload.typed.spec
    counts = [pod_set.count if pod_set.min_count is None else pod_set.min_count for pod_set in spec.pod_sets]
    return ForeignGroup(system=name.system, name=name.name, minimum=max(1, sum(counts)), queue=spec.queue_name)


def group_queue(name: GroupName, given: Json | None) -> str:
    """Empty where there is no such group. Raises JobError."""
    return "" if given is None else text(given, "spec", "queue") or DEFAULT_QUEUES[name.system]


def as_member(pod: SeenPod, group: ForeignGroup) -> SeenPod:
    """The pod as its group completes it: with the group's queue, unless it names one, and its subgroup.

    Nothing of that is written to the pod. Raises JobError.
    """
    metadata = mapping(pod.raw, "metadata")
    changed: dict[str, Any] = {}
    if not queue_name(pod.raw):
        changed["labels"] = {**labels(pod.raw), QUEUE_NAME: group.queue}
    if leaf := group.subgroup(pod):
        changed["annotations"] = {**annotations(pod.raw), SUBGROUP: leaf}
    return SeenPod({**pod.raw, "metadata": {**metadata, **changed}}) if changed else pod


def subgroup_of(pod: SeenPod) -> str:
    """Of a pod from ``as_member``."""
    return pod.annotations.get(SUBGROUP, "")


def task_of(pod: SeenPod) -> str:
    """Of a Volcano task; empty for none."""
    return pod.annotations.get(TASK) or pod.labels.get(TASK, "")


def chosen(group: ForeignGroup, pods: Sequence[SeenPod], total: int) -> list[SeenPod]:
    """``total`` of ``pods``, of each subgroup its minimum first, in their order."""
    taken: set[str] = set()
    for leaf in group.shape({subgroup_of(pod): subgroup_of(pod) for pod in pods}).leaves:
        own = [pod.uid for pod in pods if subgroup_of(pod) == leaf.name]
        taken |= set(own[: leaf.minimum])
    for pod in pods:
        if len(taken) >= total:
            break
        taken.add(pod.uid)
    return [pod for pod in pods if pod.uid in taken][:total]


def lacking(group: ForeignGroup, pods: Iterable[SeenPod]) -> str:
    """Why these pods are too few for its subgroups; empty where they are not."""
    own = [subgroup_of(pod) for pod in pods]
    shape = group.shape({leaf: leaf for leaf in own})
    return _lacking(shape, "", shape.minimum if shape.groups else 0, own)


def _lacking(shape: GangShape, parent: str, minimum: int, own: Sequence[str]) -> str:
    below = shape.below(parent)
    missing = [why for group in below if (why := _short(shape, group, own))]
    needed = minimum or len(below)
    return missing[0] if len(below) - len(missing) < needed and missing else ""


def _short(shape: GangShape, group: Subgroup, own: Sequence[str]) -> str:
    if shape.below(group.name):
        return _lacking(shape, group.name, group.minimum, own)
    found = own.count(group.name)
    return f"{found} of {group.minimum} pods of {group.name}" if found < group.minimum else ""


# -- Volcano's ---------------------------------------------------------------------------------------------------------


def _of_volcano(name: str, spec: PodGroupSpec) -> ForeignGroup:
    for problem in _problems(spec):
        raise JobError(f"PodGroup {name}: {problem}")
    minimum = _minimum(name, spec.min_member or 1)
    tasks = {task: least for task, least in sorted(spec.min_task_member.items()) if least > 0}
    counted = not any(policy.min_sub_groups for policy in spec.sub_group_policy) and sum(tasks.values()) <= minimum
    policies = tuple(policy for policy in spec.sub_group_policy if policy.name and policy.min_sub_groups > 0)
    groups = [Subgroup(name=task, minimum=least) for task, least in tasks.items()] if counted else []
    groups += [Subgroup(name=policy.name, minimum=_of_policy(policy)) for policy in policies]
    return ForeignGroup(
        system=System.VOLCANO,
        name=name,
        minimum=minimum,
        queue=spec.queue or DEFAULT_QUEUES[System.VOLCANO],
        priority_class=spec.priority_class_name,
        network=spec.network_topology,
        groups=tuple(groups),
        policies=policies,
    )


def _problems(spec: PodGroupSpec) -> Iterator[str]:
    """Why its subgroups are no tree."""
    if "" in spec.min_task_member:
        yield "spec.minTaskMember: expected names of tasks, found an empty one"
    names = [policy.name for policy in spec.sub_group_policy if policy.name and policy.min_sub_groups > 0]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield f"spec.subGroupPolicy: expected policies with names of their own, found {shown(name)} twice"


def _of_policy(policy: SubGroupPolicy) -> int:
    """Without keys all its pods are of one subgroup: the policy is the leaf."""
    return policy.min_sub_groups if policy.match_label_keys else _size(policy)


def _size(policy: SubGroupPolicy) -> int:
    return 1 if policy.sub_group_size is None else max(0, policy.sub_group_size)


def _leaf(policy: SubGroupPolicy, own: Mapping[str, str]) -> str:
    """One for each value of the policy's keys."""
    return "/".join((policy.name, *(own.get(key, "") for key in policy.match_label_keys)))


def _leaves(policy: SubGroupPolicy, names: Iterable[str]) -> list[Subgroup]:
    """Those of ``names`` that are the policy's."""
    own = (name for name in names if name.startswith(f"{policy.name}/"))
    return [Subgroup(name=name, parent=policy.name, minimum=_size(policy)) for name in own]


# -- KAI's -------------------------------------------------------------------------------------------------------------


def _of_kai(name: str, given: KaiPodGroup) -> ForeignGroup:
    spec = given.spec
    for problem in problems(given):
        raise JobError(f"PodGroup {name}: {problem}")
    parents = {each.parent for each in spec.sub_groups}
    groups = tuple(
        Subgroup(
            name=each.name,
            parent=each.parent,
            minimum=(each.min_sub_group or 0) if each.name in parents else (each.min_member or 0),
            topology=levels.topology,
            required_level=levels.required_topology_level,
            preferred_level=levels.preferred_topology_level,
        )
        for each in spec.sub_groups
        for levels in (each.topology_constraint or _NO_LEVELS,)
    )
    top = spec.min_sub_group or 0
    own = spec.min_member if spec.min_member is not None else _least(GangShape(groups=groups), "", top)
    return ForeignGroup(
        system=System.KAI,
        name=name,
        minimum=_minimum(name, own or 1),
        queue=spec.queue or DEFAULT_QUEUES[System.KAI],
        priority_class=spec.priority_class_name,
        preemptibility=spec.preemptibility or "",
        groups=groups,
        top_minimum=top,
        levels=spec.topology_constraint or _NO_LEVELS,
        staleness_s=_seconds(name, spec.staleness_grace_period),
    )


def _least(shape: GangShape, parent: str, minimum: int) -> int:
    """The fewest pods with which so many of the groups below ``parent`` have their minimum."""
    below = shape.below(parent)
    counts = sorted(
        _least(shape, group.name, group.minimum) if shape.below(group.name) else group.minimum for group in below
    )
    return sum(counts[: minimum or len(below)])


def _seconds(name: str, duration: str | None) -> float | None:
    if duration is None:
        return None
    sign = -1.0 if duration.startswith("-") else 1.0
    try:
        return sign * go_duration(duration.removeprefix("-"))
    except Unfit:
        where = f"PodGroup {name}: spec.stalenessGracePeriod"
        raise JobError(f"{where}: expected a duration such as 60s, found {shown(duration)}") from None


# -- both --------------------------------------------------------------------------------------------------------------


def _read(name: str, given: Json, type_: type[T]) -> T:
    try:
        return decode(given, type_)
    except DecodeError as error:
        raise JobError(f"PodGroup {name}: {error}") from None


def _minimum(name: str, found: int) -> int:
    if found < 1:
        raise JobError(f"PodGroup {name}: spec.minMember: expected at least 1, found {found}")
    return found
