"""The engine's plans, the agent's advice and a kubelet of which nobody hears in time: what pods really get.

engine -> plan -> pod's annotation -> agent.kubelet.plans -> kubelet -> report, late -> engine
"""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from agent.kubelet.plans import BoundPod, Demand, Plans
from controller.reconcile.placing.devicedealer import DeviceDealer
from inventory.devices import DeviceId, ResourceName
from tests.support.engine.boards import full, gpu_node, hosts, job, pod_of, world_of
from tests.support.seeds import histories

GPU = ResourceName("gpu")
GPUS = 8
ALL = tuple(DeviceId(f"a-{index}") for index in range(GPUS))


@dataclass
class Pod:
    name: str
    job: str
    size: int
    plan: tuple[str, ...]
    given: tuple[str, ...] = ()

    def bound(self, age: int) -> BoundPod:
        demands = (Demand(GPU, self.size),)
        return BoundPod(
            uid=self.name, key=("ns", self.name), age=age, demands=demands, plan=self.plan, workload=self.job
        )


@dataclass
class Scene:
    """One node whose agent reports now and then: what it says of pods is about some that have ended."""

    chance: random.Random
    pods: list[Pod] = field(default_factory=list)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    to_bind: deque[Pod] = field(default_factory=deque)
    started: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    """GPUs of each pod, by job."""

    def __post_init__(self) -> None:
        self.world = world_of([gpu_node("a", GPUS, full)])
        self.agent = Plans()

    def submit(self, name: str) -> None:
        pods, size = self.chance.choice(((1, 8), (2, 4), (3, 2), (4, 2), (4, 1), (2, 1)))
        self.sizes[name] = size
        self.world.put(job(name, size, pods, created_s=len(self.world.workloads)))
        self.world.settle()

    def ungate(self) -> None:
        """Pods of what was admitted since, each told its plan when it is let go."""
        for key in list(self.world.workloads):
            name = key.partition("/")[2]
            if name in self.started or not hosts(self.world, name):
                continue
            self.started.add(name)
            dealt = DeviceDealer(self.world.engine.device_plan, key, ())
            size = self.sizes[name]
            for number in range(hosts(self.world, name)["a"]):
                told = dealt.take("main", "a")
                pod = Pod(f"{name}-{number}", name, size, tuple(told.split(",")) if told else ())
                self.pods.append(pod)
                self.to_bind.append(pod)
                self.world.put(pod_of(pod.name, name, "a", told, size, phase="Pending"))

    def serve(self) -> None:
        """The scheduler binds who has room by number, the kubelet asks the agent, the agent prefers."""
        free = [one for one in ALL if all(one not in devices for devices in self.held.values())]
        while self.to_bind and len(free) >= self.to_bind[0].size:
            pod = self.to_bind.popleft()
            self.agent.bound(pod.bound(len(self.pods)))
            choice = self.agent.choose(GPU, free, (), pod.size)
            rest = [one for one in free if one not in choice.avoid]
            got = choice.devices or tuple((rest if len(rest) >= pod.size else free)[: pod.size])
            self.agent.given(GPU, got)
            self.agent.validate()
            self.agent.unbound(pod.name)
            pod.given = self.held[pod.name] = tuple(sorted(got))
            free = [one for one in free if one not in got]
            self.world.put(pod_of(pod.name, pod.job, "a", ",".join(pod.plan), pod.size))

    def report(self) -> None:
        indexes = {pod: tuple(int(one[2:]) for one in devices) for pod, devices in self.held.items()}
        self.agent.held({DeviceId(one): ("ns", pod) for pod, devices in self.held.items() for one in devices})
        self.world.put(gpu_node("a", GPUS, full, holders=indexes))

    def end(self, name: str) -> None:
        """All pods of a job that runs."""
        mine = [pod for pod in self.pods if pod.job == name]
        for pod in mine:
            self.world.put(pod_of(pod.name, name, "a", ",".join(pod.plan), pod.size, phase="Succeeded"))
            del self.held[pod.name]
        self.world.finish(name)
        self.world.settle()

    def running(self) -> list[str]:
        jobs = {pod.job for pod in self.pods}
        alive = {key.partition("/")[2] for key in self.world.workloads}
        return sorted(one for one in jobs & alive if all(pod.given for pod in self.pods if pod.job == one))


def played(seed: int, jobs: int = 20) -> list[Pod]:
    scene, chance, number = Scene(random.Random(seed)), random.Random(seed + 1), 0
    while number < jobs or scene.world.workloads:
        step = chance.randrange(4)
        if step == 0 and number < jobs:
            scene.submit(f"j{number}")
            number += 1
        elif step == 1 and (running := scene.running()):
            scene.end(chance.choice(running))
        elif step == 2:
            scene.report()
        scene.ungate()
        scene.serve()
    return scene.pods


def kept(pods: list[Pod]) -> float:
    plans = Counter((pod.job, tuple(sorted(pod.plan))) for pod in pods)
    return sum(plans[pod.job, pod.given] > 0 for pod in pods) / len(pods)


@histories(0, 1)
def test_every_pod_gets_its_plan_however_late_the_agent_reports(seed: int) -> None:
    assert kept(played(seed)) == 1.0
