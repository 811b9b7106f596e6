"""PodGroups of Volcano and KAI as groups of pods: how many pods, in which queue, in which subgroups. Pure.

Sources: ``scheduling.volcano.sh/v1beta1`` and ``scheduling.run.ai/v2alpha2``; Kubernetes' own are in ``native``. If
the minimums of Volcano's tasks add up to more than the group's own, they do not count, as in Volcano's gang plugin.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from controller.foreign.objects.kai import KaiPodGroup, TopologyConstraint, problems
from controller.foreign.objects.volcanogroup import PodGroup, PodGroupSpec, SubGroupPolicy
from controller.foreign.objects.volcanojob import NetworkTopology
from controller.foreign.podgroups.subgroups import NONE, Tree, starting
from controller.foreign.podgroups.subgroups import lacking as lacks
from controller.jobs.framework.foreignmarks import DEFAULT_QUEUES, KAI_STALENESS
from controller.jobs.framework.marks import priority_class, queue_name
from controller.jobs.framework.names import PRIORITY_CLASS, QUEUE_NAME
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import KAI_GROUP, VOLCANO_GROUPS, GroupName, SeenPod
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    labels,
    mapping,
    parsed_duration,
    parsed_integer,
    sequence,
    shown,
    text,
)
from controller.jobs.framework.tiers import SOFT, Tiers, asked
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import Struct
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.gangshape import GangShape, Subgroup
from inventory.api.names import ABOVE_MINIMUM_SUBGROUP, SUBGROUP

TASK: Final = "volcano.sh/task-spec"
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
"""The annotation with the minimum of a Deployment or StatefulSet, and of pods that are stamped with it: their group has
no object."""
KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"
GROUPS: Final[Mapping[System, str]] = {
    System.VOLCANO: "scheduling.volcano.sh",
    System.KAI: "scheduling.run.ai",
}
"""API groups of the two PodGroups."""

SHARED: Final = "$claims"
"""The key under which ``with_shared`` puts into a pod's JSON which ResourceClaim its group has for each claim by name.
No API has it, so nobody can claim to share what is not shared.
"""
STALENESS_S: Final = 60.0
"""KAI's default for the time that a gang may run below its minimum."""

_MARK: Final = {System.VOLCANO: VOLCANO_GROUPS[0], System.KAI: KAI_GROUP}
_NO_LEVELS: Final = TopologyConstraint()

T = TypeVar("T", PodGroup, KaiPodGroup)


class SharedClaim(Struct, frozen=True, kw_only=True):
    """A claim that the pods of a group share, if theirs names the same template: ``claim`` is the ResourceClaim that
    was made for the group. ``leaf``: the subgroup of these pods; empty for all.
    """

    name: str
    template: str
    claim: str
    leaf: str = ""


@dataclass(frozen=True, kw_only=True)
class ForeignGroup:
    """A PodGroup. ``minimum``: pods that start together. ``groups``: its tree, ``policies`` from which Volcano's
    follows, ``spare`` the groups in it that are optional.

    ``preemptibility`` is KAI's value for it, empty if the priority decides. ``staleness_s``: see ``GangShape``.
    ``part``: the name of a subgroup, if this is one above the minimum of the whole; empty for the whole.
    ``system`` None: it is Kubernetes' own. ``workload_class``: the WorkloadPriorityClass that it is labelled with.
    ``priority``: the number that all its pods have to have, None if it does not say. ``claims``: claims that its pods
    share. ``called``: its object's name, if its Workload has another one. ``kept``: its minimum is all of its pods,
    which wait together.
    """

    system: System | None
    name: str
    minimum: int
    queue: str
    priority_class: str = ""
    workload_class: str = ""
    priority: int | None = None
    called: str = ""
    kept: bool = False
    preemptibility: str = ""
    groups: tuple[Subgroup, ...] = ()
    top_minimum: int = 0
    policies: tuple["Policy", ...] = ()
    spare: frozenset[str] = frozenset()
    part: str = ""
    levels: TopologyConstraint = _NO_LEVELS
    staleness_s: float | None = None
    claims: tuple["SharedClaim", ...] = ()
    network: NetworkTopology | None = None
    """Volcano's network topology: levels for all pods together."""

    @property
    def title(self) -> str:
        """The name of the object, as its users know the group."""
        return self.called or self.name

    def subgroup(self, pod: SeenPod) -> str:
        """The leaf that the pod is in; empty for none. Raises JobError."""
        leaf = self._leaf(pod)
        if self.part and leaf not in {group.name for group in self.tree((leaf,)).shape.leaves}:
            where = f"metadata.annotations[{ABOVE_MINIMUM_SUBGROUP}]"
            raise JobError(f"{where}: expected a subgroup with the pod's own, {shown(leaf)}, found {shown(self.part)}")
        return leaf

    def _leaf(self, pod: SeenPod) -> str:
        if self.system is None:
            return self._named(pod.native_group, "spec.schedulingGroup.podGroupName") if self.groups else NONE
        if self.system is System.KAI:
            where = f"metadata.labels[{KAI_SUBGROUP}]"
            return self._named(pod.labels.get(KAI_SUBGROUP, ""), where) if self.groups else NONE
        for policy in self.policies:
            if policy.said.label_selector is None or policy.said.label_selector.matches(pod.labels):
                return _leaf(policy.said, pod.labels)
        task = task_of(pod)
        return task if any(group.name == task for group in self.groups) else NONE

    def _named(self, name: str, where: str) -> str:
        leaves = [group.name for group in GangShape(groups=self.groups).leaves]
        if name not in leaves:
            raise JobError(f"{where}: expected one of {', '.join(leaves)}, found {shown(name) if name else 'none'}")
        return name

    def tree(self, leaves: Iterable[str]) -> Tree:
        """The group's tree with ``leaves`` in it, which are known by pods."""
        names = sorted(set(leaves))
        groups = [*self.groups, *(leaf for policy in self.policies for leaf in _leaves(policy.said, names))]
        unique = tuple({group.name: group for group in reversed(groups)}.values())[::-1]
        minimum = self.top_minimum if self.groups else self.minimum
        whole = Tree(shape=GangShape(minimum=minimum, groups=unique), spare=self.spare)
        return whole.part(self.part) if self.part else whole

    def shape(self, members: Mapping[str, str], tiers: Tiers = ()) -> GangShape:
        """The shape of the gang. ``members``: by pod set the leaf that its pods are in. ``tiers``: see ``JobSettings``.
        Raises JobError.
        """
        shape = _with_levels(self.tree(members.values()).shape, self.policies, tiers)
        own = self.levels
        if self.network is not None:
            own = _level(self.network, tiers, f"PodGroup {self.name}: spec.networkTopology")
        own = _NO_LEVELS if self.part else own  # its pods are bound by the minimum that they are above
        return msgspec.structs.replace(
            shape,
            members={name: leaf for name, leaf in sorted(members.items()) if leaf},
            topology=own.topology,
            required_level=own.required_topology_level,
            preferred_level=own.preferred_topology_level,
            staleness_s=self.staleness_s,
        )

    def above(self, leaves: Iterable[str], there: Iterable[str]) -> Mapping[str, str]:
        """The subgroup with which the pods of each leaf start as a whole, beside pods of ``there``; empty for none."""
        leaves, there = set(leaves), set(there)
        return self.tree(leaves | there).wholes(leaves, there)

    def part_of(self, subgroup: str, name: str, leaves: Iterable[str]) -> "ForeignGroup":
        """The subgroup as a group, called ``name``, of pods of these leaves. Raises JobError if there is none."""
        group = replace(self, part=subgroup, name=name, called="")
        tree = group.tree(leaves)
        if not tree.shape.groups:
            where = f"metadata.annotations[{ABOVE_MINIMUM_SUBGROUP}]"
            raise JobError(f"{where}: expected a subgroup of {self.name}, found {shown(subgroup)}")
        return replace(group, minimum=max(1, tree.least("")))


def read_group(name: GroupName, given: Json | None, minimum: str = "") -> ForeignGroup:
    """The group of an object. ``minimum``: the value in its pods' annotation, for a group without an object. Raises
    JobError if it cannot be read.
    """
    if given is None and minimum and name.system is System.VOLCANO:
        found = _minimum(name.name, parsed_integer(minimum, f"metadata.annotations[{MIN_MEMBER}]"))
        return ForeignGroup(system=name.system, name=name.name, minimum=found, queue=DEFAULT_QUEUES[name.system])
    if name.system is None:
        raise JobError(f"PodGroup {name.name}: expected one of Volcano or KAI")
    if given is None:
        where = f"metadata.annotations[{_MARK[name.system]}]"
        raise JobError(f"{where}: no PodGroup {shown(name.name)} of {GROUPS[name.system]}")
    if name.system is System.VOLCANO:
        return _of_volcano(name.name, _read(name.name, given, PodGroup).spec)
    return _of_kai(name.name, _read(name.name, given, KaiPodGroup))


def as_admitted(name: GroupName, workload: SeenWorkload) -> ForeignGroup:
    """The group that the workload was made for, if its PodGroup is gone."""
    spec = workload.typed.spec
    counts = [pod_set.count if pod_set.min_count is None else pod_set.min_count for pod_set in spec.pod_sets]
    return ForeignGroup(system=name.system, name=name.name, minimum=max(1, sum(counts)), queue=spec.queue_name)


def group_queue(name: GroupName, given: Json | None) -> str:
    """The queue of a PodGroup; empty if there is no such group. Raises JobError."""
    if given is None or name.system is None:
        return ""
    return text(given, "spec", "queue") or DEFAULT_QUEUES[name.system]


def as_member(pod: SeenPod, group: ForeignGroup) -> SeenPod:
    """The pod as its group completes it: with the group's queue, unless it names one, and its subgroup.

    The pod itself is not patched. Raises JobError.
    """
    metadata = mapping(pod.raw, "metadata")
    new_labels, new_annotations, leaf = {}, {}, group.subgroup(pod)
    if group.queue and not queue_name(pod.raw):
        new_labels[QUEUE_NAME] = group.queue
    if group.workload_class and not priority_class(pod.raw):
        new_labels[PRIORITY_CLASS] = group.workload_class
    if leaf:
        new_annotations[SUBGROUP] = leaf
    changed: dict[str, Any] = {"labels": {**labels(pod.raw), **new_labels}} if new_labels else {}
    if new_annotations:
        changed["annotations"] = {**annotations(pod.raw), **new_annotations}
    joined = SeenPod({**pod.raw, "metadata": {**metadata, **changed}}) if changed else pod
    return with_shared(joined, group.claims) if group.claims else joined


def with_shared(pod: SeenPod, claims: Iterable[SharedClaim]) -> SeenPod:
    """The pod with those of the claims that it names in the same words as its group, ``leaf`` for all or for its own
    subgroup, under ``SHARED``.
    """
    asked = {
        (claim.get("name"), claim.get("resourceClaimTemplateName"))
        for claim in sequence(pod.raw, "spec", "resourceClaims")
        if isinstance(claim, dict) and not claim.get("resourceClaimName")
    }
    of = ("", pod.native_group)
    found = {each.name: each.claim for each in claims if (each.name, each.template) in asked and each.leaf in of}
    return SeenPod({**pod.raw, SHARED: found}) if found else pod


def in_part(whole: ForeignGroup, name: str, pods: Sequence[SeenPod]) -> ForeignGroup:
    """The subgroup above the minimum that the pods name, as a group called ``name``. Raises JobError."""
    return whole.part_of(pods[0].part, name, {whole.subgroup(pod) for pod in pods})


def subgroup_of(pod: SeenPod) -> str:
    """The subgroup of a pod from ``as_member``; empty for none."""
    return pod.annotations.get(SUBGROUP, "")


def task_of(pod: SeenPod) -> str:
    """The Volcano task of a pod; empty for none."""
    return pod.annotations.get(TASK) or pod.labels.get(TASK, "")


def chosen(group: ForeignGroup, pods: Sequence[SeenPod], total: int) -> list[SeenPod]:
    """The ``pods`` with which the group starts, ``total`` or more, in their order."""
    leaves = [subgroup_of(pod) for pod in pods]
    return [pods[at] for at in starting(group.tree(leaves), leaves, total)]


def lacking(group: ForeignGroup, pods: Iterable[SeenPod]) -> str:
    """Why these pods are too few for its subgroups; empty if they are not."""
    leaves = [subgroup_of(pod) for pod in pods]
    return lacks(group.tree(leaves), leaves)


# -- Volcano's ---------------------------------------------------------------------------------------------------------


class Policy(Struct, frozen=True, kw_only=True):
    """One policy. ``path``: its path. ``least``: the number of its subgroups that are needed."""

    path: str
    said: SubGroupPolicy
    least: int

    @property
    def pods(self) -> int:
        return self.least * _size(self.said)


def _of_volcano(name: str, spec: PodGroupSpec) -> ForeignGroup:
    for problem in _problems(spec):
        raise JobError(f"PodGroup {name}: {problem}")
    minimum = _minimum(name, spec.min_member or 1)
    tasks = {task: least for task, least in sorted(spec.min_task_member.items()) if least > 0}
    counted = not any(policy.min_sub_groups for policy in spec.sub_group_policy) and sum(tasks.values()) <= minimum
    policies = tuple(_policies(name, spec))
    groups = [Subgroup(name=task, minimum=least) for task, least in tasks.items()] if counted else []
    needed = sum(group.minimum for group in groups) + sum(policy.pods for policy in policies)
    groups += [Subgroup(name=policy.said.name, minimum=_of_policy(policy)) for policy in policies]
    return ForeignGroup(
        system=System.VOLCANO,
        name=name,
        minimum=max(minimum, needed),
        queue=spec.queue or DEFAULT_QUEUES[System.VOLCANO],
        priority_class=spec.priority_class_name,
        network=spec.network_topology,
        groups=tuple(groups),
        policies=policies,
        spare=frozenset(policy.said.name for policy in policies if not policy.least),
    )


def _policies(name: str, spec: PodGroupSpec) -> Iterator[Policy]:
    """The policies that group pods: any other has a size of 1 from the API server."""
    for at, said in enumerate(spec.sub_group_policy):
        if said.name and (said.min_sub_groups > 0 or _size(said) > 1 or said.network_topology is not None):
            path = f"PodGroup {name}: spec.subGroupPolicy[{at}].networkTopology"
            yield Policy(path=path, said=said, least=max(0, said.min_sub_groups))


def _problems(spec: PodGroupSpec) -> Iterator[str]:
    """The reasons why the spec's subgroups are no tree."""
    if "" in spec.min_task_member:
        yield "spec.minTaskMember: expected names of tasks, found an empty one"
    names = [policy.name for policy in spec.sub_group_policy if policy.name]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield f"spec.subGroupPolicy: expected policies with names of their own, found {shown(name)} twice"


def _of_policy(policy: Policy) -> int:
    """The minimum of a policy's subgroup. Without keys all its pods are of one subgroup: the policy is the leaf."""
    return policy.least if policy.said.match_label_keys else _size(policy.said)


def _with_levels(shape: GangShape, policies: Sequence[Policy], tiers: Tiers) -> GangShape:
    """The shape with each subgroup's level, from the first policy that it belongs to. Raises JobError."""
    levels = [(policy.said, _level(policy.said.network_topology, tiers, policy.path)) for policy in policies]
    groups = []
    for group in shape.groups:
        found = next((level for said, level in levels if _is_of(group.name, said)), _NO_LEVELS)
        required, preferred = found.required_topology_level, found.preferred_topology_level
        bound = msgspec.structs.replace(group, required_level=required, preferred_level=preferred)
        groups.append(bound if required or preferred else group)
    return msgspec.structs.replace(shape, groups=tuple(groups))


def _is_of(name: str, policy: SubGroupPolicy) -> bool:
    return name.startswith(f"{policy.name}/") if policy.match_label_keys else name == policy.name


def _level(topology: NetworkTopology | None, tiers: Tiers, path: str) -> TopologyConstraint:
    """The levels of a network topology. Without a table of tiers a preference is ignored. Raises JobError for a
    requirement.
    """
    if topology is None or (topology.mode == SOFT and not tiers):
        return _NO_LEVELS
    found = asked(topology, tiers, path)
    return TopologyConstraint(
        required_topology_level=found.get("required", ""), preferred_topology_level=found.get("preferred", "")
    )


def _size(policy: SubGroupPolicy) -> int:
    return 1 if policy.sub_group_size is None else max(0, policy.sub_group_size)


def _leaf(policy: SubGroupPolicy, own: Mapping[str, str]) -> str:
    """The name of a leaf: there is one for each value of the policy's keys."""
    return "/".join((policy.name, *(own.get(key, "") for key in policy.match_label_keys)))


def _leaves(policy: SubGroupPolicy, names: Iterable[str]) -> list[Subgroup]:
    """The ``names`` that are leaves of the policy."""
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
            name=sub_group.name,
            parent=sub_group.parent,
            minimum=(sub_group.min_sub_group or 0) if sub_group.name in parents else (sub_group.min_member or 0),
            topology=levels.topology,
            required_level=levels.required_topology_level,
            preferred_level=levels.preferred_topology_level,
        )
        for sub_group in spec.sub_groups
        for levels in (sub_group.topology_constraint or _NO_LEVELS,)
    )
    top = spec.min_sub_group or 0
    tree = Tree(shape=GangShape(minimum=top, groups=groups))
    own = spec.min_member if spec.min_member is not None else tree.least("")
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
        staleness_s=_staleness_s(name, given),
    )


def _staleness_s(name: str, given: KaiPodGroup) -> float:
    """The time that the gang may run below its minimum, from the spec; from the annotation if the CRD has no such
    field.
    """
    duration, where = given.spec.staleness_grace_period, "spec.stalenessGracePeriod"
    if not duration:
        duration, where = given.metadata.annotations.get(KAI_STALENESS), f"metadata.annotations[{KAI_STALENESS}]"
    if not duration:
        return STALENESS_S
    return parsed_duration(duration, f"PodGroup {name}: {where}")


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
