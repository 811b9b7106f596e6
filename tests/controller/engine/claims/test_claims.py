"""What a preemptor has made free is its own until it starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.claims.claims import Claims
from controller.engine.model.resources import ClusterQueueName, FlavorResource, WorkloadKey
from tests.controller.engine.preemption.lab import FLAVOR, GPU, Lab

FR = FlavorResource(FLAVOR, GPU)
A, B = ClusterQueueName("a"), ClusterQueueName("b")
IN = WorkloadKey("/in")


@pytest.fixture
def lab() -> Lab:
    lab = Lab()
    lab.queue("a", 4, "all")
    lab.queue("b", 4, "all")
    return lab


def available(lab: Lab, claims: Claims, queue: ClusterQueueName, *, but: WorkloadKey | None = None) -> int:
    with lab.cluster.trial():
        claims.charge(*(claim for claim in claims.here() if claim.key != but))
        return lab.cluster.queue(queue).node.available(FR)


def test_what_a_victim_leaves_is_kept_from_everybody_but_the_preemptor(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 4)
    claims.stake(IN, A, {FR: 4}, [WorkloadKey("/v1")])
    assert available(lab, claims, B) == 0
    lab.cluster.remove_holder(WorkloadKey("/v1"))
    assert available(lab, claims, B) == 0
    assert available(lab, claims, A) == 0
    assert available(lab, claims, A, but=IN) == 4
    claims.drop(IN)
    assert available(lab, claims, B) == 4
    lab.cluster.validate()


def test_what_was_free_before_the_eviction_is_kept_as_well(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    lab.hold("v1", "b", 5)
    claims.stake(IN, A, {FR: 4}, [WorkloadKey("/v1")])
    assert claims.free(claims.of(IN) or pytest.fail("no claim")) == {}
    claims.stake(IN, A, {FR: 7}, [WorkloadKey("/v1")])
    assert available(lab, claims, B) == 1


def test_lifting_within_a_trial_gives_the_preemptor_its_room_and_nobody_elses(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    claims.stake(IN, A, {FR: 3}, [])
    claims.stake(WorkloadKey("/other"), B, {FR: 4}, [])
    with lab.cluster.trial():
        claims.charge(*claims.here())
        assert lab.cluster.queue(A).node.available(FR) == 1
        claims.lift_quota(claims.of(IN) or pytest.fail("no claim"))
        assert lab.cluster.queue(A).node.available(FR) == 4
    lab.cluster.validate()


def test_a_second_preemption_adds_victims_and_replaces_what_is_asked(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    for name in ("v1", "v2"):
        lab.hold(name, "b", 2)
    claims.stake(IN, A, {FR: 8}, [WorkloadKey("/v1")])
    claims.stake(IN, A, {FR: 6}, [WorkloadKey("/v2")])
    claim = claims.of(IN)
    assert claim is not None
    assert claim.victims == {"/v1", "/v2"}
    assert claims.free(claim) == {FR: 2}
    assert len(claims) == 1


def test_a_deleted_queue_takes_its_claims_along(lab: Lab) -> None:
    claims = Claims(lab.cluster)
    claims.stake(IN, A, {FR: 3}, [])
    lab.cluster.remove_cluster_queue(A)
    assert available(lab, claims, B) == 4
    claims.drop_queue(A)
    assert len(claims) == 0


@given(
    asked=st.integers(0, 10),
    victims=st.lists(st.integers(1, 4), max_size=4),
    gone=st.sets(st.integers(0, 3)),
)
def test_claim_and_victims_together_never_weigh_less_than_what_was_asked(
    asked: int, victims: list[int], gone: set[int]
) -> None:
    lab = Lab()
    lab.queue("a", 20, "all")
    lab.queue("b", 20, "all")
    for index, amount in enumerate(victims):
        lab.hold(f"v{index}", "b", amount)
    claims = Claims(lab.cluster)
    claims.stake(IN, A, {FR: asked}, [WorkloadKey(f"/v{index}") for index in range(len(victims))])
    for index in gone:
        lab.cluster.remove_holder(WorkloadKey(f"/v{index}"))
    claim = claims.of(IN)
    assert claim is not None
    still = sum(amount for index, amount in enumerate(victims) if index not in gone)
    kept = claims.free(claim).get(FR, 0)
    assert kept == max(0, asked - still)
