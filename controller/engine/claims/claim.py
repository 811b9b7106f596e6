"""A preemptor's claim: what its victims leave is its own until it starts (``tessera.reserveForPreemptor``).

Evicted workloads leave one by one. Between the first departure and the preemptor's next try any other workload could
take what is free: the victims would have been evicted for nothing, and the preemptor would evict again. A claim weighs
as much as the preemptor asked for, less what its victims still hold, which no other workload can take anyway.

A claim to quota does not hold against a workload that stays within the own quota of another ClusterQueue: it could
reclaim that quota from the preemptor anyway. A claim to places does: nodes cannot be reclaimed, and half a clique that
another workload has taken would make all the evictions worthless. Only pods that lost their node may go there.
"""

from collections.abc import Mapping

import msgspec

from controller.engine.claims.claimedplaces import Places
from controller.engine.model.resources import Amount, ClusterQueueName, FlavorResource, WorkloadKey
from controller.engine.quota.queuestate import Holder


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is all that the preemptor will be charged; ``victims`` were evicted for it, some may have left since.

    ``places``: where its pods are to run, by flavor.
    """

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    usage: Mapping[FlavorResource, Amount]
    victims: frozenset[WorkloadKey]
    places: Places = ()

    def kept_quota(self, holders: Mapping[WorkloadKey, Holder]) -> dict[FlavorResource, Amount]:
        """What is free already, or will not come from its victims: this must be kept from others."""
        kept = dict(self.usage)
        for victim in self.victims:
            holder = holders.get(victim)
            for fr, amount in holder.usage.items() if holder is not None else ():
                if fr in kept:
                    kept[fr] = max(0, kept[fr] - amount)
        return {fr: amount for fr, amount in kept.items() if amount}

    def remaining_victims(self, holders: Mapping[WorkloadKey, Holder]) -> list[Holder]:
        """Those that have not left yet."""
        return [holder for victim in self.victims if (holder := holders.get(victim)) is not None]
