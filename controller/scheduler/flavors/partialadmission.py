"""Partial admission: the largest counts between ``minCount`` and ``count`` that fit, where the full counts do not
(KEP-420).

All pod sets that may shrink do so in step: each by the same fraction of the way from its full to its least count. The
search assumes that what fits also fits with fewer pods; so a pod set that is cut into slices loses whole slices.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.topology.requests import topology_request

T = TypeVar("T")


def may_reduce(info: WorkloadInfo, gates: FeatureGates) -> bool:
    shrinks = any(pod_set.min_count is not None for pod_set in info.workload.spec.pod_sets)
    return shrinks and gates.on("PartialAdmission") and any(_ways(info).values())


def fewest(info: WorkloadInfo, gates: FeatureGates) -> dict[str, int] | None:
    """The fewest pods by pod set with which the workload may start; None for one that starts with all of them."""
    if not may_reduce(info, gates):
        return None
    ways = _ways(info)
    return {pod_set.name: pod_set.count - ways[pod_set.name] for pod_set in info.pod_sets}


def reduce_counts(info: WorkloadInfo, fits: Callable[[Mapping[str, int]], T | None]) -> T | None:
    """The answer of ``fits`` for the largest counts, by pod set name, for which it answers at all; None if there are
    none.

    The number of calls of ``fits`` is a logarithm of the number of pods that may be missing. Counts are those of pods
    that still need resources: finished ones are neither asked for nor saved.
    """
    full = {pod_set.name: pod_set.count for pod_set in info.pod_sets}
    ways, sizes = _ways(info), _slices(info)
    total = sum(ways.values())
    if not total:
        return None
    low, high = 0, total + 1
    best: T | None = None
    while low < high:
        step = (low + high) // 2
        fewer = {name: count - ways[name] * step // total for name, count in full.items()}
        for name, size in sizes.items():
            fewer[name] = _whole(fewer[name], size, least=full[name] - ways[name], most=full[name])
        answer = fits(fewer)
        if answer is None:
            low = step + 1
        else:
            best, high = answer, step
    return best


def _slices(info: WorkloadInfo) -> dict[str, int]:
    """The sizes of the outermost slices of the pod sets that may shrink."""
    shrinking = [pod_set for pod_set in info.workload.spec.pod_sets if pod_set.min_count is not None]
    layers = {pod_set.name: topology_request(pod_set).layers[:1] for pod_set in shrinking}
    return {name: outermost.size for name, first in layers.items() for outermost in first if outermost.size > 1}


def _whole(count: int, size: int, *, least: int, most: int) -> int:
    """``count`` rounded down to whole slices; rounded up from ``least`` where that would be too few pods; ``count``
    itself if whole slices would be too many.
    """
    if count // size * size >= least:
        return count // size * size
    enough = -(-least // size) * size
    return enough if enough <= most else count


def _ways(info: WorkloadInfo) -> dict[str, int]:
    """How many pods of each pod set may be left out."""
    least = {each.name: each.min_count for each in info.workload.spec.pod_sets}
    ways = {}
    for pod_set in info.pod_sets:
        minimum = least.get(pod_set.name)
        ways[pod_set.name] = 0 if minimum is None else max(0, pod_set.count - minimum)
    return ways
