"""Manifests of Volcano and KAI as they are: their queues stand under their own names."""

from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import GPU, cluster_queue, flavor, job, local_queue, run, told

KAI, VOLCANO = "scheduling.run.ai/v2", "scheduling.volcano.sh/v1beta1"


def node(name: str = "n1", gpus: int = 8) -> dict[str, Any]:
    status = {
        "allocatable": {GPU: str(gpus), "cpu": "64", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {"kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def queue(version: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def kai_queue(name: str, parent: str = "", quota: int = 0) -> dict[str, Any]:
    open_ = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {**open_, "quota": quota}, "cpu": open_, "memory": open_}
    return queue(KAI, name, resources=resources, **({"parentQueue": parent} if parent else {}))


def pod(name: str, gpus: int = 1, scheduler: str = "", meta: Any = None) -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"limits": {GPU: gpus}}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", **(meta or {})},
        "spec": spec,
    }


def used(result: SimulationResult) -> dict[str, tuple[float, float]]:
    """GPUs in use, and how many of them are borrowed, by queue."""
    ends = result.final.cluster_queues
    return {name: (end.usage[GPU], end.borrowed[GPU]) for name, end in ends.items()}


def test_kais_queues_have_jobs_pods_and_counts() -> None:
    labels = {"kai.scheduler/queue": "team"}
    of_kai = job("a", 2, queue="")
    of_kai["metadata"]["labels"] = labels
    result = run(
        node(), kai_queue("dept"), kai_queue("team", "dept", quota=2), of_kai, pod("b", meta={"labels": labels})
    )
    assert sorted(told(result)) == ["0 Admitted a", "0 Admitted b"]
    assert used(result) == {"default-queue": (0, 0), "team": (3, 1)}


def test_volcanos_queues_take_plain_pods_by_annotation_and_by_scheduler() -> None:
    named = {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}
    queues = (queue(VOLCANO, "q", deserved={GPU: 4}, capability={GPU: 8}), queue(VOLCANO, "r"))
    result = run(node(), *queues, pod("a", meta=named), pod("b", 2, scheduler="volcano"))
    assert used(result) == {"default": (2, 2), "q": (1, 0), "r": (0, 0)}


def test_pods_of_a_volcano_group_are_in_the_groups_queue() -> None:
    group = {
        "apiVersion": VOLCANO,
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "ns"},
        "spec": {"minMember": 2, "queue": "q"},
    }
    member = {"annotations": {"scheduling.k8s.io/group-name": "gang"}}
    pods = [pod(name, scheduler="volcano", meta=member) for name in ("a", "b")]
    result = run(node(), queue(VOLCANO, "q"), group, *pods)
    assert used(result)["q"][0] == 2


def test_pods_of_a_deployment_start_together_where_it_says_how_many() -> None:
    template = {"metadata": {}, "spec": pod("x", scheduler="volcano")["spec"]}
    notes = {"scheduling.volcano.sh/group-min-member": "2", "scheduling.volcano.sh/queue-name": "q"}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": notes},
        "spec": {"replicas": 2, "template": template},
    }
    result = run(node(), queue(VOLCANO, "q"), web)
    assert used(result)["q"][0] == 2
    assert [entry.workload for entry in result.timeline if entry.event.value == "Admitted"] == ["ns/deployment-web"]


def test_manifests_of_neither_system_have_none_of_their_queues() -> None:
    result = run(node(), job("a", queue="default"))
    assert used(result) == {}
    assert result.final.running == ()


def test_two_queues_of_weight_one_and_three_share_eight_gpus_as_two_and_six() -> None:
    queues = (queue(VOLCANO, "a", weight=1), queue(VOLCANO, "b", weight=3))
    jobs = [
        job(f"{name}{at}", queue="", arrival=start) for name, start in (("a", "0s"), ("b", "10s")) for at in range(8)
    ]
    for given in jobs:
        name = given["metadata"]["name"]
        given["metadata"]["labels"] = {}
        given["metadata"]["annotations"] |= {"scheduling.volcano.sh/queue-name": name[0]}
    result = run(node(), *queues, *jobs)
    assert {name: end[0] for name, end in used(result).items()} == {"a": 2, "b": 6, "default": 0}
    preempted = [entry for entry in result.timeline if entry.event.value == "Preempted"]
    assert len(preempted) == 6
    assert preempted[0].message.endswith("of Queue b, which takes what is its part")


def test_nothing_of_volcanos_is_looked_at_in_namespaces_that_its_switch_leaves_out() -> None:
    theirs = {"annotations": {"volcano.sh/queue-name": "q"}}
    settings = "tessera: {volcano: {namespaceSelector: {matchLabels: {volcano: gone}}}}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "there", "labels": {"volcano": "gone"}}}
    moved = pod("b", meta=theirs)
    moved["metadata"]["namespace"] = "there"
    result = run(node(), queue(VOLCANO, "q"), namespace, pod("a", meta=theirs), moved, using=settings)
    assert [(entry.event, entry.workload) for entry in result.timeline] == [("Admitted", "there/b")]


def test_a_volcano_job_is_one_workload_of_its_queue() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: 1}}}]}}
    tasks = [
        {"name": "master", "replicas": 1, "template": template},
        {"name": "w", "replicas": 3, "template": template},
    ]
    given = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "annotations": {"tessera.dev/runtime": "30s"}},
        "spec": {"schedulerName": "volcano", "queue": "q", "tasks": tasks},
    }
    result = run(node(), queue(VOLCANO, "q"), given)
    assert sorted(told(result)) == ["0 Admitted train", "30 Finished train"]
    assert [(each.pod_set, each.pods) for each in result.timeline[0].placement] == [("master", 1), ("w", 3)]


PAST_USE = "tessera: {kai: {usage: {windowSize: 4h, fetchInterval: 10m}}}\n"


def shared(using: str) -> list[str]:
    """``b`` has both GPUs for an hour before ``a`` asks for them; no job comes or ends in the four hours after that."""
    jobs = [job(f"b{at}", queue="b", runtime="100h") for at in range(2)]
    jobs += [job(f"a{at}", queue="a", arrival="1h", runtime="100h") for at in range(2)]
    return told(run(node(gpus=2), kai_queue("a"), kai_queue("b"), *jobs, using=using, until_s=5 * 3600.0))


def test_past_use_grows_and_fades_between_two_events() -> None:
    events = shared(PAST_USE)
    assert {"3600 Admitted a0", "3600 Admitted a1"} <= set(events)
    back = [float(each.split()[0]) for each in events if " Admitted b" in each and not each.startswith("0 ")]
    assert back, "what a had meanwhile counts too"
    assert 3600.0 < back[0] <= 3 * 3600.0
    assert back[0] % 600.0 == 0.0


def test_without_past_use_time_alone_changes_nothing() -> None:
    assert {each.split()[0] for each in shared("tessera: {policy: tessera}\n")} == {"0", "3600"}


def test_a_simulation_in_which_nothing_else_comes_ends() -> None:
    queues = (node(gpus=1), kai_queue("a"), kai_queue("b"))
    events = told(run(*queues, job("a", queue="a"), job("b", queue="b", arrival="1h"), using=PAST_USE))
    assert events[0] == "0 Admitted a"
    assert len(events) < 10


def test_the_scheduler_decides_between_marks_of_both_and_without_one_they_are_refused() -> None:
    both = {"labels": {"kai.scheduler/queue": "k"}, "annotations": {"scheduling.volcano.sh/queue-name": "v"}}
    queues = (kai_queue("dept"), kai_queue("k", "dept", quota=2), queue(VOLCANO, "v"))
    result = run(node(), *queues, pod("a", scheduler="volcano", meta=both), pod("b", 2, "kai-scheduler", both))
    assert {name: found for name, (found, _) in used(result).items() if found} == {"v": 1, "k": 2}
    says = "Pod c: metadata: expected marks of Volcano or of KAI, .* scheduling.volcano.sh/queue-name 'v' and kai.sched"
    with pytest.raises(InputError, match=says):
        run(node(), *queues, pod("c", meta=both))


def test_amounts_of_a_volcano_queue_are_told_as_they_were_written() -> None:
    def asking(name: str, arrival: str, requests: Any) -> Any:
        template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "ns", "annotations": {"tessera.dev/arrival": arrival}},
            "spec": {
                "schedulerName": "volcano",
                "queue": "q",
                "tasks": [{"name": "t", "replicas": 1, "template": template}],
            },
        }

    n1 = node()
    n1["status"]["allocatable"]["memory"] = "64Gi"
    bounds = {"cpu": "4", "memory": "8Gi"}
    jobs = (
        asking("runs", "0s", {"cpu": "500m", "memory": "6Gi"}),
        asking("waits", "1s", {"memory": "4Gi"}),
        asking("never", "2s", {"cpu": "6"}),
    )
    result = run(n1, queue(VOLCANO, "q", capability=bounds), *jobs)
    pending = {each.workload: each for each in result.final.pending}
    assert pending["ns/waits"].reason == "WaitingForQuota"
    assert pending["ns/waits"].message.endswith("has 6Gi memory of its part by weight of 8Gi and the job asks for 4Gi")
    assert pending["ns/never"].reason == "ExceedsMaxQuota"
    assert pending["ns/never"].message.endswith("has 500m cpu of its capability of 4 and the job asks for 6")


def test_an_amount_beyond_63_bits_is_asked_for_and_no_limit() -> None:
    result = run(*(flavor(), cluster_queue(), local_queue()), job("large", 2**63 - 1, pods=2))
    (waits,) = result.final.pending
    assert waits.reason == "ExceedsMaxQuota"
    assert waits.message.startswith(f"Asks for {2**63} or more {GPU} of flavor a100 where the queue can have 8 at most")
