"""Whether pods got the devices that were planned for them: what they were told against what their agents report.

Judged once for each pod, when its agent reports as many devices as were planned. Two pods of one pod set may have
swapped: nothing is lost by that. Reports name pods and not their uids: what was reported before a pod was replaced by
another of its name is forgotten, it was about the one that is gone.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from controller.engine.model.resources import WorkloadKey

Devices = tuple[str, ...]
"""UUIDs, sorted; as often as the pod has replicas of each."""


class Kind(StrEnum):
    HONOURED = "honoured"
    SWAPPED = "swapped"
    DRIFTED = "drifted"


class Told(Struct, frozen=True, kw_only=True):
    """A pod, and the devices it was told."""

    uid: str
    workload: WorkloadKey
    pod_set: str
    devices: Devices


class Result(Struct, frozen=True, kw_only=True):
    """``pod`` is ``namespace/name``."""

    kind: Kind
    pod: str
    uid: str
    node: str
    planned: Devices
    held: Devices


_Plan = tuple[WorkloadKey, str, Devices]


class PlanResults:
    def __init__(self) -> None:
        self._told: dict[str, Told] = {}
        self._plans: Counter[_Plan] = Counter()
        """How many pods were told just that."""
        self._held: dict[str, dict[str, Devices]] = {}
        """By node and pod."""
        self._node_of: dict[str, str] = {}
        self._judged: set[str] = set()

    def set_pod(self, pod: str, told: Told | None) -> list[Result]:
        """None: it is gone, or nothing was planned for it."""
        old = self._told.pop(pod, None)
        if old is not None and (told is None or told.uid != old.uid):
            self._judged.discard(pod)
            self._node_of.pop(pod, None)
        if old is not None:
            self._plans[_plan(old)] -= 1
            if not self._plans[_plan(old)]:
                del self._plans[_plan(old)]
        if told is None:
            return []
        self._told[pod] = told
        self._plans[_plan(told)] += 1
        return self._judge(pod)

    def set_node(self, node: str, held: Mapping[str, Devices]) -> list[Result]:
        """All that the node's pods hold, by pod."""
        for pod in self._held.pop(node, {}):
            if self._node_of.get(pod) == node:
                del self._node_of[pod]
        if held:
            self._held[node] = dict(held)
            self._node_of.update(dict.fromkeys(held, node))
        return [result for pod in sorted(held) for result in self._judge(pod)]

    def validate(self) -> None:
        """Nothing is remembered of pods that are gone."""
        assert self._judged <= self._told.keys(), "a pod that is gone was judged"
        assert self._plans == Counter(map(_plan, self._told.values())), "what pods were told is miscounted"
        assert all(pod in self._held[node] for pod, node in self._node_of.items()), "a pod is on no node"

    def _judge(self, pod: str) -> list[Result]:
        told, node = self._told.get(pod), self._node_of.get(pod)
        if told is None or node is None or pod in self._judged:
            return []
        held = self._held[node][pod]
        if len(held) < len(told.devices):
            return []  # its containers are given theirs one by one
        self._judged.add(pod)
        kind = Kind.HONOURED if held == told.devices else Kind.DRIFTED
        if kind is Kind.DRIFTED and (told.workload, told.pod_set, held) in self._plans:
            kind = Kind.SWAPPED
        return [Result(kind=kind, pod=pod, uid=told.uid, node=node, planned=told.devices, held=held)]


def _plan(told: Told) -> _Plan:
    return told.workload, told.pod_set, told.devices
