"""Deals the engine's device plan of a node to the pods that go there: which GPUs each pod is meant to get.

The agent of the node prefers the GPUs in the pod's annotation, and reports those that the pod really got.
"""

from collections import Counter
from collections.abc import Iterable

from controller.jobs.framework.settings import DevicePlan
from controller.scheduler.model.resources import WorkloadKey
from inventory.api import deviceplan


class DeviceDealer:
    """Deals out the plan of one workload. ``carried``: by node, the annotations of the pods there that may run."""

    def __init__(self, plan: DevicePlan, workload: WorkloadKey, carried: Iterable[tuple[str, str]]) -> None:
        self._plan = plan
        self._workload = workload
        self._carried: dict[str, Counter[tuple[str, ...]]] = {}
        for node, annotation in carried:
            if annotation:
                self._carried.setdefault(node, Counter())[deviceplan.devices(annotation)] += 1

    def take(self, pod_set: str, node: str) -> str:
        """The annotation of the next pod of ``pod_set`` on ``node``; empty if nothing is planned or left.

        Of the devices that are left, the ones are taken that overlap least with other pods' annotations: after drift a
        plan may overlap with them.
        """
        if not node:
            return ""
        carried = self._carried.setdefault(node, Counter())
        left = list((Counter(self._plan(self._workload, pod_set, node)) - carried).elements())
        if not left:
            return ""
        held = {device for given in carried for device in given}
        best = min(left, key=lambda given: sum(device in held for device in given))
        carried[best] += 1
        return deviceplan.written(best)
