"""Which GPUs a pod is meant to get: the engine's plan for a node, dealt out to the pods that go there.

The agent of the node prefers what the pod's annotation names; what was really given, it reports.
"""

from collections import Counter
from collections.abc import Iterable

from controller.engine.model.resources import WorkloadKey
from controller.jobframework.settings import DevicePlan
from inventory.api import deviceplan


class DeviceDealer:
    """Deals out the plan of one workload. ``carried``: by node, what the pods there that may run were given."""

    def __init__(self, plan: DevicePlan, workload: WorkloadKey, carried: Iterable[tuple[str, str]]) -> None:
        self._plan = plan
        self._workload = workload
        self._carried: dict[str, Counter[tuple[str, ...]]] = {}
        for node, annotation in carried:
            if annotation:
                self._carried.setdefault(node, Counter())[deviceplan.devices(annotation)] += 1

    def take(self, pod_set: str, node: str) -> str:
        """The annotation of the next pod of ``pod_set`` on ``node``; empty where nothing is planned or left.

        Of what is left, that which shares least with what other pods carry: after drift a plan may overlap with it.
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
