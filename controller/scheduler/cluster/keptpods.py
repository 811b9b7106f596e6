"""Pods that say while they run that they are not moved. Templates say so too, and are no part of this.

A question is one look-up, and pods that say nothing cost nothing.
"""

from collections.abc import Mapping
from typing import Final

from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.meta import object_key
from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import MARKED, WORKLOAD_OF_POD, WORKLOAD_SLICE

KEPT_IN_PLACE: Final = (
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)
"""Annotations of pods that are not moved, unless ``MARKED`` says that they are our own."""


def stays(annotations: Mapping[str, str]) -> bool:
    """Whether a pod with these annotations is not moved."""
    return MARKED not in annotations and any(annotations.get(key) == value for key, value in KEPT_IN_PLACE)


class KeptPods:
    """The pods, each with the workload that it belongs to; of an elastic job with its first slice."""

    def __init__(self) -> None:
        self._owners: dict[str, WorkloadKey] = {}
        self._pods: dict[WorkloadKey, set[str]] = {}

    def put(self, pod: Pod) -> bool:
        """Take in a pod as it is now. Returns whether its workload may move as before."""
        notes = pod.metadata.annotations
        named = notes.get(WORKLOAD_SLICE) or notes.get(WORKLOAD_OF_POD, "")
        if not named or not stays(notes) or pod.status.phase in ENDED_PHASES:
            return self.remove(pod.key)
        owner = WorkloadKey(object_key(pod.metadata.namespace, named))
        if self._owners.get(pod.key) == owner:
            return True
        self.remove(pod.key)
        self._owners[pod.key] = owner
        self._pods.setdefault(owner, set()).add(pod.key)
        return False

    def remove(self, key: str) -> bool:
        """Forget a pod. Returns whether its workload may move as before."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return True
        there = self._pods[owner]
        there.discard(key)
        if not there:
            del self._pods[owner]
        return False

    def any_of(self, workload: Workload) -> bool:
        """Whether a pod of the workload says so."""
        if not self._pods:
            return False
        meta = workload.metadata
        return WorkloadKey(object_key(meta.namespace, meta.annotations.get(WORKLOAD_SLICE) or meta.name)) in self._pods

    def validate(self) -> None:
        """AssertionError where the two sides do not agree."""
        found = {pod: owner for owner, pods in self._pods.items() for pod in pods}
        if found != self._owners or not all(self._pods.values()):
            raise AssertionError(f"kept pods are {found}, expected {self._owners}")
