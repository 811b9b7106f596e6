"""The reservations as a scheduling cycle sees them: charged for its length, each lifted for its own preemptor.

The rule is our own (``tessera.reserveForPreemptor``), in trials alone: no sum that users see contains a reservation
(decision 016). Each costs one charge of its quota and places in each cycle, and each entry with one lifts its own once.
"""

from collections.abc import Iterable, Iterator

import msgspec

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.records import Rule
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.model.resources import Usage, WorkloadKey
from controller.scheduler.queues.entry import Entry
from controller.scheduler.reservations.reservation import KeptPlaces, Places, PreemptorReservation

# After these rules the workload keeps its reservation whole, and what is reserved for it is kept from those decided on
# after it.
_CHARGED_AGAIN = frozenset({Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS})


class ReservationCharges:
    """The charges of reservations in one cycle, made within its trial, which undoes them. Without reservations no
    method does anything.

    Invariant between ``open`` and ``close`` and outside of them: what is charged to the cluster is the sum over
    ``_charged``, less what is lifted for the open entry. ``_preemptors`` is fixed at the beginning and may name
    workloads that are no longer in ``_charged``.
    """

    def __init__(self, cluster: Cluster, kept_places: KeptPlaces, reservations: Iterable[PreemptorReservation]) -> None:
        self._cluster = cluster
        self._kept_places = kept_places
        self._charged: dict[WorkloadKey, PreemptorReservation] = {}
        """The reservations as they are charged now: changed, or gone, where their preemptor has been decided on."""
        self._preemptors: dict[int, tuple[WorkloadKey, ...]] = {}
        """The preemptors of each cohort tree, by the identity of its root: reservations to quota count only in their
        own tree, reservations to places in all.
        """
        for reservation in reservations:
            self.charge(reservation)
            self._charged[reservation.key] = reservation
            tree = id(cluster.queues[reservation.cluster_queue].node.root())
            self._preemptors[tree] = (*self._preemptors.get(tree, ()), reservation.key)

    def concern(self, entry: Entry) -> bool:
        """Whether reservations may change anything for the entry.

        Reservations to quota count only in their own cohort tree. Reservations to places count in every tree; there is
        nothing to lift for an entry of another tree, unless it runs already and has lost a node.
        """
        if not self._preemptors:
            return False
        return entry.holder is not None or id(entry.incoming.queue.node.root()) in self._preemptors

    # -- lifting and charging, within the trial ----------------------------------------------------------------------

    def own(self, entry: Entry) -> tuple[PreemptorReservation, ...]:
        """The entry's reservation, if it is charged."""
        reservation = self._charged.get(entry.key)
        return () if reservation is None else (reservation,)

    def quota_of(self, entry: Entry) -> Usage:
        """The quota that is charged for the entry's own reservation."""
        reservation = self._charged.get(entry.key)
        return {} if reservation is None else reservation.kept_quota(self._cluster.holders)

    def of_other_queues(self, entry: Entry) -> tuple[PreemptorReservation, ...]:
        """The reservations of other ClusterQueues in the entry's tree."""
        name = entry.incoming.queue.name
        return tuple(reservation for reservation in self._in_tree(entry) if reservation.cluster_queue != name)

    def charge(self, *reservations: PreemptorReservation) -> None:
        self._charge_quota(*reservations)
        self._take_places(*reservations)

    def lift(self, *reservations: PreemptorReservation) -> None:
        """Takes back what ``charge`` charged."""
        self.lift_quota(*reservations)
        self._leave_places(*reservations)

    def lift_quota(self, *reservations: PreemptorReservation) -> None:
        for reservation in reservations:
            self._cluster.quota.remove_usage(reservation.cluster_queue, reservation.kept_quota(self._cluster.holders))

    def _charge_quota(self, *reservations: PreemptorReservation) -> None:
        for reservation in reservations:
            self._cluster.quota.add_usage(reservation.cluster_queue, reservation.kept_quota(self._cluster.holders))

    def _take_places(self, *reservations: PreemptorReservation) -> None:
        for reservation in reservations:
            for at, (flavor, usage) in enumerate(self._places(reservation)):
                self._cluster.placement.add(flavor, usage, GrantOwner(reservation.key, str(at)))

    def _leave_places(self, *reservations: PreemptorReservation) -> None:
        for reservation in reservations:
            for at, (flavor, usage) in enumerate(self._places(reservation)):
                self._cluster.placement.remove(flavor, usage, GrantOwner(reservation.key, str(at)))

    def _places(self, reservation: PreemptorReservation) -> Places:
        if not reservation.places:
            return ()
        return self._kept_places.of(
            reservation.key, reservation.places, reservation.remaining_victims(self._cluster.holders)
        )

    # -- the decision on one entry -----------------------------------------------------------------------------------

    def open(self, entry: Entry) -> None:
        """Lift the entry's own reservation, and those that do not hold against it: the entry is decided on next."""
        if not self._preemptors or not self.concern(entry):
            return
        if entry.holder is not None:
            self._leave_places(*self._charged.values())
            return
        self.lift(*self.own(entry))
        if entry.ignores_reservations:
            self.lift_quota(*self.of_other_queues(entry))

    def close(self, entry: Entry) -> None:
        """Charge reservations again after the entry was decided on; its own as far as the decision leaves it one."""
        if not self._preemptors or not self.concern(entry):
            return
        if entry.holder is not None:
            self._take_places(*self._charged.values())
            return
        if entry.ignores_reservations:
            self._charge_quota(*self.of_other_queues(entry))
        for reservation in self.own(entry):
            self._charge_after(reservation, entry)

    def unreserved(self, entry: Entry, usage: Usage) -> Usage:
        """The part of ``usage`` that the open entry may keep from others: without what reservations of others keep.
        Reserving that as well would make two workloads wait for each other: the entry for the end of the reservation,
        and the preemptor for what is kept from it.
        """
        node = entry.incoming.queue.node
        lifted = (
            frozenset(reservation.key for reservation in self.of_other_queues(entry))
            if entry.ignores_reservations
            else ()
        )
        others = [
            reservation
            for reservation in self._in_tree(entry)
            if reservation.key != entry.key and reservation.key not in lifted
        ]
        if not others:
            return usage
        beside = {fr: node.available(fr) for fr in usage}
        with self._cluster.trial():
            self.lift_quota(*others)
            kept = {fr: amount - (node.available(fr) - beside[fr]) for fr, amount in usage.items()}
        return {fr: amount for fr, amount in kept.items() if amount > 0}

    def _charge_after(self, reservation: PreemptorReservation, entry: Entry) -> None:
        """Charge what remains of the entry's reservation for those that are decided on after it."""
        if entry.rule in _CHARGED_AGAIN:
            self.charge(reservation)
        elif entry.rule is Rule.PREEMPTS:
            # The cycle has charged its whole request. Its next reservation keeps the part that others may lift.
            victims = reservation.victims.union(target.holder.key for target in entry.targets)
            usage = dict(entry.assignment.usage)
            self._charged[reservation.key] = msgspec.structs.replace(
                reservation, usage=usage, victims=victims, places=()
            )
        else:
            # What the workload takes now is no longer a reservation, and what it does not take is kept by none.
            del self._charged[reservation.key]

    def _in_tree(self, entry: Entry) -> Iterator[PreemptorReservation]:
        """The reservations that are charged now in the entry's tree, its own included."""
        keys = self._preemptors.get(id(entry.incoming.queue.node.root()), ())
        return (self._charged[key] for key in keys if key in self._charged)
