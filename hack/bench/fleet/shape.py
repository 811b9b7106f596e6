"""How large the fleet is, and who runs where. Pure: a factor in, numbers and names out.

At factor 1: 10,000 nodes of 8 GPUs in racks of 25 and blocks of 20 racks; 100 ClusterQueues in cohorts of ten, each
with ten LocalQueues; 20,000 running Workloads with 50,000 pods, 100,000 pending ones. Other factors scale all of it.

What runs is laid out by pairs of neighbouring nodes, four workloads and ten pods to a pair:

    first node   a pod of the gang of two, the four pods of one workload
    second node  a pod of the gang of two, two pods each of two workloads

They fill the pair's sixteen GPUs, but each tenth pair's gang takes half: 2.5 % of all GPUs are free. A queue's quota is
what its workloads hold and 2 % more, so that some of what waits starts and most is parked, as in a fleet that is full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

NODES, QUEUES, LOCAL_QUEUES_EACH, PENDING_EACH = 10_000, 100, 10, 1_000
GPUS: Final = 8
RACK_NODES, BLOCK_RACKS, COHORT_QUEUES = 25, 20, 10
PAIR: Final = 2
SPARE_EACH, SPARE_GPUS = 10, 2
"""The gang of each tenth pair takes so many GPUs a pod, in place of half a node."""
HEADROOM: Final = 1.02


class Kind(NamedTuple):
    """Of pending workloads: so many in a hundred, pods and GPUs of each, the level that all of them want to be in."""

    name: str
    share: int
    pods: int
    gpus: int
    level: str


PENDING: Final = (
    Kind("single", 60, 1, 1, ""),
    Kind("pair", 30, 2, 4, "rack"),
    Kind("gang", 10, 4, 8, "block"),
)


class Running(NamedTuple):
    """A workload that holds quota: ``places`` are node numbers with the pods on each."""

    number: int
    queue: int
    gpus: int
    places: tuple[tuple[int, int], ...]

    @property
    def pods(self) -> int:
        return sum(pods for _, pods in self.places)


class Waiting(NamedTuple):
    number: int
    queue: int
    kind: Kind


@dataclass(frozen=True)
class Fleet:
    """``nodes`` is even."""

    nodes: int
    queues: int

    @property
    def pairs(self) -> int:
        return self.nodes // PAIR

    @property
    def local_queues(self) -> int:
        return self.queues * LOCAL_QUEUES_EACH

    @property
    def running(self) -> int:
        return 4 * self.pairs

    @property
    def pods(self) -> int:
        return 10 * self.pairs

    @property
    def pending(self) -> int:
        return self.queues * PENDING_EACH

    @property
    def objects(self) -> int:
        return 2 * self.nodes + self.queues + self.local_queues + self.running + self.pending + self.pods

    def runs(self) -> Iterator[Running]:
        """All that holds quota; a pair's workloads are of one queue's cohort."""
        for pair in range(self.pairs):
            first, second, number = PAIR * pair, PAIR * pair + 1, 4 * pair
            gang = SPARE_GPUS if pair % SPARE_EACH == 0 else GPUS // 2
            queue = pair % self.queues
            yield Running(number, queue, gang, ((first, 1), (second, 1)))
            yield Running(number + 1, queue, 1, ((first, 4),))
            yield Running(number + 2, queue, 1, ((second, 2),))
            yield Running(number + 3, queue, 1, ((second, 2),))

    def waits(self) -> Iterator[Waiting]:
        """All that is pending, mixed as they came."""
        for number in range(self.pending):
            yield Waiting(number, number % self.queues, _kind(number // self.queues))

    def quota(self, queue: int) -> int:
        """GPUs of one ClusterQueue."""
        pairs = len(range(queue, self.pairs, self.queues))
        spare = sum(pair % SPARE_EACH == 0 for pair in range(queue, self.pairs, self.queues))
        held = pairs * PAIR * GPUS - spare * PAIR * (GPUS // 2 - SPARE_GPUS)
        return round(held * HEADROOM)


def fleet(factor: float) -> Fleet:
    return Fleet(nodes=max(PAIR, PAIR * round(NODES * factor / PAIR)), queues=max(1, round(QUEUES * factor)))


def _kind(number: int) -> Kind:
    """By turns in their shares: the same in every hundred."""
    at = number * 37 % 100  # 37 and 100 have no common divisor: each place of the hundred once
    for kind in PENDING:
        if at < kind.share:
            return kind
        at -= kind.share
    raise AssertionError("shares sum up to a hundred")


def rack(node: int) -> int:
    return node // RACK_NODES


def block(node: int) -> int:
    return rack(node) // BLOCK_RACKS
