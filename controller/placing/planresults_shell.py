"""The device plans of pods, and what became of them: counted, and one Event where a pod got others than planned.

The engine takes what agents report as the truth by itself; here people are told.
"""

from collections.abc import Callable
from typing import Final

from controller.jobframework import names
from controller.jobframework.podview import workload_of
from controller.objects.core import Pod
from controller.objects.gpunode import GpuNode
from controller.placing.planresults import Kind, PlanResults, Result, Told
from controller.watching.inbox import News
from controller.watching.kinds import GPU_NODES, PODS
from inventory.api import deviceplan
from inventory.api.names import DEVICES
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed

DRIFT: Final = "GpuPlanDrift"


class GpuPlans:
    """``count`` hears the kind of each result; ``tell`` what people should know: about what, type, reason, note."""

    def __init__(self, count: Callable[[str], None], tell: Callable[[ObjectReference, str, str, str], None]) -> None:
        self.results = PlanResults()
        self._count = count
        self._tell = tell

    def hear(self, news: News) -> None:
        match news.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry):
                found = entry.object
            case Removed(key=key):
                found = None
            case _:
                return
        results: list[Result] = []
        if news.resource == PODS:
            results = self.results.set_pod(f"{key.namespace}/{key.name}", told(found) if found is not None else None)
        elif news.resource == GPU_NODES:
            results = self.results.set_node(key.name, held(found) if found is not None else {})
        for result in results:
            self._say(result)

    def _say(self, result: Result) -> None:
        self._count(result.kind.value)
        if result.kind is not Kind.DRIFTED:
            return
        namespace, _, name = result.pod.partition("/")
        about = ObjectReference("v1", "Pod", name, result.uid, namespace)
        note = (
            f"Planned {deviceplan.written(result.planned)}, got {deviceplan.written(result.held)} on node {result.node}"
        )
        self._tell(about, "Warning", DRIFT, note)


def told(pod: Pod) -> Told | None:
    """None where nothing was planned for it, or where it is over."""
    devices = tuple(sorted(deviceplan.devices(pod.metadata.annotations.get(DEVICES, ""))))
    workload = workload_of(pod)
    if not devices or workload is None or pod.status.phase in ("Succeeded", "Failed"):
        return None
    pod_set = pod.metadata.labels.get(names.POD_SET, "")
    return Told(uid=pod.metadata.uid, workload=workload, pod_set=pod_set, devices=devices)


def held(node: GpuNode) -> dict[str, tuple[str, ...]]:
    """By pod, the devices that its agent reports."""
    found: dict[str, list[str]] = {}
    for one in node.status.holders:
        found.setdefault(one.pod_key, []).append(one.physical)
    return {pod: tuple(sorted(devices)) for pod, devices in found.items()}
