"""What the flavor assigner and the scheduling cycle ask beside the victims themselves, and places on nodes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from controller.objects.decode import decode
from controller.objects.meta import ObjectMeta
from controller.objects.placeencoding import Domain
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet, Workload, WorkloadSpec
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.devices.grants import NOBODY, GrantOwner
from controller.scheduler.flavors.assignment import Possibility
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorName, FlavorResource
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.preemption.victims import Victims, fits_without
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.port import NoTopology, Placed, PlacementNoFit, PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest
from tests.support.engine.preemptionlab import FLAVOR, GPU, Lab

FR = FlavorResource(FLAVOR, GPU)
EVERYBODY: dict[str, Any] = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def lent(amount: int = 4) -> Lab:
    """``a`` is owed 4 of 8 GPUs, ``b`` holds ``amount`` of them beyond its own, one workload for each."""
    lab = Lab()
    lab.queue("a", 4, "all", preemption=EVERYBODY)
    lab.queue("b", 4, "all")
    for at in range(4 + amount):
        lab.hold(f"b{at}", "b", 1)
    return lab


def simulated(lab: Lab, amount: Amount, priority: int = 0) -> tuple[Possibility, int]:
    lab.preemption.oracle.now_s = 1.0
    return lab.preemption.oracle.simulate(lab.incoming("in", "a", amount, priority), FR, amount)


def test_only_what_others_borrowed_is_a_reclaim() -> None:
    assert simulated(lent(), 2) == (Possibility.RECLAIM, 0)


def test_with_one_of_the_own_queue_it_is_a_preemption() -> None:
    lab = lent(3)
    lab.hold("own", "a", 1)
    assert simulated(lab, 4, priority=5) == (Possibility.PREEMPT, 0)


def test_where_nobody_can_make_room_the_level_is_that_of_now() -> None:
    lab = lent(0)
    assert simulated(lab, 5, priority=5) == (Possibility.NO_CANDIDATES, 1)


def test_the_borrow_level_is_that_after_the_victims_have_gone() -> None:
    lab = Lab()
    lab.queue("a", 2, "all", preemption=EVERYBODY)
    lab.queue("b", 2, "all")
    lab.hold("own", "a", 2)
    lab.hold("b0", "b", 2)
    assert lab.cluster.queue(ClusterQueueName("a")).node.borrow_level(FR, 2).height == 1
    assert simulated(lab, 2, priority=5) == (Possibility.PREEMPT, 0)


def target(holder: Holder) -> Target:
    return Target(holder, PreemptionReason.IN_CLUSTER_QUEUE)


def test_victims_of_a_cycle_are_gone_for_every_later_fit_check_and_nobody_goes_for_two() -> None:
    lab = lent()
    first, second = (lab.cluster.holders[key] for key in sorted(lab.cluster.holders)[:2])
    victims = Victims()
    victims.add([target(first)])
    queue = ClusterQueueName("a")
    assert [one.key for one in victims.and_also([target(second), target(first)])] == [first.key, second.key]
    assert victims.overlap([target(second), target(first)])
    assert not victims.overlap([target(second)])
    assert first.key in victims
    assert second.key not in victims
    lab.cluster.quota.add_usage(queue, {FR: 1})  # the first preemptor, charged while its victim still holds
    assert not fits_without(lab.cluster, victims, queue, {FR: 1})
    assert fits_without(lab.cluster, victims.and_also([target(second)]), queue, {FR: 1})
    assert lab.cluster.queue(queue).node.used() == {FR: 1}


def test_a_victim_that_has_left_meanwhile_is_not_taken_away_twice() -> None:
    lab = lent()
    holder = next(iter(lab.cluster.holders.values()))
    lab.cluster.remove_holder(holder.key)
    assert fits_without(lab.cluster, [holder], ClusterQueueName("a"), {FR: 1})
    assert not fits_without(lab.cluster, [holder], ClusterQueueName("a"), {FR: 2})
    lab.cluster.validate()


class Nodes(NoTopology):
    """Whole workloads run on one node each; ``free`` GPUs are left on every node."""

    def __init__(self, free: dict[str, int]) -> None:
        self.free = free
        self.cluster: Cluster | None = None

    def needs(self, asked: TopologyRequest, flavor: ResourceFlavor, *, implied: bool) -> bool:  # noqa: ARG002
        return True

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:  # noqa: ARG002
        needed = sum(request.count * request.single_pod[GPU] for request in requests)
        return Placed({}) if max(self.free.values()) >= needed else PlacementNoFit("main", "no node has room")

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:  # noqa: ARG002
        self._change(flavor, usage, -1)

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:  # noqa: ARG002
        self._change(flavor, usage, 1)

    def _change(self, flavor: FlavorName, usage: TopologyUsage, sign: int) -> None:
        assert self.cluster is not None
        for domain in usage.domains:
            self.free[domain.values[-1]] += sign * domain.pods * usage.single_pod[GPU]
        self.cluster.undo.record(self._change, flavor, usage, -sign)


def on_node(holder: Holder, node: str, gpus: int) -> Holder:
    place = TopologyUsage(levels=("host",), domains=(Domain((node,), 1),), single_pod={GPU: gpus})
    pod_sets = tuple(msgspec.structs.replace(one, topology=place) for one in holder.info.pod_sets)
    return msgspec.structs.replace(holder, info=msgspec.structs.replace(holder.info, pod_sets=pod_sets))


def test_victims_go_until_there_is_a_node_and_not_only_quota() -> None:
    nodes = Nodes({"n1": 4, "n2": 4})
    lab = Lab()
    lab.cluster = Cluster(EngineConfig(), nodes)
    nodes.cluster = lab.cluster
    lab.preemption = Preemption(lab.cluster, lambda _: 0.0)
    lab.cluster.set_flavor(decode({"metadata": {"name": FLAVOR}, "spec": {"topologyName": "t"}}, ResourceFlavor))
    lab.queue("a", 8, preemption=EVERYBODY)
    for name, node, ran_s in [("newest", "n1", 1.0), ("newer", "n2", 2.0), ("old", "n2", 3.0), ("oldest", "n1", 4.0)]:
        lab.cluster.add_holder(on_node(lab.holder(name, "a", 2, ran_s=ran_s), node, 2))
    requests = {"containers": [{"name": "c", "resources": {"requests": {GPU: "4"}}}]}
    pod_set = decode({"name": "main", "count": 1, "template": {"spec": requests}}, PodSet)
    workload = Workload(metadata=ObjectMeta(name="in", uid="in"), spec=WorkloadSpec(pod_sets=(pod_set,)))
    incoming = lab.incoming("in", "a", 4, 5)
    incoming = msgspec.structs.replace(incoming, info=msgspec.structs.replace(incoming.info, workload=workload))
    # By quota the two newest would do; they run on different nodes.
    assert {one.holder.info.workload.metadata.name for one in lab.targets(incoming)} == {"newer", "old"}
    assert nodes.free == {"n1": 0, "n2": 0}
