"""Fair shares converge: queues with more to run than there is end up with shares in proportion to their weights."""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.resources import ClusterQueueName
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

RECLAIM = {"reclaimWithinCohort": "Any"}


def settled(weights: Sequence[int], pool: int, order: Sequence[int]) -> dict[int, int]:
    """How many of the pool's GPUs each queue holds once nobody goes for anybody any more. ``order``: who asks when,
    each for one GPU; every queue asks for more than the whole pool.
    """
    world = World(EngineConfig(fair_sharing=FairSharing()))
    world.put(flavor(), cohort("all"), cluster_queue("pool", pool, cohort="all", preemption={}))
    for at, weight in enumerate(weights):
        more: dict[str, Any] = {"preemption": RECLAIM, "fairSharing": {"weight": str(weight)}}
        world.put(cluster_queue(f"q{at}", 0, cohort="all", **more), local_queue(f"q{at}"))
    for number, at in enumerate((*order, *(one for one in range(len(weights)) for _ in range(pool + 1)))):
        world.put(workload(f"w{number}", f"q{at}", 1, created_s=number))
        if number < len(order):
            world.settle()
    for _ in range(pool * len(weights) + 10):
        world.settle()
        if not world.stop_evicted():
            queues = world.engine.state.cluster.queues
            return {at: len(queues[ClusterQueueName(f"q{at}")].holders) for at in range(len(weights))}
    raise AssertionError(f"they go on evicting each other: {world.log[-20:]}")


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.integers(1, 6),
    st.lists(st.integers(0, 1), max_size=6),
)
@example([1, 1], 6, [0] * 6)
@example([3, 1], 4, [1] * 4)
@settings(max_examples=12, deadline=None)
def test_no_queue_could_still_take_a_gpu_from_one_with_a_larger_share(
    weights: list[int], pool: int, order: list[int]
) -> None:
    held = settled(weights, pool, order)
    assert sum(held.values()) == pool
    for poor, few in held.items():
        for rich, many in held.items():
            if poor != rich and many:
                # With one more it would have no less than the other has with one less, or even now.
                assert (few + 1) / weights[poor] > (many - 1) / weights[rich]
                assert (few + 1) / weights[poor] >= many / weights[rich]
