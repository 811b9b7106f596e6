"""The best leaf of a tree, while jobs come off and Queues are charged, is that of a plain walk from the top."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.mirror.forest import forest
from controller.scheduler.mirror.specs import System, spec_of
from controller.scheduler.model.resources import CPU, ResourceName
from controller.scheduler.volcano.rules import Key, rules_for
from controller.scheduler.volcano.tree import FairTree, counted
from controller.scheduler.volcano.walk import Walk
from inventory.api.names import GPU_PERCENT
from tests.support.engine.foreignqueues import GPU, kai_queue

PARENTS = {"d1": "", "d2": "", "t1": "d1", "x": "t1", "y": "t1", "z": "d1", "u": "d2", "v": "d2", "w": ""}


def tree_of(quotas: dict[str, int]) -> FairTree:
    specs = [spec_of(kai_queue(name, PARENTS[name], quota=quota)) for name, quota in quotas.items()]
    return FairTree(forest(specs, ()), System.KAI, {ResourceName(GPU): 16})


class Jobs(Walk[Key]):
    """``waiting``: GPUs of the jobs of each leaf, the next one last."""

    def __init__(self, tree: FairTree, waiting: dict[str, list[int]]) -> None:
        super().__init__(tree)
        self._rules = rules_for(tree)
        for leaf, jobs in waiting.items():
            for gpus in jobs:
                tree.ask(QueueName(leaf), {ResourceName(GPU): gpus})
        self._rules.settle(tree)
        self.waiting = waiting
        self.build()

    def _has(self, leaf: QueueName) -> bool:
        return bool(self.waiting.get(leaf))

    def _key(self, name: QueueName, leaf: QueueName) -> Key:
        return self._rules.key(self._tree, name, next_job={ResourceName(GPU): self.waiting[leaf][-1]})

    def plainly(self, parent: QueueName | None = None) -> QueueName | None:
        found = []
        for name in self._tree.children.get(parent, ()):
            leaf = (name if self._has(name) else None) if name in self._tree.leaves else self.plainly(name)
            if leaf is not None:
                found.append((self._key(name, leaf), leaf))
        return min(found)[1] if found else None


LEAVES = ("x", "y", "z", "u", "v", "w")


@settings(max_examples=30)
@given(
    st.fixed_dictionaries({name: st.integers(0, 6) for name in PARENTS}),
    st.fixed_dictionaries({leaf: st.lists(st.integers(1, 4), max_size=4) for leaf in LEAVES}),
    st.lists(st.booleans(), min_size=24, max_size=24),
)
def test_the_best_leaf_is_that_of_a_plain_walk(
    quotas: dict[str, int], waiting: dict[str, list[int]], starts: list[bool]
) -> None:
    tree = tree_of(quotas)
    jobs = Jobs(tree, waiting)
    taken = 0
    while (leaf := jobs.best()) is not None:
        assert leaf == jobs.plainly()
        need = {ResourceName(GPU): jobs.waiting[leaf].pop()}
        if starts[taken]:
            tree.charge(leaf, need, preemptible=True)
        jobs.refresh({leaf, *tree.take_changed()})
        tree.validate()
        taken += 1
    assert jobs.plainly() is None
    assert not any(waiting.values())


def test_kai_counts_parts_of_gpus_as_gpus_and_volcano_counts_what_is_asked_for() -> None:
    asked = {CPU: 500, ResourceName("nvidia.com/mig-3g.40gb"): 2, ResourceName(GPU): 1, ResourceName("rdma/hca"): 4}
    asked[ResourceName(GPU_PERCENT)] = 150
    assert counted(asked, System.KAI) == {CPU: 500, GPU: 8.5}
    assert counted(asked, System.VOLCANO) == {name: float(amount) for name, amount in asked.items()}
