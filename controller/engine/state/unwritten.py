"""Decisions that count from the moment they were made, and that no object shows yet."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from controller.engine.cluster.cluster import DriftError
from controller.engine.conditions.decisions import Admitted
from controller.engine.model.resources import WorkloadKey
from controller.engine.quota.queuestate import Holder


class UnwrittenDecisions:
    """``Outcomes`` adds and takes back, ``WorkloadEvents`` drops what an object shows; a rebuilt engine adopts them.

    ``admissions``: key -> the admission. ``evictions``: workloads whose holder is ``evicted`` before their object says
    so. ``ended``: elastic slices that hold nothing any more although their object does. No ended slice holds quota, and
    every workload of ``evictions`` that holds quota is evicted. One workload may be in all three: admitted, preempted
    and replaced before the first write came back.
    """

    def __init__(self) -> None:
        self._admissions: dict[WorkloadKey, Admitted] = {}
        self._evictions: set[WorkloadKey] = set()
        self._ended: set[WorkloadKey] = set()
        self.admissions: Mapping[WorkloadKey, Admitted] = self._admissions
        self.evictions: AbstractSet[WorkloadKey] = self._evictions
        self.ended: AbstractSet[WorkloadKey] = self._ended

    def admit(self, key: WorkloadKey, admitted: Admitted) -> None:
        self._admissions[key] = admitted

    def drop_admission(self, key: WorkloadKey) -> None:
        self._admissions.pop(key, None)

    def evict(self, key: WorkloadKey) -> None:
        self._evictions.add(key)

    def drop_eviction(self, key: WorkloadKey) -> None:
        self._evictions.discard(key)

    def end(self, key: WorkloadKey) -> None:
        self._ended.add(key)

    def drop_end(self, key: WorkloadKey) -> None:
        self._ended.discard(key)

    def validate(self, holders: Mapping[WorkloadKey, Holder]) -> None:
        both = self._ended & holders.keys()
        if both:
            raise DriftError(f"slices that have ended hold quota: {sorted(both)[:5]}")
        spared = [key for key in self._evictions if key in holders and not holders[key].evicted]
        if spared:
            raise DriftError(f"evictions that are being written, of holders that are not evicted: {sorted(spared)[:5]}")
