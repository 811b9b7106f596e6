"""Forecasts and reasons of a workload name nodes that can come, and why they are not counted on now."""

from controller.insight.forecast.changes.changes import changes
from controller.messages import forecasts, pending
from controller.messages.spans import second
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.resources import WorkloadKey
from tests.controller.insight.forecast.test_decided import told
from tests.controller.insight.forecast.test_gates import forecast
from tests.controller.scheduler.kueue.test_comingnodes import ahead, anywhere, asking, given_up, holds, world_of
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, quotas
from tests.support.engine.topologylab import GPU, RACK
from tests.support.engine.world import World, cluster_queue, requesting


def why(world: World, name: str) -> str:
    found = world.engine.explain(WorkloadKey(f"ns/{name}"), world.now_s)
    assert found is not None
    return sentence(found.record)


def advice(world: World, name: str) -> list[str]:
    given = world.workloads[WorkloadKey(f"ns/{name}")]
    return [each.sentence for each in changes(world.engine, given, world.now_s, lambda _: 0.0)]


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


def test_where_too_few_nodes_can_come_their_number_is_said_and_no_smaller_gang_starts_now() -> None:
    world = world_of({}, max=2)
    asking(world, "w", 3)
    can_come = pending.so_many_can_come("default", 2, 0)
    assert pending.fit_with_these(can_come, 2, 3) in why(world, "w")
    assert forecast(world, "w").never == forecasts.nodes_take_less("2 pods of main")
    assert advice(world, "w") == [], "2 of its pods would wait for nodes"


def test_with_fewer_pods_it_starts_now_only_on_nodes_that_are_there() -> None:
    world = world_of({"b/r/a": 4}, max=2)
    asking(world, "w", 3)
    assert "With 1 of the 3 pods of main" in advice(world, "w")


def test_a_pod_that_a_node_to_come_is_too_small_for_is_told_what_that_has() -> None:
    world = world_of({}, max=2)
    asking(world, "w", 1, 8)
    assert pending.node_to_come_too_small("default", GPU, "4", "8") in why(world, "w")
    assert forecast(world, "w").never == forecasts.nodes_take_less(f"4 {GPU} in each pod of main")


def test_what_a_node_to_come_has_is_said_as_its_template_writes_it() -> None:
    world = world_of({}, allocatable={GPU: "4", "cpu": "7500m"})
    world.put(cluster_queue("q", resourceGroups=quotas(100, 100)))
    world.put(anywhere(requesting(gang("w", 1), {GPU: "1", "cpu": "8"})))
    world.settle()
    assert "a node to come of flavor default has 7500m cpu, and a pod asks for 8" in why(world, "w")


def test_nodes_to_come_that_others_count_on_are_said_to_be_promised_and_not_to_be_lacking_for_ever() -> None:
    world = world_of({}, max=3)
    asking(world, "first", 2)
    asking(world, "w", 2)
    can_come = pending.so_many_can_come("default", 1, 2)
    assert pending.fit_with_these(can_come, 1, 2) in why(world, "w")
    asking(world, "second", 1)
    assert pending.promised_to_others("default", 3) in why(world, "w")
    found = forecast(world, "w")
    assert (found.never, found.from_s, found.assumes) == (None, None, (forecasts.waits_for_promised(),))


def test_full_nodes_and_nodes_to_come_that_hold_a_gang_together_are_not_lacking_for_ever() -> None:
    world = world_of({"b/r/a": 4, "b/r/b": 4}, max=3)
    asking(world, "first", 1)
    asking(world, "w", 3)
    assert not holds(world, "w")
    assert forecast(world, "w").assumes == (forecasts.waits_for_promised(),)
    asking(world, "large", 4)
    assert forecast(world, "large").never == forecasts.nodes_take_less("3 pods of main")
    world.finish("first")
    world.settle()
    assert holds(world, "w")


def test_a_flavor_that_has_all_its_nodes_is_said_to_get_no_more() -> None:
    world = world_of({"b/r/a": 4}, max=1)
    asking(world, "first", 1)
    asking(world, "w", 1)
    assert pending.every_node_has_come("default", 1) in why(world, "w")


def test_nodes_to_come_that_lie_apart_are_no_room_for_a_gang_in_one_domain() -> None:
    world = world_of({}, max=2)
    asking(world, "w", 2, level=RACK)
    assert pending.so_many_can_come("default", 2, 0) + "; then no room for 2 pods in one domain" in why(world, "w")


def test_nothing_is_said_of_nodes_to_come_where_no_flavor_has_a_template() -> None:
    world = world_of({"b/r/a": 4}, on=False)
    asking(world, "w", 3)
    assert "can come" not in why(world, "w")
    assert "to come" not in why(world, "w")
