"""What is said of a workload that waits for nodes which can come and are not counted on now."""

from controller.messages import forecasts, pending
from controller.messages.spans import second
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.resources import WorkloadKey
from tests.controller.insight.forecast.test_decided import told
from tests.controller.insight.forecast.test_gates import forecast
from tests.controller.scheduler.kueue.test_comingnodes import ahead, asking, given_up, world_of
from tests.support.engine.world import World


def why(world: World, name: str) -> str:
    found = world.engine.explain(WorkloadKey(f"ns/{name}"), world.now_s)
    assert found is not None
    return sentence(found.record)


def rested(pods: int = 2) -> World:
    """A world in which the nodes of a workload did not come."""
    world = world_of({})
    asking(world, "w", pods)
    given_up(world, "w")
    world.stop_evicted()
    world.settle()
    return world


def test_while_a_flavor_rests_it_is_said_until_when_and_that_it_is_tried_again() -> None:
    world = rested()
    until_s = world.now_s + 300.0
    assert pending.nodes_rest("default", second(until_s)) in why(world, "w")
    ahead(world, 60.0)
    assert pending.nodes_rest("default", second(until_s)) in why(world, "w"), "a message that is kept names a moment"
    found = forecast(world, "w")
    assert (found.never, found.from_s) == (None, 240.0)
    assert told(found) == "in 4m or later"
    assert found.assumes[0] == forecasts.waits_for_back_off("flavor default", "4m")


def test_a_rest_promises_nothing_to_one_that_even_all_nodes_do_not_hold() -> None:
    world = rested()
    asking(world, "large", 5)
    assert forecast(world, "large").never == forecasts.nodes_take_less("4 pods of main")
    assert forecast(world, "w").never is None
