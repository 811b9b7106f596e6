"""The claims as a scheduling cycle sees them: charged for its length, lifted for the workload that they belong to.

The rule is our own (``tessera.reserveForPreemptor``), in trials alone: no sum that users see contains a claim (decision
016). Each claim costs one charge of its quota and places in each cycle, and each entry with a claim lifts its own once.
"""

from collections.abc import Iterable, Iterator

import msgspec

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.records import Rule
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.model.resources import Usage, WorkloadKey
from controller.scheduler.queues.entry import Entry
from controller.scheduler.reservations.claim import Claim, KeptPlaces, Places

# After these rules the workload keeps its claim whole, and what it claims is kept from those decided on after it.
_CHARGED_AGAIN = frozenset({Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS})


class ClaimCharges:
    """The charges of claims in one cycle, made within its trial, which undoes them. Without claims no method does
    anything.

    Invariant between ``open`` and ``close`` and outside of them: what is charged to the cluster is the sum over
    ``_charged``, less what is lifted for the open entry. ``_claimants`` is fixed at the beginning and may name
    workloads that are no longer in ``_charged``.
    """

    def __init__(self, cluster: Cluster, kept_places: KeptPlaces, claims: Iterable[Claim]) -> None:
        self._cluster = cluster
        self._kept_places = kept_places
        self._charged: dict[WorkloadKey, Claim] = {}
        """The claims as they are charged now: changed, or gone, where their workload has been decided on."""
        self._claimants: dict[int, tuple[WorkloadKey, ...]] = {}
        """The claimants of each cohort tree, by the identity of its root: claims to quota count only in their own tree,
        claims to places in all.
        """
        for claim in claims:
            self.charge(claim)
            self._charged[claim.key] = claim
            tree = id(cluster.queues[claim.cluster_queue].node.root())
            self._claimants[tree] = (*self._claimants.get(tree, ()), claim.key)

    def concern(self, entry: Entry) -> bool:
        """Whether claims may change anything for the entry.

        Claims to quota count only in their own cohort tree. Claims to places count in every tree; there is nothing to
        lift for an entry of another tree, unless it runs already and has lost a node.
        """
        if not self._claimants:
            return False
        return entry.holder is not None or id(entry.incoming.queue.node.root()) in self._claimants

    # -- lifting and charging, within the trial ----------------------------------------------------------------------

    def own(self, entry: Entry) -> tuple[Claim, ...]:
        """The entry's claim, if it is charged."""
        claim = self._charged.get(entry.key)
        return () if claim is None else (claim,)

    def quota_of(self, entry: Entry) -> Usage:
        """The quota that is charged for the entry's own claim."""
        claim = self._charged.get(entry.key)
        return {} if claim is None else claim.kept_quota(self._cluster.holders)

    def of_other_queues(self, entry: Entry) -> tuple[Claim, ...]:
        """The claims of other ClusterQueues in the entry's tree."""
        name = entry.incoming.queue.name
        return tuple(claim for claim in self._in_tree(entry) if claim.cluster_queue != name)

    def charge(self, *claims: Claim) -> None:
        self._charge_quota(*claims)
        self._take_places(*claims)

    def lift(self, *claims: Claim) -> None:
        """Takes back what ``charge`` charged."""
        self.lift_quota(*claims)
        self._leave_places(*claims)

    def lift_quota(self, *claims: Claim) -> None:
        for claim in claims:
            self._cluster.quota.remove_usage(claim.cluster_queue, claim.kept_quota(self._cluster.holders))

    def _charge_quota(self, *claims: Claim) -> None:
        for claim in claims:
            self._cluster.quota.add_usage(claim.cluster_queue, claim.kept_quota(self._cluster.holders))

    def _take_places(self, *claims: Claim) -> None:
        for claim in claims:
            for at, (flavor, usage) in enumerate(self._places(claim)):
                self._cluster.placement.add(flavor, usage, GrantOwner(claim.key, str(at)))

    def _leave_places(self, *claims: Claim) -> None:
        for claim in claims:
            for at, (flavor, usage) in enumerate(self._places(claim)):
                self._cluster.placement.remove(flavor, usage, GrantOwner(claim.key, str(at)))

    def _places(self, claim: Claim) -> Places:
        if not claim.places:
            return ()
        return self._kept_places.of(claim.key, claim.places, claim.remaining_victims(self._cluster.holders))

    # -- the decision on one entry -----------------------------------------------------------------------------------

    def open(self, entry: Entry) -> None:
        """Lift the entry's own claim, and those that do not hold against it: the entry is decided on next."""
        if not self._claimants or not self.concern(entry):
            return
        if entry.holder is not None:
            self._leave_places(*self._charged.values())
            return
        self.lift(*self.own(entry))
        if entry.ignores_claims:
            self.lift_quota(*self.of_other_queues(entry))

    def close(self, entry: Entry) -> None:
        """Charge claims again after the entry was decided on; its own as far as the decision leaves it one."""
        if not self._claimants or not self.concern(entry):
            return
        if entry.holder is not None:
            self._take_places(*self._charged.values())
            return
        if entry.ignores_claims:
            self._charge_quota(*self.of_other_queues(entry))
        for claim in self.own(entry):
            self._charge_after(claim, entry)

    def unclaimed(self, entry: Entry, usage: Usage) -> Usage:
        """The part of ``usage`` that the open entry may keep from others: without what claims of others keep. Reserving
        that as well would make two workloads wait for each other: the entry for the end of the claim, and the claimant
        for what is kept from it.
        """
        node = entry.incoming.queue.node
        lifted = frozenset(claim.key for claim in self.of_other_queues(entry)) if entry.ignores_claims else ()
        others = [claim for claim in self._in_tree(entry) if claim.key != entry.key and claim.key not in lifted]
        if not others:
            return usage
        beside = {fr: node.available(fr) for fr in usage}
        with self._cluster.trial():
            self.lift_quota(*others)
            kept = {fr: amount - (node.available(fr) - beside[fr]) for fr, amount in usage.items()}
        return {fr: amount for fr, amount in kept.items() if amount > 0}

    def _charge_after(self, claim: Claim, entry: Entry) -> None:
        """Charge what remains of the entry's claim for those that are decided on after it."""
        if entry.rule in _CHARGED_AGAIN:
            self.charge(claim)
        elif entry.rule is Rule.PREEMPTS:
            # The cycle has charged its whole request. Its next claim keeps the part that others may lift.
            victims = claim.victims.union(target.holder.key for target in entry.targets)
            usage = dict(entry.assignment.usage)
            self._charged[claim.key] = msgspec.structs.replace(claim, usage=usage, victims=victims, places=())
        else:
            # What the workload takes now is no longer a claim, and what it does not take is kept by none.
            del self._charged[claim.key]

    def _in_tree(self, entry: Entry) -> Iterator[Claim]:
        """The claims that are charged now in the entry's tree, its own included."""
        keys = self._claimants.get(id(entry.incoming.queue.node.root()), ())
        return (self._charged[key] for key in keys if key in self._charged)
