"""The victims chosen so far in one scheduling cycle, for the entries that come after.

A preemptor's usage is charged while its victims still hold theirs, so every later fit check subtracts all victims
again. No workload is evicted for two: as in Kueue's scheduler, an entry whose targets overlap with those chosen before
is skipped.

To subtract them costs one release for each victim of the cycle; whether one is among them costs one look.
"""

from collections.abc import Iterable, Iterator

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Target
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, Usage, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.quota.queuestate import Holder


class Victims:
    """The holders by key, each once, in the order in which they were chosen."""

    def __init__(self) -> None:
        self._holders: dict[WorkloadKey, Holder] = {}

    def __iter__(self) -> Iterator[Holder]:
        return iter(self._holders.values())

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, key: object) -> bool:
        return key in self._holders

    def add(self, targets: Iterable[Target]) -> None:
        for target in targets:
            self._holders[target.holder.key] = target.holder

    def overlap(self, targets: Iterable[Target]) -> bool:
        """Whether one of the targets has been chosen already."""
        return any(target.holder.key in self._holders for target in targets)

    def and_also(self, targets: Iterable[Target]) -> tuple[Holder, ...]:
        """All victims and these targets, each once."""
        return tuple({**self._holders, **{target.holder.key: target.holder for target in targets}}.values())


def fits_without(
    cluster: Cluster,
    gone: Iterable[Holder],
    queue: ClusterQueueName,
    usage: Usage,
    places: Iterable[tuple[FlavorName, TopologyUsage]] = (),
) -> bool:
    """Whether the usage fits, and the places are free, without these holders. Changes nothing."""
    with cluster.trial():
        for holder in gone:
            if cluster.holders.get(holder.key) is not None:
                cluster.release(holder)
        return cluster.quota.cluster_queue(queue).fits(usage) and cluster.placement.fits(tuple(places))
