"""What sums do not show: places on nodes, limits and capabilities. Who is in the way has to end first."""

from typing import Any

import msgspec
import pytest

from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.objects.decode import decode_object
from controller.objects.workload import PodSetTopologyRequest
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import RUNTIME
from tests.support.controller.manifests import kueue
from tests.support.engine.foreignqueues import GPU, asks, kai_queue, volcano_queue
from tests.support.engine.foreignqueues import node as whole_node
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

HOUR_S = 3600.0


def lab(*flavors: str, hosts: int = 1) -> World:
    """A queue with much quota for each flavor; all of them have the same nodes of 8 GPUs."""
    made = World()
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    made.put(decode_object(kueue("Topology", "t", spec={"levels": levels})))
    for name in flavors:
        made.put(flavor(name, topologyName="t"), cluster_queue(name, 64, flavors=(name,)), local_queue(name))
    made.put(*(node(f"b/r/n{number}", 8) for number in range(hosts)))
    return made


def on_a_host(name: str, queue: str, gpus: int = 8, hours: float | None = None, **more: Any) -> Any:
    told = {RUNTIME: f"{hours * HOUR_S:.0f}s"} if hours is not None else {}
    made = workload(name, queue, gpus, annotations=told, **more)
    (pod_set,) = made.spec.pod_sets
    pod_set = msgspec.structs.replace(pod_set, topology_request=PodSetTopologyRequest(required=HOST))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=(pod_set,)))


def begun(made: World, *runs: Any) -> World:
    for given in runs:
        made.put(given)
        made.settle()
    return made


def forecast(made: World, name: str) -> Forecast:
    found = Forecaster().all(made.engine, made.now_s)[WorkloadKey(f"ns/{name}")]
    made.engine.validate()
    return found


def test_behind_a_node_that_is_held_for_ever_the_start_is_unknown() -> None:
    made = begun(lab("f"), on_a_host("runs", "f"), on_a_host("next", "f"))
    assert forecast(made, "next").from_s is None
    assert "no known end" in forecast(made, "next").assumes[0]


def test_the_holder_may_be_of_another_queue_and_another_flavor() -> None:
    for hours, known in ((None, False), (10.0, True)):
        made = begun(lab("f", "g"), on_a_host("runs", "f", hours=hours), on_a_host("next", "g"))
        assert (forecast(made, "next").from_s is not None) == known


def test_behind_a_node_that_is_held_for_hours_it_is_not_minutes() -> None:
    made = begun(lab("f"), on_a_host("runs", "f", hours=10.0), on_a_host("next", "f"))
    found = forecast(made, "next")
    assert found.likely_s is not None
    assert found.likely_s > HOUR_S


def test_of_several_holders_those_count_whose_ends_make_room_on_one_node() -> None:
    """Small ones end soon on nodes that others hold for ever: as much is freed as it asks for, and nowhere together."""
    made = lab("f", hosts=2)
    for host in range(2):
        begun(made, on_a_host(f"stays{host}", "f", 4), on_a_host(f"goes{host}", "f", 4, hours=0.1))
    begun(made, on_a_host("next", "f"))
    assert forecast(made, "next").from_s is None
    made = lab("f", hosts=2)
    begun(made, on_a_host("stays", "f"), on_a_host("goes", "f", 4, hours=0.1), on_a_host("too", "f", 4, hours=1.0))
    begun(made, on_a_host("next", "f"))
    found = forecast(made, "next")
    assert found.likely_s is not None
    assert found.likely_s >= 0.5 * HOUR_S


def test_each_that_waits_needs_an_end_of_its_own() -> None:
    made = begun(lab("f"), on_a_host("soon", "f", 4, hours=0.1), on_a_host("late", "f", 4, hours=10.0))
    begun(made, *(on_a_host(f"next{at}", "f", 4, created_s=at) for at in range(3)))
    first, second, third = (forecast(made, f"next{at}") for at in range(3))
    assert first.likely_s is not None
    assert first.likely_s < 0.5 * HOUR_S
    assert second.likely_s is not None
    assert second.likely_s > HOUR_S
    assert third.from_s is None, "nobody says how long those before it run"


def test_what_no_node_could_hold_never_starts() -> None:
    made = begun(lab("f", hosts=2), on_a_host("runs", "f", hours=0.1), on_a_host("next", "f", 9))
    assert forecast(made, "next").from_s is None


def test_a_workload_that_is_asked_about_before_it_is_sent_waits_for_places_too() -> None:
    made = begun(lab("f"), on_a_host("runs", "f"))
    asked = made.engine.as_pending(on_a_host("next", "f"))
    found = Forecaster().of(made.engine, asked, made.now_s)
    assert found is not None
    assert found.from_s is None
    made = begun(lab("f", hosts=2), on_a_host("runs", "f"))
    found = Forecaster().of(made.engine, made.engine.as_pending(on_a_host("next", "f")), made.now_s)
    assert found is not None
    assert found.from_s is not None


@pytest.mark.parametrize(
    "queues",
    [
        (kai_queue("dept", quota=4, limit=2), kai_queue("q", "dept", quota=4)),
        (volcano_queue("dept", capability={GPU: 2}, deserved={GPU: 2}), volcano_queue("q", parent="dept")),
    ],
    ids=["limit", "capability"],
)
def test_a_bound_of_the_queue_above_counts(queues: tuple[Any, ...]) -> None:
    def waiting(*hours: float | None) -> Forecast:
        made = World()
        made.put(whole_node("n1", 8), *queues)
        for at, each in enumerate(hours):
            marks = {RUNTIME: f"{each * HOUR_S:.0f}s"} if each is not None else {}
            begun(made, asks(f"a{at}", "q", marks=marks, created_s=at))
        begun(made, asks("next", "q", created_s=9))
        return forecast(made, "next")

    assert waiting(None, None).from_s is None
    found = waiting(None, 10.0)
    assert found.likely_s is not None
    assert found.likely_s > HOUR_S


def test_what_is_more_than_a_limit_never_starts() -> None:
    made = World()
    made.put(whole_node("n1", 8), kai_queue("q", quota=4, limit=2))
    begun(made, asks("next", "q", 3))
    assert forecast(made, "next").from_s is None
