"""GpuLayouts, and Volcano's and KAI's objects, at admission, on a real API server.

What no schema can say of them is refused there and then, and what is not written is filled in.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.conformance.jobcrds.kindcrds import folder
from tests.e2e.admission.test_fraction_policies import CHART, NAMESPACE
from tests.support.e2e.lab import EXAMPLES, until

pytestmark = pytest.mark.e2e

UUID = "GPU-11111111-2222-3333-4444-555555555555"
POLICIES = ("layout-policy", "foreign-rules-policy", "foreign-defaults-policy")
QUEUES = (
    "foreign-marks-policy",
    "foreign-queue-policy",
    "foreign-serving-policy",
    "job-suspend-policy",
    "pod-gate-policy",
)
"""The first three are there only where their queues are queues here."""
VOLCANO, KAI = "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2"
DEFAULT = "default-scheduler"
LAST_IN_EFFECT = (VOLCANO, "Queue", {"parent": "one"})


def rendered(*values: str, also: tuple[str, ...] = ()) -> str:
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE]
    command += [word for name in (*POLICIES, *also) for word in ("-s", f"templates/{name}.yaml")]
    command += [word for value in values for word in ("--set", value)]
    command += ["--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    binaries.build("kubernetes")
    with Cluster.up(f"layout-policy-{os.getpid()}", Spec(nodes=())) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds/gpulayouts.tessera.dev.yaml"))
        for crds in ("volcano", "kai", "jobset/jobsets.yaml", "kubeflow/pytorchjobs.yaml"):
            cluster.kubectl("apply", "--server-side", "-f", str(folder() / crds))
        served = ("controller.volcano.enabled=true", "controller.kai.enabled=true")
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*served, also=QUEUES))
        until(lambda: refusal(cluster, []) != "", "the policy in effect")
        until(lambda: "found the queue itself" in told(cluster, *LAST_IN_EFFECT), "all policies in effect")
        until(lambda: created(cluster, pod("volcano"))["spec"]["schedulerName"] == DEFAULT, "pods of the default one")
        until(lambda: queue(created(cluster, pod("kai-scheduler"))) == "default-queue", "pods of KAI's queue")
        until(lambda: queue(created(cluster, batch_job("volcano"))) == "default", "jobs of Volcano's queue")
        yield cluster


def refusal(cluster: Cluster, *gpus: Any) -> str:
    """Why a layout with an entry for each of ``gpus`` is not let in; empty where it is."""
    layout = [{"gpus": one, "mode": "whole"} for one in gpus]
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuLayout", "metadata": {"name": "a"}}
    text = json.dumps({**body, "spec": {"layout": layout}})
    try:
        cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    except ClusterError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    "gpus", [[0, UUID], {"any": 2}, {"product": "NVIDIA H100"}, {"product": "NVIDIA H100", "any": 1}], ids=str
)
def test_every_way_to_name_gpus_is_let_in(cluster: Cluster, gpus: Any) -> None:
    assert refusal(cluster, gpus) == ""


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        (0, "gpus: expected a list of indexes"),
        ("0", "gpus: expected a list of indexes"),
        ([], "gpus: expected a list of indexes"),
        ({}, "gpus: expected a list of indexes"),
        ({"nay": 1}, "gpus: expected a list of indexes"),
        ({"any": 0}, "gpus: expected a list of indexes"),
        ({"any": "two"}, "gpus: expected a list of indexes"),
        ([0, "first"], "gpus: found first, expected an index"),
        ([-1], "gpus: found -1, expected an index"),
        (["GPU-1"], "gpus: found a wrong UUID"),
        ([1, 1], "gpus: a GPU is named twice"),
    ],
    ids=repr,
)
def test_what_names_no_gpus_is_refused(cluster: Cluster, gpus: Any, why: str) -> None:
    assert why in refusal(cluster, gpus)


def test_a_gpu_that_two_entries_name_is_refused(cluster: Cluster) -> None:
    assert "gpus: a GPU is named twice" in refusal(cluster, [0, 1], [2, 1])


def test_the_examples_are_let_in(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--dry-run=server", "-f", str(EXAMPLES / "layouts"))


# -- Volcano's and KAI's


def foreign(version: str, kind: str, spec: dict[str, Any], name: str = "one") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod(scheduler: str) -> dict[str, Any]:
    return foreign("v1", "Pod", {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]})


def job(tasks: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    listed = [{"replicas": 2, "template": template, **task} for task in tasks]
    return foreign("batch.volcano.sh/v1alpha1", "Job", {"tasks": listed, **spec})


def created(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    """As the API server would have it."""
    text = cluster.kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", input=json.dumps(body))
    found: dict[str, Any] = json.loads(text)
    return found


def refused(cluster: Cluster, body: dict[str, Any]) -> str:
    try:
        created(cluster, body)
    except ClusterError as error:
        return str(error)
    return ""


def told(cluster: Cluster, version: str, kind: str, spec: dict[str, Any]) -> str:
    return refused(cluster, foreign(version, kind, spec))


def test_a_job_of_volcano_is_filled_in_and_its_pods_are_the_default_schedulers(cluster: Cluster) -> None:
    partitions = {"totalPartitions": 2, "partitionSize": 1, "minPartitions": 1}
    made = created(cluster, job([{}, {"name": "w", "partitionPolicy": partitions}], plugins={"mpi": ["--master=w"]}))
    first, second = made["spec"]["tasks"]
    assert (first["name"], first["minAvailable"], first["maxRetry"]) == ("default0", 2, 3)
    assert (second["minAvailable"], made["spec"]["minAvailable"], made["spec"]["queue"]) == (1, 3, "default")
    assert made["spec"]["plugins"] == {"mpi": ["--master=w"], "svc": [], "ssh": []}
    names = ("volcano", "kai-scheduler", "mine")
    pods = [created(cluster, pod(name)) for name in names]
    assert [each["spec"]["schedulerName"] for each in pods] == [DEFAULT, DEFAULT, "mine"]
    came_with = [each["metadata"].get("annotations", {}).get("tessera.dev/scheduler-name") for each in pods]
    assert came_with == ["volcano", "kai-scheduler", None]


def test_what_their_webhooks_refuse_is_refused(cluster: Cluster) -> None:
    policy = {"event": "PodFailed", "action": "RestartJob"}
    wrong = {"policies": [policy, policy]}
    numa = {"name": "a", "topologyPolicy": "best-effort"}
    for body, sentence in (
        (job([{"name": "a"}, {"name": "a"}]), "spec.tasks: expected each name once, found again 'a'"),
        (job([{}], minAvailable=9), "spec.minAvailable: expected at most 2, the replicas of all tasks, found 9"),
        (job([wrong]), "spec.tasks[0].policies: expected each event and each exitCode once, found again 'PodFailed'"),
        (job([{}], plugins={"x": []}), "spec.plugins: expected one of svc, ssh, env"),
        (job([numa]), "spec.tasks[0].topologyPolicy: expected whole CPUs in every container"),
        (job([{}], volumes=[{"mountPath": "/a"}]), "spec.volumes[0]: expected volumeClaim or volumeClaimName"),
    ):
        assert sentence in refused(cluster, body)
    amounts = {"deserved": {"cpu": 1}, "guarantee": {"resource": {"cpu": "1500m"}}}
    assert "spec.guarantee.resource[cpu]: expected at most" in told(cluster, VOLCANO, "Queue", amounts)
    assert "spec.resources: expected quotas" in told(cluster, KAI, "Queue", {"displayName": "x"})
    tree = {"subGroups": [{"name": "a", "minMember": 1, "parent": "b"}]}
    assert "expected the name of another subgroup" in told(cluster, "scheduling.run.ai/v2alpha2", "PodGroup", tree)
    hyper = told(cluster, "topology.volcano.sh/v1alpha1", "HyperNode", {"tier": 1, "members": [{"type": "Node"}]})
    assert "HyperNode.topology.volcano.sh: nodes are grouped by their labels here" in hyper


def test_a_job_with_as_many_tasks_as_can_be_is_within_the_budget(cluster: Cluster) -> None:
    policies = [{"exitCode": code, "action": "RestartJob"} for code in range(1, 31)]
    many = [{"name": f"t{place}", "policies": policies, "dependsOn": {"name": ["t0"]}} for place in range(1, 32)]
    created(cluster, job([{"name": "t0", "policies": policies}, *many], policies=policies))


def queue(given: dict[str, Any]) -> str:
    return str(given["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name", ""))


def batch_job(scheduler: str = DEFAULT, **meta: Any) -> dict[str, Any]:
    template = {"spec": {**pod(scheduler)["spec"], "restartPolicy": "Never"}}
    made = foreign("batch/v1", "Job", {"template": template})
    return {**made, "metadata": {**made["metadata"], **meta}}


def test_what_is_for_a_queue_of_theirs_is_queued_by_the_label_of_all_others(cluster: Cluster) -> None:
    kai, volcano = "kai.scheduler/queue", "scheduling.volcano.sh/queue-name"
    marked = [
        (batch_job(labels={kai: "a"}), "a"),
        (batch_job(annotations={volcano: "b"}), "b"),
        (batch_job("volcano"), "default"),
        (batch_job("volcano", labels={"kueue.x-k8s.io/queue-name": "c"}), "c"),
        (batch_job(), ""),
    ]
    for given, name in marked:
        found = created(cluster, given)
        assert (queue(found), found["spec"].get("suspend", False)) == (name, name != "")
    for scheduler, name in (("volcano", "default"), ("kai-scheduler", "default-queue"), ("mine", "")):
        found = created(cluster, pod(scheduler))
        gates = [each["name"] for each in found["spec"].get("schedulingGates", [])]
        assert (queue(found), gates) == (name, ["kueue.x-k8s.io/admission"] if name else [])
        assert found["metadata"].get("finalizers", []) == (["kueue.x-k8s.io/managed"] if name else [])


def test_the_policy_decides_between_marks_of_both_schedulers_and_refuses_without_one(cluster: Cluster) -> None:
    both: dict[str, Any] = {
        "labels": {"kai.scheduler/queue": "a"},
        "annotations": {"scheduling.volcano.sh/queue-name": "b"},
    }
    for scheduler, name in (("volcano", "b"), ("kai-scheduler", "a")):
        assert queue(created(cluster, batch_job(scheduler, **both))) == name
        marked = pod(scheduler)
        assert queue(created(cluster, {**marked, "metadata": {**marked["metadata"], **both}})) == name
    says = "found scheduling.volcano.sh/queue-name 'b' and kai.scheduler/queue 'a'"
    assert says in refused(cluster, batch_job(**both))
    marked = pod(DEFAULT)
    assert says in refused(cluster, {**marked, "metadata": {**marked["metadata"], **both}})


def test_marks_in_the_templates_of_any_kind_queue_its_object(cluster: Cluster) -> None:
    def template(scheduler: str = DEFAULT, **meta: Any) -> dict[str, Any]:
        return {"metadata": meta, "spec": {**pod(scheduler)["spec"], "restartPolicy": "Never"}}

    def job_set(made: dict[str, Any]) -> dict[str, Any]:
        pods = {"a": template(), "b": made}
        jobs = [{"name": name, "template": {"spec": {"template": one}}} for name, one in pods.items()]
        return foreign("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})

    def pytorch(made: dict[str, Any], **policy: Any) -> dict[str, Any]:
        made["spec"]["containers"][0]["name"] = "pytorch"
        replicas = {"Worker": {"replicas": 1, "template": made}}
        return foreign("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas, "runPolicy": policy})

    kai: dict[str, Any] = {"labels": {"kai.scheduler/queue": "a"}}
    volcano: dict[str, Any] = {"annotations": {"scheduling.volcano.sh/queue-name": "b"}}
    gang = {"schedulingPolicy": {"queue": "c"}}
    for given, name in (
        (job_set(template(**kai)), "a"),
        (job_set(template(**volcano)), "b"),
        (job_set(template("volcano")), "default"),
        (job_set(template()), ""),
        (pytorch(template(**kai)), "a"),
        (pytorch(template("volcano"), **gang), "c"),
        (pytorch(template(), **gang), ""),
    ):
        assert queue(created(cluster, given)) == name, given["kind"]


def test_a_pod_that_leaves_the_queue_to_its_group_is_held_without_one(cluster: Cluster) -> None:
    for scheduler, mark in (("volcano", "scheduling.k8s.io/group-name"), ("kai-scheduler", "pod-group-name")):
        given = pod(scheduler)
        given["metadata"]["annotations"] = {mark: "g"}
        found = created(cluster, given)
        assert found["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
        assert found["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
        given["spec"]["schedulerName"] = "mine"
        assert "schedulingGates" not in created(cluster, given)["spec"]


def test_what_serves_as_a_gang_of_volcanos_is_one(cluster: Cluster) -> None:
    minimum = "scheduling.volcano.sh/group-min-member"

    def serving(kind: str, **annotations: str) -> dict[str, Any]:
        selected = {"matchLabels": {"app": "web"}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("volcano")["spec"]}
        made = foreign("apps/v1", kind, {"replicas": 3, "selector": selected, "template": template})
        return {**made, "metadata": {**made["metadata"], "annotations": annotations}}

    found = created(cluster, serving("Deployment", **{minimum: "2", "scheduling.volcano.sh/queue-name": "a"}))
    assert found["spec"]["template"]["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "deployment-one",
        minimum: "2",
        "kueue.x-k8s.io/pod-group-serving": "true",
        "scheduling.volcano.sh/queue-name": "a",
    }
    assert "annotations" not in created(cluster, serving("Deployment"))["spec"]["template"]["metadata"]
    assert queue(created(cluster, serving("StatefulSet", **{minimum: "2"}))) == "default"
    assert queue(created(cluster, serving("StatefulSet"))) == ""


def test_a_job_of_volcano_keeps_its_tasks_and_a_queue_its_name(cluster: Cluster) -> None:
    made = job([{"name": "a"}], queue="default")
    cluster.kubectl("create", "-f", "-", input=json.dumps(made))
    cluster.kubectl("patch", "jobs.batch.volcano.sh", "one", "--type=merge", "-p", '{"spec": {"minAvailable": 1}}')
    with pytest.raises(ClusterError, match=r"spec\.queue: expected no change: of a job only minAvailable"):
        cluster.kubectl("patch", "jobs.batch.volcano.sh", "one", "--type=merge", "-p", '{"spec": {"queue": "other"}}')
    cluster.kubectl("create", "-f", "-", input=json.dumps(foreign(VOLCANO, "Queue", {}, "default")))
    with pytest.raises(ClusterError, match="expected a queue other than default and root"):
        cluster.kubectl("delete", "queues.scheduling.volcano.sh", "default")


def test_volcano_jobs_are_run_where_the_system_is_switched_on_by_hand() -> None:
    """With the rights for that, which no other site gives."""

    def kinds(*values: str) -> list[str]:
        text = rendered(*values, also=("controller", "controller-rbac-kinds"))
        found = (
            yaml.safe_load(one["data"]["controller.yaml"]) for one in yaml.safe_load_all(text) if one and "data" in one
        )
        return [name for config in found for name in config["integrations"]["frameworks"]]

    switched = "controller.volcano.enabled=true"
    assert set(kinds(switched)) - set(kinds()) == {"batch.volcano.sh/job"}
    assert "t-tessera-controller-volcano-jobs" in rendered(switched, also=("controller-rbac-volcano",))


def test_a_site_that_keeps_a_scheduler_keeps_its_pods_and_one_that_has_its_deciders_all_else() -> None:
    def names(*values: str) -> set[str]:
        return {each["metadata"]["name"] for each in yaml.safe_load_all(rendered(*values)) if each}

    whole, kept = names(), names("controller.volcano.keepSchedulerName=true")
    assert whole - kept == {"t-tessera-controller-volcano-scheduler"}
    volcanos = {name for name in whole if "-volcano-" in name}
    assert whole - names("controller.volcano.enabled=false") == volcanos > {"t-tessera-controller-volcano-jobs"}
