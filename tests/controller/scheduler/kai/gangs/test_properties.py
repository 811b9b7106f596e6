"""What holds in every world of gangs, whatever is in it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.kai.gangs.actions import ACTIONS
from controller.scheduler.kai.gangs.gang import USED, Gang, Phase, TaskRequest
from controller.scheduler.kai.gangs.session import GangSession
from tests.support.engine.gangworld import act, gang, node, phases, places, queue, session

NODES, GPUS = 3, 4
REQUESTS = (TaskRequest(gpus=1), TaskRequest(gpus=2), TaskRequest(gpus=4), TaskRequest(shared_gpus=1, portion=0.5))


@st.composite
def worlds(draw: st.DrawFn) -> GangSession:
    nodes = [node(f"n{index}", GPUS) for index in range(NODES)]
    free = {node.name: float(GPUS) for node in nodes}
    queues = [queue(name, draw(st.integers(0, 8)), draw(st.integers(0, 3))) for name in ("a", "b", "c")]
    gangs: list[Gang] = []
    for index in range(draw(st.integers(1, 9))):
        request, tasks = draw(st.sampled_from(REQUESTS)), draw(st.integers(1, 3))
        minimum = draw(st.integers(1, tasks))
        on: list[str] = []
        if not request.is_shared and draw(st.booleans()):
            for _ in range(tasks):
                found = next((name for name in free if free[name] >= request.gpus), None)
                if found is not None:
                    free[found] -= request.gpus
                    on.append(found)
        if len(on) < minimum:
            for name in on:
                free[name] += request.gpus  # type: ignore[index]
            on = []
        gangs.append(
            gang(
                f"g{index}",
                draw(st.sampled_from(("a", "b", "c"))),
                tasks,
                request=request,
                minimum=minimum,
                on=on,
                priority=draw(st.sampled_from((50, 75, 100))),
                preemptible=draw(st.booleans()),
                created=float(index),
            )
        )
    return session(nodes, queues, gangs)


@settings(max_examples=60)
@given(worlds())
def test_no_node_gives_more_than_it_has_and_no_gang_is_broken(world: GangSession) -> None:
    act(world)
    for name, one in world.gangs.items():
        used = sum(task.phase in USED for task in one.tasks())
        assert one.is_satisfied or used == 0, f"{name} is left with {used} of its minimum"
        if not one.preemptible:
            assert all(task.phase is not Phase.RELEASING for task in one.tasks())


@settings(max_examples=40)
@given(worlds(), st.sampled_from(sorted(ACTIONS)))
def test_what_is_undone_was_never_there(world: GangSession, action: str) -> None:
    mark = world.mark()
    before = phases(world), places(world), {name: dict(one.held) for name, one in world.nodes.items()}
    ACTIONS[action](world)
    world.undo(mark)
    assert (phases(world), places(world), {name: dict(one.held) for name, one in world.nodes.items()}) == before
    world.validate()


@settings(max_examples=40)
@given(worlds())
def test_a_consolidation_leaves_every_running_gang_with_places_and_one_more(world: GangSession) -> None:
    running = {name for name, one in world.gangs.items() if any(task.phase in USED for task in one.tasks())}
    act(world, "consolidation")
    moved = [task for one in world.gangs.values() for task in one.tasks() if task.phase is Phase.PIPELINED]
    for name in running:
        assert all(task.phase in USED for task in world.gangs[name].tasks() if task.node is not None)
    assert not moved or any(task.gang not in running for task in moved), "gangs moved for nobody"
