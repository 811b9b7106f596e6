"""The Queues of one system with what they have and request, as the rules of ``controller.scheduler.kai.proportion`` see
them.

Amounts are floats by resource. KAI counts CPU, memory and GPUs of all models in one number, in which a MIG instance
counts as many as its profile has slices, and a percent of a GPU a hundredth; Volcano counts every resource that a job
requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.foreign.objects.kai import PREEMPTIBLE_BELOW
from controller.scheduler.kai.gangs.gang import gpus_in
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare
from controller.scheduler.mirror.forest import Forest
from controller.scheduler.mirror.specs import GPU, KAI_RESOURCES, MirroredName, QueueSpec, System
from controller.scheduler.model.resources import Amount, ResourceName
from controller.scheduler.model.workload import WorkloadInfo

_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
_PREEMPTABLE: Final = "volcano.sh/preemptable"


_NO_USAGE: Final[Mapping[QueueName, Amounts]] = {}


def counted(amounts: Mapping[ResourceName, Amount], system: System) -> dict[ResourceName, float]:
    """The part of these amounts that the system's queues count."""
    if system is System.VOLCANO:
        return {resource: float(amount) for resource, amount in amounts.items() if amount}
    counting: dict[ResourceName, float] = {}
    for resource, amount in amounts.items():
        if parts := gpus_in(resource):
            counting[GPU] = counting.get(GPU, 0.0) + amount * parts
        elif resource in KAI_RESOURCES:
            counting[resource] = counting.get(resource, 0.0) + amount
    return counting


def needs(info: WorkloadInfo, system: System) -> dict[ResourceName, float]:
    """What all pods of a workload take together."""
    sums: dict[ResourceName, Amount] = {}
    for pod_set in info.pod_sets:
        for resource, amount in pod_set.requests.items():
            sums[resource] = sums.get(resource, 0) + amount
    return counted(sums, system)


def is_preemptible(info: WorkloadInfo, priority: int, system: System) -> bool:
    """Whether the job may be evicted: as its annotation says; without one by KAI's priorities, and always in
    Volcano.
    """
    annotations = info.workload.metadata.annotations
    if system is System.VOLCANO:
        # Volcano takes a value that is no boolean to mean that the job is never a victim.
        return annotations.get(_PREEMPTABLE, "true") in ("true", "True", "TRUE", "t", "T", "1")
    marked = annotations.get(_PREEMPTIBILITY)
    if marked in ("preemptible", "non-preemptible"):
        return marked == "preemptible"
    return priority < PREEMPTIBLE_BELOW


class FairTree:
    """The tree of one system. ``queues`` are the shares; only ``charge`` changes their ``allocated`` and
    ``non_preemptible``. ``places``: the engine gives nodes to jobs of this tree. ``offered``: what all nodes have, in
    the engine's units. ``usage``: past usage of each Queue, as a fraction of the total.

    Invariant: what a Queue has is the sum of what those below it have.
    """

    def __init__(
        self,
        forest: Forest,
        system: System,
        total: Mapping[ResourceName, Amount],
        *,
        places: bool = True,
        usage: Mapping[QueueName, Amounts] = _NO_USAGE,
    ) -> None:
        self.system = system
        self.usage = usage
        self.places = places
        self.offered = total
        self.specs: dict[QueueName, QueueSpec] = {
            QueueName(name): spec for name, spec in forest.queues.items() if spec.system is system
        }
        self.total: Amounts = counted(total, system)
        self.children: dict[QueueName | None, list[QueueName]] = {None: []}
        self.leaves = frozenset(QueueName(spec.name) for spec in forest.leaves(system))
        self.queues: dict[QueueName, QueueShare] = {}
        self.requested: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in self.specs}
        self._allocated: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in self.specs}
        self._kept: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in self.specs}
        self._paths: dict[QueueName, list[QueueName]] = {}
        self._changed: set[QueueName] = set()
        for name, spec in self.specs.items():
            parent = QueueName(spec.parent) if spec.parent else None
            self.children.setdefault(parent, []).append(name)
            self._paths[name] = [QueueName(above.name) for above in forest.path(MirroredName(name))]

    def names(self, leaf: QueueName) -> Sequence[QueueName]:
        """The Queue and those above it, itself first."""
        return self._paths[leaf]

    def path(self, leaf: QueueName) -> list[QueueShare]:
        """The shares of the Queue and those above it, the topmost first."""
        return [self.queues[name] for name in reversed(self._paths[leaf])]

    def ask(self, leaf: QueueName, need: Amounts) -> None:
        """Count the need of a workload that runs or waits in the leaf."""
        for name in self._paths[leaf]:
            _add(self.requested[name], need, 1)

    def charge(self, leaf: QueueName, need: Amounts, *, preemptible: bool, sign: int = 1) -> None:
        self._changed.add(leaf)
        for name in self._paths[leaf]:
            _add(self._allocated[name], need, sign)
            if not preemptible:
                _add(self._kept[name], need, sign)

    def take_changed(self) -> list[QueueName]:
        """The leaves that were charged since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def settle(self, shares: Mapping[QueueName, Amounts], limits: Mapping[QueueName, Amounts]) -> None:
        """Set what each Queue may have; ``queues`` may be read from then on."""
        for name, spec in self.specs.items():
            self.queues[name] = QueueShare(
                name=name,
                parent=QueueName(spec.parent) if spec.parent else None,
                quota=spec.quota,
                limit=limits[name],
                fair_share=shares[name],
                allocated=self._allocated[name],
                non_preemptible=self._kept[name],
            )

    def downwards(self) -> Iterator[tuple[QueueName | None, list[QueueName]]]:
        """Each group of siblings with their parent, parents before their children."""
        waiting: list[QueueName | None] = [None]
        for parent in waiting:
            siblings = self.children.get(parent, [])
            if siblings:
                yield parent, siblings
                waiting += siblings

    def resources(self) -> Iterable[ResourceName]:
        return sorted(self.total)

    def validate(self) -> None:
        """AssertionError where a Queue does not have the sum of what those below it have."""
        for parent, siblings in self.downwards():
            for resource in self.total:
                if parent is None:
                    continue
                below = sum(self._allocated[name].get(resource, 0.0) for name in siblings)
                if abs(below - self._allocated[parent].get(resource, 0.0)) > 1e-6 * max(1.0, below):
                    raise AssertionError(f"{parent} has {self._allocated[parent]}, those below it {below} {resource}")


def _add(sums: dict[ResourceName, float], need: Amounts, sign: int) -> None:
    for resource, amount in need.items():
        sums[resource] = sums.get(resource, 0.0) + sign * amount
