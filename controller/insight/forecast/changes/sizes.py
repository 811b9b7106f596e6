"""The largest size of a workload that could start on an empty cluster, for one that never starts as it is.

The engine tries each size with all quota of the cohort free and no preemptible workload running, within a trial of the
cluster.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from controller.insight.forecast.changes.resized import devices_of, least, with_count, with_fewer, with_pod_set
from controller.messages import forecasts as words
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.kueue.freequota import could_start
from controller.scheduler.model.resources import Amount, ResourceName

_SETS: Final = 4
"""Pod sets that are resized, the first of a workload."""


class Size(NamedTuple):
    """A size that could start. ``said``: the number of pods of a pod set, or of devices in each. ``asks``: what all
    pods request then.
    """

    said: str
    asks: dict[ResourceName, Amount]


def largest(engine: Engine, workload: Workload) -> Size | None:
    """The largest size with fewer pods in one pod set, else with fewer devices in each of its pods; the other pod sets
    stay as they are. None if no size of one pod set alone could start.

    The number of tries is the logarithm of the size.
    """

    def size(given: Workload, said: str) -> Size:
        asks: dict[ResourceName, Amount] = {}
        for pod_set in engine.as_pending(given).info.pod_sets:
            for name, amount in pod_set.requests.items():
                asks[name] = asks.get(name, 0) + amount
        return Size(said, asks)

    def most(high: int, make: Callable[[int], Workload]) -> int:
        """The largest number from 1 to ``high`` that could start; 0 for none. Where a number could start, each smaller
        one could.
        """
        low = 0
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if is_possible(engine, make(middle)) else (low, middle - 1)
        return low

    for number, pod_set in enumerate(workload.spec.pod_sets[:_SETS]):
        pods = partial(with_count, workload, number)
        if count := most(pod_set.count - 1, pods):
            return size(pods(count), words.so_many_pods(count, pod_set.name))
        for name, asked in sorted(devices_of(pod_set).items()):
            devices = partial(with_fewer, workload, number, name)
            if count := most(asked - 1, devices):
                return size(devices(count), words.so_many_devices(count, name, pod_set.name))
    return None


def any_size(engine: Engine, workload: Workload) -> bool:
    """Whether one pod of each set could start with the smallest possible request."""
    smallest = workload
    for number, pod_set in enumerate(workload.spec.pod_sets):
        smallest = with_pod_set(smallest, number, least(pod_set))
    return is_possible(engine, smallest)


def is_possible(engine: Engine, given: Workload) -> bool:
    """Whether the workload would start with all quota of the cohort free and no preemptible workload running."""
    pending = engine.as_pending(given)
    queue = engine.queue_of(pending.local_queue)
    return queue is not None and could_start(engine.state.cluster, engine.state.assigner, pending.incoming(queue))
