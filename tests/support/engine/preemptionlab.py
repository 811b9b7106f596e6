"""A small cluster in few words: queues with quotas of GPUs, who holds what, who asks, who would have to go."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.objects.decode import decode
from controller.objects.meta import ObjectMeta
from controller.objects.queues import ClusterQueue, Cohort
from controller.objects.workload import PriorityClassRef, Workload, WorkloadSpec
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.flavors.assignment import Assignment, FlavorChoice, Mode, PodSetChoice
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import (
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.quota.queuestate import Holder
from inventory.api.names import MINIMUM_RUNTIME_BEFORE_PREEMPTION

NOW_S = 1_000_000.0
GPU = ResourceName("nvidia.com/gpu")
FLAVOR = FlavorName("default")


class Lab:
    """Amounts are whole units of ``resource`` in the one flavor there is."""

    def __init__(self, config: EngineConfig | None = None, resource: ResourceName = GPU) -> None:
        self.cluster = Cluster(config)
        self.usage_of_local_queue: dict[str, float] = {}
        self.preemption = Preemption(self.cluster, lambda key: self.usage_of_local_queue.get(key, 0.0))
        self.resource = resource

    @classmethod
    def with_(cls, **beyond: Any) -> "Lab":
        return cls(EngineConfig(extensions=Extensions(**beyond)))

    def queue(
        self,
        name: str,
        nominal: int,
        cohort: str = "",
        *,
        preemption: Mapping[str, Any] | None = None,
        weight: str | None = None,
        minimum_runtime: str | None = None,
        **more: Any,
    ) -> None:
        """``more``: ``borrowing`` and ``lending`` limits, ``usage_based`` admission."""
        borrowing, lending = more.get("borrowing"), more.get("lending")
        spec: dict[str, Any] = {"cohortName": cohort, "resourceGroups": self._groups(nominal, borrowing, lending)}
        if preemption is not None:
            spec["preemption"] = preemption
        if weight is not None:
            spec["fairSharing"] = {"weight": weight}
        if more.get("usage_based"):
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        metadata: dict[str, Any] = {"name": name}
        if minimum_runtime is not None:
            metadata["annotations"] = {MINIMUM_RUNTIME_BEFORE_PREEMPTION: minimum_runtime}
        self.cluster.set_cluster_queue(decode({"metadata": metadata, "spec": spec}, ClusterQueue))

    def cohort(self, name: str, nominal: int = 0, parent: str = "", *, weight: str | None = None) -> None:
        spec: dict[str, Any] = {"parentName": parent, "resourceGroups": self._groups(nominal, None, None)}
        if weight is not None:
            spec["fairSharing"] = {"weight": weight}
        self.cluster.set_cohort(decode({"metadata": {"name": name}, "spec": spec}, Cohort))

    def _groups(self, nominal: int, borrowing: int | None, lending: int | None) -> list[dict[str, Any]]:
        quota: dict[str, Any] = {"name": self.resource, "nominalQuota": str(nominal)}
        if borrowing is not None:
            quota["borrowingLimit"] = str(borrowing)
        if lending is not None:
            quota["lendingLimit"] = str(lending)
        return [{"coveredResources": [self.resource], "flavors": [{"name": FLAVOR, "resources": [quota]}]}]

    def hold(self, name: str, queue: str, amount: int, priority: int = 0, **more: Any) -> Holder:
        """``more``: fields of Holder, ``ran_s`` (seconds since admission), ``priority_class`` and ``annotations``."""
        holder = self.holder(name, queue, amount, priority, **more)
        self.cluster.add_holder(holder)
        return holder

    def holder(
        self,
        name: str,
        queue: str,
        amount: int,
        priority: int = 0,
        *,
        ran_s: float = 3600.0,
        priority_class: str = "",
        annotations: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Holder:
        fr = FlavorResource(FLAVOR, self.resource)
        since_s = NOW_S - ran_s
        defaults: dict[str, Any] = {
            "usage": {fr: amount},
            "reserved_at_s": since_s,
            "queued_at_s": since_s,
            "local_queue": LocalQueueKey("/lq"),
            "admitted": True,
        }
        return Holder(
            info=self._info(name, queue, amount, priority_class, annotations),
            cluster_queue=ClusterQueueName(queue),
            priority=priority,
            **(defaults | more),
        )

    def _info(
        self,
        name: str,
        queue: str,
        amount: int,
        priority_class: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> WorkloadInfo:
        reference = PriorityClassRef(name=priority_class) if priority_class else None
        metadata = ObjectMeta(name=name, uid=name, annotations=dict(annotations or {}))
        workload = Workload(metadata=metadata, spec=WorkloadSpec(priority_class_ref=reference))
        requests = {self.resource: amount}
        pod_set = PodSetRequests(name="main", count=1, requests=requests, flavors={self.resource: FLAVOR})
        return WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName(queue), pod_sets=(pod_set,))

    def incoming(
        self, name: str, queue: str, amount: int, priority: int = 0, *, queued_at_s: float = NOW_S, **more: Any
    ) -> Incoming:
        return Incoming(
            info=self._info(name, queue, amount),
            queue=self.cluster.queue(ClusterQueueName(queue)),
            local_queue=LocalQueueKey("/lq"),
            priority=priority,
            queued_at_s=queued_at_s,
            **more,
        )

    def assignment(self, amount: int) -> Assignment:
        choice = FlavorChoice(FLAVOR, Mode.PREEMPT, 0, 0)
        requests = {self.resource: amount}
        pod_set = PodSetChoice(name="main", count=1, requests=requests, choices={self.resource: choice})
        usage = {FlavorResource(FLAVOR, self.resource): amount}
        return Assignment(pod_sets=(pod_set,), mode=Mode.PREEMPT, usage=usage)

    def targets(self, incoming: Incoming, now_s: float = NOW_S) -> tuple[Target, ...]:
        amount = incoming.info.pod_sets[0].requests[self.resource]
        return self.preemption.targets(incoming, self.assignment(amount), now_s)

    def ask(self, queue: str, amount: int, priority: int = 0, **more: Any) -> dict[str, str]:
        """Victim -> reason, for a workload named ``in``."""
        return reasons(self.targets(self.incoming("in", queue, amount, priority, **more)))

    def remove(self, keys: Iterable[WorkloadKey]) -> None:
        for key in list(keys):
            self.cluster.remove_holder(key)


def reasons(targets: Iterable[Target]) -> dict[str, str]:
    return {target.holder.info.workload.metadata.name: str(target.reason) for target in targets}
