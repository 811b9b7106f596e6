"""Every validator of the engine sees the fault it is there for."""

from collections.abc import Callable

import msgspec
import pytest

from controller.cluster.config.settings import OnGpuFailure
from controller.reconcile.failures.gpufailures import GpuFailures
from controller.reconcile.failures.nodefailures import NodeFailures, NodeState, PodState
from controller.reconcile.placing.planresults import PlanResults
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions
from controller.scheduler.model.resources import (
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.queues.pending import PendingState
from controller.scheduler.queues.pendingqueues import PendingQueues, QueueDriftError
from controller.scheduler.quota.audit import QuotaDriftError
from controller.scheduler.quota.capacity import Capacity
from controller.scheduler.reservations.backfill import Backfill
from tests.controller.reconcile.failures import test_gpufailures, test_nodefailures
from tests.controller.reconcile.placing import test_planresults
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

Q, OTHER = ClusterQueueName("a"), ClusterQueueName("b")
FIRST, SECOND = WorkloadKey("ns/first"), WorkloadKey("ns/second")
GPU = FlavorResource(FlavorName("default"), ResourceName("gpu"))


def busy(config: EngineConfig | None = None) -> Engine:
    """Queue a (4 devices) is full of ``first``, ``second`` waits; queue b of the same cohort is empty."""
    it = World(config)
    queues = [cluster_queue(name, 4, cohort="team", borrow=0) for name in (Q, OTHER)]
    it.put(flavor(), *queues, local_queue("a"), local_queue("b"), workload("first", "a", 4))
    it.settle()
    it.put(workload("second", "a", 2, created_s=1))
    it.settle()
    return it.engine


# -- quota and who holds it ----------------------------------------------------------------------------------------


def charge(engine: Engine) -> None:
    engine.state.cluster.quota.cluster_queue(Q).cells[GPU].usage += 1


def hang_elsewhere(engine: Engine) -> None:
    engine.state.cluster.quota.cluster_queue(Q).parent = None


def forget_a_child(engine: Engine) -> None:
    (cohort,) = engine.state.cluster.quota.cohorts.values()
    cohort.height += 1


@pytest.mark.parametrize("plant", [charge, hang_elsewhere, forget_a_child])
def test_quota_that_is_not_the_sum_of_its_parts_is_seen(plant: Callable[[Engine], None]) -> None:
    engine = busy()
    plant(engine)
    with pytest.raises(QuotaDriftError):
        engine.state.cluster.quota.validate()
    with pytest.raises(QuotaDriftError):
        engine.validate()


def unknown_to_the_cluster(engine: Engine) -> None:
    engine.state.cluster.holders.pop(FIRST)


def in_another_queue(engine: Engine) -> None:
    queues = engine.state.cluster.queues
    queues[OTHER].holders[FIRST] = queues[Q].holders[FIRST]


def holds_less(engine: Engine) -> None:
    holder = msgspec.structs.replace(engine.state.cluster.holders[FIRST], usage={GPU: 1})
    engine.state.cluster.holders[FIRST] = engine.state.cluster.queues[Q].holders[FIRST] = holder


def in_no_queue(engine: Engine) -> None:
    holder = msgspec.structs.replace(engine.state.cluster.holders[FIRST])
    engine.state.cluster.holders[WorkloadKey("ns/third")] = holder


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (unknown_to_the_cluster, "not by the cluster"),
        (in_another_queue, "in another queue"),
        (holds_less, "its workloads hold"),
        (in_no_queue, "holds quota in no queue"),
    ],
)
def test_holders_that_the_charges_contradict_are_seen(plant: Callable[[Engine], None], said: str) -> None:
    engine = busy()
    plant(engine)
    with pytest.raises(DriftError, match=said):
        engine.state.cluster.validate()
    with pytest.raises(DriftError, match=said):
        engine.validate()


def in_two_places(engine: Engine) -> None:
    engine.state.workloads.strand(ClusterQueueName("gone"), FIRST)


def in_no_place(engine: Engine) -> None:
    engine.state.queues.remove(SECOND)


def stranded_for_a_queue_that_is_there(engine: Engine) -> None:
    engine.state.workloads.strand(Q, FIRST)


def stranded_twice(engine: Engine) -> None:
    for name in ("gone", "lost"):
        engine.state.workloads.strand(ClusterQueueName(name), SECOND)


def ended_and_holding(engine: Engine) -> None:
    engine.state.unwritten.end(FIRST)


def evicted_in_name_only(engine: Engine) -> None:
    engine.state.unwritten.evict(FIRST)


def noted_without_quota(engine: Engine) -> None:
    engine.state.notes.want_pass(SECOND, NOW_S)


def without_an_object(engine: Engine) -> None:
    engine.state.workloads.forget(SECOND)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (in_two_places, "ns/first should be in one place"),
        (in_no_place, "ns/second should be in one place"),
        (without_an_object, "kept and not known"),
        (stranded_for_a_queue_that_is_there, "stranded for ClusterQueue"),
        (stranded_twice, "stranded twice"),
        (ended_and_holding, "slices that have ended hold quota"),
        (evicted_in_name_only, "of holders that are not evicted"),
        (noted_without_quota, "notes on workloads without quota"),
    ],
)
def test_workloads_that_are_lost_or_doubled_are_seen(plant: Callable[[Engine], None], said: str) -> None:
    engine = busy()
    plant(engine)
    with pytest.raises(DriftError, match=said):
        engine.validate()


# -- the index of candidates ---------------------------------------------------------------------------------------


def miscounted(engine: Engine) -> None:
    next(iter(engine.state.preemption.index._rank_of.values())).total += 1


def rank_that_is_not_walked(engine: Engine) -> None:
    engine.state.preemption.index._rank_of.popitem()


def stale_holder(engine: Engine) -> None:
    holders = engine.state.cluster.holders
    holders[FIRST] = engine.state.cluster.queues[Q].holders[FIRST] = msgspec.structs.replace(holders[FIRST])


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (miscounted, "candidates are kept as"),
        (rank_that_is_not_walked, "are not walked, or walked that are not found"),
        (stale_holder, "holds nothing there"),
    ],
)
def test_candidates_that_hold_nothing_are_seen(plant: Callable[[Engine], None], said: str) -> None:
    engine = busy()
    engine.state.preemption.validate()
    plant(engine)
    with pytest.raises(DriftError, match=said):
        engine.state.preemption.validate()


# -- the pending ---------------------------------------------------------------------------------------------------


def elsewhere(queues: PendingQueues) -> None:
    del queues._pending[SECOND]


def not_known_to_be(queues: PendingQueues) -> None:
    queues._pending[SECOND].at = None


def not_where_it_says(queues: PendingQueues) -> None:
    queues._pending[SECOND].state = PendingState.IN_FLIGHT


def lost_to_its_queue(queues: PendingQueues) -> None:
    queues._by_local_queue[queues._pending[SECOND].local_queue].clear()


def leads_elsewhere(queues: PendingQueues) -> None:
    pending = queues._pending[SECOND]
    queues._by_local_queue[LOCAL_B] = {SECOND: pending}
    pending.local_queue = LOCAL_B


LOCAL_B = LocalQueueKey("ns/b")


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (elsewhere, "and elsewhere, or should be gone"),
        (not_known_to_be, "not known to be"),
        (not_where_it_says, "is not where it says"),
        (lost_to_its_queue, "lost to its LocalQueue"),
        (leads_elsewhere, "leads to b and is not there"),
    ],
)
def test_a_pending_workload_that_is_misplaced_is_seen(plant: Callable[[PendingQueues], None], said: str) -> None:
    queues = busy().state.queues
    queues.validate()
    plant(queues)
    with pytest.raises(QueueDriftError, match=said):
        queues.validate()


def test_work_in_a_queue_that_nobody_asks_is_seen() -> None:
    queues = busy().state.queues
    queues.wake(Q)
    queues.validate()
    assert queues._ready
    queues._ready.clear()
    with pytest.raises(QueueDriftError, match="has work and is not ready"):
        queues.validate()


# -- what Tessera adds ---------------------------------------------------------------------------------------------


def test_a_reservation_that_is_looked_for_elsewhere_is_seen() -> None:
    engine = busy(EngineConfig(extensions=Extensions(backfill=BackfillPolicy.CONSERVATIVE)))
    backfill = engine.state.backfill
    assert isinstance(backfill, Backfill)
    backfill.validate()
    backfill._queue_of[SECOND] = OTHER
    with pytest.raises(DriftError, match="reservations are kept for"):
        backfill.validate()
    backfill._queue_of.clear()
    backfill._by_tree_at = engine.state.cluster.quota.generation
    backfill._by_tree[0] = [OTHER]
    with pytest.raises(DriftError, match="listed by tree"):
        backfill.validate()


def test_capacity_that_no_node_offers_is_seen() -> None:
    capacity = Capacity()
    capacity._sums[FlavorName("a100")] = {ResourceName("gpu"): 8}
    with pytest.raises(AssertionError, match="capacity kept"):
        capacity.validate()


def off_the_index(core: NodeFailures) -> None:
    core._on_host["a"] = ()


def host_without_its_node(core: NodeFailures) -> None:
    core._names["a"] = ("b",)


def miscounted_states(core: NodeFailures) -> None:
    core._states[test_nodefailures.JOB, "a", PodState.RUNNING] += 1


def nobody_waits(core: NodeFailures) -> None:
    core._waiting[test_nodefailures.JOB] = {"a": {"ns/a"}}


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (off_the_index, "workloads by host"),
        (host_without_its_node, "nodes by host"),
        (miscounted_states, "the count of pods"),
        (nobody_waits, "pods that wait"),
    ],
)
def test_indexes_of_lost_nodes_that_drift_are_seen(plant: Callable[[NodeFailures], None], said: str) -> None:
    core = test_nodefailures.World().core
    core.set_node("d", NodeState(host="d", ready=True, since_s=0.0, taints=()))
    core.validate()
    plant(core)
    with pytest.raises(AssertionError, match=said):
        core.validate()


def case_nobody_finds(core: GpuFailures) -> None:
    core._of_node["n"] = set()


def case_of_another_node(core: GpuFailures) -> None:
    core._of_node["m"] = core._of_node.pop("n")


def stranger(core: GpuFailures) -> None:
    core._victims["ns/other"] = None


def too_many_actions(core: GpuFailures) -> None:
    core._actions.extend([1000.0] * 11)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (case_nobody_finds, "cases by node"),
        (case_of_another_node, "a case of another node"),
        (stranger, "holds nothing failed"),
        (too_many_actions, "more actions than the budget allows"),
    ],
)
def test_cases_of_failed_gpus_that_drift_are_seen(plant: Callable[[GpuFailures], None], said: str) -> None:
    world = test_gpufailures.World()
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    world.core.validate()
    plant(world.core)
    with pytest.raises(AssertionError, match=said):
        world.core.validate()


def judged_and_gone(core: PlanResults) -> None:
    core._judged.add("b")


def plan_of_nobody(core: PlanResults) -> None:
    core._plans.clear()


def on_no_node(core: PlanResults) -> None:
    core._node_of["a"] = "elsewhere"
    core._held["elsewhere"] = {}


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (judged_and_gone, "a pod that is gone was judged"),
        (plan_of_nobody, "pods are miscounted by plan"),
        (on_no_node, "a pod is on no node"),
    ],
)
def test_results_of_plans_that_drift_are_seen(plant: Callable[[PlanResults], None], said: str) -> None:
    core = PlanResults()
    core.set_pod("a", test_planresults.planned_pod("1", "g0"))
    core.set_node("n", {"a": ("g0",)})
    core.validate()
    plant(core)
    with pytest.raises(AssertionError, match=said):
        core.validate()
