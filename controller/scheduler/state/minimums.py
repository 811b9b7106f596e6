"""The minimums of elastic gangs: pods above a gang's minimum hold quota only while the minimum does.

A gang with more pods than its minimum is one workload of the minimum, and a workload of one pod for each pod above it,
which names the minimum (``ABOVE_MINIMUM_OF``). A subgroup above it is one workload of its own minimum, above which pods
may be in turn. All start after their minimum and end before it: having the lowest priority, they are the first victims
in their queue and take nothing from others. If the minimum is evicted all the same, they leave with it.

A minimum that is not known is over: its pods have ended, and those above it run to their own end.
"""

from collections.abc import Iterator

from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import is_growth, minimum_of
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.intake import replaced_slice


def waits_for(state: EngineState, workload: Workload) -> WorkloadKey | None:
    """The workload that must hold quota before this one may: the minimum of its gang, or the slice by which the gang
    runs that is to grow. None for a workload that waits for no other.
    """
    if is_growth(workload) and (base := replaced_slice(workload, state.config)) is not None:
        holder = state.cluster.holders.get(base)
        return base if holder is None or holder.evicted else None
    minimum = minimum_of(workload)
    return minimum if minimum is not None and is_missing(state, minimum) else None


def is_missing(state: EngineState, minimum: WorkloadKey) -> bool:
    """Whether a gang's minimum exists and holds no quota, or is leaving."""
    holder = state.cluster.holders.get(minimum)
    return holder.evicted if holder is not None else minimum in state.workloads.objects


def without_minimum(state: EngineState) -> Iterator[tuple[Holder, WorkloadKey]]:
    """Workloads that hold quota, and are not leaving, although the minimum of their gang is missing."""
    holders = state.cluster.holders
    for minimum, above in state.workloads.above.items():
        if is_missing(state, minimum):
            for key in above:
                holder = holders.get(key)
                if holder is not None and not holder.evicted:
                    yield holder, minimum


def validate(state: EngineState) -> None:
    """Check after a cycle. DriftError for a gang whose pods run below its minimum."""
    found = next(without_minimum(state), None)
    if found is not None:
        raise DriftError(f"{found[0].key} holds quota, and {found[1]}, the minimum of its gang, does not")
