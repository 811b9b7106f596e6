"""Histories of what random worlds of Kueue left out: several second passes in one cycle, elastic slices, variants of
one job, LimitRanges, transformed requests and flavors that change their order, all of it beside preemption on shared
nodes.

After every cycle the engine recomputes its sums, and the objects as they were written must add up: no node and no
cohort is given away twice, nobody is charged for anything but what its pods ask, and of the variants of a job one runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject, OwnerReference, find_condition, is_true
from controller.objects.placeencoding import decode as decode_places
from controller.objects.quantity import parse_quantity
from controller.objects.workload import UnhealthyNode, Workload
from controller.scheduler.decisions.decisions import Admitted, Evicted, SliceReplaced
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, InterruptionRules
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import INTERRUPTED_OFTEN
from tests.support.engine.contention import ASKS, Arrival, Leaving, on_nodes
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload

RACKS, NODES, NODE_GPUS = 2, 3, 2
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"
GATES = {
    "ElasticJobsViaWorkloadSlices": True,
    "ElasticJobsViaWorkloadSlicesWithTAS": True,
    "ConcurrentAdmission": True,
}
POLICIES: tuple[dict[str, Any], ...] = (
    {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
    {"withinClusterQueue": "Never", "reclaimWithinCohort": "LowerPriority"},
    {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"},
)

Act = Callable[[World], object]


def running(world: World) -> list[Workload]:
    """Workloads that hold quota and are not evicted."""
    return [
        one
        for one in world.workloads.values()
        if world.held(one) and not is_true(one.status.conditions, "Evicted") and not finished(one)
    ]


def settled(world: World) -> list[Workload]:
    """Those of them that stay: not a slice whose successor runs, and whose end could not be written yet."""
    found = running(world)
    replaced = {one.metadata.annotations.get(REPLACES) for one in found}
    return [one for one in found if one.key not in replaced]


def finished(one: Workload) -> bool:
    return is_true(one.status.conditions, "Finished")


def hosts(one: Workload) -> Iterator[tuple[str, int]]:
    admission = one.status.admission
    for assigned in admission.pod_set_assignments if admission is not None else ():
        if assigned.topology_assignment is not None:
            yield from ((values[-1], pods) for values, pods in decode_places(assigned.topology_assignment))


@dataclass(frozen=True)
class Lose:
    """Hosts of so many running workloads fail at once: as many second passes are due in one cycle, and heads beside
    them.
    """

    picks: tuple[int, ...]
    heads: tuple[Arrival, ...] = ()

    def __call__(self, world: World) -> None:
        placed = sorted((one for one in settled(world) if any(hosts(one))), key=lambda one: one.key)
        lost: set[str] = set()
        for pick in self.picks:
            if placed:
                lost.add(min(hosts(placed[pick % len(placed)]))[0])
        for host in sorted(lost):
            world.engine.drop(Node, "", host, world.now_s)
        for one in placed:
            here = sorted(lost.intersection(name for name, _ in hosts(one)))
            if here:
                known = (*one.status.unhealthy_nodes, *(UnhealthyNode(name=name) for name in here))
                world.put(
                    msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, unhealthy_nodes=known))
                )
        for head in self.heads:
            head(world)
        world.now_s += 1.0


@dataclass(frozen=True)
class Return:
    """All nodes are there again; who had lost some has none to lose."""

    def __call__(self, world: World) -> None:
        world.put(*(one for one in on_nodes(RACKS, NODES) if isinstance(one, Node)))
        for one in list(world.workloads.values()):
            if one.status.unhealthy_nodes:
                world.put(msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, unhealthy_nodes=())))


@dataclass(frozen=True)
class Resize:
    """A running workload asks for another number of pods, by a slice that is to replace it."""

    pick: int
    pods: int

    def __call__(self, world: World) -> None:
        replaced = {one.metadata.annotations.get(REPLACES) for one in world.workloads.values()}
        names = sorted(
            one.key for one in settled(world) if one.key not in replaced and not one.metadata.owner_references
        )
        if not names:
            return
        old = world.workloads[WorkloadKey(names[self.pick % len(names)])]
        number = world.arrived = world.arrived + 1
        (pod_set,) = old.spec.pod_sets
        more = msgspec.structs.replace(pod_set, count=self.pods, min_count=None)
        metadata = msgspec.structs.replace(
            old.metadata, name=f"w{number}", uid=f"uid-w{number}", annotations={REPLACES: old.key}
        )
        made = workload(f"w{number}", old.spec.queue_name, created_s=number)
        metadata = msgspec.structs.replace(metadata, creation_timestamp=made.metadata.creation_timestamp)
        spec = msgspec.structs.replace(old.spec, pod_sets=(more,))
        world.put(msgspec.structs.replace(made, metadata=metadata, spec=spec))


@dataclass(frozen=True)
class Variants:
    """One job, once for each flavor of queue ``v``. ``unit``: the resource asked for; None: what is the default."""

    gpus: int
    unit: str | None = "gpu"

    def __call__(self, world: World) -> None:
        number = world.arrived = world.arrived + 1
        owner = OwnerReference(api_version=KUEUE, kind="Workload", name=f"j{number}", uid=f"j{number}", controller=True)
        for name in ("best", "good"):
            made = workload(f"w{number}{name}", "v", annotations={ALLOWED: name}, created_s=number)
            made = requesting(made, {self.unit: str(self.gpus)} if self.unit is not None else {})
            metadata = msgspec.structs.replace(made.metadata, owner_references=(owner,))
            world.put(msgspec.structs.replace(made, metadata=metadata))


@dataclass(frozen=True)
class Limit:
    """The namespace's LimitRange: what a container asks by default, and the most that it may ask."""

    default: int
    most: int

    def __call__(self, world: World) -> None:
        item = {"type": "Container", "defaultRequest": {"gpu": str(self.default)}, "max": {"gpu": str(self.most)}}
        metadata = {"name": "l", "namespace": "ns"}
        data = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [item]}}
        world.put(decode_object(data))


@dataclass(frozen=True)
class Marked:
    """A flavor's nodes are taken away too often, or not any more: another flavor is tried first."""

    name: str
    often: bool

    def __call__(self, world: World) -> None:
        made = flavor(self.name)
        notes = {INTERRUPTED_OFTEN: "2.00"} if self.often else {}
        world.put(msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes)))


@dataclass(frozen=True)
class Refused:
    """One cycle in which writes of one kind fail."""

    what: type[Admitted] | type[Evicted] | type[SliceReplaced]

    def __call__(self, world: World) -> None:
        world.cycle(refuse=[self.what])


def _acts() -> st.SearchStrategy[list[Act]]:
    small = st.integers(0, 9)
    arriving = st.builds(
        Arrival,
        st.sampled_from(("a", "b")),
        st.integers(1, 2),
        st.integers(0, 2),
        st.integers(1, 4),
        st.none(),
        st.sampled_from(ASKS),
    )
    acts: st.SearchStrategy[Act] = st.one_of(
        arriving,
        arriving,
        st.builds(Lose, st.tuples(small, small) | st.tuples(small)),
        st.builds(Return),
        st.builds(Resize, small, st.integers(1, 5)),
        st.builds(Variants, st.integers(1, 2), st.sampled_from(("gpu", "vgpu", None))),
        st.builds(Limit, st.integers(1, 2), st.integers(1, 3)),
        st.builds(Marked, st.sampled_from(("best", "good")), st.booleans()),
        st.builds(Leaving, st.sampled_from(("stop", "stop", "finish", "delete")), small),
        st.builds(Refused, st.sampled_from((Admitted, Evicted, SliceReplaced))),
        st.sampled_from((World.cycle, World.settle)),
    )
    filling = st.lists(
        st.builds(Arrival, st.sampled_from(("a", "b")), st.just(1), st.just(0), st.integers(1, 2)), max_size=6
    )
    losing: st.SearchStrategy[Act] = st.one_of(acts, st.builds(Lose, st.tuples(small, small), st.tuples(arriving)))
    later = st.lists(losing, min_size=6, max_size=24)
    return st.tuples(filling, later).map(lambda both: [*both[0], World.settle, *both[1]])


@st.composite
def objects(draw: st.DrawFn) -> list[KubernetesObject]:
    found: list[KubernetesObject] = [*on_nodes(RACKS, NODES), flavor("best"), flavor("good")]
    for name in ("a", "b"):
        found += [
            cluster_queue(
                name,
                draw(st.integers(3, 8)),
                cohort=draw(st.sampled_from(("", "one", "one"))),
                preemption=draw(st.sampled_from(POLICIES)),
                queueingStrategy=draw(st.sampled_from(("BestEffortFIFO", "StrictFIFO"))),
            ),
            local_queue(name),
        ]
    quota = draw(st.integers(2, 4))
    return [*found, cluster_queue("v", quota, flavors=("best", "good"), preemption=POLICIES[0]), local_queue("v")]


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    doubled = Transformation(input="vgpu", strategy="Replace", outputs={"gpu": parse_quantity("2")})
    return EngineConfig(
        gates=FeatureGates({**GATES, "TASFailedNodeReplacementFailFast": draw(st.booleans())}),
        fair_sharing=draw(st.sampled_from((None, FairSharing()))),
        request_rules=RequestRules(transformations=[doubled]),
        extensions=Extensions(reserve_for_preemptor=draw(st.booleans()), interruptions=InterruptionRules()),
    )


@settings(max_examples=30)
@given(objects(), _acts(), configs())
def test_nothing_is_given_twice_whatever_comes_together(
    given_: list[KubernetesObject], acts: list[Act], config: EngineConfig
) -> None:
    world = World(config)
    world.put(*given_)
    for act in acts:
        act(world)
        adds_up(world)
        world.cycle()
        adds_up(world)
        world.now_s += 1.0
    for _ in range(40):
        world.now_s += 40.0
        world.settle()
        adds_up(world)
        if not world.stop_evicted():
            break
    # One that was preempted before its successor came queues again by itself: its job's controller would end it.
    left = [one for one in running(world) if find_condition(one.status.conditions, "Evicted") is None]
    assert all(one in settled(world) for one in left), "slices whose end was never written"


def adds_up(world: World) -> None:
    cluster = world.engine.state.cluster
    stay = settled(world)
    pods = Counter[str]()
    for one in stay:
        lost = {node.name for node in one.status.unhealthy_nodes}
        gpus = _gpus(one)
        for host, count in hosts(one):
            if host not in lost:
                pods[host] += gpus * count
    assert all(used <= NODE_GPUS for used in pods.values()), pods
    trees = Counter[str]()
    for one in stay:
        holder = cluster.holders[WorkloadKey(one.key)]
        charge = sum(holder.usage.values())
        asked = _requests(one)
        if "gpu" in asked:
            assert charge == one.spec.pod_sets[0].count * asked["gpu"]
        else:
            # A virtual one counts as two, and the default of the LimitRange is added where there was one.
            assert charge - 2 * asked.get("vgpu", 0) in {0, 1, 2}
        trees[cluster.queues[holder.cluster_queue].node.root().name] += charge
    for name, used in trees.items():
        queues = [queue for queue in cluster.queues.values() if queue.node.root().name == name]
        assert used <= sum(queue.node.quota(fr) for queue in queues for fr in queue.flavor_resources)
    jobs = Counter(owner.uid for one in stay for owner in one.metadata.owner_references)
    assert all(count == 1 for count in jobs.values()), jobs


def _requests(one: Workload) -> dict[str, int]:
    resources = one.spec.pod_sets[0].template.spec.containers[0].resources
    return {name: int(quantity.fraction) for name, quantity in resources.requests.items()}


def _gpus(one: Workload) -> int:
    return _requests(one).get("gpu", 0)
