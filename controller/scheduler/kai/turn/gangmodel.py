"""A tree of KAI's Queues with its jobs and nodes, in the data model of ``controller.scheduler.kai.gangs``.

A job is one gang, a pod set of it one pod set, a pod one task. Pods above the minimum of a job that holds quota belong
to its gang, in a pod set without a minimum; so do subgroups above it, each of which starts and leaves as a whole. What
workloads outside the tree hold of a node is not visible to the gangs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import beside_its_own
from controller.scheduler.kai.gangs.gang import (
    CPU,
    GPU,
    MEMORY,
    PODS,
    Gang,
    GangName,
    Group,
    NodeName,
    Phase,
    PodSet,
    Task,
    TaskName,
    TaskRequest,
    TopologyConstraint,
)
from controller.scheduler.kai.gangs.kainode import KaiNode
from controller.scheduler.kai.gangs.shares import GangQueue
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.mirror.specs import GPU as GPU_RESOURCE
from controller.scheduler.mirror.specs import Bounds
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo, minimum_of
from controller.scheduler.preemption.moves import is_kept_in_place
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.gangdomains import shape_of
from controller.scheduler.topology.requests import Filter, filter_of
from controller.scheduler.volcano.tree import FairTree, is_preemptible
from inventory.api.names import ALL_NODES, QUOTA_ALONE

_ONE: Final = NodeName(QUOTA_ALONE)
"""The one node that stands for all nodes together, where another scheduler chooses among them."""

_ABOVE: Final = "above"
"""The pod set of the pods above a gang's minimum; other pod sets are named by their index."""

_ALL_NODES: Final = FlavorName(ALL_NODES)
_SAME: Final = {CPU: CPU, MEMORY: MEMORY, GPU_RESOURCE: GPU}


def gang_queues(tree: FairTree) -> Iterator[GangQueue]:
    for name, spec in tree.specs.items():
        yield GangQueue(
            name=name,
            parent=QueueName(spec.parent) if spec.parent else None,
            quota=_amounts(spec.quota),
            limit=_amounts(spec.limit),
            weight={ours: spec.weight_of(theirs) for theirs, ours in _SAME.items()},
            priority=spec.priority,
            created=spec.created_s,
            usage={ours: tree.usage.get(name, {}).get(theirs, 0.0) for theirs, ours in _SAME.items()},
        )


def _amounts(bounds: Bounds) -> Amounts:
    return {ours: bounds.get(theirs, 0.0) for theirs, ours in _SAME.items()}


class GangModel:
    """The gangs and nodes of one decision. ``workloads``: for each task the workload that it is a pod of. A job that
    holds quota must be added before its pods above the minimum.
    """

    def __init__(self, cluster: Cluster, tree: FairTree | None, flavor: FlavorName = _ALL_NODES) -> None:
        """``tree`` None: the model is of ClusterQueues on the nodes of ``flavor``, and every workload may lose its
        places.
        """
        self._cluster = cluster
        self._system = tree.system if tree is not None else None
        self._places = tree is None or tree.places
        self._free_by_node = list(cluster.placement.free_by_node(flavor))
        self._open: dict[Filter, frozenset[NodeName]] = {}
        self._requests: dict[tuple[tuple[ResourceName, Amount], ...], TaskRequest] = {}
        self.gangs: dict[GangName, Gang] = {}
        self.workloads: dict[TaskName, WorkloadKey] = {}
        self._joined: dict[WorkloadKey, Gang] = {}
        """The gang of each workload."""
        self._above: dict[WorkloadKey, list[WorkloadKey]] = {}
        """The workloads above a minimum, by the workload that has the minimum."""
        self.nodes: dict[NodeName, KaiNode] = {}
        for facts, free in self._free_by_node if self._places else ():
            self.nodes[NodeName(facts.name)] = _node(facts.name, free, facts.labels)
        if tree is not None and not tree.places:
            self.nodes[_ONE] = _node(_ONE, {**tree.offered, PODS: math.inf}, {})

    def add(self, info: WorkloadInfo, leaf: QueueName, priority: int, created_s: float) -> Gang:
        """Add a job that waits, or pods above the minimum of a job that holds quota."""
        pod_sets = [self._pod_set(info, pod_set, index) for index, pod_set in enumerate(info.pod_sets)]
        return self._keep(info, leaf, priority, created_s, pod_sets)

    def hold(self, holder: Holder, leaf: QueueName) -> Gang:
        """Add a job that runs, or is leaving. Its pods are where they were placed."""
        phase = Phase.RELEASING if holder.evicted else Phase.RUNNING
        pod_sets: list[PodSet] = []
        for index, pod_set in enumerate(holder.info.pod_sets):
            made = self._pod_set(holder.info, pod_set, index)
            hosts = [host for host in _hosts(pod_set) if host in self.nodes]
            if not self._places:
                hosts = [_ONE] * len(made.tasks)
            for task, host in zip(made.tasks, hosts, strict=False):
                task.phase, task.node = phase, host
                if self._places:
                    _give_back(self.nodes[host], task.request)
            made.tasks = [task for task in made.tasks if task.node is not None]
            made.minimum = len(made.tasks)
            pod_sets.append(made)
        return self._keep(holder.info, leaf, holder.priority, holder.queued_at_s, pod_sets)

    def keys(self, tasks: Iterable[Task]) -> dict[WorkloadKey, None]:
        """The workloads that the tasks are pods of, in the order of the tasks."""
        return dict.fromkeys(self.workloads[task.name] for task in tasks)

    def with_above(self, keys: Iterable[WorkloadKey]) -> list[WorkloadKey]:
        """The workloads, followed by all workloads above their minimums."""
        workloads = dict.fromkeys(keys)
        left = [*workloads]
        while left:
            more = [key for key in self._above.get(left.pop(0), ()) if key not in workloads]
            workloads |= dict.fromkeys(more)
            left += more
        return [*workloads]

    def _keep(
        self, info: WorkloadInfo, leaf: QueueName, priority: int, created_s: float, pod_sets: list[PodSet]
    ) -> Gang:
        minimum = minimum_of(info.workload)
        gang = self._joined.get(minimum) if minimum is not None else None
        if minimum is not None and gang is not None and gang.queue == leaf:
            gang.movable = gang.movable and not is_kept_in_place(info, self._cluster.kept_pods)
            self._above.setdefault(minimum, []).append(info.key)
            self._joined[info.key] = gang
            if sum(pod_set.count for pod_set in info.pod_sets) > 1:
                _put_whole(gang, info, pod_sets)
            else:
                self._put_above(gang, (task for pod_set in pod_sets for task in pod_set.tasks))
            return gang
        gang = Gang(
            name=GangName(info.key),
            queue=leaf,
            priority=priority,
            preemptible=self._system is None or is_preemptible(info, priority, self._system),
            created=created_s,
            root=_root(info, pod_sets),
            movable=not is_kept_in_place(info, self._cluster.kept_pods),
        )
        self.gangs[gang.name] = self._joined[info.key] = gang
        return gang

    def _put_above(self, gang: Gang, tasks: Iterable[Task]) -> None:
        if _ABOVE not in gang.pod_sets:
            gang.pod_sets[_ABOVE] = PodSet(_ABOVE, 0)
            gang.root.pod_sets.append(gang.pod_sets[_ABOVE])
        for task in tasks:
            task.gang, task.pod_set = gang.name, _ABOVE
            gang.pod_sets[_ABOVE].tasks.append(task)

    def _pod_set(self, info: WorkloadInfo, pod_set: PodSetRequests, index: int) -> PodSet:
        spec = info.workload.spec.pod_sets[index]
        request = self._request(one_pod(spec.template.spec))
        spec = beside_its_own(self._cluster, info.workload, spec)
        overruns = self._cluster.placement.overruns(info.workload)
        nodes = self._nodes_for(filter_of(spec.template.spec, (), preferences=False, overruns=overruns))
        name = f"{index}"
        tasks = [
            Task(TaskName(f"{info.key}/{name}/{pod}"), GangName(info.key), name, request, node_kinds=nodes)
            for pod in range(pod_set.count)
        ]
        self.workloads |= dict.fromkeys((task.name for task in tasks), info.key)
        return PodSet(name, len(tasks), tasks)

    def _request(self, each: Mapping[ResourceName, Amount]) -> TaskRequest:
        key = tuple(sorted(each.items()))
        if key not in self._requests:
            known = {*_SAME, PODS}
            self._requests[key] = TaskRequest(
                cpu_milli=float(each.get(CPU, 0)),
                memory_bytes=float(each.get(MEMORY, 0)),
                gpus=int(each.get(GPU_RESOURCE, 0)),
                counted={name: amount for name, amount in each.items() if name not in known and amount},
            )
        return self._requests[key]

    def _nodes_for(self, wanted: Filter) -> frozenset[NodeName]:
        if not self._places:
            return frozenset({_ONE})
        if wanted not in self._open:
            self._open[wanted] = frozenset(
                NodeName(facts.name) for facts, _ in self._free_by_node if wanted.admits(facts)
            )
        return self._open[wanted]


def _put_whole(gang: Gang, info: WorkloadInfo, pod_sets: list[PodSet]) -> None:
    """Add a subgroup above the gang's minimum."""
    for pod_set in pod_sets:
        pod_set.whole, pod_set.name = info.key, f"{_ABOVE}/{info.key}/{pod_set.name}"
        gang.pod_sets[pod_set.name] = pod_set
        for task in pod_set.tasks:
            task.gang, task.pod_set = gang.name, pod_set.name
    gang.root.groups.append(_root(info, pod_sets))


def _node(name: str, free: Mapping[ResourceName, float], labels: Mapping[str, str]) -> KaiNode:
    return KaiNode(
        NodeName(name), {_SAME.get(each, each): float(amount) for each, amount in free.items()}, labels=labels
    )


def _give_back(node: KaiNode, request: TaskRequest) -> None:
    """Add a request to what a node can give: what the tree's own jobs hold is theirs to share."""
    allocatable = dict(node.allocatable)
    for name, amount in request.asked.items():
        allocatable[name] = allocatable.get(name, 0.0) + amount
    node.allocatable = allocatable


def _root(info: WorkloadInfo, pod_sets: list[PodSet]) -> Group:
    """The tree of the workload's subgroups, with the levels that they are bound to."""
    shape = shape_of(info.workload)
    if shape is None:
        return Group(pod_sets=pod_sets)
    own: dict[str, list[PodSet]] = {}
    for given, pod_set in zip(info.pod_sets, pod_sets, strict=True):
        own.setdefault(shape.members.get(given.name, ""), []).append(pod_set)

    def group(name: str, above: tuple[str, ...], required: str, preferred: str) -> Group:
        levels = tuple(dict.fromkeys(level for level in (*above, required, preferred) if level))
        bound = bool(required or preferred)
        return Group(
            name=name,
            groups=[group(at.name, levels, at.required_level, at.preferred_level) for at in shape.below(name)],
            pod_sets=own.get(name, []),
            constraint=TopologyConstraint(levels, required, preferred) if bound else None,
        )

    return group("", (), shape.required_level, shape.preferred_level)


def _hosts(pod_set: PodSetRequests) -> Iterator[NodeName]:
    for domain in pod_set.topology.domains if pod_set.topology is not None else ():
        for _ in range(domain.pods):
            yield NodeName(domain.values[-1])
