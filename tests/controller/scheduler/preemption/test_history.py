"""No two workloads, and no circle of them, evict each other while nothing changes from outside."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.cluster.incoming import Incoming, PreemptionReason, Target
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, PreemptionStrategy
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource, WorkloadKey
from tests.controller.scheduler.preemption.test_preemption_properties import labs
from tests.support.engine.preemptionlab import FLAVOR, Lab

RECLAIM: dict[str, Any] = {"reclaimWithinCohort": "Any"}
A, B = ClusterQueueName("a"), ClusterQueueName("b")


class Engine:
    """Admits who fits and evicts for who does not, pass after pass, until a pass changes nothing.

    ``steals(n)``: whether the n-th preemptor's freed quota is up for grabs in the next pass, instead of being its own.
    """

    def __init__(self, lab: Lab, pending: list[Incoming], steals: Callable[[int], bool] = lambda _: False) -> None:
        self.lab = lab
        self.pending = {one.key: one for one in pending}
        self.evictions: list[tuple[WorkloadKey, WorkloadKey]] = []
        self.steals = steals

    def settle(self, limit: int) -> bool:
        """Whether it settled before there were more evictions than that."""
        while len(self.evictions) <= limit:
            if not any([self.one(incoming) for incoming in self.by_priority()]):  # noqa: C419 - everybody has a turn
                return True
        return False

    def by_priority(self) -> list[Incoming]:
        return sorted(self.pending.values(), key=lambda one: (-one.priority, one.queued_at_s, one.key))

    def one(self, incoming: Incoming) -> bool:
        if incoming.key not in self.pending:
            return False
        if self.admit(incoming):
            return True
        targets = self.lab.targets(incoming)
        if not targets:
            return False
        self.lab.preemption.history.evicted(incoming, targets)
        for target in targets:
            self.evict(incoming, target)
        if not self.steals(len(self.evictions)):
            self.admit(incoming)
        return True

    def admit(self, incoming: Incoming) -> bool:
        amount = incoming.info.pod_sets[0].requests[self.lab.resource]
        if incoming.queue.node.available(FlavorResource(FLAVOR, self.lab.resource)) < amount:
            return False
        name = incoming.info.workload.metadata.name
        self.lab.hold(name, incoming.queue.name, amount, incoming.priority, queued_at_s=incoming.queued_at_s)
        del self.pending[incoming.key]
        return True

    def evict(self, incoming: Incoming, target: Target) -> None:
        holder = target.holder
        self.evictions.append((incoming.key, holder.key))
        self.lab.cluster.remove_holder(holder.key)
        amount = holder.info.pod_sets[0].requests[self.lab.resource]
        name = holder.info.workload.metadata.name
        again = self.lab.incoming(name, holder.cluster_queue, amount, holder.priority, queued_at_s=holder.queued_at_s)
        self.pending[again.key] = again


@st.composite
def runs(draw: st.DrawFn) -> Engine:
    fair = draw(
        st.sampled_from(
            [None, FairSharing(), *(FairSharing(strategies=(strategy,)) for strategy in PreemptionStrategy)]
        )
    )
    lab, incoming = draw(labs(EngineConfig(fair_sharing=fair, extensions=Extensions(no_eviction_cycles=True))))
    lab.remove([holder.key for holder in lab.cluster.holders.values() if holder.evicted])
    queues = sorted(lab.cluster.queues)
    pending = [incoming]
    for at in range(draw(st.integers(0, 6))):
        queue, amount = draw(st.sampled_from(queues)), draw(st.integers(1, 5))
        pending.append(lab.incoming(f"p{at}", queue, amount, draw(st.integers(-1, 2)), queued_at_s=float(at)))
    steals = draw(st.frozensets(st.integers(1, 40), max_size=20))
    return Engine(lab, pending, lambda number: number in steals)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_every_run_settles_and_of_two_workloads_one_at_most_evicts_the_other(engine: Engine) -> None:
    count = len(engine.pending) + len(engine.lab.cluster.holders)
    assert engine.settle(count * (count - 1) // 2)
    pairs = set(engine.evictions)
    assert len(pairs) == len(engine.evictions)
    assert not any((victim, preemptor) in pairs for preemptor, victim in pairs)
    engine.lab.cluster.validate()
    engine.lab.preemption.validate()


def circle(*, rule: bool) -> Engine:
    """One of ``a`` wants all 4 GPUs, of which ``b``, weighing nothing, owns 1; ``b`` has workloads of 1 and 3."""
    lab = Lab(EngineConfig(fair_sharing=FairSharing(), extensions=Extensions(no_eviction_cycles=rule)))
    lab.cohort("all", 2)
    lab.queue("a", 1, "all", preemption=RECLAIM)
    lab.queue("b", 1, "all", preemption=RECLAIM, weight="0")
    wanted = [("all-of-it", "a", 4, 1), ("three", "b", 3, 0), ("own", "b", 1, 1)]
    return Engine(lab, [lab.incoming(*one, queued_at_s=float(at)) for at, one in enumerate(wanted)])


def test_without_the_rule_two_of_them_evict_each_other_for_ever() -> None:
    engine = circle(rule=False)
    assert not engine.settle(100)
    assert {("/all-of-it", "/own"), ("/own", "/all-of-it")} <= set(engine.evictions[-4:])


def test_with_the_rule_they_settle() -> None:
    engine = circle(rule=True)
    assert engine.settle(3)
    assert set(engine.lab.cluster.holders) == {"/own", "/three"}


def by_priority(*, rule: bool = True) -> Lab:
    lab = Lab(EngineConfig(extensions=Extensions(no_eviction_cycles=rule)))
    lab.queue("a", 2, "all", preemption={"withinClusterQueue": "LowerPriority", **RECLAIM})
    lab.queue("b", 0, "all", preemption={"withinClusterQueue": "LowerPriority"})
    return lab


def evicted(lab: Lab, preemptor: str, victim: str) -> None:
    """``preemptor`` of queue a evicts ``victim`` of the same queue, by hand."""
    holder = lab.holder(victim, "a", 1)
    lab.preemption.history.evicted(lab.incoming(preemptor, "a", 1), [Target(holder, PreemptionReason.IN_CLUSTER_QUEUE)])


def barred(lab: Lab, incoming: str) -> set[str]:
    return {key.removeprefix("/") for key in lab.preemption.history.barred(lab.incoming(incoming, "a", 1))} - {incoming}


def test_neither_the_evictor_nor_whoever_evicted_the_evictor_may_be_evicted_nor_the_same_one_twice() -> None:
    lab = by_priority()
    evicted(lab, "x", "y")
    evicted(lab, "y", "z")
    assert barred(lab, "z") == {"y", "x"}
    assert barred(lab, "y") == {"x", "z"}
    assert barred(lab, "x") == {"y"}
    assert barred(lab, "w") == set()


def test_the_rule_counts_for_the_search_and_only_where_it_is_on() -> None:
    for rule in (True, False):
        lab = by_priority(rule=rule)
        lab.hold("low", "a", 2)
        evicted(lab, "low", "in")
        assert bool(lab.ask("a", 1, priority=9)) is not rule


def test_one_who_is_going_already_is_still_a_victim() -> None:
    lab = by_priority()
    evicted(lab, "in", "low")
    lab.hold("low", "a", 2, evicted=True)
    assert set(lab.ask("a", 1, priority=9)) == {"low"}


def test_a_change_of_quota_weight_or_policy_ends_it() -> None:
    changes: list[Callable[[Lab], None]] = [
        lambda lab: lab.queue("a", 3, "all"),
        lambda lab: lab.queue("b", 1, "all"),
        lambda lab: lab.queue("b", 0, "all", weight="3"),
        lambda lab: lab.cohort("all", 1),
    ]
    for change in changes:
        lab = by_priority()
        evicted(lab, "x", "y")
        change(lab)
        assert barred(lab, "y") == barred(lab, "x") == set()


def test_a_workload_from_outside_ends_the_first_rule_for_its_queue_and_the_second_for_its_tree() -> None:
    lab = by_priority()
    evicted(lab, "x", "y")
    lab.preemption.history.outside_change(B)
    assert barred(lab, "y") == {"x"}
    assert barred(lab, "x") == set()
    lab.preemption.history.outside_change(A)
    assert barred(lab, "y") == set()


@pytest.mark.parametrize("changed", [A, B])
def test_between_two_queues_the_first_change_of_either_ends_the_first_rule(changed: ClusterQueueName) -> None:
    lab = by_priority()
    target = Target(lab.holder("y", "b", 1), PreemptionReason.IN_COHORT_RECLAMATION)
    lab.preemption.history.evicted(lab.incoming("x", "a", 1), [target])
    incoming = lab.incoming("y", "b", 1)
    assert lab.preemption.history.barred(incoming) == {WorkloadKey("/y"), WorkloadKey("/x")}
    lab.preemption.history.outside_change(changed)
    assert lab.preemption.history.barred(incoming) == {WorkloadKey("/y")}


def test_another_tree_ends_nothing() -> None:
    lab = by_priority()
    lab.queue("far", 1, "elsewhere")
    evicted(lab, "x", "y")
    lab.preemption.history.outside_change(ClusterQueueName("far"))
    lab.queue("far", 2, "elsewhere")
    assert (barred(lab, "x"), barred(lab, "y")) == ({"y"}, {"x"})


def test_an_eviction_that_did_not_come_about_counts_for_nothing() -> None:
    lab = by_priority()
    evicted(lab, "x", "y")
    lab.preemption.history.taken_back(WorkloadKey("/x"), WorkloadKey("/y"))
    assert barred(lab, "x") == barred(lab, "y") == set()
    assert len(lab.preemption.history) == 0


def test_who_is_gone_is_forgotten_and_memory_stays_small() -> None:
    lab = by_priority()
    history = lab.preemption.history
    evicted(lab, "x", "y")
    evicted(lab, "y", "z")
    history.forget(WorkloadKey("/y"))
    assert (len(history), barred(lab, "z")) == (0, set())
    for at in range(2500):
        evicted(lab, f"p{at}", f"v{at}")
        history.outside_change(A)
    assert len(history) <= 1025
