"""Percents from the queue to the kubelet: planned container by container, told in few words, and given as planned.

engine -> plan -> pod's annotation -> agent.kubelet.plans -> kubelet, container by container -> report, late -> engine
"""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from agent.kubelet.plans import BoundPod, Demand, Plans
from controller.reconcile.placing.devicedealer import DeviceDealer
from inventory.api import deviceplan
from inventory.devices import DeviceId
from inventory.layout.entries import PERCENT_RESOURCE
from tests.controller.scheduler.devices.test_fractions import containers, fractional, known
from tests.support.engine.boards import hosts, pod_of
from tests.support.engine.world import World
from tests.support.seeds import histories

GPUS = 3
ALL = tuple(DeviceId(f"a-{gpu}::{n}") for gpu in range(GPUS) for n in range(100))
SHAPES = ((60, 60), (100,), (30, 30, 60), (10,), (50, 20), (90, 20), (40, 40, 40), (70,))


@dataclass
class Pod:
    name: str
    sizes: tuple[int, ...]
    told: str
    given: list[DeviceId] = field(default_factory=list)


@dataclass
class Scene:
    """One node of fractional GPUs; its agent reports now and then."""

    chance: random.Random
    world: World = field(default_factory=lambda: known(fractional("a", GPUS)))
    agent: Plans = field(default_factory=Plans)
    pods: dict[str, Pod] = field(default_factory=dict)
    to_bind: deque[Pod] = field(default_factory=deque)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def submit(self, name: str) -> None:
        self.sizes[name] = self.chance.choice(SHAPES)
        self.world.put(containers(name, *self.sizes[name]))
        self.settle()

    def settle(self) -> None:
        self.world.settle()
        self.world.engine.validate()
        for key in list(self.world.workloads):
            name = key.partition("/")[2]
            if name not in self.pods and hosts(self.world, name):
                told = DeviceDealer(self.world.engine.device_plan, key, ()).take("main", "a")
                self.pods[name] = Pod(name, self.sizes[name], told)
                self.to_bind.append(self.pods[name])
                self.world.put(pod_of(name, name, "a", told, phase="Pending"))

    def serve(self) -> None:
        """The scheduler counts percents of the node; the kubelet gives each container its own."""
        while self.to_bind and len(self._free()) >= sum(self.to_bind[0].sizes):
            pod = self.to_bind.popleft()
            demands = tuple(Demand(PERCENT_RESOURCE, size) for size in pod.sizes)
            plan = deviceplan.devices(pod.told)
            bound = BoundPod(uid=pod.name, key=("ns", pod.name), age=len(self.pods), demands=demands, plan=plan)
            self.agent.bound(bound)
            for size in pod.sizes:
                choice = self.agent.choose(PERCENT_RESOURCE, self._free(), (), size)
                assert len(choice.devices) == size, f"no plan for {size} percent of {pod.told}"
                assert len({one.partition("::")[0] for one in choice.devices}) == 1, "on several GPUs"
                pod.given += choice.devices
                self.agent.given(PERCENT_RESOURCE, choice.devices)
                self.agent.validate()
            self.agent.unbound(pod.name)
            self.world.put(pod_of(pod.name, pod.name, "a", pod.told))

    def _free(self) -> list[DeviceId]:
        held = {one for pod in self.pods.values() for one in pod.given}
        return [one for one in ALL if one not in held]

    def report(self) -> None:
        self.agent.held({one: ("ns", pod.name) for pod in self.pods.values() for one in pod.given})
        board: dict[str, Any] = {
            name: Counter(one.partition("::")[0] for one in pod.given) for name, pod in self.pods.items() if pod.given
        }
        self.world.put(fractional("a", GPUS, held=board))
        self.world.engine.validate()

    def end(self) -> None:
        running = [pod for pod in self.pods.values() if pod.given]
        if running:
            pod = self.chance.choice(running)
            self.world.put(pod_of(pod.name, pod.name, "a", pod.told, phase="Succeeded"))
            assert Counter(one.partition("::")[0] for one in pod.given) == Counter(deviceplan.devices(pod.told))
            pod.given.clear()
            self.world.finish(pod.name)
            self.settle()


@histories(0, 1)
def test_every_container_gets_the_part_of_a_gpu_that_was_planned_for_it(seed: int) -> None:
    chance = random.Random(seed)
    scene, number = Scene(chance), 0
    while number < 25 or scene.world.workloads:
        step = chance.randrange(4)
        if step == 0 and number < 25:
            scene.submit(f"j{number}")
            number += 1
        elif step == 1:
            scene.end()
        elif step == 2:
            scene.report()
        scene.settle()
        scene.serve()
    assert len(scene.pods) == 25
