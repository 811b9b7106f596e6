"""Random cohort forests and what is done to them, with a model that recomputes every answer from scratch.

The model keeps only what objects say and what was charged. It recurses over names and plain numbers, in the formulas
of KEP-79, and shares no code with the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from controller.scheduler.model.resources import (
    UNLIMITED,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ResourceName,
)
from controller.scheduler.quota.cells import Quota
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNodeSpec

FRS = tuple(
    FlavorResource(FlavorName(flavor), ResourceName(resource))
    for flavor, resource in (("a100", "nvidia.com/gpu"), ("h100", "nvidia.com/gpu"), ("a100", "cpu"))
)
GPU = FRS[0]
COHORTS = tuple(CohortName(f"cohort-{index}") for index in range(5))
QUEUES = tuple(ClusterQueueName(f"queue-{index}") for index in range(6))


def queue(name: str) -> ClusterQueueName:
    return ClusterQueueName(name)


def spec(
    parent: str | None = None,
    nominal: int | None = None,
    *,
    borrow: int | None = None,
    lend: int | None = None,
    weight: float = 1.0,
) -> QuotaNodeSpec:
    """A node with a quota on one flavor-resource."""
    quotas = {} if nominal is None else {GPU: Quota(nominal, borrow, lend)}
    return QuotaNodeSpec(parent=None if parent is None else CohortName(parent), quotas=quotas, weight=weight)


small = st.integers(0, 12)
limits = st.none() | small
quotas = st.dictionaries(
    st.sampled_from(FRS), st.builds(Quota, small | st.just(UNLIMITED), limits, limits), max_size=len(FRS)
)
weights = st.sampled_from((0.0, 0.1, 0.99, 1.0, 2.0, 300.0))
specs = st.builds(QuotaNodeSpec, parent=st.none() | st.sampled_from(COHORTS), quotas=quotas, weight=weights)
usages = st.dictionaries(st.sampled_from(FRS), st.integers(0, 20), max_size=len(FRS))


@dataclass
class Model:
    """What a tree was told."""

    queues: dict[ClusterQueueName, QuotaNodeSpec] = field(default_factory=dict)
    cohorts: dict[CohortName, QuotaNodeSpec] = field(default_factory=dict)
    charged: dict[ClusterQueueName, dict[FlavorResource, int]] = field(default_factory=dict)

    def path(self, start: QuotaNodeSpec) -> list[CohortName] | None:
        """The cohorts above, nearest first; None where they form a circle."""
        found: list[CohortName] = []
        parent = start.parent
        while parent is not None:
            if parent in found:
                return None
            found.append(parent)
            parent = self.cohorts[parent].parent if parent in self.cohorts else None
        return found

    def quota(self, spec_: QuotaNodeSpec | None, fr: FlavorResource) -> Quota:
        return Quota(0) if spec_ is None else spec_.quotas.get(fr, Quota(0))

    def sums(self, name: str, fr: FlavorResource, *, is_queue: bool) -> tuple[float, float, float]:
        """Subtree quota, local quota and usage."""
        spec_ = self.queues[ClusterQueueName(name)] if is_queue else self.cohorts.get(CohortName(name))
        quota = self.quota(spec_, fr)
        total = float("inf") if quota.nominal == UNLIMITED else float(quota.nominal)
        used = float(self.charged.get(ClusterQueueName(name), {}).get(fr, 0)) if is_queue else 0.0
        if not is_queue:
            children = [(str(child), True) for child, below in self.queues.items() if below.parent == name]
            children += [(str(child), False) for child, below in self.cohorts.items() if below.parent == name]
            for child, child_is_queue in children:
                theirs, kept, their_usage = self.sums(child, fr, is_queue=child_is_queue)
                total += theirs - kept
                used += max(0.0, their_usage - kept)
        kept = 0.0 if quota.lending_limit is None else max(0.0, total - quota.lending_limit)
        if kept == float("inf"):  # keeps all but the limit of an infinite quota: lends exactly the limit
            raise UnlimitedKeptError
        return total, kept, used

    def available(self, name: str, fr: FlavorResource, *, is_queue: bool) -> float:
        spec_ = self.queues[ClusterQueueName(name)] if is_queue else self.cohorts.get(CohortName(name))
        total, kept, used = self.sums(name, fr, is_queue=is_queue)
        if spec_ is None or spec_.parent is None:
            return total - used
        above = self.available(spec_.parent, fr, is_queue=False)
        limit = self.quota(spec_, fr).borrowing_limit
        if limit is not None:
            above = min(above, (total - kept) - max(0.0, used - kept) + limit)
        return max(0.0, kept - used) + above

    def potential(self, name: str, fr: FlavorResource, *, is_queue: bool) -> float:
        spec_ = self.queues[ClusterQueueName(name)] if is_queue else self.cohorts.get(CohortName(name))
        total, kept, _ = self.sums(name, fr, is_queue=is_queue)
        if spec_ is None or spec_.parent is None:
            return total
        least = kept + self.potential(spec_.parent, fr, is_queue=False)
        limit = self.quota(spec_, fr).borrowing_limit
        return least if limit is None else min(least, total + limit)

    def exceeded(self, name: ClusterQueueName, fr: FlavorResource) -> list[str]:
        """Which limits on the ClusterQueue's path the usage breaks."""
        broken = []
        path = self.path(self.queues[name])
        assert path is not None
        for node, is_queue in [(str(name), True), *((str(cohort), False) for cohort in path)]:
            spec_ = self.queues[ClusterQueueName(node)] if is_queue else self.cohorts.get(CohortName(node))
            total, kept, used = self.sums(node, fr, is_queue=is_queue)
            limit = self.quota(spec_, fr).borrowing_limit
            if spec_ is None or spec_.parent is None:
                if used > total:
                    broken.append(f"{node}: {used} of {total}")
            elif limit is not None and used > kept and used > total + limit:
                broken.append(f"{node}: {used} of {total} + {limit}")
        return broken


class UnlimitedKeptError(Exception):
    """A lending limit on an unlimited quota: infinities of the model cannot express what is lent."""


Step = Callable[[QuotaTree, Model], None]


def _set_queue(name: ClusterQueueName, spec_: QuotaNodeSpec) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        tree.set_cluster_queue(name, spec_)
        model.queues[name] = spec_

    return step


def _set_cohort(name: CohortName, spec_: QuotaNodeSpec) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        tree.set_cohort(name, spec_)
        model.cohorts[name] = spec_

    return step


def _remove_queue(name: ClusterQueueName) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        if name in model.queues:
            tree.remove_cluster_queue(name)
            del model.queues[name]
            model.charged.pop(name, None)

    return step


def _remove_cohort(name: CohortName) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        tree.remove_cohort(name)
        model.cohorts.pop(name, None)

    return step


def _charge(name: ClusterQueueName, usage: dict[FlavorResource, int]) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        if name in model.queues:
            tree.add_usage(name, usage)
            charged = model.charged.setdefault(name, {})
            for fr, amount in usage.items():
                charged[fr] = charged.get(fr, 0) + amount

    return step


def _give_back(name: ClusterQueueName, usage: dict[FlavorResource, int]) -> Step:
    def step(tree: QuotaTree, model: Model) -> None:
        charged = model.charged.get(name, {})
        returned = {fr: min(amount, charged.get(fr, 0)) for fr, amount in usage.items()}
        if name in model.queues:
            tree.remove_usage(name, returned)
            for fr, amount in returned.items():
                charged[fr] = charged.get(fr, 0) - amount

    return step


some_queue = st.sampled_from(QUEUES)
some_cohort = st.sampled_from(COHORTS)
steps = st.one_of(
    st.builds(_set_queue, some_queue, specs),
    st.builds(_set_cohort, some_cohort, specs),
    st.builds(_remove_queue, some_queue),
    st.builds(_remove_cohort, some_cohort),
    st.builds(_charge, some_queue, usages),
    st.builds(_give_back, some_queue, usages),
)
histories = st.lists(steps, max_size=30)


def picture(tree: QuotaTree) -> dict[str, object]:
    """Everything a tree answers with, for comparing two of them. Trees out of use show what was charged only."""
    shown: dict[str, object] = {}
    for node in (*tree.cluster_queues.values(), *tree.cohorts.values()):
        key = repr(node)
        if node.in_cycle():
            shown[key] = ("in a circle", node.spec, node.used() if node.is_queue else None)
            continue
        numbers = [(node.usage(fr), node.quota(fr), node.available(fr), node.potential_available(fr)) for fr in FRS]
        parent = None if node.parent is None else node.parent.name
        shown[key] = (node.spec, parent, node.height, sorted(node.queues), sorted(node.cohorts), numbers)
    return shown
