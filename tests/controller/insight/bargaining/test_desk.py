"""The arithmetic of an offer says what was told as told, and what is only usual as usual."""

import pytest

from controller.insight.bargaining.arithmetic import Clock
from controller.insight.bargaining.desk import Makes, answer_parts
from controller.insight.bargaining.wishes import Wish
from controller.insight.forecast.parts import finished
from controller.objects.workload import Workload
from controller.scheduler.model.resources import ResourceName
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload


@pytest.mark.parametrize(
    ("told", "clause"),
    [
        ({"tessera.dev/runtime": "100s"}, "6 gpu of ns/busy end by 100"),
        ({}, "6 gpu of ns/busy usually end by 100"),
    ],
)
def test_an_end_that_nobody_told_is_what_is_usual(told: dict[str, str], clause: str) -> None:
    world = World()
    world.put(flavor(), cluster_queue("a", 8), local_queue("a"), workload("busy", "a", 6, annotations=told))
    world.settle()
    started_s = world.now_s

    def whole(units: int) -> Workload:
        return workload("asked", "a", 1, count=units, created_s=1)

    wish = Wish(
        key="ns/ask",
        queue="a",
        unit={ResourceName("gpu"): 1},
        least=4,
        most=4,
        duration_s=60.0,
        not_before_s=started_s,
        not_after_s=None,
        answer_within_s=30.0,
        use_within_s=600.0,
        renewed_s=None,
        accepts="",
    )
    clock = Clock(started_s, lambda _key: started_s + 100.0, lambda _key: None, lambda at_s: f"{at_s - started_s:g}")
    answer = finished(answer_parts(world.engine, wish, Makes(whole), clock))
    assert [each.units for each in answer.offers] == [2, 4]
    assert answer.offers[-1].why.split("; ")[-1] == clause
