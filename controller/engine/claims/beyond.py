"""The cycle's side of what the peer does not have: claims of preemptors, and reservations that backfill keeps.

With both switched off every method does nothing, and the cycle is the peer's.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

import msgspec

from controller.engine.claims.backfill import Assigner, Backfill
from controller.engine.claims.claims import Claim, Claims
from controller.engine.claims.verdicts import Verdicts
from controller.engine.cluster.cluster import Cluster
from controller.engine.conditions.records import Rule
from controller.engine.cycle.nomination import Nominator
from controller.engine.flavors.assignment import Mode
from controller.engine.model.config import BackfillPolicy
from controller.engine.model.resources import ClusterQueueName, FlavorName, Usage, WorkloadKey
from controller.engine.model.workload import TopologyUsage
from controller.engine.queues.entry import Entry

# The claim stands, and what it keeps must go on being kept while others are decided on.
_STILL_CLAIMED = (Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS)
# The workload waits for its victims, or for what does not depend on capacity.
_KEEPS_ITS_CLAIM = (*_STILL_CLAIMED, Rule.PREEMPTS, Rule.FITS_AFTER_PREEMPTION, Rule.PODS_NOT_READY)


class Beyond:
    def __init__(self, cluster: Cluster, assigner: Assigner) -> None:
        config = cluster.config.extensions
        self._cluster = cluster
        self.asking = False
        """A question is being answered: it leaves no reservation behind."""
        self.claims = Claims(cluster) if config.reserve_for_preemptor else None
        self.backfill = Backfill(cluster, assigner) if config.backfill is BackfillPolicy.CONSERVATIVE else None
        self.is_tried: Callable[[WorkloadKey, ClusterQueueName], bool] = lambda _key, _name: True
        """Whether a workload is tried there: who is held, stopped, or in another queue now has no claim."""
        self.on_freed: Callable[[], None] = lambda: None
        """Told when a claim has ended and what it kept is anybody's."""
        self.on_started: Callable[[ClusterQueueName], None] = lambda _: None
        """Told when what a claim kept is held: nobody could be made to go from it before."""
        self.on_outdated: Callable[[], None] = lambda: None
        """Told when a preemptor's verdict did not hold: the next cycle finds it another."""
        self._verdicts = Verdicts()
        self.releases: Callable[[], int] = lambda: 0
        """How often something was released so far, other than by the end of a claim."""
        self._told: set[tuple[str, WorkloadKey]] = set()
        self._told_at = -1
        self._weighing: dict[WorkloadKey, Claim] = {}
        """The claims of this cycle as they are charged now: not those whose workload has been decided on otherwise."""
        self._claimed: dict[int, tuple[WorkloadKey, ...]] = {}
        """Whose these are by cohort tree (its root's identity): they weigh on nobody else."""

    def prune(self) -> None:
        """Outside of trials: claims of those who are not tried any more end."""
        for claim in tuple(self.claims or ()):
            if not self.is_tried(claim.key, claim.cluster_queue):
                self.end(claim.key)

    def end(self, key: WorkloadKey) -> None:
        """The workload's claim, if it has one."""
        self._verdicts.forget(key)
        if self.claims is not None and self.claims.drop(key) and self._first("freed", key):
            self.on_freed()

    def _first(self, what: str, key: WorkloadKey) -> bool:
        """Whether it is the first time since anything was released.

        Preemptors who stand in each other's way could take turns for as long as their victims take to leave. Who gives
        way for the second time had preempted anew in between: its victims are still there, and all others are tried
        again when these leave.
        """
        if self._told_at != (releases := self.releases()):
            self._told.clear()
            self._told_at = releases
        told = (what, key) in self._told
        self._told.add((what, key))
        return not told

    # -- within a cycle's trial --------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Charge all claims for the length of the open trial; whether there are any. None comes or goes before its end.

        Where there are none the rest need not be asked.
        """
        if not self.claims:
            return False
        weighing = self.claims.here()
        self.claims.charge(*weighing)
        self._weighing = {claim.key: claim for claim in weighing}
        trees: dict[int, tuple[WorkloadKey, ...]] = {}
        for claim in weighing:
            tree = id(self._cluster.queues[claim.cluster_queue].node.root())
            trees[tree] = (*trees.get(tree, ()), claim.key)
        self._claimed = trees
        return True

    def concern(self, entry: Entry) -> bool:
        """Whether any claim weighs on the entry's cohort tree. If not, ``nominate`` and ``deciding`` change nothing.

        What is claimed of nodes weighs on everybody, except on those that run already and have lost a node.
        """
        return entry.holder is not None or id(entry.incoming.queue.node.root()) in self._claimed

    def nominate(self, entry: Entry, nominator: Nominator, now_s: float) -> bool:
        """As ``Nominator.nominate``: what the entry has a claim on is free to it, what others claim is not.

        Unless the entry needs no more than its own queue's quota: then no claim of another queue counts.
        """
        claims = self.claims
        if claims is None or not claims:
            return nominator.nominate(entry, now_s)
        if not self.asking and self._verdicts.recall(entry, self._cluster.holders):
            return True
        bookmark = entry.pending.bookmark if entry.pending is not None else None
        own, others = self._own(entry), self._claims_of_others(entry)
        with self._cluster.trial():
            claims.lift(*own)
            goes_on = nominator.nominate(entry, now_s)
        if not goes_on or not others or entry.pending is None or entry.assignment.mode is Mode.FIT:
            return goes_on
        bookmark, entry.pending.bookmark = entry.pending.bookmark, bookmark
        found = (entry.assignment, entry.targets, entry.short_of_quota, entry.gated, entry.detail)
        with self._cluster.trial():
            claims.lift(*own)
            claims.lift_quota(*others)
            nominator.nominate(entry, now_s)
        entry.by_right = _within_own_quota(entry)
        if not entry.by_right:
            entry.assignment, entry.targets, entry.short_of_quota, entry.gated, entry.detail = found
            entry.pending.bookmark = bookmark
        return True

    @contextmanager
    def deciding(self, entry: Entry) -> Iterator[None]:
        """Its claim gives way to what it takes now, and comes back if it takes nothing."""
        claims = self.claims
        if claims is None or not claims:
            yield
            return
        if entry.holder is not None:
            weighing = tuple(self._weighing.values())
            claims.leave_places(*weighing)
            yield
            claims.take_places(*weighing)
            return
        own = self._own(entry)
        others = self._claims_of_others(entry) if entry.by_right else ()
        claims.lift(*own)
        claims.lift_quota(*others)
        for claim in others:
            del self._weighing[claim.key]
        yield
        claims.charge_quota(*others)
        self._weighing.update((claim.key, claim) for claim in others)
        for claim in own:
            self._weigh_on(claim, entry)

    def unclaimed(self, entry: Entry, usage: Usage) -> Usage:
        """What of ``usage`` the entry may keep from others while it is decided on: not what claims keep.

        It would wait for the claim to end, and who has the claim for what is kept from it.
        """
        claims, node = self.claims, entry.incoming.queue.node
        if claims is None or not claims:
            return usage
        others = [claim for claim in self._weighing_on(entry) if claim.key != entry.key]
        if not others:
            return usage
        beside = {fr: node.available(fr) for fr in usage}
        with self._cluster.trial():
            claims.lift_quota(*others)
            kept = {fr: amount - (node.available(fr) - beside[fr]) for fr, amount in usage.items()}
        return {fr: amount for fr, amount in kept.items() if amount > 0}

    def _weigh_on(self, claim: Claim, entry: Entry) -> None:
        """What becomes of an entry's claim for those who are decided on after it."""
        claims = self.claims
        assert claims is not None, "there is one"
        if entry.rule in _STILL_CLAIMED:
            claims.charge(claim)
        elif entry.rule is Rule.PREEMPTS:
            # Charged is all that it asks for; what others may look past, by right, is what its next claim keeps.
            victims = claim.victims.union(target.holder.key for target in entry.targets)
            usage = dict(entry.assignment.usage)
            self._weighing[claim.key] = msgspec.structs.replace(claim, usage=usage, victims=victims, places=())
        else:
            # What it takes now is no claim any more, and what it does not take nobody keeps.
            del self._weighing[claim.key]

    def _own(self, entry: Entry) -> tuple[Claim, ...]:
        claim = self._weighing.get(entry.key)
        return () if claim is None else (claim,)

    def _claims_of_others(self, entry: Entry) -> tuple[Claim, ...]:
        """Those staked in other ClusterQueues of its tree."""
        name = entry.incoming.queue.name
        return tuple(claim for claim in self._weighing_on(entry) if claim.cluster_queue != name)

    def _weighing_on(self, entry: Entry) -> Iterator[Claim]:
        """Those that are charged now in the entry's tree, its own included."""
        keys = self._claimed.get(id(entry.incoming.queue.node.root()), ())
        return (self._weighing[key] for key in keys if key in self._weighing)

    def nominated(self, entries: Iterable[Entry], now_s: float) -> None:
        """Heads that cannot run by themselves, and for whom nobody goes, get reservations before anybody passes."""
        if self.backfill is None or self.asking:
            return
        for entry in entries:
            if entry.assignment.mode is not Mode.FIT and not entry.targets and entry.pending is not None:
                self.backfill.block(entry.incoming, entry.pending.order(), now_s)

    def held_back(self, entry: Entry, now_s: float) -> bool:
        """Whether the entry would break a reservation; its rule says so then. Who preempts does so by right."""
        if not self.backfill or entry.pending is None or entry.targets:
            return False
        found = self.backfill.held_back_by(entry.incoming, entry.pending.order(), entry.assignment, now_s)
        if found is None:
            return False
        entry.decide(
            Rule.HELD_BACK, f"{found.key}, which is to start in {max(0, found.start_s - now_s):.0f} s at latest"
        )
        return True

    # -- after it ----------------------------------------------------------------------------------------------------

    def decided(self, entry: Entry) -> None:
        """What the decision makes of the workload's claim."""
        if self.claims is None:
            return
        if not self._verdicts.note(entry) and self._first("outdated", entry.key):
            self.on_outdated()
        if entry.rule is Rule.PREEMPTS:
            victims = (target.holder.key for target in entry.targets)
            places = tuple(self._places(entry))
            self.claims.stake(entry.key, entry.incoming.queue.name, entry.assignment.usage, victims, places)
        elif self.claims and entry.rule not in _KEEPS_ITS_CLAIM:
            claim = self.claims.of(entry.key)
            if entry.rule is Rule.FITS and claim is not None and claim.places == tuple(self._places(entry)):
                self.claims.drop(entry.key)
                self.on_started(entry.incoming.queue.name)
            else:
                self.end(entry.key)

    def _places(self, entry: Entry) -> Iterator[tuple[FlavorName, TopologyUsage]]:
        for pod_set in entry.assignment.pod_sets:
            flavor = self._cluster.on_nodes(choice.flavor for choice in pod_set.choices.values())
            if pod_set.topology is not None and flavor is not None:
                yield flavor, pod_set.topology

    def departed(self, keys: AbstractSet[WorkloadKey]) -> None:
        """Their tree was woken because these, who had been told to go, have gone, and for nothing else."""
        self._verdicts.departed(keys)

    def gone(self, key: WorkloadKey) -> ClusterQueueName | None:
        """The workload waits no longer. The ClusterQueue whose next head may reserve now, if there is one."""
        self.end(key)
        return self.backfill.drop(key) if self.backfill else None

    def validate(self) -> None:
        """DriftError where what is kept beside the reservations differs from them."""
        if self.backfill is not None:
            self.backfill.validate()


def _within_own_quota(entry: Entry) -> bool:
    return entry.assignment.mode is Mode.FIT and entry.assignment.borrowing == 0
