"""Jobs on nodes that come and go: what a fleet with pools does to the timeline, and what it costs."""

import pytest

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    Json,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    run,
    told,
)
from tests.support.controller.nodepools import Fleet, node

QUEUES = (flavor(), cluster_queue(gpus=64), local_queue())
SPOT = {"karpenter_sh__capacity-type": "spot"}


def simulated(fleet: Fleet, *objects: Json, queues: tuple[Json, ...] = QUEUES, **other: float) -> SimulationResult:
    return run(*queues, *fleet.nodes, *objects, pools=fleet.comes, until_s=other.get("until_s"))


def started(result: SimulationResult) -> list[str]:
    return [line for line in told(result) if "Pending" not in line]


def nodes_of(result: SimulationResult, name: str) -> list[str]:
    """The nodes of each start of a job, one after the other."""
    return [
        place.node
        for entry in result.timeline
        if entry.event == "Admitted" and entry.workload == f"ns/{name}"
        for place in entry.placement
    ]


def annotated(given: Json, **annotations: str) -> Json:
    more = {f"tessera.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {**given, "metadata": {**given["metadata"], "annotations": {**given["metadata"]["annotations"], **more}}}


# -- nodes come --------------------------------------------------------------------------------------------------------


def test_a_gang_starts_when_both_of_its_nodes_are_there_and_they_go_after_it() -> None:
    result = simulated(Fleet().pool("gpu", 4), job("train", 8, pods=2, runtime="1h"))
    assert told(result) == ["0 Pending train", "300 Admitted train", "3900 Finished train"]
    assert result.timeline[0].reason == "WaitingForNodes"
    assert result.timeline[0].message == "Holds quota in ClusterQueue main; 2 nodes of pool gpu are there in 5m"
    assert result.timeline[0].flavors == {"main": {GPU: "a100"}}
    assert nodes_of(result, "train") == ["gpu-1", "gpu-2"]
    assert result.final.node_hours == {"gpu": pytest.approx(2 * 3720 / 3600, abs=1e-3)}
    assert result.final.t == 3900
    assert [f"{each.t:g} {each.event} {each.node}" for each in result.nodes if each.node == "gpu-1"] == [
        "0 Ordered gpu-1",
        "300 Ready gpu-1",
        "4020 Removed gpu-1",
    ]


def test_where_even_the_greatest_number_is_too_few_no_node_comes() -> None:
    fleet = Fleet().pool("gpu", 2)
    result = simulated(fleet, job("large", 8, pods=3, runtime="1h"), job("small", 8, pods=2, runtime="1h"))
    assert started(result) == ["300 Admitted small", "3900 Finished small"]
    (waits,) = result.final.pending
    assert (waits.workload, waits.reason) == ("ns/large", "TopologyPlacementFailed")
    assert not simulated(fleet, job("large", 8, pods=3)).nodes


def test_jobs_share_coming_nodes_where_they_fit() -> None:
    result = simulated(
        Fleet().pool("gpu", 4),
        job("first", 4, runtime="1h"),
        job("second", 2, runtime="1h", arrival="100s"),
        job("third", 4, runtime="1h", arrival="200s"),
    )
    assert started(result)[:3] == ["300 Admitted first", "300 Admitted second", "500 Admitted third"]
    assert (nodes_of(result, "first"), nodes_of(result, "second")) == (["gpu-1"], ["gpu-1"])
    assert nodes_of(result, "third") == ["gpu-2"], "4 + 2 + 4 GPUs are more than a node has"


def test_several_pods_of_one_job_take_the_fewest_nodes() -> None:
    result = simulated(Fleet().pool("small", 8, 2).pool("large", 2, 8), job("train", 2, pods=4, runtime="60s"))
    assert nodes_of(result, "train") == ["large-1"]
    result = simulated(Fleet().pool("small", 8, 2).pool("large", 2, 8), job("one", 2, runtime="60s"))
    assert nodes_of(result, "one") == ["small-1"], "of equally many the tightest"
    result = simulated(Fleet().pool("small", 8, 2).pool("large", 2, 8), job("train", 2, pods=8, runtime="60s"))
    assert nodes_of(result, "train") == ["large-1", "large-2"]


def test_a_node_that_is_there_is_taken_before_one_that_would_come() -> None:
    fleet = Fleet(node("fixed", 8)).pool("gpu", 4, 4, price_per_hour=0.0)
    result = simulated(fleet, job("first", 4, runtime="1h"), job("second", 4, pods=2, runtime="1h"))
    assert started(result)[:2] == ["0 Admitted first", "300 Admitted second"]
    assert (nodes_of(result, "first"), nodes_of(result, "second")) == (["fixed"], ["fixed", "gpu-1"])
    assert result.final.node_hours == {"gpu": pytest.approx(3720 / 3600, abs=1e-3)}, "fixed nodes cost nothing here"


@pytest.mark.parametrize(
    ("large", "small", "pods", "chosen"),
    [
        (8.0, 7.9, 8, "large"),  # eight small nodes would cost 63.2 an hour
        (8.0, 0.9, 8, "small"),
        (8.0, 7.9, 1, "small"),
    ],
)
def test_of_pools_with_nodes_of_other_sizes_the_one_that_holds_the_job_for_less_gives_its_nodes(
    large: float, small: float, pods: int, chosen: str
) -> None:
    fleet = Fleet().pool("large", 2, 8, price_per_hour=large).pool("small", 8, 1, price_per_hour=small)
    result = simulated(fleet, job("train", 1, pods=pods, runtime="1h"))
    assert {name.rpartition("-")[0] for name in nodes_of(result, "train")} == {chosen}


def test_the_cheaper_pool_gives_its_nodes_first() -> None:
    fleet = Fleet().pool("dear", 2, price_per_hour=30.0).pool("cheap", 1, price_per_hour=10.0)
    result = simulated(fleet, job("one", 8, runtime="1h"), job("two", 8, pods=2, arrival="1s", runtime="1h"))
    assert nodes_of(result, "one") == ["cheap-1"]
    assert nodes_of(result, "two") == ["dear-1", "dear-2"]
    assert result.final.cost == pytest.approx((2 * 30 + 10) * 3720 / 3600, abs=1e-2)


def test_the_minimum_is_there_from_the_start_and_stays() -> None:
    fleet = Fleet().pool("gpu", 3, min_nodes=1, delay=100.0)
    result = simulated(fleet, job("first", 8, runtime="50s"), job("second", 8, pods=2, arrival="10s", runtime="50s"))
    assert started(result) == ["0 Admitted first", "50 Finished first", "110 Admitted second", "160 Finished second"]
    up = {each.node for each in result.nodes if each.event == "Ready"}
    gone = {each.node for each in result.nodes if each.event == "Removed"}
    assert len(up - gone) == 1
    assert simulated(fleet, until_s=7200).final.node_hours == {"gpu": 2.0}


def test_without_a_delay_nodes_are_there_at_once_and_may_go_at_once() -> None:
    fleet = Fleet().pool("gpu", 1, delay=0.0, remove_after=0.0)
    result = simulated(fleet, job("one", 8, runtime="1h"), job("two", 8, arrival="10s", runtime="1h"))
    assert started(result) == ["0 Admitted one", "3600 Finished one", "3600 Admitted two", "7200 Finished two"]
    assert result.timeline[0].event == "Admitted", "it never waits"
    assert result.final.node_hours == {"gpu": 2.0}
    assert sum(each.event == "Removed" for each in result.nodes) == 1, "what is needed again at that moment stays"


def test_a_job_without_a_run_time_keeps_its_nodes() -> None:
    result = simulated(Fleet().pool("gpu", 1), job("serve", 8), until_s=3900)
    assert result.final.running == ("ns/serve",)
    assert result.final.node_hours == {"gpu": 1.0}


def test_at_the_cut_a_job_waits_for_its_nodes() -> None:
    (waits,) = (end := simulated(Fleet().pool("gpu", 1), job("train", 8), until_s=100).final).pending
    assert (waits.reason, end.running) == ("WaitingForNodes", ())
    assert waits.forecast is not None
    assert waits.forecast["toSeconds"] == 200


def test_pools_stand_for_the_autoscaler_that_a_check_would_ask() -> None:
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "nodes"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
    }
    queue = cluster_queue(gpus=64, admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
    jobs = (job("fits", 8, pods=2, runtime="1h"), job("never", 8, pods=3, arrival="1s"))
    result = simulated(Fleet().pool("gpu", 2), *jobs, queues=(flavor(), check, queue, local_queue()))
    assert started(result) == ["300 Admitted fits", "3900 Finished fits"]
    assert [one.reason for one in result.final.pending] == ["TopologyPlacementFailed"], "it holds no quota"


def test_pods_without_gpus_take_nodes_too() -> None:
    queue = cluster_queue(gpus=64)
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "a100", "resources": [{"name": "cpu", "nominalQuota": 128}]}],
    }
    queue["spec"]["resourceGroups"] = [group]
    asks = job("prepare", 0, runtime="60s")
    asks["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "40"}}
    again = {**asks, "metadata": {**asks["metadata"], "name": "again"}}
    fleet = Fleet().pool("cpu", 2, 0)
    result = simulated(fleet, asks, again, queues=(flavor(), queue, local_queue()))
    assert started(result)[:2] == ["300 Admitted prepare", "300 Admitted again"]
    assert nodes_of(result, "prepare") + nodes_of(result, "again") == ["cpu-1", "cpu-2"]


def test_cpus_of_another_flavor_do_not_keep_a_pod_from_its_nodes() -> None:
    queue = cluster_queue(gpus=64)
    cpus = {"name": "any", "resources": [{"name": "cpu", "nominalQuota": 64}]}
    queue["spec"]["resourceGroups"].append({"coveredResources": ["cpu"], "flavors": [cpus]})
    asks = job("train", 8, runtime="60s")
    asks["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4", GPU: 8}
    result = simulated(Fleet().pool("gpu", 1), asks, queues=(flavor(), flavor("any"), queue, local_queue()))
    assert started(result) == ["300 Admitted train", "360 Finished train"]
    assert nodes_of(result, "train") == ["gpu-1"]


def test_taints_and_selectors_hold_for_nodes_that_come() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    fleet = Fleet().pool("tainted", 1, taints=(taint,)).pool("zone-b", 1, labels={"zone": "b"})
    selects = job("chosen", 8, runtime="60s")
    selects["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "b"}
    tolerates = job("tolerant", 8, runtime="60s")
    tolerates["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    result = simulated(fleet, job("plain", 8, runtime="60s", arrival="10s"), selects, tolerates)
    assert nodes_of(result, "chosen") == ["zone-b-1"]
    assert nodes_of(result, "tolerant") == ["tainted-1"]
    assert nodes_of(result, "plain") == ["zone-b-1"]
    assert "360 Admitted plain" in told(result), "on the node that the chosen one left"


def test_levels_hold_for_nodes_that_come() -> None:
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }
    racks = flavor()
    racks["spec"] = {"topologyName": "racks"}
    fleet = Fleet().pool("a", 1, labels={"rack": "a"}).pool("b", 2, labels={"rack": "b"})
    asks = job("train", 8, pods=2, runtime="60s")
    asks["spec"]["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    result = simulated(fleet, asks, queues=(topology, racks, cluster_queue(gpus=64), local_queue()))
    assert nodes_of(result, "train") == ["b-1", "b-2"]


def test_a_job_that_is_preempted_while_its_nodes_come_leaves_them_to_its_preemptor() -> None:
    queues = (
        flavor(),
        cluster_queue(gpus=8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue(),
        priority_class("high", 10),
    )
    urgent = job("urgent", 8, priority="high", arrival="100s", runtime="60s")
    result = simulated(Fleet().pool("gpu", 1), job("low", 8, runtime="60s"), urgent, queues=queues)
    assert started(result) == [
        "100 Preempted low",
        "300 Admitted urgent",
        "360 Finished urgent",
        "360 Admitted low",
        "420 Finished low",
    ]
    assert result.final.lost_gpu_seconds == 0, "it had not begun"


# -- nodes go ----------------------------------------------------------------------------------------------------------


def test_an_interrupted_gang_is_evicted_whole_and_starts_on_the_other_pool() -> None:
    fleet = Fleet().pool("spot", 2, labels=SPOT, spot=True, price_per_hour=1.0).pool("safe", 2, price_per_hour=3.0)
    fleet.interrupted(1800, 120, pool="spot")
    result = simulated(fleet, job("train", 8, pods=2, runtime="1h"))
    assert started(result) == ["300 Admitted train", "1800 Evicted train", "2100 Admitted train", "5700 Finished train"]
    evicted = next(entry for entry in result.timeline if entry.event == "Evicted")
    assert evicted.reason == "NodeInterrupted"
    assert evicted.message == "Pool spot is interrupted and gone in 2m: the workload has pods on spot-1, spot-2"
    assert {place.node for place in evicted.placement} == {"spot-1", "spot-2"}
    assert nodes_of(result, "train") == ["spot-1", "spot-2", "safe-1", "safe-2"]
    assert result.final.node_hours == {"spot": pytest.approx(0.9), "safe": pytest.approx(2 * 3720 / 3600, abs=1e-3)}
    assert result.final.lost_gpu_seconds == 16 * 1500


def test_an_interrupted_pool_gives_no_node_before_its_cooldown_is_over() -> None:
    fleet = Fleet().pool("spot", 2, cooldown_s=1000.0).interrupted(1800, 120, pool="spot")
    result = simulated(fleet, job("train", 8, pods=2, runtime="1h"))
    assert started(result)[1:3] == ["1800 Evicted train", "3220 Admitted train"], "1800 + 120 + 1000 + 300"


def test_a_gang_whose_interrupted_nodes_are_still_to_come_is_not_said_to_have_pods_on_them() -> None:
    fleet = Fleet().pool("spot", 2).interrupted(100, 60, pool="spot")
    result = simulated(fleet, job("train", 8, pods=2, runtime="1h"))
    (evicted,) = [entry for entry in result.timeline if entry.event == "Evicted"]
    assert evicted.message == "Pool spot is interrupted and gone in 1m: the workload waits for spot-1, spot-2"


def test_of_one_interrupted_node_the_whole_gang_goes_and_the_others_stay() -> None:
    fleet = Fleet().pool("gpu", 3).interrupted(1000, 60, node="gpu-1")
    result = simulated(fleet, job("gang", 8, pods=2, runtime="1h"), job("other", 8, runtime="1h"))
    assert [line for line in told(result) if "Evicted" in line] == ["1000 Evicted gang"]
    (message,) = [entry.message for entry in result.timeline if entry.event == "Evicted"]
    assert message == "Node gpu-1 is interrupted and gone in 1m: the workload has pods on gpu-1"
    assert "3900 Finished other" in told(result)
    assert "4200 Admitted gang" in told(result), "the other job had one of two nodes, and the idle one had gone"


def test_a_fixed_node_that_is_interrupted_does_not_come_back() -> None:
    fleet = Fleet(node("a"), node("b")).interrupted(100, 0, node="a")
    result = simulated(fleet, job("one", 8, runtime="60m"), job("two", 8, runtime="60m"))
    assert started(result)[2:4] == ["100 Evicted one", "3600 Finished two"]
    assert nodes_of(result, "one") == ["a", "b"]


def test_orders_of_an_interrupted_pool_do_not_come() -> None:
    fleet = Fleet().pool("spot", 1, price_per_hour=1.0).pool("safe", 1, price_per_hour=2.0)
    fleet.interrupted(100, 120, pool="spot")
    result = simulated(fleet, job("train", 8, runtime="60s"))
    assert started(result) == ["100 Evicted train", "400 Admitted train", "460 Finished train"]
    assert result.final.node_hours["spot"] == 0
    assert "100 Cancelled spot-1" in {f"{each.t:g} {each.event} {each.node}" for each in result.nodes}


def test_the_minimum_comes_back_after_the_cooldown() -> None:
    fleet = Fleet().pool("gpu", 2, min_nodes=1, cooldown_s=600.0).interrupted(1000, 100, pool="gpu")
    result = simulated(fleet, job("later", 8, arrival="5000s", runtime="60s"))
    assert [f"{each.t:g} {each.event}" for each in result.nodes if each.node == "gpu-1"] == [
        "0 Ready",
        "1000 Interrupted",
        "1100 Removed",
        "1700 Ordered",
        "2000 Ready",
    ]
    assert started(result) == ["5000 Admitted later", "5060 Finished later"]


def test_an_interruption_of_a_pool_without_work_evicts_nobody() -> None:
    fleet = Fleet().pool("gpu", 1).interrupted(100, 60, pool="gpu")
    result = simulated(fleet, job("later", 8, arrival="200s", runtime="60s"))
    assert started(result) == ["4060 Admitted later", "4120 Finished later"], "100 + 60 + 3600 + 300"


def test_an_interruption_after_all_work_is_done_costs_nothing() -> None:
    fleet = Fleet().pool("gpu", 1, min_nodes=1).interrupted(1e6, 60, pool="gpu")
    assert simulated(fleet, job("short", 8, runtime="1h")).final.node_hours == {"gpu": 1.0}


# -- spot --------------------------------------------------------------------------------------------------------------


def test_a_job_that_never_takes_spot_waits_for_the_other_pool() -> None:
    def fleet() -> Fleet:
        made = Fleet().pool("spot", 1, labels=SPOT, spot=True, price_per_hour=1.0, min_nodes=1)
        return made.pool("safe", 1, price_per_hour=3.0)

    assert nodes_of(simulated(fleet(), job("any", 8, runtime="60s")), "any") == ["spot-1"]
    result = simulated(fleet(), annotated(job("safe", 8, runtime="60s"), spot="never"))
    assert nodes_of(result, "safe") == ["safe-1"]


def test_who_prefers_spot_gets_it_though_it_is_dearer() -> None:
    def fleet() -> Fleet:
        return Fleet().pool("safe", 1).pool("spot", 1, labels=SPOT, spot=True, price_per_hour=1.0)

    assert nodes_of(simulated(fleet(), job("any", 8, runtime="60s")), "any") == ["safe-1"]
    result = simulated(fleet(), annotated(job("fond", 8, runtime="60s"), spot="preferred"))
    assert nodes_of(result, "fond") == ["spot-1"]


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_a_queue_says_it_for_its_jobs_and_a_job_for_itself(kind: str) -> None:
    queues = [
        {**each, "metadata": {**each["metadata"], "annotations": {"tessera.dev/spot": "never"}}}
        if each["kind"] == kind
        else each
        for each in QUEUES
    ]
    fleet = Fleet().pool("spot", 1, labels=SPOT, spot=True).pool("safe", 1, price_per_hour=3.0)
    own = annotated(job("own", 8, runtime="60s"), spot="allowed")
    result = simulated(fleet, job("as-its-queue", 8, runtime="60s"), own, queues=tuple(queues))
    assert nodes_of(result, "as-its-queue") == ["safe-1"]
    assert nodes_of(result, "own") == ["spot-1"]


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_a_queue_keeps_its_part_on_demand(kind: str) -> None:
    queues = tuple(
        {**each, "metadata": {**each["metadata"], "annotations": {"tessera.dev/on-demand-floor": "25%"}}}
        if each["kind"] == kind
        else each
        for each in QUEUES
    )
    fleet = Fleet().pool("spot", 8, labels=SPOT, spot=True).pool("safe", 8, price_per_hour=3.0)
    jobs = [job(f"j{at}", 8, runtime="1h", arrival=f"{at}s") for at in range(6)]
    result = simulated(fleet, *jobs, queues=queues)
    assert [nodes_of(result, f"j{at}")[0].partition("-")[0] for at in range(6)] == [
        "safe",
        "spot",
        "spot",
        "spot",
        "safe",
        "spot",
    ]
    scarce = Fleet().pool("spot", 8, labels=SPOT, spot=True).pool("safe", 1, price_per_hour=3.0)
    waits = {one.workload for one in simulated(scarce, *jobs, queues=queues, until_s=1000).final.pending}
    assert waits == {"ns/j4", "ns/j5"}, "no node on demand is left, and the part is not given up for that"


# -- work that is kept -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "ends", "lost"),
    [
        ({}, 1200 + 3600, 8 * 1200),
        ({"checkpoint_interval": "10m"}, 1200 + 3600 - 1200, 0),
        ({"checkpoint_interval": "7m"}, 1200 + 3600 - 840, 8 * 360),
        ({"checkpoint_interval": "7m", "restart_cost": "90s"}, 1200 + 3600 - 840 + 90, 8 * 360),
        ({"checkpoint_grace": "2m", "restart_cost": "90s"}, 1200 + 3600 - 1200 + 90, 0),
        ({"checkpoint_grace": "121s"}, 1200 + 3600, 8 * 1200),
        ({"checkpoint_grace": "121s", "checkpoint_interval": "7m"}, 1200 + 3600 - 840, 8 * 360),
    ],
)
def test_a_job_goes_on_from_its_last_checkpoint(annotations: dict[str, str], ends: float, lost: float) -> None:
    fleet = Fleet(node("a"), node("b")).interrupted(1200, 120, node="a")
    result = simulated(fleet, annotated(job("train", 8, runtime="1h"), **annotations))
    assert started(result) == [
        "0 Admitted train",
        "1200 Evicted train",
        "1200 Admitted train",
        f"{ends:g} Finished train",
    ]
    assert result.final.lost_gpu_seconds == lost


def test_each_replica_behaves_as_its_deployment_says() -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {GPU: 8}}}]},
    }
    annotations = {
        "tessera.dev/runtime": "1h",
        "tessera.dev/spot": "never",
        "tessera.dev/checkpoint-interval": "10m",
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "serve",
            "namespace": "ns",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": annotations,
        },
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    fleet = Fleet().pool("spot", 2, labels=SPOT, spot=True).pool("safe", 3, price_per_hour=3.0)
    result = simulated(fleet.interrupted(1560, 0, node="safe-1"), deployment)
    assert nodes_of(result, "serve-0") == ["safe-1", "safe-3"]
    assert nodes_of(result, "serve-1") == ["safe-2"]
    assert result.final.lost_gpu_seconds == 8 * 60, "21 minutes of work, of which 20 are saved"


def test_a_preempted_job_has_all_of_its_grace() -> None:
    queues = (
        flavor(),
        cluster_queue(gpus=8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue(),
        priority_class("high", 10),
    )
    urgent = job("urgent", 8, priority="high", arrival="100s", runtime="60s")
    low = annotated(job("low", 8, runtime="1000s"), checkpoint_grace="10m")
    result = run(*queues, low, urgent)
    assert told(result)[-1] == "1060 Finished low", "with or without pools"
    assert result.final.lost_gpu_seconds == 0
    assert run(*queues, job("low", 8, runtime="1000s"), urgent).final.lost_gpu_seconds == 800


def test_without_pools_nothing_is_said_of_nodes() -> None:
    result = run(*QUEUES, node("a"), job("train", 8, pods=2, runtime="60s"))
    assert told(result) == ["0 Admitted train", "60 Finished train"], "quota alone decides, as ever"
    assert (result.nodes, result.final.node_hours, result.final.cost) == ((), {}, 0.0)


def test_a_told_start_dates_everything() -> None:
    result = run(*QUEUES, job("train", 8, runtime="90s"), start_s=1767636000.0)
    assert result.start == "2026-01-05T18:00:00Z"
    assert [entry.time for entry in result.timeline] == ["2026-01-05T18:00:00Z", "2026-01-05T18:01:30Z"]
    assert run(*QUEUES, job("train", 8, runtime="90s")).start is None


def test_messages_name_the_users_things() -> None:
    fleet = Fleet().pool("gpu", 1, labels=SPOT)
    result = simulated(fleet, annotated(job("safe", 8, runtime="1h"), spot="never"))
    (said,) = {entry.message for entry in result.timeline}
    assert "nodes.tessera.dev" not in said
    assert "on the nodes of flavor a100" in said
    assert "of spot capacity, which is not for them (tessera.dev/spot, tessera.dev/on-demand-floor)" in said


@pytest.mark.parametrize("interval", ["0s", "0"])
def test_checkpoints_without_end_are_refused(interval: str) -> None:
    with pytest.raises(InputError, match="expected a duration above 0s"):
        simulated(Fleet().pool("gpu", 1), annotated(job("train", 8), checkpoint_interval=interval))


@pytest.mark.parametrize(("start_s", "at"), [(None, 60.0), (1_767_636_000.0, "2026-01-05T18:01:00Z")])
def test_a_forecast_says_its_moment_as_the_timeline_does(start_s: float | None, at: float | str) -> None:
    fleet = Fleet().pool("gpu", 4)
    objects = (*QUEUES, *fleet.nodes, job("train", 8, pods=2, runtime="1h"))
    result = run(*objects, pools=fleet.comes, until_s=60.0, start_s=start_s)
    (waits,) = result.final.pending
    assert waits.forecast is not None
    assert (waits.forecast["at"], waits.forecast["likelySeconds"]) == (at, 240.0)


def test_a_pool_that_rests_after_an_interruption_is_named() -> None:
    fleet = Fleet().pool("gpu", 1, cooldown_s=1800.0).interrupted(600, 60, pool="gpu")
    result = simulated(fleet, job("first", 8, runtime="1h"), job("late", 8, runtime="1h", arrival="700s"))
    (said,) = [each.message for each in result.timeline if (each.t, each.workload) == (700, "ns/late")]
    assert said.endswith("; pool gpu was interrupted and gives no node for 29m20s")
