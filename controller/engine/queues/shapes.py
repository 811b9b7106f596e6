"""The scheduling shape of a workload: what two of them must have in common to fare alike in every cycle.

Shape is the pod sets (templates' specs, counts, requests, topology), the priority and what pins the workload to flavors
or to an older slice of itself; the peer's scheduling equivalence hash is the same idea. Workloads of one shape share
one tuple of pod sets in memory: tens of thousands of them often wait.
"""

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from controller.engine.workload import PodSetRequests, WorkloadInfo
from controller.objects.quantity import Quantity
from controller.objects.workload import PodSet

_PINNING: Final = ("kueue.x-k8s.io/workload-allowed-resource-flavors", "kueue.x-k8s.io/workload-slice-replacement-for")

# Sharing is a saving, not a promise: beyond so many shapes the ones seen longest ago are no longer remembered.
_REMEMBERED: Final = 4096


class Shapes:
    """Names shapes, and lets workloads hold what they have in common once."""

    __slots__ = ("_common", "_encoder")

    def __init__(self) -> None:
        self._common: OrderedDict[str, tuple[tuple[PodSet, ...], tuple[PodSetRequests, ...]]] = OrderedDict()
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode, order="deterministic")

    def of(self, info: WorkloadInfo, priority: int) -> str:
        """16 hex digits."""
        workload = info.workload
        spec = [(one.template.spec, one.count, one.min_count, one.topology_request) for one in workload.spec.pod_sets]
        requests = [(one.name, one.count, one.requests) for one in info.pod_sets]
        pinning = [workload.metadata.annotations.get(name, "") for name in _PINNING]
        return hashlib.sha256(self._encoder.encode((priority, spec, requests, pinning))).hexdigest()[:16]

    def shared(self, info: WorkloadInfo, shape: str) -> WorkloadInfo:
        """``info`` with its pod sets and requests replaced by the equal ones of an earlier workload of its shape."""
        workload = info.workload
        common = self._common.get(shape)
        if common is None or common[0] != workload.spec.pod_sets or common[1] != info.pod_sets:
            common = self._common[shape] = (workload.spec.pod_sets, info.pod_sets)
            if len(self._common) > _REMEMBERED:
                self._common.popitem(last=False)
        self._common.move_to_end(shape)
        replace = msgspec.structs.replace
        spec = replace(workload.spec, pod_sets=common[0])
        return replace(info, workload=replace(workload, spec=spec), pod_sets=common[1])


def _encode(value: object) -> object:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no encoding for {type(value).__name__}")
