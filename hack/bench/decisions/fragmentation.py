"""How much of a fleet is given away before the first request finds no room: ``python -m hack.bench fragmentation``.

Requests of mixed sizes come and go on a fleet that is half machines behind switches, a quarter in NVLink pairs and a
quarter hybrid cube meshes. Requests of two GPUs and more want them joined by NVLink. The fleet is filled to a third,
then requests keep coming while only some end, until one finds no place. What was allocated by then is compared for
three ways to choose among the nodes that hold a pod: Tessera's (fewest GPUs made useless for requests of late), the
node with most allocated, and the node with least allocated. Traces are the same for all, and so is the choice of GPUs
within a node.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import Placed, PlacementRules
from hack.bench.decisions.topology import FLAVOR, GPU, GPUS, gpu_node, nodes, request, topology
from hack.bench.table import Row, show

FANS: Final = (1, 1, 2, 4, 8)
"""64 nodes of 8 GPUs."""
NODES: Final = 64
SIZES: Final = ((1, 40), (2, 25), (4, 20), (8, 15))
"""GPUs of a request, and how many in a hundred ask for so many."""
ENDS: Final = 0.35
"""How often somebody ends before the next comes."""
MESH: Final = (
    (1, 2, 3, 4),
    (0, 2, 3, 5),
    (0, 1, 3, 6),
    (0, 1, 2, 7),
    (0, 5, 6, 7),
    (1, 4, 6, 7),
    (2, 4, 5, 7),
    (3, 4, 5, 6),
)
"""By GPU those that it is linked to in a hybrid cube mesh."""


class Event(NamedTuple):
    """A request for so many GPUs; ``ended``: who of those that run ends first, if any (0 the oldest)."""

    gpus: int
    ended: float | None


class Fleet:
    """The trees and device caches of the engine, with another choice of node where one is given."""

    def __init__(self, *, packs: bool, prefers: Callable[[int], int] | None = None, fans: Sequence[int] = FANS) -> None:
        self.topologies = Topologies(UndoLog(), FeatureGates(), rules=PlacementRules(packs=packs))
        dc, flavor = topology()
        self.topologies.set_topology(dc)
        self.topologies.set_flavor(flavor)
        self.hosts = nodes(self.topologies, fans)
        for at, host in enumerate(self.hosts):
            self.topologies.set_gpu_node(gpu_node(host, _wiring(at)))
        self.gpus = GPUS * len(self.hosts)
        self._prefers = prefers
        self._running: list[tuple[GrantOwner, TopologyUsage]] = []
        self._wanted = {gpus: request(1, gpus, Link.NVLINK if gpus > 1 else "") for gpus, _ in SIZES}
        self.allocated = 0
        self._came = 0

    def come(self, gpus: int) -> bool:
        """Whether it found a place."""
        self._came += 1
        self.topologies.begin(float(self._came * 10))
        place = self._place(gpus)
        if place is None:
            return False
        owner = GrantOwner(WorkloadKey(f"w/{self._came}"), "main")
        self.topologies.add(FLAVOR, place, owner)
        self._running.append((owner, place))
        self.allocated += gpus
        return True

    def end(self, part: float) -> None:
        if self._running:
            owner, usage = self._running.pop(int(part * len(self._running)))
            self.topologies.remove(FLAVOR, usage, owner)
            self.allocated -= usage.single_pod[GPU]

    def _place(self, gpus: int) -> TopologyUsage | None:
        wanted = self._wanted[gpus]
        if self._prefers is None:
            answer = self.topologies.place((wanted,), on_empty=False)
            return answer.topologies["main"] if isinstance(answer, Placed) else None
        made = [
            TopologyUsage(
                levels=(HOSTNAME_LABEL,),
                domains=(Domain((host,), 1),),
                single_pod=wanted.single_pod,
                devices=_ask(gpus),
            )
            for host in self._by_preference()
        ]
        return next((decision for decision in made if self.topologies.fits([(FLAVOR, decision)])), None)

    def _by_preference(self) -> list[str]:
        prefers = self._prefers
        assert prefers is not None
        free = {host: sum(sum(one) for _, _, one in self.topologies.devices.free(host)) for host in self.hosts}
        return sorted(self.hosts, key=lambda host: (prefers(free[host]), host))


def trace(seed: int, length: int = 4000) -> list[Event]:
    chance = random.Random(seed)
    sizes, weights = zip(*SIZES, strict=True)
    return [
        Event(chance.choices(sizes, weights)[0], chance.random() if chance.random() < ENDS else None)
        for _ in range(length)
    ]


def allocated(fleet: Fleet, events: Sequence[Event]) -> int:
    """GPUs given away when the first request finds no room."""
    for event in events:
        if event.ended is not None and fleet.allocated > fleet.gpus // 3:
            fleet.end(event.ended)
        if not fleet.come(event.gpus):
            break
    return fleet.allocated


def _ask(gpus: int) -> PodDeviceRequest | None:
    return PodDeviceRequest(link=Link.NVLINK) if gpus > 1 else None


def _wiring(at: int) -> Callable[[int, int], int]:
    if at % 4 in (0, 2):
        return lambda _a, _b: 12
    if at % 4 == 1:
        return lambda a, b: 4 if a // 2 == b // 2 else 0
    return lambda a, b: 1 if b in MESH[a] else 0


def main(words: Sequence[str]) -> None:
    rounds = int(words[words.index("--rounds") + 1]) if "--rounds" in words else 10
    ways: dict[str, Callable[[], Fleet]] = {
        "Tessera": lambda: Fleet(packs=True),
        "best fit by count (policy kueue)": lambda: Fleet(packs=False),
        "most allocated": lambda: Fleet(packs=False, prefers=lambda free: free),
        "least allocated": lambda: Fleet(packs=False, prefers=lambda free: -free),
    }
    found = {name: [allocated(make(), trace(seed)) for seed in range(rounds)] for name, make in ways.items()}
    ours = statistics.mean(found["Tessera"])
    rows = []
    for name, counts in found.items():
        mean = statistics.mean(counts)
        shown = round(mean)  # the part of the number that stands beside it: who adds up finds the same
        part = f"{shown} of {NODES * GPUS} GPUs ({shown / (NODES * GPUS):.1%})"
        ratio = "" if name == "Tessera" else f", Tessera {ours / mean:.2f} times that"
        rows.append(Row(name, part + ratio, "" if name == "Tessera" else "at least 1"))
    show(f"GPUs allocated when the first request fails, mean of {rounds} traces", rows)
