"""What a preemptor has made free is its own until it starts (kept under ``tessera.reserveForPreemptor``).

Evicted workloads leave one by one, and between the first that has gone and the preemptor's next try anybody might take
what is free: the victims would have gone for nothing, and the preemptor would evict again. So each preemptor has a
claim. It weighs as much as the preemptor asked for, less what its victims still hold, which nobody can take anyway.

A claim to quota does not hold against a workload that stays within the own quota of another ClusterQueue: it could
reclaim that from the preemptor as soon as it runs. Its claim to places does: nobody reclaims a node, and half a clique
that another has taken would make all the evictions worthless. Only pods that lost their node may go there.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from controller.engine.claims.claimedplaces import Places, kept_places
from controller.engine.cluster.cluster import Cluster
from controller.engine.devices.grants import GrantOwner
from controller.engine.model.resources import Amount, ClusterQueueName, FlavorResource, WorkloadKey
from controller.engine.quota.queuestate import Holder


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is all that the preemptor will be charged; ``victims`` those who were told to go for it.

    ``places``: where its pods are to run, by flavor.
    """

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    usage: Mapping[FlavorResource, Amount]
    victims: frozenset[WorkloadKey]
    places: Places = ()


class Claims:
    """One claim at most for a workload; no claim outlives its workload's wait."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._claims: dict[WorkloadKey, Claim] = {}
        self._kept: dict[WorkloadKey, tuple[Claim, list[Holder], Places]] = {}
        """What a claim keeps of its places while these victims are still there."""

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def stake(
        self,
        key: WorkloadKey,
        cluster_queue: ClusterQueueName,
        usage: Mapping[FlavorResource, Amount],
        victims: Iterable[WorkloadKey],
        places: Places = (),
    ) -> None:
        """It waits for these victims. A later preemption adds to them; what is asked for is always the latest."""
        known = self._claims.get(key)
        earlier = known.victims if known is not None else frozenset[WorkloadKey]()
        claim = Claim(
            key=key, cluster_queue=cluster_queue, usage=dict(usage), victims=earlier.union(victims), places=places
        )
        # What is kept of many places is worked out once for a claim, not for each time that it is staked.
        if claim != known:
            self._claims[key] = claim

    def drop(self, key: WorkloadKey) -> bool:
        """It was admitted, went away, or waits for something else now. Whether it had a claim."""
        self._kept.pop(key, None)
        return self._claims.pop(key, None) is not None

    def drop_queue(self, name: ClusterQueueName) -> None:
        for claim in [one for one in self._claims.values() if one.cluster_queue == name]:
            self.drop(claim.key)

    def of(self, key: WorkloadKey) -> Claim | None:
        return self._claims.get(key)

    def free(self, claim: Claim) -> dict[FlavorResource, Amount]:
        """What is free already, or will not come from its victims, and must be kept."""
        kept = dict(claim.usage)
        for victim in claim.victims:
            holder = self._cluster.holders.get(victim)
            for fr, amount in holder.usage.items() if holder is not None else ():
                if fr in kept:
                    kept[fr] = max(0, kept[fr] - amount)
        return {fr: amount for fr, amount in kept.items() if amount}

    def here(self) -> tuple[Claim, ...]:
        """Those that weigh: whose ClusterQueue is there."""
        return tuple(claim for claim in self._claims.values() if claim.cluster_queue in self._cluster.queues)

    def charge(self, *claims: Claim) -> None:
        """To be undone with the trial that is open."""
        self.charge_quota(*claims)
        self.take_places(*claims)

    def charge_quota(self, *claims: Claim) -> None:
        for claim in claims:
            self._cluster.quota.add_usage(claim.cluster_queue, self.free(claim))

    def lift(self, *claims: Claim) -> None:
        """Within a trial in which they are charged: the reverse of ``charge``."""
        self.lift_quota(*claims)
        self.leave_places(*claims)

    def lift_quota(self, *claims: Claim) -> None:
        """The reverse of ``charge_quota``."""
        for claim in claims:
            self._cluster.quota.remove_usage(claim.cluster_queue, self.free(claim))

    def take_places(self, *claims: Claim) -> None:
        for claim in claims:
            for at, (flavor, usage) in enumerate(self._places(claim)):
                self._cluster.placement.add(flavor, usage, GrantOwner(claim.key, str(at)))

    def leave_places(self, *claims: Claim) -> None:
        """The reverse of ``take_places``."""
        for claim in claims:
            for at, (flavor, usage) in enumerate(self._places(claim)):
                self._cluster.placement.remove(flavor, usage, GrantOwner(claim.key, str(at)))

    def _places(self, claim: Claim) -> Places:
        if not claim.places:
            return ()
        holders = self._cluster.holders
        there = [holder for victim in claim.victims if (holder := holders.get(victim)) is not None]
        known = self._kept.get(claim.key)
        if known is not None and known[0] is claim and list(map(id, known[1])) == list(map(id, there)):
            return known[2]
        kept = kept_places(claim.places, there)
        self._kept[claim.key] = (claim, there, kept)
        return kept
