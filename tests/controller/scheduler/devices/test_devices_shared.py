"""Random days of nodes whose GPUs are shared: whoever comes, goes, comes again or drifts, the sums stay true."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from controller.objects.workload import PodSetTopologyRequest
from tests.support.engine.boards import full, gpu_node, hosts, job, none, pairs, plan, pod_of, world_of
from tests.support.engine.topologylab import RACK, node
from tests.support.engine.world import World
from tests.support.seeds import histories

GPUS = 4


@dataclass
class Day:
    chance: random.Random
    replicas: int
    names: list[str] = field(default_factory=list)
    holders: list[dict[str, tuple[int, ...]]] = field(default_factory=lambda: [{}, {}])
    sick: list[set[int]] = field(default_factory=lambda: [set(), set()])

    def __post_init__(self) -> None:
        self.wirings = [self.chance.choice((pairs, full, none)) for _ in self.holders]
        packs = self.chance.random() < 0.5
        self.world: World = world_of([], packs=packs, preemption={"withinClusterQueue": "LowerPriority"})
        for at in range(len(self.holders)):
            self.world.put(node(f"b/r/n{at}", GPUS * self.replicas))
            self.report(at)

    def report(self, at: int) -> None:
        told: dict[str, Any] = {"product": "AB"[at], "memory_mib": 40960 * (1 + at), "replicas": self.replicas}
        self.world.put(
            gpu_node(f"n{at}", GPUS, self.wirings[at], per_numa=2, sick=self.sick[at], holders=self.holders[at], **told)
        )

    def come(self) -> None:
        """A new workload, or one that was there before."""
        gone = [name for name in self.names if f"ns/{name}" not in self.world.workloads]
        name = self.chance.choice(gone) if gone and self.chance.random() < 0.3 else f"w{len(self.names)}"
        asked: dict[str, Any] = {}
        if self.chance.random() < 0.5:
            asked[self.chance.choice(("link", "wished"))] = self.chance.choice(("nvlink", "pcie", "numa"))
        if self.chance.random() < 0.3:
            asked |= self.chance.choice(({"product": "A"}, {"memory": "80"}))
        where = PodSetTopologyRequest(required=RACK) if self.chance.random() < 0.5 else None
        size, count, priority = self.chance.randint(1, GPUS), self.chance.randint(1, 3), self.chance.randint(0, 2)
        made = job(name, size, count, priority=priority, created_s=len(self.names), asked=where, **asked)
        self.names += [name] if name not in self.names else []
        self.world.put(made)

    def start(self) -> None:
        """The kubelet gives the pods of one workload their plan, or something else."""
        name = self.chance.choice(sorted(self.world.running()))
        for host in hosts(self.world, name):
            at = int(host[1:])
            for number, devices in enumerate(plan(self.world, name, host)):
                pod = f"{name}-{host}-{number}"
                if pod in self.holders[at]:
                    continue
                used = Counter(index for held in self.holders[at].values() for index in held)
                mine = tuple(int(uuid[-1]) for uuid in devices)
                if self.chance.random() < 0.2:
                    free = [
                        one for one in range(GPUS) for _ in range(self.replicas - used[one]) if one not in self.sick[at]
                    ]
                    mine = tuple(self.chance.sample(free, len(mine))) if len(free) >= len(mine) else ()
                self.world.put(pod_of(pod, name, host, ",".join(devices), len(devices)))
                if all(count <= self.replicas for count in (used + Counter(mine)).values()):
                    self.holders[at] |= {pod: mine} if mine else {}
            self.report(at)

    def end(self) -> None:
        """Its pods go a while after it, as like as not."""
        name = self.chance.choice(sorted(self.world.running()))
        self.world.finish(name)
        if self.chance.random() < 0.6:
            self.sweep()

    def sweep(self) -> None:
        running = self.world.running()
        for at, held in enumerate(self.holders):
            self.holders[at] = {pod: one for pod, one in held.items() if pod.split("-")[0] in running}
            self.report(at)

    def fail_or_heal(self) -> None:
        at = self.chance.randrange(len(self.sick))
        self.sick[at] ^= {self.chance.randrange(GPUS)}
        self.report(at)

    def step(self) -> None:
        acts = [self.come, self.come, self.fail_or_heal, self.sweep]
        self.chance.choice([*acts, self.start, self.start, self.end] if self.world.running() else acts)()
        for _ in range(20):
            self.world.settle()
            self.world.engine.validate()
            if not self.world.stop_evicted():
                break
            self.world.now_s += 1.0

    def check(self) -> None:
        for at, held in enumerate(self.holders):
            given = Counter(
                uuid for name in self.world.running() for one in plan(self.world, name, f"n{at}") for uuid in one
            )
            truly = Counter(f"n{at}-{index}" for one in held.values() for index in one)
            assert all(count <= max(self.replicas, truly[uuid]) for uuid, count in given.items()), "given too often"


@histories(104, 145)
def test_no_device_is_given_more_often_than_it_may_be(seed: int) -> None:
    chance = random.Random(seed)
    day = Day(chance, replicas=1 + seed % 2)
    for _ in range(60):
        day.step()
        day.check()
