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
from controller.scheduler.reservations.charges import ClaimCharges
from controller.scheduler.reservations.claim import Claim
from controller.scheduler.reservations.claims import (
    RELEASED,
    Claims,
    Delayed,
    Effect,
    NoClaims,
    Preempts,
    RunAgain,
    WakeAll,
    WakeTree,
    Withdrawn,
    WorkloadAdmitted,
    WorkloadRefused,
    claims_for,
)
from controller.scheduler.reservations.nominations import Nomination
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


def available(lab: Lab, claims: Claims, queue: ClusterQueueName, *, but: WorkloadKey | None = None) -> int:
    with lab.cluster.trial():
        charges = claims.charge()
        own = claims.of(but) if but is not None else None
        if own is not None:
            charges.lift(own)
        return lab.cluster.queue(queue).node.available(FR)


def claim_of(claims: Claims, key: WorkloadKey = IN) -> Claim:
    claim = claims.of(key)
    assert claim is not None
    return claim


def test_what_a_victim_leaves_is_kept_from_everybody_but_the_preemptor(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 4)
    claims.apply(preempts(IN, 4, VICTIMS[1]))
    assert available(lab, claims, B) == 0
    lab.cluster.remove_holder(VICTIMS[1])
    assert available(lab, claims, B) == 0
    assert available(lab, claims, A) == 0
    assert available(lab, claims, A, but=IN) == 4
    assert claims.apply(Withdrawn(IN)) == (WakeAll(),)
    assert available(lab, claims, B) == 4
    lab.cluster.validate()


def test_what_was_free_before_the_eviction_is_kept_as_well(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    lab.hold("v1", "b", 5)
    claims.apply(preempts(IN, 4, VICTIMS[1]))
    assert claim_of(claims).kept_quota(lab.cluster.holders) == {}
    claims.apply(preempts(IN, 7, VICTIMS[1]))
    assert available(lab, claims, B) == 1


def test_lifting_within_a_trial_gives_the_preemptor_its_quota_and_nobody_elses(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    claims.apply(preempts(IN, 3))
    claims.apply(preempts(WorkloadKey("/other"), 4, queue=B))
    with lab.cluster.trial():
        charges = claims.charge()
        assert lab.cluster.queue(A).node.available(FR) == 1
        charges.lift_quota(claim_of(claims))
        assert lab.cluster.queue(A).node.available(FR) == 4
    lab.cluster.validate()


def test_a_second_preemption_adds_victims_and_replaces_what_is_asked(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 2)
    claims.apply(preempts(IN, 8, VICTIMS[1]))
    claims.apply(preempts(IN, 6, VICTIMS[2]))
    claim = claim_of(claims)
    assert claim.victims == {VICTIMS[1], VICTIMS[2]}
    assert claim.kept_quota(lab.cluster.holders) == {FR: 2}
    assert len(claims) == 1


def test_a_claim_in_a_deleted_queue_weighs_nothing(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    claims.apply(preempts(IN, 3))
    lab.cluster.remove_cluster_queue(A)
    assert available(lab, claims, B) == 4


def test_a_preemptor_that_starts_wakes_its_tree_and_one_that_starts_elsewhere_wakes_all(lab: Lab) -> None:
    """Where it starts as it claimed nothing is freed, and what it holds can be preempted, as a claim cannot."""
    claims = Claims(lab.cluster)
    claims.apply(preempts(IN, 3))
    assert claims.apply(WorkloadAdmitted(IN, A, ())) == (WakeTree(A),)
    places: Any = ((FLAVOR, "elsewhere"),)
    claims.apply(preempts(IN, 3))
    assert claims.apply(WorkloadAdmitted(IN, A, places)) == (WakeAll(),)
    assert not claims


def test_one_that_gives_way_twice_wakes_the_others_once_until_something_is_released(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    for expected in ((WakeAll(),), ()):
        claims.apply(preempts(IN, 3))
        assert claims.apply(WorkloadRefused(IN)) == expected
    claims.apply(RELEASED)
    claims.apply(preempts(IN, 3))
    assert claims.apply(WorkloadRefused(IN)) == (WakeAll(),)


def test_without_the_feature_nothing_is_claimed(lab: Lab) -> None:
    claims = claims_for(lab.cluster)
    assert isinstance(claims, NoClaims)
    assert claims.apply(preempts(IN, 3)) == ()
    assert not claims
    assert available(lab, claims, B) == 8
    on = Lab(EngineConfig(extensions=Extensions(reserve_for_preemptor=True)))
    assert not isinstance(claims_for(on.cluster), NoClaims)


class ClaimHistories(RuleBasedStateMachine):
    """Any events in any order, beside what claims mean by definition."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = Lab()
        for name in ("a", "b"):
            self.lab.queue(name, 20, "all")
        self.holders = {key: self.lab.hold(key[1:], "b", number + 1) for number, key in enumerate(VICTIMS)}
        self.orders = {name: ClusterQueueOrder(name, strict=False, by_shape=True, usage=None) for name in (A, B)}
        self.claims = Claims(self.lab.cluster)
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
        return Nomination(pending, order, order.epoch, self.lab.assignment(1), targets, ignores_claims=False)

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
        effects = self.claims.apply(Preempts(key, name, {FR: amount}, frozenset(victims), (), nomination))
        assert list(effects) == expected
        self.asked[key] = (name, amount)
        self.victims.setdefault(key, set()).update(victims)
        if remembers:
            self.nominated.add(key)

    @rule(
        key=st.sampled_from(PREEMPTORS), event=st.sampled_from((Delayed, WorkloadRefused, Withdrawn, WorkloadAdmitted))
    )
    def end(self, key: WorkloadKey, event: type) -> None:
        claimed = key in self.asked
        name = self.asked[key][0] if claimed else A
        expected: list[Effect] = []
        if event is Withdrawn:
            self.nominated.discard(key)
        else:
            expected += self.outdated(key)
        if event is not Delayed and claimed:
            if event is WorkloadAdmitted:
                expected.append(WakeTree(name))
            elif ("freed", key) not in self.gave_way:
                expected.append(WakeAll())
                self.gave_way.add(("freed", key))
            del self.asked[key], self.victims[key]
        assert list(self.claims.apply(event(key, name, ()) if event is WorkloadAdmitted else event(key))) == expected

    @rule(gone=st.sets(st.sampled_from(VICTIMS), min_size=1), name=st.sampled_from((A, B)))
    def depart(self, gone: set[WorkloadKey], name: ClusterQueueName) -> None:
        for key in gone & self.lab.cluster.holders.keys():
            self.lab.cluster.remove_holder(key)
        self.orders[name].wake()
        self.claims.apply(Departed(gone))

    @rule(key=st.sampled_from(VICTIMS))
    def hold_again(self, key: WorkloadKey) -> None:
        if key not in self.lab.cluster.holders:
            self.lab.cluster.add_holder(self.holders[key])

    @rule()
    def release(self) -> None:
        self.gave_way.clear()
        self.claims.apply(RELEASED)

    def outdated(self, key: WorkloadKey) -> list[Effect]:
        first = key in self.nominated and ("outdated", key) not in self.gave_way
        if key in self.nominated:
            self.gave_way.add(("outdated", key))
        self.nominated.discard(key)
        return [RunAgain()] if first else []

    @invariant()
    def the_book_is_sound(self) -> None:
        self.claims.validate()

    @invariant()
    def a_claim_and_its_victims_weigh_what_was_asked_at_least(self) -> None:
        assert {claim.key: claim.victims for claim in self.claims} == self.victims
        holders = self.lab.cluster.holders
        for key, (_, amount) in self.asked.items():
            held = sum(holders[one].usage[FR] for one in self.victims[key] if one in holders)
            assert claim_of(self.claims, key).kept_quota(holders).get(FR, 0) == max(0, amount - held)

    @invariant()
    def charging_all_and_lifting_all_changes_nothing(self) -> None:
        node = self.lab.cluster.queue(A).node
        before = node.available(FR)
        with self.lab.cluster.trial():
            charges = self.claims.charge()
            charged = sum(sum(one.kept_quota(self.lab.cluster.holders).values()) for one in self.claims)
            assert node.available(FR) == before - charged or node.available(FR) <= 0
            charges.lift(*self.claims)
            assert node.available(FR) == before
        assert node.available(FR) == before


TestClaimHistories = ClaimHistories.TestCase


def test_a_nomination_without_its_claim_is_seen(lab: Lab) -> None:
    lab.hold("v1", "b", 2)
    claims = Claims(lab.cluster)
    claims.apply(preempts(IN, 4, VICTIMS[1]))
    machine = ClaimHistories()
    claims._nominations[IN] = machine.nomination(IN, A, {VICTIMS[1]})
    claims.validate()
    claims._nominations[IN] = machine.nomination(IN, A, {VICTIMS[2]})
    with pytest.raises(DriftError, match="stands for victims"):
        claims.validate()
    claims._claims.clear()
    with pytest.raises(DriftError, match="its claim is None"):
        claims.validate()


def test_a_claim_under_another_key_and_places_of_no_claim_are_seen(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    claims.apply(preempts(IN, 4))
    claims._claims[VICTIMS[0]] = claim_of(claims)
    with pytest.raises(DriftError, match="is kept as"):
        claims.validate()
    del claims._claims[VICTIMS[0]]
    claims._kept_places.of(VICTIMS[0], (), [])
    with pytest.raises(DriftError, match="places are remembered"):
        claims.validate()


def test_charges_without_claims_change_nothing(lab: Lab) -> None:
    charges = Claims(lab.cluster).charge()
    assert isinstance(charges, ClaimCharges)
    assert available(lab, Claims(lab.cluster), A) == 8
