"""What a preemptor has made free is its own until it starts (kept under ``tessera.reserveForPreemptor``).

Evicted workloads leave one by one, and between the first that has gone and the preemptor's next try anybody might take
what is free: the victims would have gone for nothing, and the preemptor would evict again. So each preemptor has a
claim. It weighs as much as the preemptor asked for, less what its victims still hold, which nobody can take anyway.

A claim does not hold against a workload that stays within the own quota of another ClusterQueue: it could reclaim that
from the preemptor as soon as it runs.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from controller.engine.cluster import Cluster
from controller.engine.resources import Amount, ClusterQueueName, FlavorResource, WorkloadKey


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is all that the preemptor will be charged; ``victims`` those who were told to go for it."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    usage: Mapping[FlavorResource, Amount]
    victims: frozenset[WorkloadKey]


class Claims:
    """One claim at most for a workload; no claim outlives its workload's wait."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._claims: dict[WorkloadKey, Claim] = {}

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
    ) -> None:
        """It waits for these victims. A later preemption adds to them; what is asked for is always the latest."""
        known = self._claims.get(key)
        earlier = known.victims if known is not None else frozenset[WorkloadKey]()
        self._claims[key] = Claim(
            key=key, cluster_queue=cluster_queue, usage=dict(usage), victims=earlier.union(victims)
        )

    def drop(self, key: WorkloadKey) -> bool:
        """It was admitted, went away, or waits for something else now. Whether it had a claim."""
        return self._claims.pop(key, None) is not None

    def drop_queue(self, name: ClusterQueueName) -> None:
        for claim in [one for one in self._claims.values() if one.cluster_queue == name]:
            del self._claims[claim.key]

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

    def charge(self, *keys: WorkloadKey) -> None:
        """Charge the claims of these workloads, to be undone with the trial that is open."""
        for claim in self._here(keys):
            self._cluster.quota.add_usage(claim.cluster_queue, self.free(claim))

    def lift(self, *keys: WorkloadKey) -> None:
        """Within a trial in which they are charged: take the charges of these workloads away."""
        for claim in self._here(keys):
            self._cluster.quota.remove_usage(claim.cluster_queue, self.free(claim))

    def keys(self) -> tuple[WorkloadKey, ...]:
        return tuple(self._claims)

    def _here(self, keys: Iterable[WorkloadKey]) -> Iterator[Claim]:
        for key in keys:
            claim = self._claims.get(key)
            if claim is not None and claim.cluster_queue in self._cluster.queues:
                yield claim
