"""One scheduling cycle: it takes heads and decides which of them start, which wait, and which victims are evicted.

Every head is nominated on the state before the cycle. Then heads are decided on one after another, each on what those
before it left: what an earlier head takes, or waits to get from its victims, is charged for the rest of the cycle and
undone at its end. What was admitted stays charged, or is charged for good by the caller: ``Entry.charged`` says which.

Source: Kueue's scheduler (schedule); the order of heads is that of KEP-79, with fair sharing that of KEP-1714. A cycle
costs a nomination for each head and one check of quota, and of places where there are any, for each decision. It
depends on the heads and their victims, not on how many workloads run or wait.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from controller.messages import pending
from controller.messages.spans import moment
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import ExclusiveDomains
from controller.scheduler.cluster.incoming import Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.sentences import told_to
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.flavors.assigner import pinned_to
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.flavors.spot import note_granted
from controller.scheduler.kueue import variants
from controller.scheduler.kueue.comingnodes import ComingCharges
from controller.scheduler.kueue.following import Following
from controller.scheduler.kueue.nomination import Nominator, nominate_beside_reservations
from controller.scheduler.kueue.ordering import classical_order, fair_order
from controller.scheduler.kueue.promisednodes import PromisedNodes
from controller.scheduler.kueue.secondpass import place_again
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorName, FlavorResource, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage, is_growth
from controller.scheduler.preemption.victims import Victims, fits_without
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.reservations.backfill import Backfill, NoBackfill
from controller.scheduler.reservations.charges import ReservationCharges
from controller.scheduler.reservations.reservations import Reservations

Recomputations = dict[ClusterQueueName, dict[str, int]]


_MOST_FOLLOW: Final = 256
"""Workloads that one cycle decides on beside the heads at most: events are not read while it lasts."""


class Cycle:
    """One cycle. ``run`` decides on every entry: its ``rule`` says what was decided. ``ready``: no admitted workload is
    waited for (waitForPodsReady.blockAdmission). ``asks``: the decisions answer a question and have no effect, so
    nothing stays charged and no reservation is made.

    Invariants: all charges are made in the one trial of ``_run``, except for those of ``Entry.charged``. ``_leaving``
    is the union of ``_victims``. A workload of ``_leaving`` gets no new places. One that got new places may be
    preempted later in the cycle: both are written, in this order, as Kueue does.
    """

    def __init__(
        self,
        cluster: Cluster,
        nominator: Nominator,
        reservations: Reservations,
        backfill: Backfill | NoBackfill,
        now_s: float,
        *,
        blocks: bool,
        ready: bool,
        asks: bool = False,
    ) -> None:
        self._cluster = cluster
        self._reservations = reservations
        self._charges: ReservationCharges
        """The reservations of preemptors, charged for the trial that is open in ``_run``."""
        self._backfill = backfill
        self._nominator = nominator
        self._now_s = now_s
        self._blocks = blocks
        self._ready = ready
        self._asks = asks
        self._following: Following | None = None
        self._followed = 0
        self._as_of = reservations.scarcity
        self._untouched = True
        """Whether nothing was taken or reserved in this cycle yet: its entries find what reservations leave."""
        self._variants = cluster.config.gates.on("ConcurrentAdmission")
        self._joins: set[WorkloadKey] = set()
        """Sisters of workloads that this cycle has admitted: they were found to fit beside those."""
        self._victims: dict[int, Victims] = {}
        """The victims of this cycle, by cohort tree (its root's identity)."""
        self._leaving = Victims()
        """The victims of this cycle in all trees: quota is shared within a tree, nodes by all trees."""
        self._exclusive = ExclusiveDomains()
        self.skipped: dict[ClusterQueueName, int] = {}
        self.recomputed: Recomputations = {}

    def run(self, entries: Iterable[Entry], following: Following | None = None) -> list[Entry]:
        """The entries in the order in which they were decided on; those refused outright come last.

        ``following``: with fair sharing, the next workload after an admitted head competes in the same cycle with the
        heads of other queues, by the shares that the admission left.
        """
        self._following = following
        entries = list(entries)
        if len(entries) == 1 and self._recalls(entries[0]) and self._stood(entries[0]):
            # No other entry would look at what is charged for it.
            entries[0].decide(Rule.PREEMPTS)
            return entries
        decided: list[Entry] = []
        try:
            refused = self._run(entries, decided)
        except BaseException:
            for entry in decided:
                self._uncharge(entry)
            raise
        return decided + refused

    def _run(self, entries: Iterable[Entry], decided: list[Entry]) -> list[Entry]:
        """Fills ``decided`` with the entries that were decided on; returns those refused outright."""
        refused: list[Entry] = []
        nominated: list[Entry] = []
        with self._cluster.trial():
            self._charges = charges = self._reservations.charge()
            promised = PromisedNodes(self._cluster) if self._cluster.promised else None
            coming = ComingCharges(self._cluster) if self._cluster.coming else None
            for entry in entries:
                if coming is not None:
                    coming.open(entry)
                reserved = charges.concern(entry)
                goes_on = self._beside_reservations(entry) if reserved else self._nominator.nominate(entry, self._now_s)
                (nominated if goes_on else refused).append(entry)
                if coming is not None:
                    coming.close(entry)
            if not self._asks:
                self._backfill.reserve(nominated, self._now_s)
            for entry in self._with_sisters(self._ordered(nominated), refused):
                decided.append(entry)
                charges.open(entry)
                if promised is not None:
                    promised.open(entry)
                if coming is not None:
                    coming.open(entry)
                self._decide(entry)
                if coming is not None:
                    coming.close(entry)
                if promised is not None:
                    promised.close(entry)
                charges.close(entry)
                self._untouched = self._untouched and entry.rule is Rule.NO_FIT
        return refused

    def _with_sisters(self, entries: Iterable[Entry], refused: list[Entry]) -> Iterator[Entry]:
        """The entries, each that is admitted followed by its sisters. ``refused`` gets those refused outright."""
        for entry in entries:
            yield entry
            if entry.rule is not Rule.FITS or self._asks or entry.key in self._joins:
                continue
            sisters = self._nominator.beside.sisters(entry, self._now_s)
            for sister in () if sisters is None else sisters.entries:
                self._nominator.beside.take(sister)
                self._joins.add(sister.key)
                if self._nominator.nominate(sister, self._now_s):
                    yield sister
                else:
                    refused.append(sister)

    def _recalls(self, entry: Entry) -> bool:
        """Whether the entry is nominated by what an earlier cycle found."""
        if not entry.recalled and not self._asks:
            entry.recalled = self._reservations.recall(entry)
        return entry.recalled

    def _stood(self, entry: Entry) -> bool:
        """Whether nothing was taken since an earlier cycle found that the entry fits once its victims have left."""
        return entry.recalled and self._untouched and entry.checked_at == self._as_of and not self._variants

    def _beside_reservations(self, entry: Entry) -> bool:
        """Nominate the entry beside reservations. Returns whether it goes on to be decided."""
        if self._recalls(entry):
            return True
        return nominate_beside_reservations(entry, self._nominator, self._charges, self._cluster, self._now_s)

    def _ordered(self, entries: list[Entry]) -> Iterator[Entry]:
        if self._cluster.config.fair_sharing is None:
            yield from classical_order(entries, self._cluster.config.gates)
            return
        # An entry that cannot fit takes nothing: it needs no place in the tournament.
        playing = [entry for entry in entries if entry.second_pass or entry.assignment.mode is not Mode.NO_FIT]
        competes = len(playing) > 0
        for entry in entries:
            if not entry.second_pass and entry.assignment.mode is Mode.NO_FIT:
                yield entry
                if competes and (after := self._next_after(entry)) is not None:
                    playing.append(after)
        yield from fair_order(playing, self._cluster, self._charges.quota_of, self._next_after)

    def _next_after(self, entry: Entry) -> Entry | None:
        """The next workload of the entry's ClusterQueue, if it fits now; only if the entry was admitted, or cannot fit
        and lets others pass. A workload that does not fit waits for the next cycle, where it is a head and gets
        victims, or a reservation.
        """
        passed = entry.rule is Rule.NO_FIT and not entry.incoming.queue.policies.strict_fifo
        if self._following is None or not (passed or entry.rule is Rule.FITS) or self._blocks:
            return None
        if self._followed >= _MOST_FOLLOW:
            return None
        after = self._following.next_of(entry)
        if after is None or after.pending is None:
            return None
        self._followed += 1
        bookmark = after.pending.bookmark
        reserved = self._charges.concern(after)
        goes_on = self._beside_reservations(after) if reserved else self._nominator.nominate(after, self._now_s)
        if goes_on and after.assignment.mode is Mode.FIT:
            return after
        after.pending.bookmark = bookmark
        self._following.put_back(after)
        return None

    # -- one entry ---------------------------------------------------------------------------------------------------

    def _decide(self, entry: Entry) -> None:
        if entry.holder is not None:
            self._place_again(entry, entry.holder)
            return
        if self._variants and self._variant(entry):
            return
        if self._stood(entry):
            self._take(entry)
            return
        entry.checked_at = self._as_of if self._untouched else None
        stands = self._stands(entry) if _has_places(entry.assignment) else None
        if stands is False:
            self._place_anew(entry)
        elif entry.targets and self._overlaps(entry) and self._recomputes() and self._retarget(entry):
            return
        mode = entry.assignment.mode
        if mode is Mode.NO_FIT:
            entry.decide(Rule.NO_FIT, self._with_whom(entry))
        elif mode is not Mode.FIT and not entry.targets:
            self._reserve(entry)
            gated = Rule.PREEMPTION_GATED if entry.gated else Rule.NO_CANDIDATES
            entry.decide(gated, entry.detail or self._with_whom(entry))
        elif entry.targets and self._overlaps(entry):
            self._skip(entry, Rule.OVERLAPPING_TARGETS)
        elif not stands and not self._fits(entry):
            self._skip(entry, Rule.NO_LONGER_FITS)
        elif (broken := self._backfill.broken_by(entry, self._now_s)) is not None:
            first = told_to(entry.key, broken.key, broken.cluster_queue)
            entry.decide(Rule.HELD_BACK, pending.starts_by(first, moment(max(broken.start_s, self._now_s))))
        else:
            self._take(entry)

    def _place_again(self, entry: Entry, holder: Holder) -> None:
        """Decide on a second pass. The new places are taken from here on. The places that the pods leave are not free
        before that is written: the pods may still be there.
        """
        if holder.key in self._leaving:
            entry.decide(Rule.NOT_PLACED, "it was preempted meanwhile")
            return
        place_again(entry, self._cluster)
        if entry.rule is not Rule.PLACED:
            return
        for pod_set in holder.info.pod_sets:
            moved = entry.moved.get(pod_set.name)
            flavor = self._cluster.on_nodes(pod_set.flavors.values())
            if moved is not None and flavor is not None:
                self._cluster.placement.add(flavor, moved, GrantOwner(entry.key, f"{pod_set.name} moved"))

    def _take(self, entry: Entry) -> None:
        """Decide on an entry that fits, once its victims have left if it has any."""
        if (alone := self._without_sisters(entry)) is not None:
            entry.targets = ()
            entry.decide(Rule.SISTERS, alone)
        elif entry.targets:
            self._charge(entry)
            self._choose(entry, entry.targets)
            entry.decide(Rule.PREEMPTS)
        elif self._blocks and not self._ready and entry.key not in self._joins:
            self._charge(entry)
            entry.decide(Rule.PODS_NOT_READY)
        else:
            # From here on an admitted workload is not ready; quota that waits for admission checks blocks as well.
            self._ready = False
            entry.decide(Rule.FITS)
            note_granted(self._cluster, entry.incoming, entry.assignment)
            if entry.assignment.held is None or self._asks:
                self._charge(entry)
            else:
                # What the workload will hold is exactly this: it is charged for good. Undoing the charges around it
                # leaves sums right.
                self._cluster.quota.keep_usage(entry.incoming.queue.node, entry.assignment.usage)
                entry.charged = True

    def _without_sisters(self, entry: Entry) -> str | None:
        """The sentence on sisters of the entry that do not fit beside it, None if all do. Sisters have no victims."""
        if entry.key in self._joins or (sisters := self._nominator.beside.sisters(entry, self._now_s)) is None:
            return None
        fitting = 0 if entry.targets else 1
        with self._cluster.trial():
            self._occupy(entry)
            for sister in sisters.entries if fitting else ():
                if not self._nominator.fits_now(sister) or not self._fits(sister):
                    break
                self._occupy(sister)
                fitting += 1
        return None if fitting == sisters.total else pending.starts_together(sisters.group, fitting, sisters.total)

    def _with_whom(self, entry: Entry) -> str:
        """The sentence on the sisters of an entry that does not fit itself, or on the fewest pods that it starts with;
        empty where it has none, and starts with all its pods.
        """
        if entry.pending is None:
            return ""
        if count := entry.assignment.fewest:
            info = entry.incoming.info
            of = sum(each.count for each in info.pod_sets)
            return pending.grows_with(count, of) if is_growth(info.workload) else pending.starts_with(count, of)
        if gang := self._nominator.beside.gang(entry):
            return pending.gang_is_kept(gang, sum(each.count for each in entry.incoming.info.pod_sets))
        if (sisters := self._nominator.beside.sisters(entry, self._now_s)) is None:
            return ""
        return pending.starts_together(sisters.group, 0, sisters.total)

    def _uncharge(self, entry: Entry) -> None:
        if entry.charged:
            entry.charged = False
            self._cluster.quota.remove_usage(entry.incoming.queue.name, entry.assignment.usage)

    def _skip(self, entry: Entry, rule: Rule) -> None:
        if entry.targets:
            name = entry.incoming.queue.name
            self.skipped[name] = self.skipped.get(name, 0) + 1
        entry.targets = ()
        entry.decide(rule)

    # -- what has changed since nomination ---------------------------------------------------------------------------

    def _recomputes(self) -> bool:
        return self._cluster.config.gates.on("RecomputeAssignmentUponPreemptionTargetsOverlap")

    def _retarget(self, entry: Entry) -> bool:
        """Assign an entry anew, as if all victims so far had left, because its victims were chosen before for another.
        Returns True when that decides the entry: it fits then, and waits.
        """
        incoming, flavors = entry.incoming, pinned_to(entry.assignment)
        with self._cluster.trial():
            for holder in self._victims_of(entry):
                self._cluster.remove_holder(holder.key)
            assignment, targets = self._nominator.again(incoming, flavors, self._now_s)
        entry.assignment, entry.targets, entry.short_of_quota = assignment, targets, False
        if assignment.mode is not Mode.FIT:
            found = bool(targets) and not self._overlaps(entry) and self._fits(entry)
            self._count(entry, "new_targets" if found else "skipped")
            return False
        self._count(entry, "deferred_fit")
        self._charge(entry)
        entry.decide(Rule.FITS_AFTER_PREEMPTION)
        return True

    def _stands(self, entry: Entry) -> bool | None:
        """Whether the places that the entry's pods are to get, now or once its victims have left, are still free beside
        all that was taken in this cycle. None where places do not decide: its quota was taken, or it has no victims of
        its own. True implies ``_fits``, which takes away the same victims.
        """
        assignment, queue = entry.assignment, entry.incoming.queue
        if assignment.mode is not Mode.FIT and (not entry.targets or self._overlaps(entry)):
            return None
        if self._meets(entry):
            return False
        gone = self._gone(entry)
        with self._cluster.trial():
            for holder in gone:
                self._cluster.release(holder)
            return self._places_free(entry, gone) if queue.node.fits(assignment.usage) else None

    def _place_anew(self, entry: Entry) -> None:
        """Assign the entry anew with the same flavors, which may have other places, or other victims."""
        if not self._cluster.config.gates.on("TASRecomputeAssignmentWithinSchedulingCycle"):
            return
        flavors, entry.short_of_quota = pinned_to(entry.assignment), False
        entry.assignment, targets = self._nominator.again(entry.incoming, flavors, self._now_s)
        entry.targets = () if entry.gated else targets

    def _variant(self, entry: Entry) -> bool:
        """Decide on the entry by variants of the same job that hold quota. Returns whether they decide."""
        if entry.assignment.mode is Mode.NO_FIT:
            return False
        found = variants.against(entry)
        if found is None:
            return False
        rule, detail, targets = found
        if rule is not Rule.MIGRATES:
            entry.decide(rule, detail)
            return True
        if entry.assignment.mode is not Mode.FIT or not self._fits(entry):
            return False
        self._charge(entry)
        self._choose(entry, targets)
        entry.targets = targets
        entry.decide(rule, detail)
        return True

    # -- sums --------------------------------------------------------------------------------------------------------

    def _fits(self, entry: Entry) -> bool:
        """Whether the entry fits beside all that was taken in this cycle, once all victims have left, its own
        included.
        """
        if self._meets(entry):
            return False
        gone = self._gone(entry)
        usage, queue = entry.assignment.usage, entry.incoming.queue
        if not gone:
            return queue.node.fits(usage) and self._places_free(entry)
        with self._cluster.trial():
            self._vacate_replaced(entry, gone)
            return fits_without(self._cluster, gone, queue.name, usage, self._places(entry.assignment))

    def _gone(self, entry: Entry) -> tuple[Holder, ...]:
        """The workloads whose quota and places count as free for the entry: its own victims, and those chosen before in
        this cycle. Where it needs only quota, the victims of other trees make no difference.
        """
        if not entry.targets and not self._leaving:
            return ()
        before = self._leaving if _has_places(entry.assignment) else self._victims_of(entry)
        return before.and_also(entry.targets)

    def _choose(self, entry: Entry, targets: tuple[Target, ...]) -> None:
        self._victims_of(entry).add(targets)
        self._leaving.add(targets)

    def _places(self, assignment: Assignment) -> Iterator[tuple[FlavorName, TopologyUsage]]:
        """The places of the assignment's pods, with the flavor whose nodes these are."""
        for pod_set in assignment.pod_sets:
            places = pod_set.topology or pod_set.coming
            if places is None:
                continue
            flavor = self._cluster.on_nodes(choice.flavor for choice in pod_set.choices.values())
            if flavor is not None:
                yield flavor, places

    def _meets(self, entry: Entry) -> bool:
        """Whether the entry would be in a domain that another gang got exclusively in this cycle, or the other way
        round.
        """
        places = (place for _, place in self._places(entry.assignment))
        return self._exclusive.meets(self._cluster, entry.incoming.info.workload, places)

    def _places_free(self, entry: Entry, gone: Iterable[Holder] = ()) -> bool:
        """Whether the entry's places are free; those of ``gone`` have been released already."""
        if not _has_places(entry.assignment):
            return True
        places = tuple(self._places(entry.assignment))
        if entry.incoming.replaces is None:
            return self._cluster.placement.fits(places)
        with self._cluster.trial():
            self._vacate_replaced(entry, gone)
            return self._cluster.placement.fits(places)

    def _vacate_replaced(self, entry: Entry, gone: Iterable[Holder]) -> None:
        """Release the places of the elastic slice that the entry replaces: it takes them over."""
        replaces = entry.incoming.replaces
        if replaces is not None and all(holder.key != replaces.key for holder in gone):
            self._cluster.vacate(replaces)

    def _charge(self, entry: Entry) -> None:
        """Charge the entry's quota and places for the rest of the cycle."""
        self._cluster.quota.add_usage(entry.incoming.queue.name, entry.assignment.usage)
        self._add_places(entry)

    def _occupy(self, entry: Entry) -> None:
        """Charge the entry's quota and places for the trial that is open, and nothing beyond it."""
        note_granted(self._cluster, entry.incoming, entry.assignment)
        self._cluster.quota.add_usage(entry.incoming.queue.name, entry.assignment.usage)
        self._on_nodes(entry)

    def _add_places(self, entry: Entry) -> None:
        places = self._on_nodes(entry)
        if places:
            self._exclusive.add(entry.incoming.info.workload, (place for _, place in places))

    def _on_nodes(self, entry: Entry) -> tuple[tuple[FlavorName, TopologyUsage], ...]:
        """Charge the entry's places; returns them."""
        places = tuple(self._places(entry.assignment)) if _has_places(entry.assignment) else ()
        for at, (flavor, place) in enumerate(places):
            self._cluster.placement.add(flavor, place, GrantOwner(entry.key, str(at)))
        return places

    def _reserve(self, entry: Entry) -> None:
        """Keep from others, for the rest of the cycle, what an entry without victims may use: it needs victims and has
        none now. A queue with reclaimWithinCohort Any needs no reservation: it can reclaim what it lent.
        """
        queue = entry.incoming.queue
        if queue.policies.reclaim_within_cohort == "Any":
            return
        usage = {
            fr: kept for fr, amount in entry.assignment.usage.items() if (kept := _own(queue, entry, fr, amount)) > 0
        }
        self._cluster.quota.add_usage(queue.name, self._charges.unreserved(entry, usage))
        # Other workloads run now in the entry's places: a preemptor that has evicted those reserves the places
        # before that.
        if not self._reservations:
            self._add_places(entry)

    def _victims_of(self, entry: Entry) -> Victims:
        return self._victims.setdefault(id(entry.incoming.queue.node.root()), Victims())

    def _overlaps(self, entry: Entry) -> bool:
        return self._victims_of(entry).overlap(entry.targets)

    def _count(self, entry: Entry, result: str) -> None:
        counts = self.recomputed.setdefault(entry.incoming.queue.name, {})
        counts[result] = counts.get(result, 0) + 1


def _has_places(assignment: Assignment) -> bool:
    for pod_set in assignment.pod_sets:  # noqa: SIM110  a generator costs more than the loop
        if pod_set.topology is not None or pod_set.coming is not None:
            return True
    return False


def _own(queue: QueueState, entry: Entry, fr: FlavorResource, amount: Amount) -> Amount:
    """The part of ``amount`` that is within the ClusterQueue's own limits and not used."""
    spec = queue.node.spec
    quota = spec.quotas.get(fr) if spec is not None else None
    nominal = quota.nominal if quota is not None else 0
    used = queue.node.usage(fr)
    if entry.assignment.borrowing == 0:
        return max(0, min(amount, nominal - used))
    limit = quota.borrowing_limit if quota is not None else None
    return amount if limit is None else min(amount, nominal + limit - used)
