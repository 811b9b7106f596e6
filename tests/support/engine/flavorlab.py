"""A small cluster for the flavor assigner: flavors, queues in one cohort, workloads by what they ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.objects.decode import decode
from controller.objects.placeencoding import Domain
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.devices.grants import NOBODY, GrantOwner
from controller.scheduler.flavors.assigner import FlavorAssigner, Pinned
from controller.scheduler.flavors.assignment import Assignment, Bookmark, Possibility
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
)
from controller.scheduler.model.workload import PodSetRequests, TopologyUsage, WorkloadInfo
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.port import NoTopology, Placed, Placement, PlacementNoFit, PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest

JSON = dict[str, Any]


class Recording:
    """An oracle that says what it is told to and remembers what it was asked."""

    is_monotonic = False

    def __init__(self) -> None:
        self.answers: dict[FlavorResource, tuple[Possibility, int]] = {}
        self.asked: list[tuple[FlavorResource, Amount]] = []

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:  # noqa: ARG002
        self.asked.append((fr, amount))
        return self.answers.get(fr, (Possibility.NO_CANDIDATES, 0))


class Slots(NoTopology):
    """A topology of one level with so many slots a flavor; ``taken`` of them are in use by who may be preempted."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.slots = dict(slots)
        self.taken = dict.fromkeys(slots, 0)

    def needs(self, asked: TopologyRequest, flavor: ResourceFlavor, *, implied: bool) -> bool:
        return flavor.metadata.name in self.slots and (implied or asked.level)

    def mismatch(self, asked: TopologyRequest, flavor: ResourceFlavor) -> str | None:
        if asked.level and flavor.metadata.name not in self.slots:
            return f"flavor {flavor.metadata.name} names no topology"
        return None

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:
        left = {name: slots - (0 if on_empty else self.taken[name]) for name, slots in self.slots.items()}
        found = {}
        for one in requests:
            left[one.flavor] -= one.count
            if left[one.flavor] < 0:
                return PlacementNoFit(one.pod_set.name, "no room")
            domains = (Domain(("rack",), one.count),)
            found[one.pod_set.name] = TopologyUsage(levels=("rack",), domains=domains, single_pod=one.single_pod)
        return Placed(found)

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        wanted = dict(self.taken)
        for flavor, usage in places:
            wanted[flavor] += sum(one.pods for one in usage.domains)
        return all(wanted[flavor] <= slots for flavor, slots in self.slots.items())

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:  # noqa: ARG002
        self.taken[flavor] += sum(one.pods for one in usage.domains)

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:  # noqa: ARG002
        self.taken[flavor] -= sum(one.pods for one in usage.domains)


def pod_set(name: str = "main", count: int = 1, **given: Any) -> JSON:
    """``requests`` are one pod's; ``spec`` goes into the pod spec, the rest into the pod set."""
    requests, spec = given.pop("requests", {}), given.pop("spec", {})
    container = {"name": "c", "resources": {"requests": {key: str(value) for key, value in requests.items()}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}, **given}


class Lab:
    def __init__(self, config: EngineConfig | None = None, placement: Placement | None = None) -> None:
        self.cluster = Cluster(config, placement)
        self.oracle = Recording()
        self.assigner = FlavorAssigner(self.cluster, self.oracle)

    def flavor(self, name: str, **spec: Any) -> None:
        self.cluster.set_flavor(decode({"metadata": {"name": name}, "spec": spec}, ResourceFlavor))

    def check(self, name: str, controller: str) -> None:
        data = {"metadata": {"name": name}, "spec": {"controllerName": controller}}
        self.cluster.set_check(decode(data, AdmissionCheck))

    def queue(self, name: str, *groups: Mapping[str, Mapping[str, Any]], cohort: str = "", **spec: Any) -> None:
        """A group is flavor -> resource -> nominal quota, or a whole quota as the API has it."""
        data = {
            "metadata": {"name": name},
            "spec": {
                "cohortName": cohort,
                "resourceGroups": [
                    {
                        "coveredResources": list(next(iter(group.values()))),
                        "flavors": [
                            {"name": flavor, "resources": [_quota(*one) for one in resources.items()]}
                            for flavor, resources in group.items()
                        ],
                    }
                    for group in groups
                ],
                **spec,
            },
        }
        self.cluster.set_cluster_queue(decode(data, ClusterQueue))

    def cohort(self, name: str, parent: str = "") -> None:
        self.cluster.set_cohort(decode({"metadata": {"name": name}, "spec": {"parentName": parent}}, Cohort))

    def use(self, queue: str, flavor: str, resource: str, amount: int) -> None:
        fr = FlavorResource(FlavorName(flavor), ResourceName(resource))
        self.cluster.quota.add_usage(ClusterQueueName(queue), {fr: amount})

    def incoming(
        self, queue: str, *pod_sets: JSON, replaces: Holder | None = None, annotations: Mapping[str, str] | None = None
    ) -> Incoming:
        data: JSON = {
            "metadata": {"name": "job", "namespace": "ns", "annotations": dict(annotations or {})},
            "spec": {"podSets": list(pod_sets)},
        }
        config = self.cluster.config
        return Incoming(
            info=WorkloadInfo.of(decode(data, Workload), rules=config.request_rules, gates=config.gates),
            queue=self.cluster.queue(ClusterQueueName(queue)),
            local_queue=LocalQueueKey("ns/lq"),
            priority=0,
            queued_at_s=0.0,
            replaces=replaces,
        )

    def assign(
        self,
        incoming: Incoming,
        *,
        bookmark: Bookmark | None = None,
        counts: Mapping[str, int] | None = None,
        allowed: Pinned | None = None,
        cycle: int | None = None,
    ) -> Assignment:
        return self.assigner.assign(incoming, bookmark=bookmark, counts=counts, allowed=allowed, cycle=cycle)

    def ask(self, queue: str, **requests: int) -> Assignment:
        """One pod set of one pod."""
        return self.assign(self.incoming(queue, pod_set(requests=requests)))


def _quota(resource: str, given: Any) -> JSON:
    return {"name": resource, **(given if isinstance(given, dict) else {"nominalQuota": str(given)})}


def holding(queue: str, **pod_sets: Mapping[str, tuple[str, int]]) -> Holder:
    """Pod set -> resource -> (flavor, amount)."""
    sets = tuple(
        PodSetRequests(
            name=name,
            count=1,
            requests={ResourceName(resource): amount for resource, (_, amount) in given.items()},
            flavors={ResourceName(resource): FlavorName(flavor) for resource, (flavor, _) in given.items()},
        )
        for name, given in pod_sets.items()
    )
    return Holder(
        info=WorkloadInfo(workload=Workload(), cluster_queue=ClusterQueueName(queue), pod_sets=sets),
        cluster_queue=ClusterQueueName(queue),
        local_queue=LocalQueueKey("ns/lq"),
        usage={},
        priority=0,
        reserved_at_s=0.0,
        queued_at_s=0.0,
    )


def fr(flavor: str, resource: str = "gpu") -> FlavorResource:
    return FlavorResource(FlavorName(flavor), ResourceName(resource))


def chosen(assignment: Assignment, index: int = 0) -> dict[str, str]:
    """Resource -> flavor of a pod set."""
    return {str(name): str(choice.flavor) for name, choice in assignment.pod_sets[index].choices.items()}
