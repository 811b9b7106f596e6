"""Whatever the tree, the policies and the workloads: the same victims as plainly sorted lists give, and only those."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.model.config import EngineConfig, FairSharing, PreemptionStrategy
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource
from tests.support.engine.preemptionlab import FLAVOR, NOW_S, Lab, reasons
from tests.support.engine.preemptionmodel import Model

BOTH = tuple(PreemptionStrategy)
FAIR = st.sampled_from([FairSharing(strategies=BOTH), *(FairSharing(strategies=(one,)) for one in BOTH)])
SMALL = st.integers(0, 6)
PRIORITY = st.integers(-1, 2)


@st.composite
def preemption(draw: st.DrawFn) -> dict[str, Any] | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    policies: dict[str, Any] = {}
    within = draw(st.sampled_from([None, "Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"]))
    reclaim = draw(st.sampled_from([None, "Never", "LowerPriority", "Any", "Any"]))
    borrow = draw(st.sampled_from([None, None, "Never", "LowerPriority", "LowerPriority"]))
    if within is not None:
        policies["withinClusterQueue"] = within
    if reclaim is not None:
        policies["reclaimWithinCohort"] = reclaim
    if borrow is not None:
        policies["borrowWithinCohort"] = {"policy": borrow}
        if draw(st.booleans()):
            policies["borrowWithinCohort"]["maxPriorityThreshold"] = draw(PRIORITY)
    return policies


@st.composite
def labs(draw: st.DrawFn, config: EngineConfig) -> tuple[Lab, Incoming]:
    lab = Lab(config)
    cohorts = draw(st.integers(0, 3))
    weight = st.sampled_from([None, "1", "0", "2", "500m"])
    for at in range(cohorts):
        parent = f"c{draw(st.integers(0, at - 1))}" if at else ""
        lab.cohort(f"c{at}", draw(SMALL), parent, weight=draw(weight))
    queues = draw(st.integers(1, 5))
    for at in range(queues):
        cohort = f"c{draw(st.integers(0, cohorts - 1))}" if cohorts else ""
        limit = st.sampled_from([None, None, 0, 2, 5])
        nominal = draw(SMALL)
        lending = draw(limit) if cohort else None
        lab.queue(
            f"q{at}",
            nominal,
            cohort,
            preemption=draw(preemption()),
            weight=draw(weight),
            borrowing=draw(limit) if cohort else None,
            lending=None if lending is None else min(lending, nominal),
        )
    for at in range(draw(st.integers(0, 12))):
        lab.hold(
            f"w{at}",
            f"q{draw(st.integers(0, queues - 1))}",
            draw(st.integers(1, 4)),
            draw(PRIORITY),
            ran_s=draw(st.integers(0, 4)),
            queued_at_s=NOW_S + draw(st.integers(-2, 2)),
            evicted=draw(st.integers(0, 7)) == 0,
        )
    return lab, lab.incoming("in", "q0", draw(st.integers(1, 9)), draw(PRIORITY))


@st.composite
def crowds(draw: st.DrawFn, config: EngineConfig) -> tuple[Lab, Incoming]:
    """Queues that live on what cohorts give them: nearly everybody borrows, and shares are often equal."""
    lab = Lab(config)
    cohorts = draw(st.integers(1, 4))
    weight = st.sampled_from([None, None, None, "2", "0"])
    for at in range(cohorts):
        parent = f"c{draw(st.integers(0, at - 1))}" if at else ""
        lab.cohort(f"c{at}", draw(st.integers(0, 8)), parent, weight=draw(weight))
    queues = draw(st.integers(2, 5))
    for at in range(queues):
        within = draw(st.sampled_from(["LowerPriority", "Never"]))
        lab.queue(
            f"q{at}",
            draw(st.sampled_from([0, 0, 0, 1, 3])),
            f"c{draw(st.integers(0, cohorts - 1))}",
            preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": within},
            weight=draw(weight),
        )
    for at in range(draw(st.integers(3, 12))):
        queue = f"q{draw(st.integers(0, queues - 1))}"
        lab.hold(f"w{at}", queue, draw(st.integers(1, 3)), draw(st.integers(0, 1)), ran_s=draw(st.integers(0, 4)))
    return lab, lab.incoming("in", "q0", draw(st.integers(1, 5)), draw(st.integers(0, 1)))


@st.composite
def classical(draw: st.DrawFn) -> tuple[Lab, Incoming]:
    return draw(labs(EngineConfig()))


@st.composite
def fair(draw: st.DrawFn) -> tuple[Lab, Incoming]:
    gates = FeatureGates({"FairSharingPreemptWithinNominal": draw(st.booleans())})
    config = EngineConfig(fair_sharing=draw(FAIR), gates=gates)
    return draw(st.one_of(labs(config), crowds(config), crowds(config)))


def agree(lab: Lab, incoming: Incoming) -> None:
    before = {name: dict(node.used()) for name, node in lab.cluster.quota.cluster_queues.items()}
    targets = lab.targets(incoming)
    assert {(str(one.holder.key), str(one.reason)) for one in targets} == Model(lab, incoming).victims()
    assert len({one.holder.key for one in targets}) == len(targets)
    lab.cluster.validate()
    assert {name: dict(node.used()) for name, node in lab.cluster.quota.cluster_queues.items()} == before
    assert lab.targets(incoming) == targets


@settings(max_examples=120, deadline=None)
@given(classical())
def test_classical_preemption_takes_the_victims_of_plainly_sorted_lists(case: tuple[Lab, Incoming]) -> None:
    agree(*case)


@settings(max_examples=120, deadline=None)
@given(fair())
def test_fair_preemption_takes_the_victims_of_plainly_sorted_lists(case: tuple[Lab, Incoming]) -> None:
    agree(*case)


@settings(max_examples=80, deadline=None)
@given(st.one_of(classical(), fair()))
def test_with_the_victims_gone_it_fits_and_without_any_one_of_them_it_does_not(case: tuple[Lab, Incoming]) -> None:
    lab, incoming = case
    fr = FlavorResource(FLAVOR, lab.resource)
    amount = incoming.info.pod_sets[0].requests[lab.resource]
    node = incoming.queue.node
    targets = lab.targets(incoming)
    if not targets or node.available(fr) >= amount:  # who has room already is not asked about
        return
    with lab.cluster.trial():
        for target in targets:
            lab.cluster.release(target.holder)
        assert node.available(fr) >= amount
        within_own = not node.borrowing_with(fr, amount)
        for target in targets:
            lab.cluster.charge(target.holder)
            # Victims chosen without borrowing are all needed for that, even where borrowing would do with fewer.
            assert node.available(fr) < amount or (within_own and node.borrowing_with(fr, amount))
            lab.cluster.release(target.holder)


@settings(max_examples=80, deadline=None)
@given(st.one_of(classical(), fair()))
def test_who_holds_no_more_than_its_own_quota_loses_nothing_to_other_queues(case: tuple[Lab, Incoming]) -> None:
    lab, incoming = case
    fr = FlavorResource(FLAVOR, lab.resource)
    for target in lab.targets(incoming):
        victim = lab.cluster.queue(ClusterQueueName(target.holder.cluster_queue))
        if victim is not incoming.queue:
            assert victim.node.usage(fr) > victim.node.quota(fr), reasons([target])


@settings(max_examples=30, deadline=None)
@given(classical())
def test_where_nobody_can_be_evicted_for_an_amount_nobody_can_be_for_more(case: tuple[Lab, Incoming]) -> None:
    """What classical preemption's oracle says of itself: the assigner asks it once for several pod sets."""
    lab, incoming = case
    assert lab.preemption.oracle.is_monotonic
    fr, node = FlavorResource(FLAVOR, lab.resource), incoming.queue.node
    asked = [amount for amount in range(1, 16) if amount > node.available(fr)]
    found = [bool(lab.preemption.targets_alone(incoming, fr, amount, NOW_S)) for amount in asked]
    assert found == sorted(found, reverse=True)


def test_the_index_forgets_what_has_left() -> None:
    lab = Lab()
    lab.queue("a", 4)
    holders = [lab.hold(f"w{at}", "a", 1, at % 3) for at in range(20)]
    with lab.cluster.trial():
        lab.remove(holder.key for holder in holders[:5])
        lab.hold("on-trial", "a", 1)
    lab.preemption.validate()
    lab.remove(holder.key for holder in holders)
    lab.preemption.validate()
    assert not lab.preemption.index.size
