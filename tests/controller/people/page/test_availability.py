"""What a queue could take now: the same on the page and in lists."""

from typing import Any

import pytest

from controller.insight.explain import queue_shown
from controller.people.page.queuerows import tree_rows
from controller.scheduler.model.resources import ClusterQueueName
from tests.support.engine.world import World, cluster_queue, cohort, flavor


@pytest.mark.parametrize(
    ("spec", "free"),
    [({}, 7), ({"stopPolicy": "Hold"}, 0), ({"stopPolicy": "HoldAndDrain"}, 0), ({"flavors": ("x",)}, 0)],
)
def test_a_queue_that_takes_nothing_in_has_nothing_available(spec: dict[str, Any], free: int) -> None:
    made = World()
    made.put(flavor(), cohort("c"), cluster_queue("q", 7, cohort="c", **spec))
    (row,) = (row for _, row in tree_rows(made.engine) if row["name"] == "q")
    state = made.engine.state.cluster.queue(ClusterQueueName("q"))
    listed = [each["amount"] for each in queue_shown(made.engine, state)["available"]]
    assert [each["available"] for each in row["resources"]] == [free]
    assert listed == [str(free)]
