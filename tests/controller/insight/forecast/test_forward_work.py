"""Claims about the work of letting a tree run forward: instructions of Python are counted, not time."""

from controller.insight.forecast.forward import Forward
from controller.insight.forecast.model import model_of
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import RUNTIME
from tests.controller.scheduler.test_engine_work import executed
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

TESSERA = EngineConfig(extensions=Extensions(backfill=BackfillPolicy.CONSERVATIVE))
WAITING = 120


def work(queues: int) -> float:
    """Of one start, where so many queues of one cohort share what waits."""
    made = World(TESSERA)
    made.put(flavor())
    for number in range(queues):
        made.put(cluster_queue(f"q{number}", 48 // queues, cohort="all"), local_queue(f"q{number}"))
    for number in range(48):
        made.put(workload(f"runs-{number}", f"q{number % queues}", 1, annotations={RUNTIME: f"{60 + 7 * number}s"}))
    made.settle()
    for number in range(WAITING):
        gpus, told_s = (1, 4, 16, 2)[number // queues % 4], 100 + number * 37 % 900
        told = {} if number % 5 == 0 else {RUNTIME: f"{told_s}s"}
        made.put(workload(f"w{number}", f"q{number % queues}", gpus, created_s=number, annotations=told))
    made.settle()
    model = model_of(made.engine, NOW_S)
    (tree,) = model.trees
    totals: dict[WorkloadKey, float | None] = {
        **{WorkloadKey(f"ns/runs-{number}"): 60.0 + 5 * number for number in range(48)},
        **{WorkloadKey(f"ns/w{number}"): 80.0 + number * 29 % 700 for number in range(WAITING)},
    }
    forward = Forward(tree, NOW_S, totals, backfill=True, fair=False)
    count = executed(lambda: list(forward.run()))
    assert len(forward.starts) == WAITING
    return count / WAITING


def test_a_start_beside_eight_times_the_queues_is_at_most_four_times_the_work() -> None:
    """One that borrows is compared with the heads of all other queues: each is looked at once, and not for each try."""
    assert work(24) < 4 * work(3)
