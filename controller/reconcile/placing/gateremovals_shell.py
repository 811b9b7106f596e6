"""Measures how long after its workload's admission each pod lost its scheduling gate, on the pods that watches show.

There are three gates: plain pods have the admission gate, pods of a topology assignment the topology gate, pods that an
elastic job adds the gate of elastic jobs.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS, QUEUED_PODS
from controller.cluster.watching.ledger import Ledger
from controller.jobs.framework.names import ELASTIC_JOB, TOPOLOGY_GATE
from controller.jobs.framework.podview import ADMISSION_GATE, GROUP_NAME, workload_of
from controller.objects.core import Pod
from controller.objects.meta import Labelled, epoch_s, find_condition
from controller.scheduler.decisions import reasons
from kube.clock import Clock
from kube.reading.reflector import Changed

_ADMISSION: Final = f'"{ADMISSION_GATE}"'.encode()
_OTHERS: Final = frozenset({TOPOLOGY_GATE, ELASTIC_JOB})

CountRemoval = Callable[[str, str, bool, float], None]
"""Called with ClusterQueue, gate, whether the pod is one of a group, and seconds since the admission."""


class GateRemovals:
    """Counts removals. ``hear`` takes all changes. Each gate is counted by one feed: the admission gate by that of
    queued pods.
    """

    def __init__(self, ledger: Ledger, clock: Clock, count: CountRemoval) -> None:
        self._ledger = ledger
        self._clock = clock
        self._count = count

    def hear(self, observed: ObjectChange) -> None:
        if not isinstance(observed.change, Changed):
            return
        old, new = observed.change.old.object, observed.change.new.object
        if observed.resource == QUEUED_PODS:
            if _ADMISSION in old.raw and _ADMISSION not in new.raw:
                self._removed(Pod(metadata=msgspec.json.decode(new.raw, type=Labelled).metadata), ADMISSION_GATE)
        elif observed.resource == PODS and old.spec.scheduling_gates:
            for gate in _gates(old) & _OTHERS - _gates(new):
                self._removed(new, gate)

    def _removed(self, pod: Pod, gate: str) -> None:
        key = workload_of(pod)
        entry = self._ledger.current(key) if key is not None else None
        if entry is None or entry.workload.status.admission is None:
            return
        admitted = find_condition(entry.workload.status.conditions, reasons.ADMITTED)
        if admitted is not None and admitted.status == "True":
            queue = entry.workload.status.admission.cluster_queue
            waited_s = max(0.0, self._clock.wall() - epoch_s(admitted.last_transition_time))
            self._count(queue, gate, _in_group(pod), waited_s)


def _in_group(pod: Pod) -> bool:
    return GROUP_NAME in pod.metadata.labels or GROUP_NAME in pod.metadata.annotations


def _gates(pod: Pod) -> frozenset[str]:
    return frozenset(gate.name for gate in pod.spec.scheduling_gates)
