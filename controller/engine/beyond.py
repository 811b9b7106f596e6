"""The cycle's side of what the peer does not have: claims of preemptors, and reservations that backfill keeps.

With both switched off every method does nothing, and the cycle is the peer's.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from controller.engine.assignment import RepresentativeMode
from controller.engine.backfill import Assigner, Backfill
from controller.engine.claims import Claims
from controller.engine.cluster import Cluster
from controller.engine.config import Backfill as BackfillMode
from controller.engine.entry import Entry
from controller.engine.records import Rule
from controller.engine.resources import ClusterQueueName, WorkloadKey

# The claim stands, and what it keeps must go on being kept while others are decided on.
_STILL_CLAIMED = (Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS)
# The workload waits for its victims, or for what does not depend on capacity.
_KEEPS_ITS_CLAIM = (*_STILL_CLAIMED, Rule.PREEMPTS, Rule.FITS_AFTER_PREEMPTION, Rule.PODS_NOT_READY)


class Beyond:
    def __init__(self, cluster: Cluster, assigner: Assigner) -> None:
        config = cluster.config.beyond
        self._cluster = cluster
        self.asking = False
        """A question is being answered: it leaves no reservation behind."""
        self.claims = Claims(cluster) if config.reserve_for_preemptor else None
        self.backfill = Backfill(cluster, assigner) if config.backfill is BackfillMode.CONSERVATIVE else None

    # -- within a cycle's trial --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Charge all claims for the length of the open trial."""
        if self.claims is not None:
            self.claims.charge()

    @contextmanager
    def nominating(self, entry: Entry) -> Iterator[None]:
        """What the entry has a claim on is free to it."""
        if self.claims is None or self.claims.of(entry.key) is None:
            yield
            return
        with self._cluster.trial():
            self.claims.lift(entry.key)
            yield

    @contextmanager
    def deciding(self, entry: Entry) -> Iterator[None]:
        """Its claim gives way to what it takes now, and comes back if it takes nothing."""
        claim = self.claims.of(entry.key) if self.claims is not None else None
        if self.claims is None or claim is None:
            yield
            return
        lifted = self.claims.lift(entry.key)
        yield
        if lifted and entry.rule in _STILL_CLAIMED:
            self._cluster.quota.add_usage(claim.cluster_queue, self.claims.free(claim))

    def nominated(self, entry: Entry, now_s: float) -> None:
        """A head that cannot run by itself, and for whom nobody goes, gets its reservation before anybody passes."""
        blocked = entry.assignment.representative is not RepresentativeMode.FIT and not entry.targets
        if self.backfill is not None and entry.pending is not None and blocked and not self.asking:
            self.backfill.block(entry.incoming, entry.pending.order(), now_s)

    def held_back(self, entry: Entry, now_s: float) -> bool:
        """Whether the entry would break a reservation; its rule says so then. Who preempts does so by right."""
        if self.backfill is None or entry.pending is None or entry.targets:
            return False
        order = entry.pending.order()
        found = self.backfill.held_back_by(entry.incoming, order, entry.assignment, now_s)
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
        if entry.rule is Rule.PREEMPTS:
            victims = (target.holder.key for target in entry.targets)
            self.claims.stake(entry.key, entry.incoming.queue.name, entry.assignment.usage, victims)
        elif entry.rule not in _KEEPS_ITS_CLAIM:
            self.claims.drop(entry.key)

    def gone(self, key: WorkloadKey) -> ClusterQueueName | None:
        """The workload waits no longer. The ClusterQueue whose next head may reserve now, if there is one."""
        if self.claims is not None:
            self.claims.drop(key)
        return self.backfill.drop(key) if self.backfill is not None else None
