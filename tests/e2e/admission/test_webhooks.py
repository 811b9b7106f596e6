"""Jobs and queues between users, the API server and the webhook, where the API server suspends Jobs itself. No kubelet:
whether a Job starts is what the real job controller writes into its status.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.state import Spec
from tests.support.e2e.charttext import rendered
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

PRIORITY = "kueue.x-k8s.io/priority-class"
WORKLOADS_CRD = "crd/workloads.kueue.x-k8s.io"
SECONDS, PREBUILT = "kueue.x-k8s.io/max-exec-time-seconds", "kueue.x-k8s.io/prebuilt-workload-name"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.up(f"webhooks-{os.getpid()}", Spec(nodes=())) as cluster:
        prepared(cluster)
        templates = ("job-suspend-policy", "job-policy", "job-rules-policy", "webhook")
        text = rendered(*templates, values=("controller.jobs.suspendBy=policy",))
        cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
        effective(cluster, by_policy=True)
        yield cluster


def test_helm_chooses_the_policy_where_the_api_server_has_it(cluster: Cluster) -> None:
    assert chosen_by_helm(cluster) == {"MutatingAdmissionPolicy"}


def test_the_api_server_suspends_what_goes_to_a_queue_and_nothing_else(cluster: Cluster) -> None:
    assert suspended(tried(cluster, job(labels={QUEUE: "a"})))
    assert suspended(tried(cluster, job(labels={QUEUE: "a"}, suspend=False)))
    assert not suspended(tried(cluster, job()))
    assert not suspended(tried(cluster, job(labels={QUEUE: ""})))
    assert not suspended(tried(cluster, job(namespace="kube-system", labels={QUEUE: "a"})))


def test_a_job_without_a_queue_goes_to_the_default_queue_of_its_namespace(cluster: Cluster) -> None:
    found = tried(cluster, job(namespace="team"))
    assert found["metadata"]["labels"] == {"app": "x", QUEUE: "default"}
    assert suspended(found)
    assert tried(cluster, job(namespace="team", labels={QUEUE: "a"}))["metadata"]["labels"][QUEUE] == "a"


def owner(api: str, kind: str, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "name": "s", "uid": "1", "controller": controller}


def owned(*owners: dict[str, Any], **given: Any) -> dict[str, Any]:
    body = job(labels={QUEUE: "a"}, **given)
    body["metadata"]["ownerReferences"] = list(owners)
    return body


def test_the_child_of_another_job_is_its_owners_where_the_owners_controller_made_it(cluster: Cluster) -> None:
    jobset = owner("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert not suspended(tried(cluster, owned(jobset), f"--as={JOBSET}"))
    assert suspended(tried(cluster, owned({**jobset, "controller": False}), f"--as={JOBSET}"))


OWNERS = [
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
    ("ray.io/v1", "RayService"),
    ("workload.codeflare.dev/v1beta2", "AppWrapper"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
]


@pytest.mark.parametrize(("api", "kind"), OWNERS, ids=str)
def test_an_owner_reference_by_an_account_of_the_namespace_starts_nothing(
    cluster: Cluster, api: str, kind: str
) -> None:
    """A token that an administrator of the namespace may mint: a right to the owner's status it has of no kind."""
    made = tried(cluster, owned(owner(api, kind)), f"--as={BUILDER}")
    assert suspended(made)
    assert made["metadata"]["annotations"] == {"tessera.dev/awaits-owner": "true"}


@pytest.mark.parametrize(("api", "kind"), OWNERS, ids=str)
def test_whoever_may_write_the_status_of_the_owners_kind_is_its_controller_by_any_name(
    cluster: Cluster, api: str, kind: str
) -> None:
    plural, group = f"{kind.lower()}s", api.partition("/")[0]
    name, subresource = f"controller-of-{plural}", "finalizers" if kind == "MPIJob" else "status"
    rule = {"apiGroups": [group], "resources": [f"{plural}/{subresource}"], "verbs": ["update"]}
    meta = {"name": name, "namespace": "plain"}
    created(cluster, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    cluster.kubectl("create", "rolebinding", name, f"--role={name}", f"--user={name}", "-n", "plain")
    cluster.kubectl("create", "rolebinding", f"{name}-edits", "--clusterrole=edit", f"--user={name}", "-n", "plain")
    until(lambda: not suspended(tried(cluster, owned(owner(api, kind)), f"--as={name}")), "the child left to its owner")
    other = owned(owner(*next(each for each in OWNERS if each[0] != api)))
    assert suspended(tried(cluster, other, f"--as={name}")), "it is the controller of no other kind"


def test_a_held_job_is_not_adopted_into_running(cluster: Cluster) -> None:
    created(cluster, job("held", labels={QUEUE: "a"}), f"--as={BUILDER}")
    adopt = {"metadata": {"ownerReferences": [owner("jobset.x-k8s.io/v1alpha2", "JobSet")]}, "spec": {"suspend": False}}
    patch = ("patch", "job", "held", "-n", "plain", f"--as={BUILDER}", "--type=merge", "-p")
    assert "only the controller starts a Job" in refusal(cluster, *patch, json.dumps(adopt))
    adopt.pop("spec")
    assert refusal(cluster, *patch, json.dumps(adopt)) == ""
    assert "only the controller starts a Job" in refusal(cluster, *patch, '{"spec":{"suspend":false}}')


CRDS = Path(os.environ.get("TESSERA_SHARED") or Path(__file__).parents[4] / "shared") / "crds"
POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}


@pytest.mark.parametrize(
    ("file", "api", "kind", "spec", "above"),
    [
        (
            "jobset/jobsets.yaml",
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": POD}}}]},
            ("spec",),
        ),
        (
            "kubeflow/pytorchjobs.yaml",
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"template": POD}}},
            ("spec", "runPolicy"),
        ),
        (
            "kuberay/rayservices.yaml",
            "ray.io/v1",
            "RayService",
            {"rayClusterConfig": {"headGroupSpec": {"rayStartParams": {}, "template": POD}}},
            ("spec", "rayClusterConfig"),
        ),
    ],
    ids=["JobSet", "PyTorchJob", "RayService"],
)
def test_a_kind_is_held_by_its_own_field_and_started_by_the_controller_alone(
    cluster: Cluster, file: str, api: str, kind: str, spec: dict[str, Any], above: tuple[str, ...]
) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS / file))

    def body(namespace: str, **labels: str) -> dict[str, Any]:
        metadata = {"generateName": "x-", "namespace": namespace, "labels": {"app": "x", **labels}}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}

    def is_held(found: dict[str, Any]) -> bool:
        for key in above:
            found = found.get(key, {})
        return bool(found.get("suspend"))

    def served() -> bool:
        # With a queue: policies that mutate learn a new kind's schema seconds after the API server serves it.
        with contextlib.suppress(ClusterError):
            tried(cluster, body("plain", **{QUEUE: "a"}))
            return True
        return False

    until(served, f"{kind} served")
    assert not is_held(tried(cluster, body("plain")))
    assert is_held(tried(cluster, body("plain", **{QUEUE: "a"})))
    in_default = tried(cluster, body("team"))
    assert is_held(in_default)
    assert in_default["metadata"]["labels"] == {"app": "x", QUEUE: "default"}
    name = created(cluster, body("plain", **{QUEUE: "a"}))["metadata"]["name"]
    off = json.dumps({"metadata": {"labels": {QUEUE: None}}})
    for who in ((), (f"--as={BUILDER}",)):
        said = refusal(cluster, "patch", kind.lower(), name, "-n", "plain", "--type=merge", "-p", off, *who)
        assert f'only the controller takes a {kind} that is held out of queue "a"' in said
        assert f"delete the {kind} to withdraw it" in said
    field = ".".join((*above, "suspend"))
    patch: Any = False
    for key in reversed((*above, "suspend")):
        patch = {key: patch}
    said = refusal(cluster, "patch", kind.lower(), name, "-n", "plain", "--type=merge", "-p", json.dumps(patch))
    assert f'{field}: only the controller starts a {kind} of queue "a"' in said


def test_only_the_controller_starts_a_queued_job_and_the_job_controller_does_its_work(cluster: Cluster) -> None:
    created(cluster, job("waits", labels={QUEUE: "a"}))
    start = ("patch", "job", "waits", "-n", "plain", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    said = refusal(cluster, *start)
    assert "only the controller starts a Job of queue" in said
    around = '{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}},"spec":{"suspend":false}}'
    said = refusal(cluster, *start[:-1], around)  # of several that refuse the API server names one
    assert "only the controller" in said or "may change only while the Job is suspended" in said
    assert "only the controller starts" in refusal(cluster, *start, f"--as={JOBSET}")
    assert not started(cluster, "waits")
    assert refusal(cluster, *start, f"--as={CONTROLLER}") == ""
    until(lambda: started(cluster, "waits"), "the Job started by the job controller")
    stop = (*start[:-1], '{"spec":{"suspend":true}}')
    assert refusal(cluster, *stop) == "", "users may suspend"
    until(lambda: not started(cluster, "waits"), "the Job suspended by the job controller")
    cluster.kubectl("delete", "job", "waits", "-n", "plain", "--cascade=foreground", "--timeout=120s")


def test_taking_the_label_off_is_not_the_way_around_the_queue(cluster: Cluster) -> None:
    created(cluster, job("stays", labels={QUEUE: "a"}), f"--as={BUILDER}")
    patch = ("patch", "job", "stays", "-n", "plain", f"--as={BUILDER}", "--type=merge", "-p")
    for value in (None, ""):
        off = json.dumps({"metadata": {"labels": {QUEUE: value}}})
        assert "delete the Job to withdraw it" in refusal(cluster, *patch, off)
        assert "only the controller starts" in refusal(cluster, *patch, '{"spec":{"suspend":false}}')
    assert not started(cluster, "stays")
    cluster.kubectl("delete", "job", "stays", "-n", "plain", f"--as={BUILDER}")


RUNNING = [
    ({QUEUE: "b"}, "may change only while the Job is suspended"),
    ({QUEUE: None}, "may change only while the Job is suspended"),
    ({PRIORITY: "low"}, ""),
    ({PRIORITY: None}, "not removed"),
    ({SECONDS: "20"}, "may change only while the Job is suspended"),
    ({SECONDS: None}, "may change only while the Job is suspended"),
    ({PREBUILT: "other"}, "may change only while the Job is suspended"),
    ({"app": "y"}, ""),
]
WAITING = [
    ({QUEUE: "b"}, ""),
    ({QUEUE: None, PRIORITY: "high"}, "delete the Job to withdraw it"),
    ({QUEUE: ""}, "delete the Job to withdraw it"),
    ({QUEUE: "B_b"}, "expected the name of a LocalQueue"),
    ({PRIORITY: None}, "not removed"),
    ({SECONDS: "20"}, ""),
    ({SECONDS: None}, ""),
    ({SECONDS: "0"}, "a whole number of seconds"),
    ({SECONDS: "soon"}, "a whole number of seconds"),
    ({SECONDS: "9999999999"}, "a whole number of seconds"),
    ({PREBUILT: None}, ""),
]


@pytest.fixture(scope="module")
def labelled(cluster: Cluster) -> tuple[str, str]:
    """A Job that runs and one that waits, each with every label."""
    labels = {QUEUE: "a", PRIORITY: "high", SECONDS: "10", PREBUILT: "made"}
    for name in ("runs", "rests"):
        created(cluster, job(name, labels=labels))
    start = '{"spec":{"suspend":false}}'
    cluster.kubectl("patch", "job", "runs", "-n", "plain", "--type=merge", "-p", start, f"--as={CONTROLLER}")
    return "runs", "rests"


CASES = [*((True, *case) for case in RUNNING), *((False, *case) for case in WAITING)]


@pytest.mark.parametrize(("running", "labels", "said"), CASES, ids=str)
def test_labels_change_as_the_rules_say(
    cluster: Cluster, labelled: tuple[str, str], running: bool, labels: dict[str, str | None], said: str
) -> None:
    patch = json.dumps({"metadata": {"labels": labels}})
    name = labelled[0] if running else labelled[1]
    got = refusal(cluster, "patch", "job", name, "-n", "plain", "--type=merge", "--dry-run=server", "-p", patch)
    assert said in got if said else got == ""


def test_a_running_job_joins_no_queue_and_gets_no_first_priority_class(cluster: Cluster) -> None:
    created(cluster, job("free"))
    label = ("label", "job", "free", "-n", "plain", "--dry-run=server")
    assert "may change only while the Job is suspended" in refusal(cluster, *label, f"{QUEUE}=a")
    assert refusal(cluster, *label, f"{PRIORITY}=high") == "", "no rule for Jobs of no queue"
    cluster.kubectl("delete", "job", "free", "-n", "plain")


@pytest.mark.parametrize("labels", [{SECONDS: "0"}, {SECONDS: "1h"}, {QUEUE: "A_b"}], ids=str)
def test_a_job_with_a_wrong_label_is_refused_at_creation(cluster: Cluster, labels: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=r"metadata\.labels"):
        tried(cluster, job(labels={QUEUE: "a", **labels}))


OLD_WORKLOAD: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "old", "namespace": "plain"},
    "spec": {
        "queueName": "a",
        "priorityClassName": "high",
        "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        "priority": 5,
        "podSets": [{"name": "main", "count": 1, "template": job()["spec"]["template"]}],
    },
}
OLD_QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "old"},
    "spec": {"cohort": "team", "admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}},
}


def read(cluster: Cluster, resource: str, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", resource, *args, "-o", "json"))
    return found


def test_v1beta1_is_served_while_a_replica_lives_and_only_v1beta1_stops_without(cluster: Cluster) -> None:
    with Webhook(cluster):
        dry = ("create", "--dry-run=server", "-f", "-")
        until(lambda: not refusal(cluster, *dry, input=json.dumps(OLD_WORKLOAD)), "the API server calling us")
        created(cluster, OLD_WORKLOAD)
        created(cluster, OLD_QUEUE)
        stored = read(cluster, "workloads.v1beta2.kueue.x-k8s.io", "old", "-n", "plain")
        assert stored["spec"]["priorityClassRef"]["name"] == "high"
        assert read(cluster, "clusterqueues.v1beta2.kueue.x-k8s.io", "old")["spec"]["cohortName"] == "team"
        levels = {
            "levels": ["kubernetes.io/hostname"],
            "slices": [
                {
                    "domainCount": 2,
                    "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": ["1", "2"]}}],
                    "podCounts": {"universal": 1},
                }
            ],
        }
        assignment = {"name": "main", "count": 2, "topologyAssignment": levels}
        status = {"status": {"admission": {"clusterQueue": "old", "podSetAssignments": [assignment]}}}
        patch = ("patch", "workloads.v1beta2.kueue.x-k8s.io", "old", "-n", "plain", "--subresource=status")
        cluster.kubectl(*patch, "--type=merge", "-p", json.dumps(status))
        (found,) = read(cluster, "workloads.v1beta1.kueue.x-k8s.io", "-n", "plain")["items"]
        assert found["spec"]["priorityClassName"] == "high"
        (assigned,) = found["status"]["admission"]["podSetAssignments"]
        assert assigned["topologyAssignment"]["domains"] == [
            {"values": ["node-1"], "count": 1},
            {"values": ["node-2"], "count": 1},
        ]
        assert read(cluster, "clusterqueues.v1beta1.kueue.x-k8s.io", "old")["spec"]["cohort"] == "team"
    old = ("annotate", "workloads.v1beta1.kueue.x-k8s.io", "old", "-n", "plain", "--overwrite", "seen=no")
    assert "conversion webhook" in refusal(cluster, *old)
    assert read(cluster, "workloads.v1beta2.kueue.x-k8s.io", "old", "-n", "plain")
    cluster.kubectl("annotate", "workloads.v1beta2.kueue.x-k8s.io", "old", "-n", "plain", "seen=yes")
    assert suspended(tried(cluster, job(labels={QUEUE: "a"})))
    assert read(cluster, "topologies.v1beta1.kueue.x-k8s.io")["items"] == []
    with Webhook(cluster):
        until(lambda: not refusal(cluster, *old), "v1beta1 again, by the same certificates")


def stored_as(cluster: Cluster, older: bool) -> None:
    """Which version of Workload new objects are stored in."""
    patch = [{"op": "replace", "path": f"/spec/versions/{n}/storage", "value": older == (n == 0)} for n in (0, 1)]
    cluster.kubectl("patch", WORKLOADS_CRD, "--type=json", "-p", json.dumps(patch))


def test_v1beta1_of_workload_goes_and_comes_back_with_objects_stored_in_both(cluster: Cluster) -> None:
    """An upgrade to a controller that turns it off, and the way back."""

    def listed(version: str) -> dict[str, Any]:
        found = read(cluster, f"workloads.{version}.kueue.x-k8s.io", "-n", "plain")["items"]
        return {each["metadata"]["name"]: each["spec"] for each in found if each["metadata"]["name"] in names}

    def served() -> bool:
        return not refusal(cluster, "get", "--raw", "/apis/kueue.x-k8s.io/v1beta1/workloads")

    def workload(name: str, version: str) -> dict[str, Any]:
        older = {"priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priorityClassName": "high"}
        newer = {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}}
        body = json.loads(json.dumps(OLD_WORKLOAD)) | {"apiVersion": f"kueue.x-k8s.io/{version}"}
        kept = {key: value for key, value in body["spec"].items() if not key.startswith("priorityClass")}
        metadata = {"name": name, "namespace": "plain"}
        return {**body, "metadata": metadata, "spec": kept | (older if version == "v1beta1" else newer)}

    names = ["stored-older", "written-older", "written-newer"]
    with Webhook(cluster):
        until(served, "the API server calling us")
        stored_as(cluster, older=True)
        created(cluster, workload("stored-older", "v1beta1"))
        stored_as(cluster, older=False)
        created(cluster, workload("written-older", "v1beta1"))
        created(cluster, workload("written-newer", "v1beta2"))
        before = {version: listed(version) for version in ("v1beta1", "v1beta2")}
        assert before["v1beta2"].keys() == set(names)
        assert {spec["priorityClassRef"]["name"] for spec in before["v1beta2"].values()} == {"high"}
    with Webhook(cluster, "controller.config.tessera.workloadV1beta1=off"):
        until(lambda: not served(), "v1beta1 is not served any more")
        assert read(cluster, WORKLOADS_CRD)["spec"]["conversion"]["strategy"] == "Webhook"
        until(lambda: listed("v1beta2") == before["v1beta2"], "v1beta2 of those that are stored in v1beta1 too")
        for name in names[1:]:
            cluster.kubectl("annotate", "workloads.v1beta2.kueue.x-k8s.io", name, "-n", "plain", "seen=yes")
        assert read(cluster, "localqueues.v1beta1.kueue.x-k8s.io", "default", "-n", "team")
        names.append("later")
        created(cluster, workload("later", "v1beta2"))
        anew = [{"op": "replace", "path": "/spec/versions/0/served", "value": True}]
        cluster.kubectl("patch", WORKLOADS_CRD, "--type=json", "-p", json.dumps(anew))
        until(served, "as when the chart's CRDs are applied again")
    with Webhook(cluster, "controller.config.tessera.workloadV1beta1=off"):
        until(lambda: not served(), "off again")
    with Webhook(cluster, "controller.config.tessera.workloadV1beta1=served"):
        until(served, "the way back")
        found = listed("v1beta1")
        assert found.keys() == set(names)
        assert {name: found[name] for name in before["v1beta1"]} == before["v1beta1"]
        assert found["later"]["priorityClassName"] == "high"


def test_a_dry_run_of_what_is_queued_is_told_and_no_other_request_asks(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("forecast-webhook"))

    def warned(name: str, *more: str, **given: Any) -> str:
        command, environment = cluster.kubectl_command("create", *more, "-f", "-")
        text = json.dumps(job(name, **given))
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True)
        return done.stderr

    dry, queued = "--dry-run=server", {QUEUE: "a"}
    with Webhook(cluster):
        until(lambda: "Warning: foretold asks" in warned("asks", dry, labels=queued), "the API server calling us")
        assert warned("plain", dry) == "", "it is in no queue"
        assert warned("real", labels=queued) == ""
    assert warned("asks", dry, labels=queued) == "", "nobody answers, and nothing is refused"
    cluster.kubectl("delete", "job", "real", "-n", "plain")
    cluster.kubectl("delete", "validatingwebhookconfiguration", "t-tessera-controller-forecast")


def test_a_conversion_of_another_system_is_taken_over(cluster: Cluster) -> None:
    kueue = {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert"}
    config = {"service": kueue, "url": None, "caBundle": None}
    patch = json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": config}}}})
    name = "crd/clusterqueues.kueue.x-k8s.io"
    cluster.kubectl("patch", name, "--type=merge", "-p", patch)
    with Webhook(cluster):
        assert "url" in read(cluster, name)["spec"]["conversion"]["webhook"]["clientConfig"]
        until(lambda: not refusal(cluster, "get", "clusterqueues.v1beta1.kueue.x-k8s.io"), "the API server calling us")
