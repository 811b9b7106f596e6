"""Every workload that is not finished, as its latest object is."""

from collections.abc import Mapping

from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.model.workload import minimum_of, sisters_of


class KnownWorkloads:
    """The known workloads. Only ``WorkloadEvents`` writes.

    ``objects``: by key. ``stranded``: those of them that were admitted by a ClusterQueue that does not exist, by that
    queue, in the order in which they came. A stranded workload has an object, is under one queue, and neither holds
    quota nor waits. No queue is kept without workloads. ``above``: pods above the minimum of a gang, by the workload
    that has the minimum, which need not exist; no key is kept without any. ``together``: workloads that get quota
    together, by ``sisters_of``; no key is kept without any.
    """

    def __init__(self) -> None:
        self._objects: dict[WorkloadKey, Workload] = {}
        self._stranded: dict[ClusterQueueName, dict[WorkloadKey, None]] = {}
        self._above: dict[WorkloadKey, dict[WorkloadKey, None]] = {}
        self._together: dict[str, dict[WorkloadKey, None]] = {}
        self.objects: Mapping[WorkloadKey, Workload] = self._objects
        self.stranded: Mapping[ClusterQueueName, Mapping[WorkloadKey, None]] = self._stranded
        self.above: Mapping[WorkloadKey, Mapping[WorkloadKey, None]] = self._above
        self.together: Mapping[str, Mapping[WorkloadKey, None]] = self._together

    def tell(self, key: WorkloadKey, workload: Workload) -> None:
        known = self._objects.get(key)
        self._objects[key] = workload
        moved = known is not None and known.spec.queue_name != workload.spec.queue_name
        if known is None or moved or known.metadata.annotations != workload.metadata.annotations:
            self._leave(key, known)
            minimum = minimum_of(workload)
            if minimum is not None:
                self._above.setdefault(minimum, {})[key] = None
            if (sisters := sisters_of(workload)) is not None:
                self._together.setdefault(sisters, {})[key] = None

    def forget(self, key: WorkloadKey) -> Workload | None:
        known = self._objects.pop(key, None)
        self._leave(key, known)
        return known

    def _leave(self, key: WorkloadKey, known: Workload | None) -> None:
        minimum = None if known is None else minimum_of(known)
        if minimum is not None:
            del self._above[minimum][key]
            if not self._above[minimum]:
                del self._above[minimum]
        sisters = None if known is None else sisters_of(known)
        if sisters is not None:
            del self._together[sisters][key]
            if not self._together[sisters]:
                del self._together[sisters]

    def strand(self, name: ClusterQueueName, key: WorkloadKey) -> None:
        self._stranded.setdefault(name, {})[key] = None

    def unstrand(self, key: WorkloadKey) -> None:
        if not self._stranded:
            return
        for name, keys in tuple(self._stranded.items()):
            if key in keys:
                del keys[key]
                if not keys:
                    del self._stranded[name]

    def adopted(self, name: ClusterQueueName) -> list[tuple[WorkloadKey, Workload]]:
        """The workloads that were stranded for a ClusterQueue that exists now; they are no longer stranded."""
        return [(key, self._objects[key]) for key in self._stranded.pop(name, ())]

    def validate(self, queues: Mapping[ClusterQueueName, object]) -> None:
        """Check the indexes. ``queues``: the ClusterQueues of the cluster. Raises DriftError."""
        for name, keys in self._stranded.items():
            if name in queues or not keys:
                raise DriftError(f"{sorted(keys)} are stranded for ClusterQueue {name}, which is there or has none")
        said = ((minimum_of(workload), key) for key, workload in self._objects.items())
        listed = {(minimum, key) for minimum, keys in self._above.items() for key in keys}
        if listed != {each for each in said if each[0] is not None} or not all(self._above.values()):
            raise DriftError(f"pods above minimums: kept {sorted(listed)[:5]}, which is not what workloads say")
        beside = {(sisters, key) for sisters, keys in self._together.items() for key in keys}
        named = ((sisters_of(workload), key) for key, workload in self._objects.items())
        if beside != {each for each in named if each[0] is not None} or not all(self._together.values()):
            raise DriftError(f"workloads with sisters: kept {sorted(beside)[:5]}, which is not what workloads say")
        every = [key for keys in self._stranded.values() for key in keys]
        if len(every) != len(set(every)):
            raise DriftError(f"stranded twice: {sorted(key for key in set(every) if every.count(key) > 1)}")
