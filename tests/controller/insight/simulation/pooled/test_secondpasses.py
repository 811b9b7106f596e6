"""Jobs whose places are chosen after their admission checks: a run in which none comes has an end."""

from tests.support.controller.manifests import Json, cluster_queue, job, kueue, local_queue, priority_class, run, told
from tests.support.controller.nodepools import node

HOSTS = kueue("Topology", "hosts", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
FLAVOR = kueue("ResourceFlavor", "a100", spec={"nodeLabels": {"pool": "spot"}, "topologyName": "hosts"})
CHECK = kueue(
    "AdmissionCheck",
    "nodes",
    spec={
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "nodes"},
    },
)
CONFIG = kueue("ProvisioningRequestConfig", "nodes", spec={"provisioningClassName": "atomic"})
BY_CHECK = cluster_queue(gpus=64, admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
WITHOUT_CHECK = cluster_queue("plain", gpus=64)


def objects(*more: Json) -> tuple[Json, ...]:
    return HOSTS, FLAVOR, CHECK, CONFIG, BY_CHECK, WITHOUT_CHECK, local_queue(), local_queue("plain"), *more


def test_a_run_ends_where_no_place_can_come_and_says_what_the_job_waits_for() -> None:
    result = run(*objects(job("train", 8, pods=2)))
    assert told(result) == ["1 Pending train"]
    sentence = "Holds quota in ClusterQueue main; No place for its pods yet: pod set main: no node has pool=spot"
    assert (result.timeline[0].reason, result.timeline[0].message) == ("TopologyPlacementFailed", sentence)
    (waits,) = result.final.pending
    assert (waits.workload, waits.reason, waits.message) == ("ns/train", "TopologyPlacementFailed", sentence)


def test_it_is_tried_again_once_places_are_free() -> None:
    busy = job("busy", 8, queue="plain", runtime="1h")
    later = job("train", 8, arrival="10m", runtime="1h")
    result = run(*objects(node("n", pool="spot"), busy, later))
    assert told(result) == [
        "0 Admitted busy",
        "601 Pending train",
        "3600 Finished busy",
        "3600 Admitted train",
        "7200 Finished train",
    ]
    assert result.final.pending == ()


def test_a_job_that_is_preempted_meanwhile_is_not_said_to_hold_quota() -> None:
    queue = cluster_queue(
        gpus=16,
        preemption={"withinClusterQueue": "LowerPriority"},
        admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]},
    )
    urgent = job("urgent", 8, pods=2, arrival="10m", priority="high")
    world = (HOSTS, FLAVOR, CHECK, CONFIG, queue, local_queue(), priority_class("high", 100))
    result = run(*world, job("train", 8, pods=2), urgent)
    assert "600 Preempted train" in told(result)
    held = {each.workload: "Holds quota" in each.message for each in result.final.pending}
    assert held == {"ns/urgent": True, "ns/train": False}
