"""What a preemptor has made free is its own until it starts."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource, LocalQueueKey, WorkloadKey
from controller.scheduler.queues.clusterqueue import ClusterQueueOrder
from controller.scheduler.queues.pending import Departed, PendingWorkload
from controller.scheduler.reservations.charges import ReservationCharges
from controller.scheduler.reservations.nominations import Nomination
from controller.scheduler.reservations.reservation import PreemptorReservation
from controller.scheduler.reservations.reservations import (
    RELEASED,
    Delayed,
    Effect,
    NoReservations,
    Preempts,
    Reservations,
    RunAgain,
    WakeAll,
    WakeTree,
    Withdrawn,
    WorkloadAdmitted,
    WorkloadRefused,
    reservations_for,
)
from tests.support.engine.preemptionlab import FLAVOR, GPU, NOW_S, Lab

FR = FlavorResource(FLAVOR, GPU)
A, B = ClusterQueueName("a"), ClusterQueueName("b")
IN = WorkloadKey("/in")
VICTIMS = tuple(WorkloadKey(f"/v{number}") for number in range(4))
PREEMPTORS = tuple(WorkloadKey(f"/p{number}") for number in range(3))


@pytest.fixture
def lab() -> Lab:
    lab = Lab()
    lab.queue("a", 4, "all")
    lab.queue("b", 4, "all")
    return lab


def preempts(key: WorkloadKey, amount: int, *victims: WorkloadKey, queue: ClusterQueueName = A) -> Preempts:
    return Preempts(key, queue, {FR: amount}, frozenset(victims), (), None)


def available(lab: Lab, reservations: Reservations, queue: ClusterQueueName, *, but: WorkloadKey | None = None) -> int:
    with lab.cluster.trial():
        charges = reservations.charge()
        own = reservations.of(but) if but is not None else None
        if own is not None:
            charges.lift(own)
        return lab.cluster.queue(queue).node.available(FR)


def reservation_of(reservations: Reservations, key: WorkloadKey = IN) -> PreemptorReservation:
    reservation = reservations.of(key)
    assert reservation is not None
    return reservation


def test_what_a_victim_leaves_is_kept_from_everybody_but_the_preemptor(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 4)
    reservations.apply(preempts(IN, 4, VICTIMS[1]))
    assert available(lab, reservations, B) == 0
    lab.cluster.remove_holder(VICTIMS[1])
    assert available(lab, reservations, B) == 0
    assert available(lab, reservations, A) == 0
    assert available(lab, reservations, A, but=IN) == 4
    assert reservations.apply(Withdrawn(IN)) == (WakeAll(),)
    assert available(lab, reservations, B) == 4
    lab.cluster.validate()


def test_what_was_free_before_the_eviction_is_kept_as_well(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    lab.hold("v1", "b", 5)
    reservations.apply(preempts(IN, 4, VICTIMS[1]))
    assert reservation_of(reservations).kept_quota(lab.cluster.holders) == {}
    reservations.apply(preempts(IN, 7, VICTIMS[1]))
    assert available(lab, reservations, B) == 1


def test_lifting_within_a_trial_gives_the_preemptor_its_quota_and_nobody_elses(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    reservations.apply(preempts(IN, 3))
    reservations.apply(preempts(WorkloadKey("/other"), 4, queue=B))
    with lab.cluster.trial():
        charges = reservations.charge()
        assert lab.cluster.queue(A).node.available(FR) == 1
        charges.lift_quota(reservation_of(reservations))
        assert lab.cluster.queue(A).node.available(FR) == 4
    lab.cluster.validate()


def test_a_second_preemption_adds_victims_and_replaces_what_is_asked(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 2)
    reservations.apply(preempts(IN, 8, VICTIMS[1]))
    reservations.apply(preempts(IN, 6, VICTIMS[2]))
    reservation = reservation_of(reservations)
    assert reservation.victims == {VICTIMS[1], VICTIMS[2]}
    assert reservation.kept_quota(lab.cluster.holders) == {FR: 2}
    assert len(reservations) == 1


def test_a_reservation_in_a_deleted_queue_weighs_nothing(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    reservations.apply(preempts(IN, 3))
    lab.cluster.remove_cluster_queue(A)
    assert available(lab, reservations, B) == 4


def test_a_preemptor_that_starts_wakes_its_tree_and_one_that_starts_elsewhere_wakes_all(lab: Lab) -> None:
    """Where it starts as it reserved nothing is freed, and what it holds can be preempted, as a reservation cannot."""
    reservations = Reservations(lab.cluster)
    reservations.apply(preempts(IN, 3))
    assert reservations.apply(WorkloadAdmitted(IN, A, ())) == (WakeTree(A),)
    places: Any = ((FLAVOR, "elsewhere"),)
    reservations.apply(preempts(IN, 3))
    assert reservations.apply(WorkloadAdmitted(IN, A, places)) == (WakeAll(),)
    assert not reservations


def test_one_that_gives_way_twice_wakes_the_others_once_until_something_is_released(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    for expected in ((WakeAll(),), ()):
        reservations.apply(preempts(IN, 3))
        assert reservations.apply(WorkloadRefused(IN)) == expected
    reservations.apply(RELEASED)
    reservations.apply(preempts(IN, 3))
    assert reservations.apply(WorkloadRefused(IN)) == (WakeAll(),)


def test_without_the_feature_nothing_is_reserved(lab: Lab) -> None:
    reservations = reservations_for(lab.cluster)
    assert isinstance(reservations, NoReservations)
    assert reservations.apply(preempts(IN, 3)) == ()
    assert not reservations
    assert available(lab, reservations, B) == 8
    on = Lab(EngineConfig(extensions=Extensions(reserve_for_preemptor=True)))
    assert not isinstance(reservations_for(on.cluster), NoReservations)


class ReservationHistories(RuleBasedStateMachine):
    """Any events in any order, beside what reservations mean by definition."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = Lab()
        for name in ("a", "b"):
            self.lab.queue(name, 20, "all")
        self.holders = {key: self.lab.hold(key[1:], "b", number + 1) for number, key in enumerate(VICTIMS)}
        self.orders = {name: ClusterQueueOrder(name, strict=False, by_shape=True, usage=None) for name in (A, B)}
        self.reservations = Reservations(self.lab.cluster)
        self.asked: dict[WorkloadKey, tuple[ClusterQueueName, int]] = {}
        self.victims: dict[WorkloadKey, set[WorkloadKey]] = {}
        self.nominated: set[WorkloadKey] = set()
        self.gave_way: set[tuple[str, WorkloadKey]] = set()

    def nomination(self, key: WorkloadKey, name: ClusterQueueName, victims: set[WorkloadKey]) -> Nomination:
        incoming = self.lab.incoming(key[1:], name, 1)
        pending = PendingWorkload(
            incoming.info, local_queue=LocalQueueKey("/lq"), priority=0, queued_at_s=NOW_S, shape=key
        )
        pending.at = order = self.orders[name]
        targets = tuple(Target(self.holders[one], PreemptionReason.IN_CLUSTER_QUEUE) for one in sorted(victims))
        return Nomination(pending, order, order.epoch, self.lab.assignment(1), targets, ignores_reservations=False)

    @rule(
        key=st.sampled_from(PREEMPTORS),
        name=st.sampled_from((A, B)),
        amount=st.integers(1, 10),
        victims=st.sets(st.sampled_from(VICTIMS), min_size=1),
        remembers=st.booleans(),
    )
    def preempt(
        self, key: WorkloadKey, name: ClusterQueueName, amount: int, victims: set[WorkloadKey], remembers: bool
    ) -> None:
        nomination = self.nomination(key, name, victims) if remembers else None
        expected = self.outdated(key) if nomination is None else []
        effects = self.reservations.apply(Preempts(key, name, {FR: amount}, frozenset(victims), (), nomination))
        assert list(effects) == expected
        self.asked[key] = (name, amount)
        self.victims.setdefault(key, set()).update(victims)
        if remembers:
            self.nominated.add(key)

    @rule(
        key=st.sampled_from(PREEMPTORS), event=st.sampled_from((Delayed, WorkloadRefused, Withdrawn, WorkloadAdmitted))
    )
    def end(self, key: WorkloadKey, event: type) -> None:
        reserved = key in self.asked
        name = self.asked[key][0] if reserved else A
        expected: list[Effect] = []
        if event is Withdrawn:
            self.nominated.discard(key)
        else:
            expected += self.outdated(key)
        if event is not Delayed and reserved:
            if event is WorkloadAdmitted:
                expected.append(WakeTree(name))
            elif ("freed", key) not in self.gave_way:
                expected.append(WakeAll())
                self.gave_way.add(("freed", key))
            del self.asked[key], self.victims[key]
        assert (
            list(self.reservations.apply(event(key, name, ()) if event is WorkloadAdmitted else event(key))) == expected
        )

    @rule(gone=st.sets(st.sampled_from(VICTIMS), min_size=1), name=st.sampled_from((A, B)))
    def depart(self, gone: set[WorkloadKey], name: ClusterQueueName) -> None:
        for key in gone & self.lab.cluster.holders.keys():
            self.lab.cluster.remove_holder(key)
        self.orders[name].wake()
        self.reservations.apply(Departed(gone))

    @rule(key=st.sampled_from(VICTIMS))
    def hold_again(self, key: WorkloadKey) -> None:
        if key not in self.lab.cluster.holders:
            self.lab.cluster.add_holder(self.holders[key])

    @rule()
    def release(self) -> None:
        self.gave_way.clear()
        self.reservations.apply(RELEASED)

    def outdated(self, key: WorkloadKey) -> list[Effect]:
        first = key in self.nominated and ("outdated", key) not in self.gave_way
        if key in self.nominated:
            self.gave_way.add(("outdated", key))
        self.nominated.discard(key)
        return [RunAgain()] if first else []

    @invariant()
    def the_book_is_sound(self) -> None:
        self.reservations.validate()

    @invariant()
    def a_reservation_and_its_victims_weigh_what_was_asked_at_least(self) -> None:
        assert {reservation.key: reservation.victims for reservation in self.reservations} == self.victims
        holders = self.lab.cluster.holders
        for key, (_, amount) in self.asked.items():
            held = sum(holders[one].usage[FR] for one in self.victims[key] if one in holders)
            assert reservation_of(self.reservations, key).kept_quota(holders).get(FR, 0) == max(0, amount - held)

    @invariant()
    def charging_all_and_lifting_all_changes_nothing(self) -> None:
        node = self.lab.cluster.queue(A).node
        before = node.available(FR)
        with self.lab.cluster.trial():
            charges = self.reservations.charge()
            charged = sum(sum(one.kept_quota(self.lab.cluster.holders).values()) for one in self.reservations)
            assert node.available(FR) == before - charged or node.available(FR) <= 0
            charges.lift(*self.reservations)
            assert node.available(FR) == before
        assert node.available(FR) == before


TestReservationHistories = ReservationHistories.TestCase


def test_a_nomination_without_its_reservation_is_seen(lab: Lab) -> None:
    lab.hold("v1", "b", 2)
    reservations = Reservations(lab.cluster)
    reservations.apply(preempts(IN, 4, VICTIMS[1]))
    machine = ReservationHistories()
    reservations._nominations[IN] = machine.nomination(IN, A, {VICTIMS[1]})
    reservations.validate()
    reservations._nominations[IN] = machine.nomination(IN, A, {VICTIMS[2]})
    with pytest.raises(DriftError, match="stands for victims"):
        reservations.validate()
    reservations._reservations.clear()
    with pytest.raises(DriftError, match="its reservation is None"):
        reservations.validate()


def test_a_reservation_under_another_key_and_places_of_no_reservation_are_seen(lab: Lab) -> None:
    reservations = Reservations(lab.cluster)
    reservations.apply(preempts(IN, 4))
    reservations._reservations[VICTIMS[0]] = reservation_of(reservations)
    with pytest.raises(DriftError, match="is kept as"):
        reservations.validate()
    del reservations._reservations[VICTIMS[0]]
    reservations._kept_places.of(VICTIMS[0], (), [])
    with pytest.raises(DriftError, match="places are remembered"):
        reservations.validate()


def test_charges_without_reservations_change_nothing(lab: Lab) -> None:
    charges = Reservations(lab.cluster).charge()
    assert isinstance(charges, ReservationCharges)
    assert available(lab, Reservations(lab.cluster), A) == 8
