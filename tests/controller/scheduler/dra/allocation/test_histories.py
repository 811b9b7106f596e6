"""Slices, claims, pods and gangs in any order: whatever happens, no device is planned twice and no sum drifts."""

import random

from controller.objects.core import Pod
from controller.objects.deviceclaims import ResourceClaim, ResourceSlice
from controller.objects.meta import KubernetesObject
from tests.support.engine.boards import hosts, settled
from tests.support.engine.claimsupply import TYPE, asking, cluster, gang, gpus, made_by_scheduler, made_for, pod_of
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, asks, claim, device_class, node_slice, template
from tests.support.engine.topologylab import GPU, node
from tests.support.engine.world import World
from tests.support.seeds import histories

TEMPLATES = (
    template("one", asks()),
    template("two", asks(count=2)),
    template("pair", asks(count=2), constraints=[{"matchAttribute": f"{DRIVER}/pair"}]),
)
NODES = {"a": 3, "b": 4}
STEPS = 24


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        shared = [claim(f"c{at}", asks()) for at in range(2)]
        self.world = cluster({f"b/r/{name}": gpus(name, number) for name, number in NODES.items()}, *TEMPLATES, *shared)
        self.made = 0

    def step(self) -> None:
        steps = (self.submit, self.finish, self.publish, self.give, self.take_back, self.pod, self.serve)
        self.random.choice((self.submit, *steps))()
        settled(self.world)

    def submit(self) -> None:
        self.made += 1
        templates = self.random.sample(["one", "two", "pair"], self.random.randrange(1, 3))
        claims = self.random.choice(([], [], ["c0"], ["c0", "c1"]))
        if self.random.random() < 0.4:
            made = asking(f"w{self.made}", self.random.randrange(1, 4), 1, templates=templates[1:])
        else:
            made = gang(f"w{self.made}", self.random.randrange(1, 4), templates=templates, claims=claims)
        self.world.put(made)

    def serve(self) -> None:
        """Another plugin, or another class, serves what pods ask for by the old name."""
        name = self.random.choice(sorted(NODES))
        serving = self.random.choice((GPU, ""))
        self.put(
            self.random.choice(
                (node(f"b/r/{name}", self.random.randrange(2)), device_class(GPU_CLASS, TYPE, extended=serving))
            )
        )

    def finish(self) -> None:
        if self.world.workloads:
            self.world.finish(self.random.choice(sorted(self.world.workloads)).partition("/")[2])

    def publish(self) -> None:
        name = self.random.choice(sorted(NODES))
        if self.random.random() < 0.3:
            self.world.engine.drop(ResourceSlice, "", f"slice-{name}", self.world.now_s)
        else:
            self.world.put(node_slice(name, *gpus(name, self.random.randrange(1, 5))))

    def give(self) -> None:
        """A claim of any pod, or one by name, gets a device, whether or not the engine would have given it that."""
        where = self.random.choice(sorted(NODES))
        device = [f"gpu-{self.random.randrange(4)}"]
        if self.random.random() < 0.3:
            self.put(claim("c0", asks(), given=["r0"], at=where, devices=device))
        else:
            pod = f"p{self.random.randrange(6)}"
            made = self.random.choice((made_for, made_by_scheduler))(pod)
            self.put(claim(f"{pod}-gpu", asks(), given=["r0"], at=where, devices=device, **made))

    def take_back(self) -> None:
        self.world.engine.drop(ResourceClaim, "ns", f"p{self.random.randrange(6)}-gpu", self.world.now_s)
        self.put(claim("c0", asks()))

    def pod(self) -> None:
        """A pod of a gang appears on one of its nodes, ends, or goes."""
        name, running = f"p{self.random.randrange(6)}", sorted(self.world.running())
        owner = self.random.choice(running) if running else ""
        places = sorted(hosts(self.world, owner)) if owner else []
        if not places or self.random.random() < 0.3:
            self.world.engine.drop(Pod, "ns", name, self.world.now_s)
        else:
            phase = self.random.choice(("Pending", "Running", "Succeeded"))
            self.put(pod_of(name, owner, self.random.choice(places), phase))

    def put(self, given: KubernetesObject) -> None:
        self.world.put(given)


def run(seed: int) -> World:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    return history.world


@histories(*range(6))
def test_no_device_is_planned_twice_and_no_sum_drifts(seed: int) -> None:
    world = run(seed)
    world.rebuild()
