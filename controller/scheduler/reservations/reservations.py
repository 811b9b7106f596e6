"""Which preemptor has which reservation: the one state machine that begins, changes and ends reservations.

``Reservations.apply`` takes what happened to a workload and says what must be tried again. ``NoReservations`` replaces
it under the policy ``kueue``: it takes the same events, and there are no reservations. ``ReservationCharges`` charges
the reservations.

Input and output are plain data. ``Event``: something happened to a workload that has, gets or loses a reservation.
``Effect``: what must be tried again because of it; ``EngineState.carry_out`` does that.

The rule is our own: Kueue keeps nothing for a preemptor. An event costs a step for its own workload's reservation;
effects wake one tree, or all where nodes were kept.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import Cluster, DriftError
from controller.scheduler.decisions.records import Rule
from controller.scheduler.model.resources import ClusterQueueName, Usage, WorkloadKey
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import Departed
from controller.scheduler.reservations.charges import ReservationCharges
from controller.scheduler.reservations.nominations import Nomination
from controller.scheduler.reservations.reservation import KeptPlaces, Places, PreemptorReservation


class Preempts(NamedTuple):
    """A decision evicts victims for the workload. ``usage`` is all that the workload will be charged."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    usage: Usage
    victims: frozenset[WorkloadKey]
    places: Places
    """The places where the workload's pods are to run, by flavor."""
    nomination: Nomination | None
    """What the next cycles need not search for again; None where they must."""


class WorkloadAdmitted(NamedTuple):
    """A decision admitted the workload: it holds quota from now on, and these places."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    places: Places


class Delayed(NamedTuple):
    """A decision leaves the workload waiting for its victims, or for what does not depend on capacity."""

    key: WorkloadKey


class WorkloadRefused(NamedTuple):
    """A decision refused the workload: it is neither admitted nor waiting for victims."""

    key: WorkloadKey


class Withdrawn(NamedTuple):
    """Outside of a decision: the workload waits no longer, is not tried any more, or waits in vain."""

    key: WorkloadKey


class Released(NamedTuple):
    """A tree was woken: something in it was released or changed, other than by the end of a reservation."""


RELEASED: Final = Released()

Event = Preempts | WorkloadAdmitted | Delayed | WorkloadRefused | Withdrawn | Departed | Released


class WakeAll(NamedTuple):
    """All pending workloads are tried again: nodes that a reservation kept may be what any tree waits for."""


class WakeTree(NamedTuple):
    """The tree of this ClusterQueue is tried again."""

    cluster_queue: ClusterQueueName


class RunAgain(NamedTuple):
    """The next cycle may decide otherwise, though nothing is woken."""


Effect = WakeAll | WakeTree | RunAgain


Effects = tuple[Effect, ...]

# After these rules the workload waits for its victims, or for what does not depend on capacity: its reservation stays.
_DELAYED = frozenset({Rule.OVERLAPPING_TARGETS, Rule.NO_LONGER_FITS, Rule.FITS_AFTER_PREEMPTION, Rule.PODS_NOT_READY})


class Reservations:
    """The reservations, at most one for a workload. Only ``apply`` changes them; a cycle reads them and charges a copy.

    Invariants, which ``validate`` checks:

    - Every key here is that of a pending workload: its owner reports the end of each wait (``Withdrawn``).
    - A nomination belongs to a reservation (``_nominations`` holds a subset of the keys of ``_reservations``), and its
      targets are among the reservation's victims.
    - ``_kept_places`` remembers answers for reservations only, so it ends with them.

    ``_gave_way`` is no part of a reservation: it outlives all of them, and is cleared when a tree is woken.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reservations: dict[WorkloadKey, PreemptorReservation] = {}
        self._nominations: dict[WorkloadKey, Nomination] = {}
        self._kept_places = KeptPlaces()
        self._no_charges = ReservationCharges(cluster, self._kept_places, ())
        self.scarcity = 0
        """A number that grows with each reservation that begins, changes or ends, and with every ``EngineState.touch``.
        While it stays the same no workload finds less than before; departures of evicted workloads do not change it.
        """
        self._gave_way: set[tuple[type[Effect], WorkloadKey]] = set()
        """The effects that the end of a reservation or of a nomination has had since a tree was last woken, by
        preemptor.

        Each effect is granted once. Preemptors in each other's way could otherwise take turns for as long as their
        victims take to leave. A preemptor that gives way a second time had preempted anew in between: its victims are
        still there, and all others are tried again when these leave.
        """

    def __len__(self) -> int:
        return len(self._reservations)

    def __iter__(self) -> Iterator[PreemptorReservation]:
        return iter(self._reservations.values())

    def __contains__(self, key: object) -> bool:
        return key in self._reservations

    def of(self, key: WorkloadKey) -> PreemptorReservation | None:
        return self._reservations.get(key)

    def apply(self, event: Event) -> Effects:
        """Take in the event. The caller carries out the effects, in order, before the next event."""
        match event:
            case Released():
                self._gave_way.clear()
            case Departed():
                self._depart(event)
            case Preempts():
                return self._stake(event)
            case WorkloadAdmitted():
                return self._admit(event)
            case Delayed():
                return self._drop_nomination(event.key)
            case WorkloadRefused():
                return self._drop_nomination(event.key) + self._end(event.key)
            case Withdrawn():
                self._nominations.pop(event.key, None)
                return self._end(event.key)
        return ()

    def recall(self, entry: Entry) -> bool:
        """Nominate the entry by its remembered nomination, if that still stands. Returns whether it does."""
        nomination, pending = self._nominations.get(entry.key), entry.pending
        if nomination is None or pending is None or not nomination.stands(pending):
            return False
        targets = nomination.targets_now(self._cluster.holders)
        if targets is None:
            return False
        entry.assignment, entry.targets, entry.ignores_reservations = (
            nomination.assignment,
            targets,
            nomination.ignores_reservations,
        )
        entry.checked_at = nomination.checked_at
        pending.bookmark = nomination.assignment.bookmark
        return True

    def charge(self) -> ReservationCharges:
        """Charge all reservations for the length of the open trial. They do not change before the end of it."""
        if not self._reservations:
            return self._no_charges
        # A reservation is not charged while its ClusterQueue does not exist.
        weighing = [
            reservation
            for reservation in self._reservations.values()
            if reservation.cluster_queue in self._cluster.queues
        ]
        return ReservationCharges(self._cluster, self._kept_places, weighing)

    def validate(self) -> None:
        """DriftError where nominations or remembered places have no reservation, or victims that are not the
        reservation's.
        """
        for key, reservation in self._reservations.items():
            if reservation.key != key or any(amount < 0 for amount in reservation.usage.values()):
                raise DriftError(f"the reservation of {key} is kept as {reservation}")
        for key, nomination in self._nominations.items():
            of = self._reservations.get(key)
            targets = {target.holder.key for target in nomination.targets}
            if of is None or nomination.pending.key != key or not targets or not targets <= of.victims:
                raise DriftError(f"a nomination of {key} stands for victims {sorted(targets)}, its reservation is {of}")
        if not self._kept_places.keys() <= self._reservations.keys():
            raise DriftError(
                f"places are remembered for {sorted(self._kept_places.keys() - self._reservations.keys())}"
            )

    # -- events ------------------------------------------------------------------------------------------------------

    def _stake(self, event: Preempts) -> Effects:
        """Begin or change a reservation: a later preemption adds victims; the requested usage is always the latest."""
        key, known = event.key, self._reservations.get(event.key)
        victims = event.victims if known is None else known.victims | event.victims
        reservation = PreemptorReservation(
            key=key, cluster_queue=event.cluster_queue, usage=dict(event.usage), victims=victims, places=event.places
        )
        # An equal reservation stays the same object, so its places are computed once.
        if reservation != known:
            self._reservations[key] = reservation
            self.scarcity += 1
        if event.nomination is None:
            return self._drop_nomination(key)
        self._nominations[key] = event.nomination
        return ()

    def _admit(self, event: WorkloadAdmitted) -> Effects:
        effects = self._drop_nomination(event.key)
        reservation = self._reservations.get(event.key)
        if reservation is not None and reservation.places == event.places:
            # All that the reservation kept is held now, by a workload that can be preempted, as a reservation cannot.
            self._forget(event.key)
            return (*effects, WakeTree(event.cluster_queue))
        return effects + self._end(event.key)

    def _depart(self, event: Departed) -> None:
        for key, nomination in tuple(self._nominations.items()):
            left = nomination.without(event.keys)
            self._nominations[key] = left if left is not None else nomination._replace(checked_at=None)

    def _drop_nomination(self, key: WorkloadKey) -> Effects:
        """Drop a nomination that did not hold in a decision: the next cycle searches for another."""
        if self._nominations.pop(key, None) is None:
            return ()
        return (RunAgain(),) if self._first(RunAgain, key) else ()

    def _end(self, key: WorkloadKey) -> Effects:
        """End the reservation: what it kept is free."""
        return (WakeAll(),) if self._forget(key) and self._first(WakeAll, key) else ()

    def _forget(self, key: WorkloadKey) -> bool:
        self._kept_places.forget(key)
        if self._reservations.pop(key, None) is None:
            return False
        self.scarcity += 1
        return True

    def _first(self, effect: type[Effect], key: WorkloadKey) -> bool:
        if (effect, key) in self._gave_way:
            return False
        self._gave_way.add((effect, key))
        return True


class NoReservations(Reservations):
    """No reservations, under ``reserveForPreemptor: false``, Kueue's policy: no event begins a reservation."""

    def apply(self, event: Event) -> Effects:  # noqa: ARG002  nothing is kept of it
        return ()


def reservations_for(cluster: Cluster) -> Reservations:
    return Reservations(cluster) if cluster.config.extensions.reserve_for_preemptor else NoReservations(cluster)


def decided(entry: Entry, cluster: Cluster) -> Event:
    """The event that a decision on a pending workload is for its reservation."""
    key, rule = entry.key, entry.rule
    if rule is Rule.PREEMPTS:
        victims = frozenset(target.holder.key for target in entry.targets)
        places = places_of(entry, cluster)
        usage, queue = entry.assignment.usage, entry.incoming.queue.name
        return Preempts(key, queue, usage, victims, places, Nomination.of(entry))
    if rule is Rule.FITS:
        return WorkloadAdmitted(key, entry.incoming.queue.name, places_of(entry, cluster))
    return Delayed(key) if rule in _DELAYED else WorkloadRefused(key)


def places_of(entry: Entry, cluster: Cluster) -> Places:
    """The places where the entry's pods are to run, by the flavor whose nodes these are."""
    return tuple(
        (flavor, pod_set.topology)
        for pod_set in entry.assignment.pod_sets
        if pod_set.topology is not None
        and (flavor := cluster.on_nodes(choice.flavor for choice in pod_set.choices.values())) is not None
    )
