"""What the engine decided stands beside a forecast, and the two agree: preempted for in seconds, never, not valid."""

from typing import Any

import msgspec
import pytest

from controller.insight.forecast.changes.changes import changes
from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.parts import finished
from controller.insight.forecast.shown import brief, shown
from controller.messages.spans import starts
from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import to_json
from controller.objects.quantity import NANO, Quantity
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import RUNTIME
from tests.controller.insight.forecast.changes.test_changes import GPU, asks, gpu_queue, on_nodes
from tests.controller.insight.forecast.test_gates import begun, forecast, lab, on_a_host
from tests.support.engine.foreignqueues import asks as asks_gpus
from tests.support.engine.foreignqueues import kai_queue, volcano_queue
from tests.support.engine.foreignqueues import node as foreign_node
from tests.support.engine.topologylab import BLOCK, HOST, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, requesting, workload

LOWER = {"withinClusterQueue": "LowerPriority"}
HOUR = {RUNTIME: "3600s"}


def full(**more: Any) -> World:
    """A queue of 4, all of which a job of low priority has for an hour."""
    made = World()
    made.put(flavor(), cluster_queue("q", 4, preemption=LOWER, **more), local_queue("q"))
    return begun(made, workload("low", "q", 4, annotations=HOUR))


def told(found: Forecast) -> str:
    return str(shown(found, (), ())["starts"])


def asked(made: World, given: Workload) -> Forecast:
    """As of a job that is not sent yet."""
    pending = made.engine.as_pending(given)
    record = made.engine.tried(pending, made.now_s, in_turns=True)
    found = finished(Forecaster().of_parts(made.engine, pending, made.now_s, record))
    assert found is not None
    return found


def test_a_job_that_others_are_preempted_for_starts_in_seconds_whoever_asks_and_when() -> None:
    urgent = workload("urgent", "q", 4, priority=9)
    assert told(asked(full(), urgent)) == "within a minute"
    made = full()
    made.put(urgent)
    assert told(forecast(made, "urgent")) == "within a minute", "before its first try"
    made.settle()
    assert made.log[-1][0] == "Pending"
    assert told(forecast(made, "urgent")) == "within a minute", "while the victim stops"


def test_the_room_of_a_victim_is_for_whom_it_was_preempted() -> None:
    made = begun(full(), workload("urgent", "q", 4, priority=9, annotations=HOUR), workload("late", "q", 4))
    late = forecast(made, "late")
    assert late.from_s is not None
    assert late.from_s > 600.0
    assert late.ahead == 1, "it still waits before it"


def test_behind_the_head_of_a_strict_queue_nobody_preempts() -> None:
    made = full(queueingStrategy="StrictFIFO")
    begun(made, workload("head", "q", 5, priority=10))
    found = asked(made, workload("urgent", "q", 4, priority=9))
    assert found.from_s is None


def test_a_job_that_asks_for_too_much_never_starts_and_is_told_the_most() -> None:
    made = gpu_queue(7, "v100")
    begun(made, asks("w", 16))
    found = forecast(made, "w")
    said = "never, unless it asks for at most 7 nvidia.com/gpu of flavor v100, or the quota is raised"
    assert told(found) == told(asked(made, asks("new", 16))) == said
    assert starts(brief(found)) == "never", "in a table the reason stands beside it"


def test_without_any_quota_the_most_is_nothing() -> None:
    made = gpu_queue(0, "v100")
    begun(made, asks("w", 1))
    assert told(forecast(made, "w")) == f"never, unless the queue gets quota of {GPU} of flavor v100"


def test_pods_that_select_no_flavor_of_the_queue_never_start() -> None:
    made = gpu_queue(8, "one", "two")
    given = asks("w", 1)
    (pod_set,) = given.spec.pod_sets
    replace = msgspec.structs.replace
    template = replace(pod_set.template, spec=replace(pod_set.template.spec, node_selector={"gpu": "none"}))
    spec = replace(given.spec, pod_sets=(replace(pod_set, template=template),))
    begun(made, replace(given, spec=spec))
    said = "never, unless its pods match a flavor of the queue (one, two), or the queue gets another one"
    assert told(forecast(made, "w")) == said


@pytest.mark.parametrize(
    ("resource", "instead"),
    [
        ("nvidia.com/gpus", "the name is corrected (did you mean nvidia.com/gpu?)"),
        ("tessera.dev/gpu-percent", "its pods do not ask for it"),
        ("nvidia.com/mig-1g.10gb", "its pods do not ask for it"),
    ],
)
def test_what_the_queue_does_not_cover_is_named_and_not_the_flavors(resource: str, instead: str) -> None:
    made = gpu_queue(8, "one")
    given = requesting(workload("w", "q"), {resource: "10"})
    begun(made, given)
    said = f"never, unless the queue covers {resource}, or {instead}"
    assert told(forecast(made, "w")) == told(asked(made, given)) == said


def test_what_is_over_a_limit_never_starts() -> None:
    made = World()
    made.put(foreign_node("n1", 8), kai_queue("q", quota=4, limit=2))
    begun(made, asks_gpus("next", "q", 3))
    for found in (forecast(made, "next"), asked(made, asks_gpus("new", "q", 3))):
        assert told(found).startswith("never, unless it asks for less, or the bound of its Queue is raised (OverLimit")
        assert "of its limit of 2 and" in told(found)


def test_pods_that_no_empty_node_has_room_for_never_start() -> None:
    made = begun(lab("f", hosts=2), on_a_host("next", "f", 9))
    said = "never, unless it asks for at most 8 gpu in each pod of main, or nodes come that take more"
    assert told(forecast(made, "next")) == said
    made = begun(lab("f"), on_a_host("runs", "f", hours=10.0), on_a_host("next", "f"))
    assert forecast(made, "next").never is None, "a full node that is held for hours gets free"


def test_the_largest_size_that_could_start_is_named_and_where_none_could_no_size() -> None:
    made = begun(lab("f", hosts=2), on_a_host("next", "f", 6))
    (pod_set,) = on_a_host("gang", "f", 6).spec.pod_sets
    replace = msgspec.structs.replace
    gang = on_a_host("gang", "f", 6)
    several = replace(pod_set, count=5, topology_request=PodSetTopologyRequest(required=BLOCK))
    begun(made, replace(gang, spec=replace(gang.spec, pod_sets=(several,))))
    assert (
        told(forecast(made, "gang")) == "never, unless it asks for at most 2 pods of main, or nodes come that take more"
    )
    elsewhere = replace(pod_set.template, spec=replace(pod_set.template.spec, node_selector={HOST: "nowhere"}))
    begun(
        made,
        replace(
            gang,
            metadata=replace(gang.metadata, name="elsewhere"),
            spec=replace(gang.spec, pod_sets=(replace(pod_set, template=elsewhere),)),
        ),
    )
    assert told(forecast(made, "elsewhere")).startswith("never, unless nodes come that take its pods: those that are ")


def test_quota_beyond_what_the_nodes_have_is_no_size_to_ask_for() -> None:
    made = begun(lab("f", hosts=2), on_a_host("next", "f", 1))
    gang = on_a_host("gang", "f", 8)
    (pod_set,) = gang.spec.pod_sets
    replace = msgspec.structs.replace
    several = replace(pod_set, count=16, topology_request=PodSetTopologyRequest(required=BLOCK))
    begun(made, replace(gang, spec=replace(gang.spec, pod_sets=(several,))))
    said = "never, unless it asks for at most 2 pods of main: quota and nodes have no more"
    assert told(forecast(made, "gang")) == said


@pytest.mark.parametrize("away", ["one of its GPUs is out of service", "it is cordoned"])
def test_what_waits_for_a_repair_is_not_said_to_never_start(away: str) -> None:
    made = lab("f", hosts=0)
    whole, small = node("b/r/n0", 8), node("b/r/n1", 4)
    assert isinstance(whole, Node)
    replace = msgspec.structs.replace
    status = replace(whole.status, capacity=whole.status.allocatable)
    broken = replace(whole, status=replace(status, allocatable={**status.allocatable, "gpu": Quantity(7 * NANO)}))
    cordoned = replace(whole, status=status, spec=replace(whole.spec, unschedulable=True))
    made.put(cordoned if "cordoned" in away else broken, small)
    begun(made, on_a_host("next", "f", 8))
    found = forecast(made, "next")
    assert (found.never, found.from_s) == (None, None)
    assert found.assumes == ("It waits for nodes that take no pods now, or for devices that are out of service",)
    assert told(asked(made, on_a_host("new", "f", 9))).startswith("never, unless it asks for at most 8"), "whole nodes"
    made.put(replace(whole, status=status))
    made.settle()
    begun(made, on_a_host("more", "f", 9))
    assert told(forecast(made, "more")).startswith("never, unless it asks for at most 8 gpu in each pod of main")


def short_of_quota() -> World:
    """32 GPUs of quota on nodes of 8 each, 24 of them borrowed; 26 are held for an hour."""
    made = lab("f", hosts=4)
    own, lent = (cluster_queue(name, gpus, cohort="c", flavors=("f",)) for name, gpus in (("f", 8), ("other", 24)))
    made.put(own, lent)
    return begun(made, *(on_a_host(f"runs-{gpus}", "f", gpus, hours=1.0) for gpus in (8, 7, 6, 5)))


def test_pods_that_no_empty_node_has_room_for_never_start_where_quota_is_short_too() -> None:
    said = "never, unless it asks for at most 8 gpu in each pod of main, or nodes come that take more"
    made = begun(short_of_quota(), on_a_host("next", "f", 12), on_a_host("behind", "f", 8))
    last = made.engine.stories.last(WorkloadKey("ns/next"))
    assert last is not None
    assert str(last.reason) == "WaitingForQuota"
    for found in (forecast(made, "next"), asked(made, on_a_host("new", "f", 12))):
        assert told(found) == said
    assert forecast(made, "behind").from_s is not None, "the nodes have room for it once quota is free"
    changes_of = {
        name: changes(made.engine, made.workloads[WorkloadKey(f"ns/{name}")], made.now_s, lambda _: 0.0)
        for name in ("next", "behind")
    }
    assert "ends" not in {each.kind for each in changes_of["next"]}
    (ends,) = [each.sentence for each in changes_of["behind"] if each.kind == "ends"]
    assert "next" not in ends, "one that never starts is not waited for"


def not_valid(given: Workload) -> Workload:
    """It requests more than its limit."""
    data = to_json(given)
    (container,) = data["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {GPU: "2"}, "limits": {GPU: "1"}}
    found = decode_object({**data, "apiVersion": KUEUE, "kind": "Workload"})
    assert isinstance(found, Workload)
    return found


def test_a_job_that_is_not_valid_has_an_unknown_start_in_queues_of_all_systems() -> None:
    for queue in (volcano_queue("q"), kai_queue("q", quota=8)):
        made = World()
        made.put(foreign_node("n1", 8), queue)
        assert told(asked(made, not_valid(asks_gpus("new", "q")))) == "unknown"
        begun(made, not_valid(asks_gpus("one", "q")), not_valid(asks_gpus("two", "q", created_s=1)))
        assert {told(forecast(made, name)) for name in ("one", "two")} == {"unknown"}
        records = [made.engine.stories.last(WorkloadKey(f"ns/{name}")) for name in ("one", "two")]
        reasons = [str(record.reason) for record in records if record is not None]
        assert reasons == ["Misconfigured"] * 2, "each of those that are alike is told"


def test_a_flavor_that_selects_no_node_is_named_by_what_no_node_has() -> None:
    made = on_nodes(GPU, 4)
    made.put(flavor("one", topologyName="racks", nodeLabels={"nvidia.com/gpu.present": "true"}))
    begun(made, asks("w", 1))
    record = made.engine.explain(WorkloadKey("ns/w"), made.now_s)
    assert record is not None
    assert record.record.assignment is not None
    (pod_set,) = record.record.assignment.pod_sets
    assert pod_set.problems == ("no node has nvidia.com/gpu.present=true",)
    assert told(forecast(made, "w")) == "never, unless a node comes that the flavor selects"


def test_quota_admits_a_pod_that_no_node_is_large_enough_for_and_it_never_starts() -> None:
    made = gpu_queue(64, "a100")
    made.put(flavor("a100"), foreign_node("n1", 8))
    said = "never, unless it asks for at most 8 nvidia.com/gpu in each pod of main, or nodes come that take more"
    assert told(asked(made, asks("w", 9))) == said
    assert told(asked(made, asks("w", 8))).startswith("within")
    begun(made, asks("all", 8, count=8))
    made.put(asks("large", 9, created_s=1), asks("many", 1, count=9, created_s=2))
    made.settle()
    assert told(forecast(made, "large")) == said
    assert not told(forecast(made, "many")).startswith("never"), "9 pods of one GPU ask for as much"


def test_a_size_that_a_fault_makes_smaller_says_that_the_fault_counts() -> None:
    made = begun(lab("f", hosts=2), on_a_host("next", "f", 1))
    gang = on_a_host("gang", "f", 8)
    (pod_set,) = gang.spec.pod_sets
    replace = msgspec.structs.replace
    several = replace(pod_set, count=16, topology_request=PodSetTopologyRequest(required=BLOCK))
    begun(made, replace(gang, spec=replace(gang.spec, pod_sets=(several,))))
    said = "never, unless it asks for at most {} of main: quota and nodes have no more"
    assert told(forecast(made, "gang")) == said.format("2 pods")
    whole = node("b/r/n0", 8)
    status = replace(whole.status, capacity=whole.status.allocatable)
    broken = replace(status, allocatable={**status.allocatable, "gpu": Quantity(7 * NANO)})
    made.put(replace(whole, status=broken))
    made.settle()
    out = " while some nodes or devices are out of service"
    assert told(forecast(made, "gang")) == said.format("1 pod") + out
