"""What /metrics and explain tell of devices, from an engine that has some."""

from controller.cluster.config.load import default
from controller.cluster.metrics.exposition import Acting, exposing
from controller.cluster.metrics.instruments import Instruments
from controller.insight.explain import explained
from controller.insight.forecast.parts import finished
from controller.scheduler.model.resources import WorkloadKey
from tests.controller.scheduler.devices.test_fractions import asking, fractional, known, percents_of, queue_of
from tests.support.controller.gpunodes import observed
from tests.support.engine.boards import full, gpu_node, job, pairs, pod_of, world_of
from tests.support.engine.world import World


def drifted() -> World:
    world = world_of([gpu_node("a", 4, full)])
    world.put(job("w", 1, 2))
    world.settle()
    world.put(pod_of("w-0", "w", "a", "a-0"), gpu_node("a", 4, full, holders={"w-0": (3,)}))
    return world


def test_drift_and_devices_are_explained() -> None:
    world = drifted()
    found = explained(world.engine, world.workloads[WorkloadKey("ns/w")], world.now_s)
    assert found["devices"] == [{"podSet": "main", "node": "a", "pods": [["a-1"], ["a-3"]]}]
    assert found["deviceDrift"] == [{"pod": "ns/w-0", "node": "a", "planned": ["a-0"], "held": ["a-3"]}]
    nobody = explained(world.engine, job("other", 1), world.now_s)
    assert (nobody["devices"], nobody["deviceDrift"]) == ([], [])


def test_the_page_shows_what_of_the_free_gpus_can_be_used() -> None:
    world = world_of([gpu_node("a", 4, pairs), gpu_node("b", 2, full)])
    world.settle()
    acting = Acting(world.engine, (), writes_pending=0, events_dropped=0)
    shown = finished(exposing(Instruments(), default(), None, acting, {}, role="leader", version="1"))
    text = shown.text().decode()
    lines = [line for line in text.splitlines() if line.startswith("tessera_")]
    largest = {line for line in lines if line.startswith("tessera_largest_placeable_gang{")}
    assert {line.rpartition(" ")[2] for line in largest if 'level="dc/rack"' in line} == {"6.0"}
    assert {line.rpartition(" ")[2] for line in largest if 'level="kubernetes.io/hostname"' in line} == {"4.0"}
    (ratio,) = [line for line in lines if line.startswith("tessera_gpu_fragmentation_ratio{")]
    assert 0 < float(ratio.rpartition(" ")[2]) < 1


def test_who_waits_for_a_slice_is_told_where_a_layout_could_make_one() -> None:
    name = "nvidia.com/mig-2g.10gb"
    device = {
        "uuid": "g0",
        "index": 3,
        "mig": {"enabled": True, "placements": [{"profile": "2g.10gb", "size": 2, "starts": [0, 2], "free": [2]}]},
    }
    world = known()
    world.put(queue_of("default", covered=name), percents_of("a"))
    world.put(observed("a", devices=[device]))
    world.put(asking("w", 1, resource=name))
    world.settle()
    found = explained(world.engine, world.workloads[WorkloadKey("ns/w")], world.now_s)
    assert (found["state"], found["couldBeMade"]) == (
        "Pending",
        [{"resource": name, "node": "a", "gpu": 3, "starts": [2], "migMode": True}],
    )


def test_percents_of_a_gpu_are_parts_of_one_and_not_a_hundred_devices() -> None:
    world = known(fractional("a", holders={"x": (0, 50)}), fractional("b"))
    world.settle()
    (spread,) = world.engine.state.cluster.placement.spreads()
    assert (spread.free, spread.largest["kubernetes.io/hostname"], spread.largest["dc/rack"]) == (3.5, 2, 3)
    # Of a half and all of a GPU, one in two cannot use the half that is left of the first.
    assert round(spread.unusable, 3) == 0.25
