"""Rules of a cycle that random worlds showed, decided by Kueue's own scheduler: one claim a rule."""

from typing import Any

import msgspec
import pytest

from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload
from controller.scheduler.decisions.records import Rule
from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.topology.placement import Topologies
from tests.controller.scheduler.topology.test_topology_in_cycles import (
    LOWER,
    gang,
    lose,
    places,
    topology,
    world_of,
)
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload

SLOW = {"TASFailedNodeReplacementFailFast": False}


def to(queue: str, made: Workload) -> Workload:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queue_name=queue))


def rule_of(world: World, name: str) -> Rule:
    found = world.engine.stories.last(WorkloadKey(f"ns/{name}"))
    assert found is not None
    return found.rule


class TestSecondPasses:
    """Places found in a second pass are taken for the rest of the cycle."""

    def test_no_later_head_gets_them(self) -> None:
        world = world_of({"b/r/a": 4})
        world.put(gang("runs", 4))
        world.settle()
        world.put(cluster_queue("other", 100), local_queue("other"), node("b/r/b", 4))
        lose(world, "runs", "a")
        world.put(to("other", gang("head", 4, created_s=1)))
        world.cycle()
        assert places(world, "runs") == {"b": 4}
        assert "head" not in world.running()

    def test_no_preemptor_counts_them_as_free(self) -> None:
        """The room that its victim leaves on the lost node is of no use, that on the new one is not there yet."""
        world = world_of({"b/r/a": 4}, preemption=LOWER)
        world.put(gang("runs", 4))
        world.settle()
        world.put(node("b/r/b", 4))
        lose(world, "runs", "a")
        world.put(gang("high", 4, priority=9, created_s=1))
        made = world.cycle().made
        assert places(world, "runs") == {"b": 4}
        assert [type(one).__name__ for one in made] == ["Admitted", "Pending"]
        assert rule_of(world, "high") is Rule.NO_CANDIDATES
        # From the next cycle on it is a candidate like any other.
        world.settle()
        assert ("Evicted", "ns/runs") in world.log

    def test_who_was_placed_again_may_go_in_the_same_cycle_and_both_are_written(self) -> None:
        """Nodes would do, and quota is short."""
        world = world_of({"b/r/a": 4, "b/r/c": 4}, quota=4, preemption=LOWER)
        world.put(gang("runs", 4))
        world.settle()
        lost = next(iter(places(world, "runs")))
        lose(world, "runs", lost)
        world.put(node("b/r/d", 4), gang("high", 4, priority=9, created_s=1))
        made = world.cycle().made
        assert [type(one).__name__ for one in made] == ["Admitted", "Evicted", "Pending"]
        assert lost not in places(world, "runs")
        assert world.condition("runs", "Evicted") == "True/Preempted"
        assert rule_of(world, "high") is Rule.PREEMPTS
        world.stop_evicted()
        world.settle()
        assert world.running() == {"high"}

    def test_two_of_one_cycle_do_not_collide(self) -> None:
        world = world_of({"b/r/a": 4, "b/r/b": 4}, gates=SLOW)
        world.put(gang("first", 4), gang("second", 4, created_s=1))
        world.settle()
        world.put(node("b/r/c", 4))
        for name in ("first", "second"):
            (host,) = places(world, name)
            lose(world, name, host)
        world.cycle()
        found = [places(world, name) for name in ("first", "second")]
        assert found.count({"c": 4}) == 1

    def test_who_was_told_to_go_before_its_turn_is_not_placed_again(self) -> None:
        """With fair sharing a head may be decided on before a second pass."""
        config = EngineConfig(gates=FeatureGates(SLOW), fair_sharing=FairSharing())
        world = World(config)
        policies = {"reclaimWithinCohort": "Any"}
        world.put(
            topology(),
            flavor("default", topologyName="dc"),
            cluster_queue("a", 0, cohort="all"),
            cluster_queue("z", 4, cohort="all", preemption=policies),
            local_queue("a"),
            local_queue("z"),
            node("b/r/a", 4),
        )
        world.put(to("a", gang("runs", 4)))
        world.settle()
        world.put(node("b/r/b", 4))
        lose(world, "runs", "a")
        world.put(to("z", gang("owner", 4, created_s=1)))
        world.cycle()
        assert ("Evicted", "ns/runs") in world.log
        assert [kind for kind, key in world.log if key == "ns/runs"] == ["Admitted", "Evicted"]
        assert world.engine.state.cluster.holders[WorkloadKey("ns/runs")].evicted


class TestImpliedTopology:
    def test_it_is_asked_for_each_pod_set_when_victims_are_sought(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All flavors of the queue have a topology; the one pod set asks for a level, the other for nothing."""
        world = world_of({"b/r/a": 4}, preemption=LOWER)
        world.put(gang("low", 4))
        world.settle()
        both = gang("both", 2, priority=9, created_s=1)
        asks = both.spec.pod_sets[0]
        silent = msgspec.structs.replace(asks, name="silent", topology_request=None)
        both = msgspec.structs.replace(both, spec=msgspec.structs.replace(both.spec, pod_sets=(asks, silent)))
        asked: dict[str, set[bool]] = {}
        question = Topologies.question

        def note(self: Topologies, requests: Any) -> Any:
            for one in requests:
                asked.setdefault(one.pod_set.name, set()).add(one.implied)
            return question(self, requests)

        monkeypatch.setattr(Topologies, "question", note)
        world.put(both)
        world.cycle()
        assert ("Evicted", "ns/low") in world.log
        assert asked == {"main": {False}, "silent": {True}}

    def test_who_requests_nothing_is_not_admitted_without_places(self) -> None:
        world = world_of({"b/r/a": 4})
        world.put(requesting(workload("w", "q"), {}))
        world.settle()
        assert world.condition("w") == "False/NoMatchingFlavor"

    def test_who_requests_nothing_is_admitted_where_some_flavor_has_no_topology(self) -> None:
        world = world_of({"b/r/a": 4})
        world.put(flavor("plain"), cluster_queue("q", 4, flavors=("default", "plain")))
        world.put(requesting(workload("w", "q"), {}))
        world.settle()
        assert world.condition("w") == "True/QuotaReserved"


def _stopped(queue: ClusterQueue, policy: str) -> ClusterQueue:
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, stop_policy=policy))


class TestInactiveQueues:
    @pytest.mark.parametrize("fair", [False, True])
    def test_their_workloads_are_nobodys_victims(self, *, fair: bool) -> None:
        world = World(EngineConfig(fair_sharing=FairSharing() if fair else None))
        lender = cluster_queue("lender", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"})
        borrower = cluster_queue("borrower", 0, cohort="all")
        world.put(flavor(), lender, borrower, local_queue("lender"), local_queue("borrower"))
        world.put(workload("borrows", "borrower", 4))
        world.settle()
        assert isinstance(borrower, ClusterQueue)
        world.put(_stopped(borrower, "Hold"), workload("owner", "lender", 4, created_s=1))
        world.settle()
        assert world.running() == {"borrows"}
        assert ("Evicted", "ns/borrows") not in world.log
        world.put(borrower)
        world.settle()
        assert ("Evicted", "ns/borrows") in world.log

    def test_a_second_pass_fails_there_and_ends_nothing(self) -> None:
        world = world_of({"b/r/a": 4})
        world.put(gang("runs", 4))
        world.settle()
        world.put(node("b/r/b", 4))
        queue = world.engine.state.cluster.queues[ClusterQueueName("q")].object
        world.put(_stopped(queue, "Hold"))
        lose(world, "runs", "a")
        made = world.cycle().made
        assert [event.reason for one in made for event in one.events()] == ["SecondPassFailed"]
        assert places(world, "runs") == {"a": 4}
        world.put(queue)
        world.now_s += 60
        world.cycle()
        assert places(world, "runs") == {"b": 4}


def test_a_head_that_fits_looks_at_nodes_from_which_the_victims_of_all_trees_are_gone() -> None:
    """The preemptor of one tree is charged for a node while its victim is on it still. What that leaves free on the
    node is another tree's to take.
    """
    world = world_of({"b/r/a": 8}, preemption=LOWER, cohort="one")
    world.put(cluster_queue("other", 100, cohort="two"), local_queue("other"))
    world.put(gang("low", 6))
    world.settle()
    world.put(gang("high", 6, priority=9, created_s=1), to("other", gang("small", 2, created_s=2)))
    world.cycle()
    assert ("Evicted", "ns/low") in world.log
    assert "small" in world.running()


def _quota(resource: str, nominal: str) -> dict[str, str]:
    return {"name": resource, "nominalQuota": nominal}


class TestReasons:
    """Why nothing fits: of each group the attempt nearest to fitting, of all groups the farthest."""

    def queue(self, world: World, *groups: dict[str, dict[str, str]], **spec: Any) -> None:
        """A group: flavor -> resource -> nominal quota."""
        made = []
        for group in groups:
            resources = {name: [_quota(*one) for one in quotas.items()] for name, quotas in group.items()}
            flavors = [{"name": name, "resources": quotas} for name, quotas in resources.items()]
            made.append({"coveredResources": list(next(iter(group.values()))), "flavors": flavors})
        names = {name for group in groups for name in group}
        world.put(*map(flavor, names), cluster_queue("q", resourceGroups=made, **spec), local_queue("q"))

    def test_attempts_of_a_group_that_found_a_flavor_count(self) -> None:
        """The CPUs will be free again; of the GPUs' flavors the first will never do, and the second does."""
        world = World()
        self.queue(world, {"c1": {"cpu": "0"}}, {"g1": {"gpu": "2"}, "g2": {"gpu": "4"}}, cohort="all")
        lends = [{"coveredResources": ["cpu"], "flavors": [{"name": "c1", "resources": [_quota("cpu", "4")]}]}]
        world.put(cluster_queue("lender", cohort="all", resourceGroups=lends), local_queue("lender"))
        world.put(requesting(workload("first", "lender"), {"cpu": "4"}))
        world.settle()
        world.put(requesting(workload("w", "q", created_s=1), {"cpu": "1"}))
        world.settle()
        assert world.condition("w") == "False/WaitingForQuota"
        world.delete("w")
        world.put(requesting(workload("w", "q", created_s=1), {"cpu": "1", "gpu": "3"}))
        world.settle()
        assert world.condition("w") == "False/ExceedsMaxQuota"

    def test_a_resource_without_quota_leaves_no_attempt(self) -> None:
        """What comes after it by name still has a say."""
        world = World()
        self.queue(world, {"f1": {"cpu": "1", "memory": "9"}, "f2": {"cpu": "4", "memory": "9"}})
        world.put(requesting(workload("alone", "q"), {"cpu": "2", "gpu": "1"}))
        world.put(requesting(workload("beside", "q"), {"cpu": "2", "gpu": "1", "memory": "1"}))
        world.settle()
        assert world.condition("alone") == "False/NoMatchingFlavor"
        assert world.condition("beside") == "False/ExceedsMaxQuota"

    def test_a_closed_preemption_gate_has_a_reason_of_its_own(self) -> None:
        world = World(EngineConfig(gates=FeatureGates({"MultiKueueOrchestratedPreemption": True})))
        world.put(flavor(), cluster_queue("a", 2, preemption=LOWER), local_queue("a"))
        world.put(workload("low", "a", 2))
        world.settle()
        gated = workload("high", "a", 2, priority=5, created_s=1, preemptionGates=[{"name": "other/gate"}])
        world.put(gated)
        world.cycle()
        assert world.condition("high") == "False/AdmissionGated"


class TestRecomputedVictims:
    """A workload whose victims are another's is nominated once more, as if those had stopped."""

    def world(self) -> World:
        world = World()
        reclaim = {"reclaimWithinCohort": "Any"}
        for name in ("x", "y"):
            world.put(cluster_queue(name, 4, cohort="all", preemption=reclaim), local_queue(name))
        world.put(flavor(), cluster_queue("z", 0, cohort="all"), local_queue("z"))
        return world

    def test_new_ones_count_where_it_fits_with_them_gone(self) -> None:
        world = self.world()
        world.put(workload("old", "z", 4, created_s=0), workload("new", "z", 4, created_s=1))
        world.settle()
        world.put(workload("hx", "x", 4, created_s=5), workload("hy", "y", 4, created_s=6))
        found = world.cycle().recomputations
        assert found == {"y": {"new_targets": 1}}

    def test_it_is_deferred_where_it_fits_without_any(self) -> None:
        world = self.world()
        world.put(workload("large", "z", 8))
        world.settle()
        world.put(workload("hx", "x", 4, created_s=5), workload("hy", "y", 4, created_s=6))
        found = world.cycle().recomputations
        assert found == {"y": {"deferred_fit": 1}}

    def test_else_it_is_counted_as_skipped(self) -> None:
        """Its victim is another's, and no other workload may be preempted."""
        world = World()
        world.put(flavor(), cluster_queue("z", 4, cohort="all"), local_queue("z"))
        for name, nominal in (("x", 3), ("y", 1)):
            policies = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
            world.put(cluster_queue(name, nominal, cohort="all", preemption=policies), local_queue(name))
        world.put(workload("large", "z", 8))
        world.settle()
        world.put(workload("hx", "x", 7, priority=9, created_s=5), workload("hy", "y", 7, priority=8, created_s=6))
        found = world.cycle().recomputations
        assert found == {"y": {"skipped": 1}}
