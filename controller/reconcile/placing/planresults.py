"""Compares the devices that were planned for pods with the reports of their agents.

A pod is judged once, when its agent reports as many devices as were planned. Two pods of one pod set may have swapped
devices, which loses nothing. Reports name pods and not their uids: a report from before a pod was replaced by another
of its name is forgotten.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from controller.scheduler.model.resources import WorkloadKey

DeviceUuids = tuple[str, ...]
"""UUIDs, sorted; each as often as the pod has replicas of it."""


class PlanOutcome(StrEnum):
    HONOURED = "honoured"
    SWAPPED = "swapped"
    DRIFTED = "drifted"


class PlannedPod(Struct, frozen=True, kw_only=True):
    """A pod, and the devices that its annotation names."""

    uid: str
    workload: WorkloadKey
    pod_set: str
    devices: DeviceUuids


class PlanResult(Struct, frozen=True, kw_only=True):
    """The result of a pod. ``pod`` is ``namespace/name``."""

    kind: PlanOutcome
    pod: str
    uid: str
    node: str
    planned: DeviceUuids
    held: DeviceUuids


_Plan = tuple[WorkloadKey, str, DeviceUuids]


class PlanResults:
    """The plans of pods, and their results. ``_plans`` counts the pods of ``_planned`` by plan. ``_node_of`` is the
    inverse of ``_held``, except that a pod which was replaced is in no node of it until the next report. ``_judged``
    holds pods of ``_planned`` only.
    """

    def __init__(self) -> None:
        self._planned: dict[str, PlannedPod] = {}
        self._plans: Counter[_Plan] = Counter()
        """The number of pods by plan."""
        self._held: dict[str, dict[str, DeviceUuids]] = {}
        """The devices that agents report, by node and pod."""
        self._node_of: dict[str, str] = {}
        self._judged: set[str] = set()

    def set_pod(self, pod: str, planned_pod: PlannedPod | None) -> list[PlanResult]:
        """Notes a pod and its plan, and returns new results. None: the pod is gone, or nothing was planned for it."""
        old = self._planned.pop(pod, None)
        if old is not None and (planned_pod is None or planned_pod.uid != old.uid):
            self._judged.discard(pod)
            self._node_of.pop(pod, None)
        if old is not None:
            self._plans[_plan(old)] -= 1
            if not self._plans[_plan(old)]:
                del self._plans[_plan(old)]
        if planned_pod is None:
            return []
        self._planned[pod] = planned_pod
        self._plans[_plan(planned_pod)] += 1
        return self._judge(pod)

    def set_node(self, node: str, held: Mapping[str, DeviceUuids]) -> list[PlanResult]:
        """Notes all devices that the node's pods hold, by pod, and returns new results."""
        for pod in self._held.pop(node, {}):
            if self._node_of.get(pod) == node:
                del self._node_of[pod]
        if held:
            self._held[node] = dict(held)
            self._node_of.update(dict.fromkeys(held, node))
        return [result for pod in sorted(held) for result in self._judge(pod)]

    def validate(self) -> None:
        """Recomputes the indexes. Raises AssertionError, also if something is kept of pods that are gone."""
        assert self._judged <= self._planned.keys(), "a pod that is gone was judged"
        assert self._plans == Counter(map(_plan, self._planned.values())), "pods are miscounted by plan"
        assert all(pod in self._held[node] for pod, node in self._node_of.items()), "a pod is on no node"

    def _judge(self, pod: str) -> list[PlanResult]:
        planned_pod, node = self._planned.get(pod), self._node_of.get(pod)
        if planned_pod is None or node is None or pod in self._judged:
            return []
        held = self._held[node][pod]
        if len(held) < len(planned_pod.devices):
            return []  # the kubelet allocates container by container
        self._judged.add(pod)
        kind = PlanOutcome.HONOURED if held == planned_pod.devices else PlanOutcome.DRIFTED
        if kind is PlanOutcome.DRIFTED and (planned_pod.workload, planned_pod.pod_set, held) in self._plans:
            kind = PlanOutcome.SWAPPED
        return [PlanResult(kind=kind, pod=pod, uid=planned_pod.uid, node=node, planned=planned_pod.devices, held=held)]


def _plan(planned_pod: PlannedPod) -> _Plan:
    return planned_pod.workload, planned_pod.pod_set, planned_pod.devices
