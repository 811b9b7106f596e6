"""Rows of what waits and of its queues: what they say of a start agrees with what the engine decided."""

import json
from typing import Any

from msgspec.structs import replace

from controller.insight.explain import in_turn, queue_shown, waiting_row
from controller.insight.forecast.forecast import Forecaster
from controller.people.page.queuerows import forecast_row, pending_rows, tree_rows
from controller.scheduler.model.resources import ClusterQueueName
from inventory.api.names import QUOTA_CALENDAR
from tests.controller.insight.forecast.changes.test_changes import GPU, on_nodes
from tests.support.engine.world import NOW_S, World, cluster_queue, cohort, flavor, local_queue, workload

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


def test_rows_of_queues_and_cohorts_say_which_window_of_a_calendar_is_in_force_and_the_next_change() -> None:
    made = World()
    queue, above = cluster_queue("q", 4, cohort="all"), cohort("all")
    night = [{"from": "0 20 * * *", "for": "10h", "nominal": {"default": {"gpu": 8}}}]
    dated = replace(queue, metadata=replace(queue.metadata, annotations={QUOTA_CALENDAR: json.dumps(night)}))
    made.put(flavor(), above, dated, cluster_queue("plain", 4), local_queue("q"))

    def told(hours: float) -> dict[str, Any]:
        now_s = NOW_S + hours * 3600
        made.engine.cycle(now_s)
        return {row["name"]: row["calendar"] for _, row in tree_rows(made.engine, None, now_s)}

    by_day, by_night = told(12), told(21)
    assert by_day["plain"] is None
    assert by_day["all"] is None, "a cohort is not changed by what is below it"
    assert by_day["q"]["owners"][0]["windows"] == []
    assert by_day["q"]["owners"][0]["nextChange"] == "2025-01-01 20:00 UTC"
    (window,) = by_night["q"]["owners"][0]["windows"]
    assert window["until"] == "2025-01-02 06:00 UTC"
    assert "ClusterQueue q" in by_night["q"]["sentence"]
    assert by_night["q"]["sentence"] != by_day["q"]["sentence"]
    (row,) = (row for key, row in tree_rows(made.engine, None, NOW_S + 21 * 3600) if key == "queue/q")
    assert row["resources"][0]["nominal"] == 8, "and the amounts beside it are those of the window"


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
