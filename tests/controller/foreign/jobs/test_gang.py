"""Which pods of a Volcano Job start together, in any job."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.foreign.jobs.gang import minimums, serves
from tests.support.controller.volcanoworld import VolcanoWorld, task

NAMES = ("a", "b", "c")


@st.composite
def jobs(draw: st.DrawFn) -> VolcanoWorld:
    tasks = []
    for name in draw(st.permutations(NAMES))[: draw(st.integers(1, 3))]:
        replicas = draw(st.integers(0, 4))
        more: dict[str, Any] = {"minAvailable": draw(st.integers(0, replicas))} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            more["dependsOn"] = {"name": [draw(st.sampled_from(NAMES))]}
        tasks.append(task(name, replicas, **more))
    return VolcanoWorld(*tasks, minAvailable=draw(st.integers(0, 12)))


@given(jobs())
@settings(max_examples=100)
def test_the_minimum_is_what_the_job_and_its_tasks_ask_for_and_no_more(world: VolcanoWorld) -> None:
    plan, found = world.plan, minimums(world.plan)
    own = {each.name: min(each.minimum, each.replicas) for each in plan.tasks} if plan.task_minimums_count else {}
    assert found.keys() == {each.name for each in plan.tasks}
    assert all(own.get(each.name, 0) <= found[each.name] <= each.replicas for each in plan.tasks)
    assert sum(found.values()) == min(plan.replicas, max(1, plan.min_available, sum(own.values())))


@given(jobs(), st.data())
@settings(max_examples=100)
def test_an_admission_serves_a_job_until_more_has_to_run_together(world: VolcanoWorld, data: st.DataObject) -> None:
    placed = world.start().placed
    assert placed is not None
    assert serves(placed, world.plan)
    least, name = max(1, world.plan.min_available), data.draw(st.sampled_from(sorted(placed)))
    taken = data.draw(st.integers(0, placed[name].pods))
    fewer = {**placed, name: msgspec.structs.replace(placed[name], kept=placed[name].pods - taken)}
    left = sum(each.pods for each in fewer.values())
    if left < min(least, world.plan.replicas):
        assert not serves(fewer, world.plan)
    elif not world.plan.task_minimums_count:
        assert serves(fewer, world.plan)
    assert not serves({}, world.plan)


def test_a_task_below_a_minimum_that_counts_is_not_served() -> None:
    world = VolcanoWorld(task("a", 3, minAvailable=1), task("b", 3, minAvailable=2), minAvailable=3).start()
    placed = world.placed
    assert placed is not None
    assert {name: each.pods for name, each in placed.items()} == {"a": 1, "b": 2}
    swapped = {
        "a": msgspec.structs.replace(placed["a"], info=msgspec.structs.replace(placed["a"].info, count=2)),
        "b": msgspec.structs.replace(placed["b"], info=msgspec.structs.replace(placed["b"].info, count=1)),
    }
    assert not serves(swapped, world.plan)
