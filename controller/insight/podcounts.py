"""The number of admitted workloads with running pods: quota alone does not make a job run. Pure.

The command and the page count here: the command from Workloads and pods that its user may list, the page from the
controller's copies.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec

from controller.jobs.framework.podview import workload_of
from controller.objects.core import Pod
from controller.scheduler.model.resources import WorkloadKey


class Admitted(msgspec.Struct, frozen=True):
    """Admitted workloads that are not being evicted, by the name of their queue, and those of them whose pods run."""

    all: Counter[str]
    running: Counter[str]

    def without_pods(self, queue: str) -> int:
        """The number of admitted workloads of which no pod runs."""
        return self.all[queue] - self.running[queue]


def counted(admitted: Iterable[tuple[WorkloadKey, tuple[str, ...]]], with_pods: AbstractSet[WorkloadKey]) -> Admitted:
    """Counts workloads. ``admitted``: each with the names under which it counts. ``with_pods``: workloads of which a
    pod runs.
    """
    every, running = Counter[str](), Counter[str]()
    for key, names in admitted:
        runs = key in with_pods
        for name in names:
            every[name] += 1
            running[name] += runs
    return Admitted(every, running)


def with_running_pods(pods: Iterable[Pod]) -> frozenset[WorkloadKey]:
    """Workloads of which a pod runs."""
    found = (workload_of(pod) for pod in pods if pod.status.phase == "Running")
    return frozenset(key for key in found if key is not None)
