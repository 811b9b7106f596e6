"""Kubernetes as it was before 1.36: its API server has no MutatingAdmissionPolicy, and asks the controller's webhooks
what becomes of jobs and pods. With the controller gone, what each configuration says holds.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.conformance.jobcrds.kindcrds import folder
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kubernetes import POLICIES
from tests.support.e2e.lab import until
from tests.support.e2e.webhooklab import (
    BUILDER,
    CONTROLLER,
    JOBSET,
    QUEUE,
    Webhook,
    chosen_by_helm,
    created,
    effective,
    job,
    prepared,
    refusal,
    started,
    suspended,
    tried,
)

NO_CONTROLLER = pytest.mark.history(
    allow={"forgotten"}, why="the controller's webhook is there alone: nobody makes Workloads of what it lets in"
)
pytestmark = [pytest.mark.e2e, NO_CONTROLLER]

AS_1_35 = Spec(nodes=(), apiserver_args=("--emulated-version=1.35",) if POLICIES else ())
"""A real one is used as it is."""
TEMPLATES = (
    "foreign-marks-policy",
    "foreign-rules-policy",
    "foreign-webhook",
    "fractions-policy",
    "fractions-webhook",
    "job-policy",
    "job-rules-policy",
    "job-suspend-webhook",
    "pod-gate-webhook",
    "pod-policy",
    "serving-minimum-policy",
    "serving-webhook",
    "webhook",
)
PERCENT, A100 = "tessera.dev/gpu-percent", "NVIDIA-A100-SXM4-80GB"
FRACTIONS = ("fractions.granularity=10", f"fractions.gpuMemoryMiB.{A100}=80000")
ON = ("controller.volcano.enabled=true", "controller.kai.enabled=true", *FRACTIONS)
KAI, VOLCANO = "kai.scheduler/queue", "scheduling.volcano.sh/queue-name"
MINIMUM, PARENT = "scheduling.volcano.sh/group-min-member", "kueue.x-k8s.io/pod-suspending-parent"
CAME_WITH, MANAGED = "tessera.dev/scheduler-name", "kueue.x-k8s.io/managed"
GATE = {"name": "kueue.x-k8s.io/admission"}
DRY = ("create", "--dry-run=server", "-f", "-")


@pytest.fixture(scope="module")
def older() -> Iterator[Cluster]:
    for program in ("kubernetes", "helm"):
        binaries.build(program)
    with Cluster.up(f"older-{os.getpid()}", AS_1_35) as older:
        for crds in ("volcano", "kai", "kubeflow/pytorchjobs.yaml"):
            older.kubectl("apply", "--server-side", "-f", str(folder() / crds))
        prepared(older)
        text = rendered(*TEMPLATES, values=ON, policies=False)
        older.kubectl("apply", "--server-side", "-f", "-", input=text)
        effective(older, by_policy=False)
        until(lambda: "found the queue itself" in refused(older, volcano_queue(parent="one")), "Volcano's rules")
        until(lambda: "expected quotas" in refused(older, kai_queue()), "KAI's rules")
        yield older


def refused(cluster: Cluster, body: dict[str, Any]) -> str:
    """What the API server says to an object that is created; empty where it lets it in."""
    return refusal(cluster, *DRY, input=json.dumps(body))


def asked(cluster: Cluster) -> bool:
    """Whether the API server calls the webhook: without it a policy refuses what nobody suspended."""
    with contextlib.suppress(ClusterError):
        return suspended(tried(cluster, job(labels={QUEUE: "a"})))
    return False


@pytest.fixture(scope="module")
def running(older: Cluster) -> Iterator[contextlib.ExitStack]:
    """A replica of the controller, until the stack is closed."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Webhook(older, *ON))
        until(lambda: asked(older), "the webhook called")
        until(lambda: "default" in labels(tried(older, pod("volcano"))).values(), "the one for theirs too")
        yield stack


@pytest.fixture
def hooked(older: Cluster, running: contextlib.ExitStack) -> Cluster:  # noqa: ARG001 - it is to run
    return older


@pytest.fixture
def alone(older: Cluster, running: contextlib.ExitStack) -> Cluster:
    """No replica of the controller is there any more."""
    running.close()
    until(lambda: "is created suspended" in refused(older, job(labels={QUEUE: "a"})), "the webhook gone")
    return older


# Objects.


def volcano_queue(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "one"}, "spec": spec}


def kai_queue(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "one"}, "spec": spec}


def pod(scheduler: str = "default-scheduler", **meta: Any) -> dict[str, Any]:
    metadata = {"generateName": "pod-", "namespace": "plain", **meta}
    spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": scheduler}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def serving(kind: str, namespace: str = "plain", scheduler: str = "volcano", **meta: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod(scheduler)["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": namespace, **meta},
        "spec": spec,
    }


def volcano_job(**spec: Any) -> dict[str, Any]:
    tasks = [{"replicas": 2, "template": {"spec": pod("volcano")["spec"]}}]
    metadata = {"generateName": "vj-", "namespace": "plain"}
    body = {"schedulerName": "volcano", "tasks": tasks, **spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": body}


def labels(found: dict[str, Any]) -> dict[str, str]:
    return dict(found["metadata"].get("labels", {}))


def template_notes(found: dict[str, Any]) -> dict[str, str]:
    return dict(found["spec"]["template"]["metadata"].get("annotations", {}))


def job_of(of: dict[str, Any]) -> dict[str, Any]:
    notes = {"annotations": of["metadata"]["annotations"]}
    template = {"metadata": notes, "spec": {**of["spec"], "restartPolicy": "Never"}}
    return {**job(), "spec": {"template": template}}


def percents(spec: dict[str, Any]) -> list[str]:
    """What its containers ask for."""
    return [each["resources"].get("limits", {}).get(PERCENT, "") for each in spec["containers"]]


def is_held(found: dict[str, Any]) -> bool:
    return GATE in found["spec"].get("schedulingGates", []) and found["metadata"]["labels"][MANAGED] == "true"


# While a replica of the controller answers.


def test_the_policy_is_unknown_and_helm_chooses_the_webhook(older: Cluster) -> None:
    assert chosen_by_helm(older) == {"MutatingWebhookConfiguration"}
    policy = refusal(older, "apply", "-f", "-", input=rendered("job-suspend-policy", policies=True))
    assert policy, "1.35 takes the policy: prefer it there too"


def test_jobs_of_queues_are_suspended_and_the_controller_alone_starts_them(hooked: Cluster) -> None:
    assert not suspended(tried(hooked, job()))
    found = tried(hooked, job(namespace="team"))
    assert found["metadata"]["labels"] == {"app": "x", QUEUE: "default"}
    assert suspended(found)
    created(hooked, job("waits", labels={QUEUE: "a"}))
    start = ("patch", "job", "waits", "-n", "plain", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    assert "only the controller starts" in refusal(hooked, *start)
    assert refusal(hooked, *start, f"--as={CONTROLLER}") == ""
    until(lambda: started(hooked, "waits"), "the Job started by the job controller")


def test_on_an_older_server_an_owner_reference_by_an_account_of_the_namespace_starts_nothing(hooked: Cluster) -> None:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1", "controller": True}
    child = job(labels={QUEUE: "a"})
    child["metadata"]["ownerReferences"] = [owner]
    assert not suspended(tried(hooked, child, f"--as={JOBSET}")), "its own controller may write the status of JobSets"
    made = tried(hooked, child, f"--as={BUILDER}")
    assert suspended(made)
    assert made["metadata"]["annotations"] == {"tessera.dev/awaits-owner": "true"}
    of_job = pod(labels={QUEUE: "a", "kueue.x-k8s.io/podset": "main"})
    of_job["metadata"] |= {
        "namespace": "plain",
        "ownerReferences": [{**owner, "apiVersion": "batch/v1", "kind": "Job"}],
    }
    assert is_held(tried(hooked, of_job, f"--as={BUILDER}"))
    assert not is_held(tried(hooked, of_job, "--as=system:serviceaccount:kube-system:job-controller"))
    held = created(hooked, job(labels={QUEUE: "a"}), f"--as={BUILDER}")["metadata"]["name"]
    off = json.dumps({"metadata": {"labels": {QUEUE: None}}})
    said = refusal(hooked, "patch", "job", held, "-n", "plain", f"--as={BUILDER}", "--type=merge", "-p", off)
    assert "delete the Job to withdraw it" in said
    hooked.kubectl("delete", "job", held, "-n", "plain")


def test_pods_of_queues_are_held(hooked: Cluster) -> None:
    found = tried(hooked, pod(labels={QUEUE: "a"}))
    assert is_held(found)
    assert found["metadata"]["finalizers"] == [MANAGED]
    assert "schedulingGates" not in tried(hooked, pod())["spec"]


def test_what_is_volcanos_or_kais_waits_in_its_queue_and_the_default_scheduler_binds_it(hooked: Cluster) -> None:
    for given, queue in (
        (pod("volcano"), "default"),
        (pod("kai-scheduler"), "default-queue"),
        (pod("kai-scheduler", labels={KAI: "a"}), "a"),
        (pod("volcano", annotations={VOLCANO: "b"}), "b"),
    ):
        found = tried(hooked, given)
        assert (labels(found)[QUEUE], is_held(found)) == (queue, True)
        assert found["metadata"]["finalizers"] == [MANAGED]
        assert found["spec"]["schedulerName"] == "default-scheduler"
        assert found["metadata"]["annotations"][CAME_WITH] == given["spec"]["schedulerName"]
    assert QUEUE not in labels(tried(hooked, pod("mine")))
    for marks, queue in (({"labels": {KAI: "a"}}, "a"), ({"annotations": {VOLCANO: "b"}}, "b")):
        given = job(namespace="team")
        given["metadata"] |= {key: {**given["metadata"].get(key, {}), **value} for key, value in marks.items()}
        found = tried(hooked, given)
        assert (labels(found)[QUEUE], suspended(found)) == (queue, True), "not the LocalQueue default"


def test_an_older_server_decides_between_marks_of_both_schedulers_and_refuses_without_one(hooked: Cluster) -> None:
    both: dict[str, Any] = {"labels": {KAI: "a"}, "annotations": {VOLCANO: "b"}}
    assert labels(tried(hooked, pod("volcano", **both)))[QUEUE] == "b"
    assert labels(tried(hooked, pod("kai-scheduler", **both)))[QUEUE] == "a"
    says = "scheduling.volcano.sh/queue-name 'b' and kai.scheduler/queue 'a'"
    assert says in refused(hooked, pod(**both))
    metadata = {"generateName": "j-", "namespace": "team", **both}
    assert says in refused(hooked, {**job(), "metadata": metadata}), "the LocalQueue default does not take it"


def test_on_an_older_server_a_pod_that_leaves_the_queue_to_its_group_is_held_without_one(hooked: Cluster) -> None:
    for scheduler, mark in (("volcano", "scheduling.k8s.io/group-name"), ("kai-scheduler", "pod-group-name")):
        found = tried(hooked, pod(scheduler, annotations={mark: "g"}))
        assert is_held(found)
        assert QUEUE not in labels(found)


def test_a_part_of_a_gpu_becomes_percents_as_the_policies_of_newer_servers_have_it(hooked: Cluster) -> None:
    for asks, percent in (
        ({"gpu-fraction": "0.33"}, "40"),
        ({"gpu-memory": "20000"}, "30"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "100"),
    ):
        made = tried(hooked, pod(annotations=asks))
        assert percents(made["spec"]) == [percent]
        assert made["metadata"]["annotations"].get(f"{PERCENT}-devices") == asks.get("gpu-fraction-num-devices")
        assert percents(tried(hooked, job_of(pod(annotations=asks)))["spec"]["template"]["spec"]) == [percent]
    hami = pod()
    hami["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 25}}
    assert tried(hooked, hami)["spec"]["containers"][0]["resources"]["limits"] == {PERCENT: "30"}
    queued = tried(hooked, pod("kai-scheduler", labels={KAI: "a"}, annotations={"gpu-fraction": "0.3"}))
    assert (percents(queued["spec"]), is_held(queued)) == (["30"], True)
    for asks, says in (
        ({"gpu-fraction": "1.5"}, 'gpu-fraction: found "1.5", expected a part of one GPU such as "0.3"'),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "no"}, 'container-name: found "no", expected the name'),
        ({"gpu-memory": "90000"}, "expected 100 at most"),
    ):
        assert says in refused(hooked, pod(annotations=asks))
        assert says in refused(hooked, job_of(pod(annotations=asks)))


def test_a_kind_with_templates_further_below_is_queued_by_what_they_say(hooked: Cluster) -> None:
    template = {"metadata": {"labels": {KAI: "a"}}, "spec": pod("kai-scheduler")["spec"]}
    template["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Worker": {"replicas": 1, "template": template}}
    metadata = {"generateName": "x-", "namespace": "plain"}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}
    found = tried(hooked, {**body, "spec": {"pytorchReplicaSpecs": replicas}})
    assert (labels(found)[QUEUE], found["spec"]["runPolicy"]["suspend"]) == ("a", True)


@pytest.mark.parametrize("namespace", ["plain", "team"])
def test_what_serves_is_stamped_and_gangs_of_volcanos_too(hooked: Cluster, namespace: str) -> None:
    """In ``team`` there is a LocalQueue ``default``: it is not for what is Volcano's or KAI's."""
    asked_for: dict[str, Any] = {"annotations": {MINIMUM: "2", VOLCANO: "a"}}
    notes = template_notes(tried(hooked, serving("Deployment", namespace, **asked_for)))
    assert notes == {
        "scheduling.k8s.io/group-name": "deployment-web",
        MINIMUM: "2",
        "kueue.x-k8s.io/pod-group-serving": "true",
        VOLCANO: "a",
    }
    found = tried(hooked, serving("StatefulSet", namespace, **asked_for))
    assert (labels(found)[QUEUE], template_notes(found)[PARENT]) == ("a", "statefulset")
    theirs: list[dict[str, Any]] = [{"labels": {KAI: "a"}}, {"annotations": {VOLCANO: "a"}}]
    for kind in ("Deployment", "StatefulSet"):
        for marks in theirs:
            found = tried(hooked, serving(kind, namespace, **marks))
            assert (QUEUE in labels(found), template_notes(found)) == (False, {}), "its pods are queued one by one"
        found = tried(hooked, serving(kind, namespace, "default-scheduler"))
        assert labels(found).get(QUEUE, "") == ("default" if namespace == "team" else "")
        found = tried(hooked, serving(kind, namespace, labels={QUEUE: "own"}, annotations={MINIMUM: "2"}))
        assert (labels(found)[QUEUE], template_notes(found)[PARENT]) == ("own", kind.lower())


def test_a_deployment_becomes_a_gang_when_it_is_changed(hooked: Cluster) -> None:
    created(hooked, serving("Deployment"))
    note = ("annotate", "deployment", "web", "-n", "plain", f"{MINIMUM}=3", "--dry-run=server", "-o", "json")
    assert template_notes(json.loads(hooked.kubectl(*note)))[MINIMUM] == "3"
    hooked.kubectl("delete", "deployment", "web", "-n", "plain")


def test_a_job_of_volcanos_gets_its_defaults_and_its_rules_hold(hooked: Cluster) -> None:
    found = tried(hooked, volcano_job(plugins={"pytorch": []}))["spec"]
    assert (found["minAvailable"], sorted(found["plugins"])) == (2, ["pytorch", "svc"])
    task = found["tasks"][0]
    assert (task["name"], task["minAvailable"], task["maxRetry"]) == ("default0", 2, 3)
    for spec, says in (
        ({"minAvailable": 9}, "spec.minAvailable: expected at most 2, the replicas of all tasks, found 9"),
        ({"plugins": {"x": []}}, "spec.plugins: expected one of svc, ssh, env"),
    ):
        assert says in refused(hooked, volcano_job(**spec))
    hyper = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": "h"}}
    says = "HyperNode.topology.volcano.sh: nodes are grouped by their labels here"
    assert says in refused(hooked, {**hyper, "spec": {"tier": 1, "members": [{"type": "Node"}]}})


def test_the_configurations_are_the_controllers_to_complete(hooked: Cluster) -> None:
    """Each of the chart's has an authority, and they share it: one Secret has all certificates."""
    found = json.loads(hooked.kubectl("get", "mutatingwebhookconfigurations", "-o", "json"))["items"]
    chart = [each for each in yaml.safe_load_all(rendered(*TEMPLATES, values=ON, policies=False)) if each]
    wanted = {each["metadata"]["name"] for each in chart if each["kind"] == "MutatingWebhookConfiguration"}
    assert {each["metadata"]["name"] for each in found} == wanted
    bundles = {hook["clientConfig"].get("caBundle", "") for each in found for hook in each["webhooks"]}
    assert len(bundles) == 1
    assert bundles != {""}


# While none does: these come last.


def test_without_the_webhook_what_names_a_queue_is_refused_and_nothing_else(alone: Cluster) -> None:
    assert suspended(tried(alone, job(labels={QUEUE: "a"}, suspend=True)))
    assert not suspended(tried(alone, job()))
    until(lambda: "is created behind its gate" in refused(alone, pod(labels={QUEUE: "a"})), "the policy for pods")
    assert refused(alone, pod()) == ""
    for kind in ("Deployment", "StatefulSet"):
        assert "serving-queue.tessera.dev" in refused(alone, serving(kind, labels={QUEUE: "a"}))
        for namespace in ("plain", "team"):
            assert labels(tried(alone, serving(kind, namespace))) == {}


def test_without_the_webhook_what_is_volcanos_or_kais_passes_as_it_is(alone: Cluster) -> None:
    """A pod of theirs waits for its scheduler, and a Job of theirs makes its pods."""
    for scheduler in ("volcano", "kai-scheduler"):
        found = tried(alone, pod(scheduler))
        assert (labels(found), found["spec"]["schedulerName"]) == ({}, scheduler)
    given = job(labels={KAI: "a"})
    assert not suspended(tried(alone, given))
    asked_for: dict[str, Any] = {"annotations": {MINIMUM: "2", VOLCANO: "a"}}
    assert template_notes(tried(alone, serving("Deployment", **asked_for))) == {}
    assert labels(tried(alone, serving("StatefulSet", **asked_for))) == {}
    assert "minAvailable" not in tried(alone, volcano_job())["spec"]["tasks"][0], "the controller adds it for itself"
    assert "spec.minAvailable: expected at most 2" in refused(alone, volcano_job(minAvailable=9)), "rules hold"


def test_without_the_webhook_a_part_of_a_gpu_is_refused(alone: Cluster) -> None:
    """The pod would run without any."""
    asks = pod(annotations={"gpu-fraction": "0.33"})
    says = (
        'gpu-fraction: found "0.33" and no tessera.dev/gpu-percent, which the controller makes of it: no replica of it'
    )
    for given in (asks, job_of(asks)):
        assert says in refused(alone, given)
    assert "no GPU that it is a part of" in refused(alone, pod(annotations={"gpu-memory": "20000"}))
