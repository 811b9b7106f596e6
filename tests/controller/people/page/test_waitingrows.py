"""Rows of what waits and of its queues: what they say of a start agrees with what the engine decided."""

from controller.insight.explain import in_turn, queue_shown, waiting_row
from controller.insight.forecast.forecast import Forecaster
from controller.people.page.queuerows import forecast_row, pending_rows, tree_rows
from controller.scheduler.model.resources import ClusterQueueName
from tests.controller.insight.forecast.changes.test_changes import GPU, on_nodes
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

QUEUE = ClusterQueueName("q")


def rows(made: World) -> dict[str, dict[str, object]]:
    found = Forecaster().all(made.engine, NOW_S)
    told = {key: forecast_row(each, NOW_S) for key, each in found.items()}
    made_rows = (due.make() for due in pending_rows(made.engine, QUEUE, str, told.get))
    return {str(row["workload"]): row for row in made_rows}


def waiting() -> World:
    made = World()
    made.put(flavor(), cluster_queue("q", 4), local_queue("q"), local_queue("door", "q"))
    made.put(workload("runs", "q", 4), workload("huge", "q", 9, created_s=1), workload("next", "door", 2, created_s=2))
    made.settle()
    return made


def test_a_row_of_the_page_says_never_and_what_would_have_to_change() -> None:
    found = rows(waiting())
    never = "unless it asks for at most 4 gpu of flavor default, or the quota is raised"
    assert found["ns/huge"]["forecast"]["never"] == never  # type: ignore[index]
    assert found["ns/next"]["forecast"]["never"] is None  # type: ignore[index]


def test_in_a_stopped_queue_a_row_says_that_and_not_what_an_earlier_try_found() -> None:
    made = waiting()
    made.put(cluster_queue("q", 4, stopPolicy="Hold"))
    made.put(workload("new", "q", 1, created_s=9))
    here = {row["workload"]: row for row in (waiting_row(made.engine, turn) for turn in in_turn(made.engine, QUEUE))}
    for found in (rows(made), here):
        for key in ("ns/huge", "ns/new"):
            assert "is not active: The ClusterQueue is stopped (Hold)" in str(found[key]["sentence"])
    assert here["ns/new"]["reason"] == "Suspended"


def test_a_queue_whose_flavors_have_no_node_says_so() -> None:
    made = on_nodes(GPU, 4)
    state = made.engine.state.cluster.queues[QUEUE]
    assert queue_shown(made.engine, state)["withoutNodes"] == []
    for topology in ("racks", None):
        made.put(flavor("one", topologyName=topology, nodeLabels={"nvidia.com/gpu.present": "true"}))
        shown = queue_shown(made.engine, state)
        said = "Flavor one: no node has nvidia.com/gpu.present=true"
        assert (shown["active"], shown["nodeless"], shown["withoutNodes"]) == (
            True,
            True,
            [{"flavor": "one", "message": said}],
        )
        (row,) = (row for _, row in tree_rows(made.engine) if row["kind"] == "queue")
        assert (row["state"], row["problems"]) == ("no nodes", [said])
