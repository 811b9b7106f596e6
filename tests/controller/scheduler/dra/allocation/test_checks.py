"""A plan that cannot be is found: each kind of it, planted, and what stands beside it untouched."""

import pytest

from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.dra.allocation.checks import check
from controller.scheduler.dra.allocation.nodeclaims import ClaimGrant, NodeClaims
from controller.scheduler.dra.allocation.offers import Offer
from controller.scheduler.dra.allocation.views import Given, Part, Set, State
from controller.scheduler.model.deviceclaims import ClaimNames
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.claimsupply import offered
from tests.support.engine.deviceclaims import device, slice_of

OWNER = GrantOwner(WorkloadKey("ns/w"), "main")
MEMORY: Part = (2, "memory")
OFFER = offered(
    slice_of("a", pool="n", node="n", count=2, counters={"units": 2, "more": 9}),
    slice_of(
        "b",
        *(
            device("x", counters={"units": "1", "more": "9"}),
            device("y", counters={"units": "2"}),
            device("s", shared=True, capacity={"memory": "4"}, counters={"more": "1"}),
            device("z"),
        ),
        *(),
        pool="n",
        node="n",
        count=2,
    ),
)


def take(at: int, memory: int = 0, *, admin: bool = False) -> Given:
    return Given(0, "r0", at, admin, ((MEMORY, memory * 10**9),) if memory else ())


def granted(*sets: Set, pods: int = 9, shared: Set = (), assumed: bool = False) -> ClaimGrant:
    planned = (("ns/c", shared),) if shared else ()
    return ClaimGrant(OWNER, pods, ClaimNames("ns", (), ()), sets, planned, assumed)


def judged(*grants: ClaimGrant, state: State, offer: Offer = OFFER) -> None:
    node = NodeClaims("n")
    node.put(grants)
    check(node, offer, state)


def test_a_plan_up_to_all_that_there_is_may_be() -> None:
    judged(granted((take(0),)), granted((take(3),)), state=State(0b1001))
    judged(granted((take(2, 3),), (take(2, 1),)), state=State(0b100, ((MEMORY, 4 * 10**9),)))
    judged(granted((take(1),), pods=1), state=State(0b10))
    judged(granted((take(3),), (take(3, admin=True),), (take(3, admin=True),)), state=State(0b1000))
    judged(state=State(0b111, ((MEMORY, 5 * 10**9),)))


def test_a_device_that_is_planned_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="n: z is planned 2 times"):
        judged(granted((take(3),)), granted((take(3),)), state=State(0b1000))
    with pytest.raises(AssertionError, match="n: z is planned 2 times"):
        judged(granted((take(3),), shared=(take(3),)), state=State(0b1000))


def test_more_of_a_capacity_than_there_is_is_found() -> None:
    with pytest.raises(AssertionError, match="n: memory of s is overdrawn"):
        judged(granted((take(2, 1),)), state=State(0b100, ((MEMORY, 4 * 10**9 + 1),)))


@pytest.mark.parametrize(("state", "device", "counter"), [(0b11, 0, 0), (0b11, 1, 0), (0b101, 0, 1), (0b101, 2, 1)])
def test_counters_beyond_their_limit_are_found_where_a_planned_device_takes_of_them(
    state: int, device: int, counter: int
) -> None:
    with pytest.raises(AssertionError, match=f"n: counter {counter} is overdrawn"):
        judged(granted((take(device),)), state=State(state))


def test_counters_that_claims_alone_overdraw_are_not_the_plans() -> None:
    judged(granted((take(3),)), state=State(0b1111))
    judged(granted((take(1),)), state=State(0b110))
    judged(granted((take(2),)), state=State(0b110))


def test_what_was_assumed_and_not_taken_back_is_found() -> None:
    with pytest.raises(AssertionError, match="were assumed"):
        judged(granted(assumed=True), state=State())


def test_more_sets_than_pods_are_found() -> None:
    judged(granted((take(0),), pods=1), state=State(0b1))
    with pytest.raises(AssertionError, match="has 2 sets for 1 pods"):
        judged(granted((take(0),), (take(3),), pods=1), state=State(0b1001))
