"""Whatever happens: no device twice, gangs whole, linked sets linked, trials undone to the last device."""

from itertools import combinations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.objects.workload import PodSetTopologyRequest
from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.model.devicerequest import Link
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.placement import Topologies
from tests.support.engine.boards import full, gpu_node, hosts, job, none, pairs, plan, pod_of, world_of
from tests.support.engine.topologylab import RACK
from tests.support.engine.world import World

WIRINGS = {"pairs": pairs, "full": full, "none": none}
GPUS = 4


def device_cache(world: World) -> DeviceCache:
    placement = world.engine.state.cluster.placement
    assert isinstance(placement, Topologies)
    return placement.devices


def most_sets(wiring: str, free: frozenset[int], size: int) -> int:
    """Disjoint sets of linked GPUs, by trying everything."""
    linked = [
        frozenset(one)
        for one in combinations(sorted(free), size)
        if all(WIRINGS[wiring](a, b) for a, b in combinations(one, 2))
    ]
    return max((1 + most_sets(wiring, free - one, size) for one in linked), default=0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(WIRINGS)), st.sets(st.integers(0, 3))), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_gang_is_placed_exactly_where_trying_everything_finds_places(
    machines: list[tuple[str, set[int]]], size: int, count: int, packs: bool
) -> None:
    told = [
        gpu_node(f"n{at}", GPUS, WIRINGS[wiring], holders={"x": sorted(taken)})
        for at, (wiring, taken) in enumerate(machines)
    ]
    world = world_of(told, packs=packs)
    world.put(job("w", size, count, asked=PodSetTopologyRequest(required=RACK), link="nvlink"))
    world.settle()
    sets = [most_sets(wiring, frozenset(range(GPUS)) - taken, size) for wiring, taken in machines]
    placed = hosts(world, "w")
    assert bool(placed) == (sum(sets) >= count)
    for at, (wiring, taken) in enumerate(machines):
        given_ = plan(world, "w", f"n{at}")
        assert len(given_) == placed.get(f"n{at}", 0)
        indexes = [[int(uuid.rpartition("-")[2]) for uuid in one] for one in given_]
        assert sorted(i for one in indexes for i in one) == sorted({i for one in indexes for i in one} - taken)
        assert all(len(one) == size for one in indexes)
        assert all(WIRINGS[wiring](a, b) for one in indexes for a, b in combinations(one, 2))


class Cluster(RuleBasedStateMachine):
    """Workloads, pods and agents in any order; the agents know what the kubelets gave, plan or no plan."""

    @initialize(wirings=st.lists(st.sampled_from(sorted(WIRINGS)), min_size=1, max_size=3), packs=st.booleans())
    def begin(self, wirings: list[str], packs: bool) -> None:
        self.wirings = wirings
        self.holders: list[dict[str, tuple[int, ...]]] = [{} for _ in wirings]
        self.sick: list[set[int]] = [set() for _ in wirings]
        self.count = 0
        self.world = world_of(
            [gpu_node(f"n{at}", GPUS, WIRINGS[one]) for at, one in enumerate(wirings)],
            packs=packs,
            preemption={"withinClusterQueue": "LowerPriority"},
        )

    def report(self, at: int) -> None:
        self.world.put(
            gpu_node(f"n{at}", GPUS, WIRINGS[self.wirings[at]], sick=self.sick[at], holders=self.holders[at])
        )

    @rule(
        gpus=st.integers(1, 4),
        count=st.integers(1, 3),
        link=st.sampled_from(["", "nvlink", "pcie", "wished"]),
        priority=st.integers(0, 2),
    )
    def come(self, gpus: int, count: int, link: str, priority: int) -> None:
        self.count += 1
        asked: dict[str, Any] = {} if not link else {"wished": "nvlink"} if link == "wished" else {"link": link}
        self.world.put(job(f"w{self.count}", gpus, count, priority=priority, created_s=self.count, **asked))
        self.decide()

    def decide(self) -> None:
        for _ in range(20):
            self.world.settle()
            if not self.world.stop_evicted():
                return
            self.world.now_s += 1.0

    @precondition(lambda self: self.world.running())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.world.finish(data.draw(st.sampled_from(sorted(self.world.running()))))
        self.decide()

    @precondition(lambda self: self.world.running())
    @rule(data=st.data(), obedient=st.booleans())
    def start_a_pod(self, data: st.DataObject, obedient: bool) -> None:
        """A pod is let go with its plan, and the kubelet gives it that or whatever is free."""
        name = data.draw(st.sampled_from(sorted(self.world.running())))
        for host in hosts(self.world, name):
            at, pod = int(host[1:]), f"{name}-{host}"
            planned = plan(self.world, name, host)
            if not planned or pod in self.holders[at]:
                continue
            self.world.put(pod_of(pod, name, host, ",".join(planned[0]), len(planned[0])))
            held = {index for one in self.holders[at].values() for index in one}
            free = [index for index in range(GPUS) if index not in held | self.sick[at]]
            mine = [int(uuid.rpartition("-")[2]) for uuid in planned[0]]
            if not (obedient and set(mine) <= set(free)):
                mine = free[-len(mine) :] if len(free) >= len(mine) else []
            if mine:
                self.holders[at][pod] = tuple(mine)
                self.report(at)
        self.decide()

    @rule(data=st.data())
    def stop_pods(self, data: st.DataObject) -> None:
        """Pods of workloads that have ended or were evicted are gone."""
        at = data.draw(st.integers(0, len(self.wirings) - 1))
        running = self.world.running()
        self.holders[at] = {pod: held for pod, held in self.holders[at].items() if pod.split("-")[0] in running}
        self.report(at)
        self.decide()

    @rule(data=st.data(), index=st.integers(0, GPUS - 1))
    def fail_or_heal(self, data: st.DataObject, index: int) -> None:
        at = data.draw(st.integers(0, len(self.wirings) - 1))
        self.sick[at] ^= {index}
        self.report(at)
        self.decide()

    @rule()
    def ask_why(self) -> None:
        """A question changes no device."""
        before = self.grants()
        for key in list(self.world.workloads):
            self.world.engine.explain(key, self.world.now_s)
        assert self.grants() == before

    @precondition(lambda self: self.world.running())
    @rule(data=st.data())
    def try_without_somebody(self, data: st.DataObject) -> None:
        before = self.grants()
        cluster = self.world.engine.state.cluster
        names = data.draw(st.lists(st.sampled_from(sorted(self.world.running())), unique=True))
        with cluster.trial():
            for name in names:
                cluster.release(cluster.holders[WorkloadKey(f"ns/{name}")])
            device_cache(self.world).validate()
            for name in names[1:]:
                cluster.charge(cluster.holders[WorkloadKey(f"ns/{name}")])
            device_cache(self.world).validate()
            assert {key for key in self.grants() if key[1] in names[1:]} <= set(before)
        assert self.grants() == before

    def grants(self) -> dict[tuple[str, str], object]:
        return {
            (name, grant.owner.workload.removeprefix("ns/")): (grant.pods, grant.sets)
            for name, state in device_cache(self.world).nodes.items()
            for grant in state.grants
        }

    @invariant()
    def all_is_sound(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.engine.validate()
        running = self.world.running()
        for name, at in product(running, range(len(self.wirings))):
            pods = hosts(self.world, name).get(f"n{at}", 0)
            assert len(plan(self.world, name, f"n{at}")) <= pods
        for at, wiring in enumerate(self.wirings):
            planned = [(name, uuid) for name in running for one in plan(self.world, name, f"n{at}") for uuid in one]
            held = {f"n{at}-{index}" for one in self.holders[at].values() for index in one}
            fresh = [uuid for _, uuid in planned if uuid not in held]
            assert len(set(fresh)) == len(fresh), "a device is planned twice"
            assert not {int(uuid.rpartition("-")[2]) for uuid in fresh} & self.sick[at], "a failed device is planned"
            del wiring


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_links_are_words_that_annotations_may_say() -> None:
    assert [str(one) for one in Link] == ["nvlink", "pcie", "numa"]
