"""Reports the device plans of pods and their results: they are counted, and an Event tells of a pod with other devices
than planned.

The engine goes by the agents' reports alone; a drift changes no decision.
"""

from collections.abc import Callable
from typing import Final

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, PODS
from controller.jobs.framework import names
from controller.jobs.framework.podview import workload_of
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.decode import GpuNode
from controller.reconcile.placing.planresults import PlannedPod, PlanOutcome, PlanResult, PlanResults
from inventory.api import deviceplan
from inventory.api.names import DEVICES
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed

DRIFT: Final = "GpuPlanDrift"


class PlanResultReporter:
    """Reports results. ``count`` gets the kind of each result; ``tell`` records an Event: about what, type, reason,
    note.
    """

    def __init__(self, count: Callable[[str], None], tell: Callable[[ObjectReference, str, str, str], None]) -> None:
        self.results = PlanResults()
        self._count = count
        self._tell = tell

    def hear(self, observed: ObjectChange) -> None:
        results: list[PlanResult] = []
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == PODS:
                results = self.results.set_pod(f"{key.namespace}/{key.name}", planned_pod(entry.object))
            case Removed(key=key) if observed.resource == PODS:
                results = self.results.set_pod(f"{key.namespace}/{key.name}", None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                results = self.results.set_node(key.name, held_devices(entry.object))
            case Removed(key=key) if observed.resource == GPU_NODES:
                results = self.results.set_node(key.name, {})
        for result in results:
            self._report(result)

    def _report(self, result: PlanResult) -> None:
        self._count(result.kind.value)
        if result.kind is not PlanOutcome.DRIFTED:
            return
        namespace, _, name = result.pod.partition("/")
        about = ObjectReference("v1", "Pod", name, result.uid, namespace)
        note = (
            f"Planned {deviceplan.written(result.planned)}, got {deviceplan.written(result.held)} on node {result.node}"
        )
        self._tell(about, "Warning", DRIFT, note)


def planned_pod(pod: Pod) -> PlannedPod | None:
    """The pod's plan; None if nothing was planned for it, or if it is over."""
    devices = tuple(sorted(deviceplan.devices(pod.metadata.annotations.get(DEVICES, ""))))
    workload = workload_of(pod)
    if not devices or workload is None or pod.status.phase in ENDED_PHASES:
        return None
    pod_set = pod.metadata.labels.get(names.POD_SET, "")
    return PlannedPod(uid=pod.metadata.uid, workload=workload, pod_set=pod_set, devices=devices)


def held_devices(node: GpuNode) -> dict[str, tuple[str, ...]]:
    """The devices that the node's agent reports, by pod."""
    found: dict[str, list[str]] = {}
    for holder in node.status.holders:
        found.setdefault(holder.pod_key, []).append(holder.physical)
    return {pod: tuple(sorted(devices)) for pod, devices in found.items()}
