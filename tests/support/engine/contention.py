"""Histories in which there is never enough: all is taken by the lowest, others come who may make them go, few leave."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject, ObjectMeta
from controller.objects.queues import Topology
from controller.objects.workload import PodSetTopologyRequest
from controller.scheduler.model.config import EngineConfig
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

QUEUES = ("a", "b", "c")
PREEMPTING: tuple[dict[str, Any], ...] = (
    {"withinClusterQueue": "LowerPriority"},
    {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"},
    {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    },
)
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
ASKS: tuple[dict[str, Any] | None, ...] = (
    {"required": RACK},
    {"preferred": RACK},
    {"required": HOST},
    {"unconstrained": True},
    None,
)

Act = Callable[[World], object]


@dataclass(frozen=True)
class Arrival:
    queue: str
    gpus: int
    priority: int = 0
    pods: int = 1
    least: int | None = None
    ask: dict[str, Any] | None = None

    def __call__(self, world: World) -> None:
        number = world.arrived = world.arrived + 1
        given = workload(
            f"w{number}",
            self.queue,
            self.gpus,
            priority=self.priority,
            count=self.pods,
            least=self.least,
            created_s=number,
        )
        (pod_set,) = given.spec.pod_sets
        asking = msgspec.structs.replace(
            pod_set, topology_request=msgspec.convert(self.ask, PodSetTopologyRequest | None)
        )
        spec = msgspec.structs.replace(given.spec, pod_sets=(asking,))
        world.put(msgspec.structs.replace(given, spec=spec))


@dataclass(frozen=True)
class Leaving:
    """One of those that hold quota, or the first that is evicted."""

    how: str
    pick: int = 0

    def __call__(self, world: World) -> None:
        names = sorted(world.running())
        if self.how == "stop":
            world.stop_evicted(1)
        elif names:
            {"finish": world.finish, "delete": world.delete}[self.how](names[self.pick % len(names)])


class Story(NamedTuple):
    objects: list[KubernetesObject]
    acts: list[Act]
    at_once: int | None
    """How many of the evicted leave between two looks at the world, in the end; None: all."""

    def world(self, config: EngineConfig) -> World:
        """What has become of it once nobody is on the way out any more; those that evict each other for ever go on
        leaving.
        """
        world = World(config)
        world.put(*self.objects)
        for act in self.acts:
            act(world)
        world.rest(60, at_once=self.at_once)
        return world


def begins_anew(world: World, config: EngineConfig, *, unless_woken: bool = False) -> list[tuple[str, str]]:
    """What a controller does that finds this world when it starts, but for words of waiting.

    ``unless_woken``: nothing where it evicts and the one that runs does the same once it is woken. An admission that
    enlarges a share, or makes a queue borrow, gives others victims and wakes nobody (as in Kueue): they are looked at
    with the next change that may concern them.
    """
    fresh = World(config)
    fresh.now_s = world.now_s
    fresh.put(*world.others.values(), *world.workloads.values())
    fresh.settle()
    found = _changes(fresh)
    if not unless_woken or not found or found[0][0] != "Evicted":
        return found
    before = len(_changes(world))
    world.put(Topology(metadata=ObjectMeta(name="another")))
    world.settle()
    return [] if _changes(world)[before:] == found else found


def _changes(world: World) -> list[tuple[str, str]]:
    return [(what, str(key)) for what, key in world.log if what != "Pending"]


def _acts(queues: tuple[str, ...], asks: tuple[dict[str, Any] | None, ...]) -> st.SearchStrategy[list[Act]]:
    gpus, priorities, least = st.integers(1, 2 if len(asks) > 1 else 5), st.integers(0, 2), st.none() | st.just(1)
    counts = st.integers(1, 4) if len(asks) > 1 else st.sampled_from((1, 1, 3))
    arriving = st.builds(Arrival, st.sampled_from(queues), gpus, priorities, counts, least, st.sampled_from(asks))
    leaving = st.builds(Leaving, st.sampled_from(("stop", "stop", "finish", "delete")), st.integers(0, 9))
    looking: st.SearchStrategy[Act] = st.sampled_from((World.cycle, World.settle))
    acts: st.SearchStrategy[Act] = st.one_of(arriving, arriving, leaving, looking)
    return st.lists(acts, min_size=4, max_size=20)


# Made once: Hypothesis looks each new strategy through before it draws from it.
_POLICY = st.sampled_from(PREEMPTING)
_ASK = st.sampled_from(ASKS)
_AT_ONCE = st.sampled_from((1, 1, 2, None))
_COMING_TO_QUEUES = _acts(QUEUES, (None,))
_COMING_TO_NODES = _acts(QUEUES[:2], ASKS)


@st.composite
def full_queues(draw: st.DrawFn) -> Story:
    """Three queues, most of them of one cohort; quota alone counts."""
    policy = draw(_POLICY)
    objects: list[KubernetesObject] = [flavor()]
    filling: list[Act] = []
    for name in QUEUES:
        objects += [_queue(draw, name, draw(st.integers(3, 6)), policy), local_queue(name)]
        filling.extend(Arrival(name, 1) for _ in range(7))
    return Story(objects, [*filling, World.settle, *draw(_COMING_TO_QUEUES)], draw(_AT_ONCE))


@st.composite
def full_nodes(draw: st.DrawFn) -> Story:
    """Two queues that share six nodes of two GPUs in two racks, and no cohort as often as one."""
    policy = draw(_POLICY)
    objects = on_nodes(racks=2, nodes=3)
    filling: list[Act] = []
    for name in QUEUES[:2]:
        objects += [_queue(draw, name, draw(st.integers(4, 7)), policy), local_queue(name)]
        filling.extend(Arrival(name, 1, ask=draw(_ASK)) for _ in range(7))
    coming = draw(_COMING_TO_NODES)
    return Story(objects, [*filling, World.settle, *coming], draw(_AT_ONCE))


def on_nodes(racks: int, nodes: int) -> list[KubernetesObject]:
    """A flavor with a topology, and its nodes of two GPUs."""
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    found = [decode_object(topology), flavor(nodeLabels={"gpu": "yes"}, topologyName="racks")]
    return found + [_node(f"r{rack}n{node}", f"r{rack}") for rack in range(racks) for node in range(nodes)]


def _queue(draw: st.DrawFn, name: str, nominal: int, policy: dict[str, Any]) -> KubernetesObject:
    return cluster_queue(
        name,
        nominal,
        cohort=draw(st.sampled_from(("", "one", "one"))),
        borrow=draw(st.sampled_from((None, None, 2))),
        preemption=policy,
        queueingStrategy=draw(st.sampled_from(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"))),
    )


def _node(name: str, rack: str) -> KubernetesObject:
    labels = {"gpu": "yes", RACK: rack, HOST: name}
    status = {"allocatable": {"gpu": "2", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "labels": labels}
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
