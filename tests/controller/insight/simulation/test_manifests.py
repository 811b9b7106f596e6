"""What is read as a scenario: the controller's kinds of both versions, and one line for everything that is wrong."""

import json
import re
from typing import Any

import pytest

from controller.insight.simulation.documents import InputError, documents, named
from controller.insight.simulation.manifests import scenario
from controller.objects.queues import ClusterQueue
from tests.support.controller.manifests import (
    GPU,
    cluster_queue,
    config,
    flavor,
    given,
    job,
    kueue,
    local_queue,
    priority_class,
    run,
    told,
)

QUEUES = (flavor(), cluster_queue(), local_queue())


def refused(*objects: dict[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        scenario(given(*objects), config())
    text = str(error.value)
    assert "\n" not in text
    return text


def test_manifests_of_the_older_version_mean_the_same() -> None:
    newer = cluster_queue("guest", 0, cohort="pool", admissionChecksStrategy=None)
    older = {**newer, "apiVersion": "kueue.x-k8s.io/v1beta1", "spec": {**newer["spec"], "cohort": "pool"}}
    del older["spec"]["cohortName"]
    rest = flavor(), cluster_queue("owner", 8, cohort="pool"), local_queue("guest"), job("a", 8, queue="guest")
    assert run(older, *rest) == run(newer, *rest)


def test_the_order_of_documents_that_are_no_jobs_means_nothing() -> None:
    high = priority_class("high", 10)
    jobs = job("low", 8, runtime="5s"), job("first", 8, priority="high", runtime="5s")
    assert run(*jobs, high, *reversed(QUEUES)) == run(*QUEUES, high, *jobs)


def test_single_pods_and_bare_workloads_queue_too() -> None:
    metadata = {"name": "p", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    spec = {"containers": [{"name": "c", "resources": {"limits": {GPU: "8"}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    pod_sets = [
        {
            "name": "main",
            "count": 4,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: "2"}}}]}},
        }
    ]
    workload = kueue("Workload", "w", "ns", spec={"queueName": "main", "podSets": pod_sets})
    workload["metadata"]["annotations"] = {"tessera.dev/runtime": "7s"}
    assert told(run(*QUEUES, workload, pod)) == ["0 Admitted w", "0 Pending p", "7 Finished w", "7 Admitted p"]


def test_a_pod_has_the_priority_of_its_own_class() -> None:
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 5))
    ]

    def pod(name: str, of: str) -> dict[str, Any]:
        spec = {"priorityClassName": of, "containers": [{"name": "c", "resources": {"limits": {GPU: "8"}}}]}
        metadata = {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    result = run(*QUEUES, *classes, pod("a", "low"), pod("b", "high"))
    assert told(result) == ["0 Admitted b", "0 Pending a"]


def test_a_list_is_what_it_holds_and_a_workload_of_a_listed_job_counts_once() -> None:
    owned = kueue("Workload", "job-a-12345", "ns", spec={"queueName": "main", "podSets": []})
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1", "controller": True}
    ]
    everything = {"apiVersion": "v1", "kind": "List", "items": [*QUEUES, owned, job("a", 4)]}
    text = json.dumps(everything)
    settings = config()
    found = scenario(documents(text, "-"), settings)
    assert [one.key for one in found.submissions] == ["ns/a"]


def test_what_is_passed_over_is_told() -> None:
    unqueued = job("free")
    del unqueued["metadata"]["labels"]
    done = {**job("done")}
    done["metadata"]["labels"] = {}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    found = scenario(given(*QUEUES, unqueued, secret), config())
    assert [line.partition(": ")[2] for line in found.warnings] == [
        "document 5: Secret of v1 decides nothing here, passed over",
    ]
    (warning,) = found.unqueued
    assert warning.startswith(
        "f.yaml: warning: document 4: Job free: metadata.labels: found no label kueue.x-k8s.io/queue"
    )
    assert warning.endswith("with a LocalQueue of ns: main. It is passed over")
    queue = cluster_queue(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
    (note,) = scenario(given(queue), config()).warnings
    assert "admissionFairSharing" in note


def test_a_job_without_a_namespace_is_in_default_and_one_in_kube_system_is_not_queued() -> None:
    queue = local_queue()
    del queue["metadata"]["namespace"]
    plain, system = job("a"), job("b")
    del plain["metadata"]["namespace"]
    system["metadata"]["namespace"] = "kube-system"
    result = run(flavor(), cluster_queue(), queue, plain, system)
    assert [one.workload for one in result.timeline] == ["default/a"]


def train_job(runtime: str) -> dict[str, Any]:
    made = job("t")
    spec = {"runtimeRef": {"name": runtime, "kind": "ClusterTrainingRuntime"}, "trainer": {"numNodes": 3}}
    return {**made, "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


def runtime(name: str) -> dict[str, Any]:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"spec": {"containers": [{"name": "node", "resources": {"requests": {"cpu": "2"}}}]}}
    jobs = [{"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


@pytest.mark.parametrize("runtime_first", [True, False])
def test_a_job_is_read_together_with_the_objects_that_its_pods_follow_from(*, runtime_first: bool) -> None:
    both = [runtime("torch"), train_job("torch")]
    found = scenario(given(*(both if runtime_first else reversed(both))), config())
    (submission,) = found.submissions
    assert [(pod_set.name, pod_set.count) for pod_set in submission.workload.spec.pod_sets] == [("node", 3)]
    assert submission.workload.metadata.owner_references[0].kind == "TrainJob"


def test_a_job_whose_pods_follow_from_an_object_that_is_not_there_is_refused() -> None:
    assert "TrainJob t: " in refused(train_job("torch"))


def ray_job(**spec: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "2"}}}]}}
    groups = [{"groupName": "idle", "template": pod}, {"groupName": "some", "minReplicas": 2, "template": pod}]
    cluster = {"headGroupSpec": {"template": pod}, "workerGroupSpecs": groups}
    spec = {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **spec}
    return {**job("r"), "apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}


@pytest.mark.parametrize(("mode", "submitter"), [({}, [("submitter", 1)]), ({"submissionMode": "HTTPMode"}, [])])
def test_a_job_is_charged_as_an_api_server_stores_it(mode: dict[str, str], submitter: list[tuple[str, int]]) -> None:
    given_ = ray_job(**mode)
    (submission,) = scenario(given(given_), config()).submissions
    found = [(pod_set.name, pod_set.count) for pod_set in submission.workload.spec.pod_sets]
    assert found == [("head", 1), ("idle", 0), ("some", 2), *submitter]
    assert "submissionMode" not in given_["spec"] or mode, "what was read is left as it is"


@pytest.mark.parametrize("wrong", [[], {"workerGroupSpecs": 3}, {"workerGroupSpecs": [3]}])
def test_a_default_in_something_of_another_shape_is_left_out(wrong: Any) -> None:
    assert "RayJob r: " in refused(ray_job(rayClusterSpec=wrong))


def unknown_job() -> dict[str, Any]:
    return {**job("t"), "apiVersion": "kubeflow.org/v1", "kind": "MXJob"}


def changed(given: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**given, "spec": {**given["spec"], **spec}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (unknown_job(), "kind: found MXJob of kubeflow.org/v1, expected a kind of job that is read here: AppWrapper, "),
        (
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "v"}},
            "CronJob v: kind: found CronJob of batch.volcano.sh/v1alpha1, expected a kind of job that is read here: ",
        ),
        (
            {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "m"}},
            "MPIJob of kubeflow.org/v1: an MPIJob of the training operator is not queued, write it as kubeflow.org/v2",
        ),
        (kueue("WorkloadPriorityClass", "p"), "WorkloadPriorityClass p: value: found nothing, expected a value"),
        (
            kueue("LocalQueue", "q", "ns", spec={"clusterQueue": 7}),
            "q: spec.clusterQueue: found a whole number, expected a",
        ),
        (kueue("Multi", "m"), "Multi m: kind: found 'Multi', expected one of AdmissionCheck"),
        (
            {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "metadata": {"name": "c"}},
            "found a configuration file, expected a manifest. Give it with --config",
        ),
        (job("j", arrival="soon"), 'metadata.annotations[tessera.dev/arrival]: found "soon", expected a duration'),
        (job("j", runtime="-5s"), 'metadata.annotations[tessera.dev/runtime]: found "-5s", expected a duration'),
        (
            job("j", priority="none"),
            "labels[kueue.x-k8s.io/priority-class]: found 'none', expected a WorkloadPriorityClass that exists",
        ),
        (changed(job("j"), parallelism="4"), "Job j: spec.parallelism: expected an integer, found str"),
        (
            changed(cluster_queue(), queueingStrategy="Fifo"),
            "ClusterQueue main: spec.queueingStrategy: found 'Fifo', expected a word that the API has here",
        ),
        (
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": 3},
            "ClusterQueue q: .spec: found integer, expected object",
        ),
        (
            job("twin"),
            "Job twin: metadata.name: found the name ns/twin, expected another: Job in f.yaml: document 1 has it",
        ),
    ],
)
def test_a_wrong_document_is_refused_in_one_line(wrong: dict[str, Any], said: str) -> None:
    text = refused(job("twin"), wrong)
    assert text.startswith("f.yaml: document 2: ")
    assert said in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "apiVersion: v1\n---\n- 1\n",
            "f.yaml:1: kind: found nothing, expected a kind such as Job. Write it\nf.yaml:3: found a list",
        ),
        ("---\n- 1\n", "f.yaml:2: found a list, expected an object"),
        ("kind: Job\napiVersion: batch/v1\n", "f.yaml:1: Job: metadata.name: found nothing, expected a name"),
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {name: '', generateName: ''}\n",
            'f.yaml:3: Job: metadata.name: found "", expected a name',
        ),
        ("a: [1\nb: 2\n", 'f.yaml:2: column 2: not valid YAML: found ":", expected a comma, or ]'),
        ("a: \x07", "f.yaml:1: column 4: not valid YAML: found the character 0x7"),
        ("a: !!python/object:os.system {}\n", 'f.yaml:1: column 4: not valid YAML: found "!!python/object:os.system"'),
    ],
)
def test_text_that_is_no_manifest_is_refused_with_its_lines(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        documents(text, "f.yaml")
    assert str(error.value).startswith(said)


def test_names_that_are_left_to_the_api_server_are_made_up_each_time_others() -> None:
    def unnamed(of: dict[str, Any]) -> dict[str, Any]:
        return {**of, "metadata": {**of["metadata"], "name": "", "generateName": "job-"}}

    pod = {**job("p"), "apiVersion": "v1", "kind": "Pod", "spec": job("p")["spec"]["template"]["spec"]}
    asked = (*QUEUES, *map(unnamed, (job("a"), job("a"), pod, pod, cluster_queue("other"))))
    found = run(*asked)
    started = [one.workload for one in found.timeline if one.event == "Admitted"]
    assert len(set(started)) == 4
    assert all(re.fullmatch("ns/job-[bcdfghjklmnpqrstvwxz2456789]{5}", key) for key in started)
    assert run(*asked) == found, "the same files give the same names"


def test_a_made_up_name_has_at_most_63_characters_and_is_nobody_elses() -> None:
    given_ = {"metadata": {"generateName": "a" * 70}, "kind": "X", "apiVersion": "v1"}
    (first,) = named(given(given_))
    (second, _) = named(given(given_, {**given_, "metadata": first.data["metadata"]}))
    assert {len(each.data["metadata"]["name"]) for each in (first, second)} == {63}
    assert first.data["metadata"]["name"] != second.data["metadata"]["name"]


@pytest.mark.parametrize(
    ("limits", "charged"),
    [
        ({"max": {GPU: "4"}}, 4),
        ({"min": {GPU: "2"}}, 2),
        ({"max": {GPU: "4"}, "default": {GPU: "3"}, "min": {GPU: "1"}}, 3),
        ({"max": {GPU: "4"}, "defaultRequest": {GPU: "2"}}, 2),
    ],
)
def test_a_limit_range_says_what_the_api_server_makes_of_it(limits: dict[str, Any], charged: int) -> None:
    item = {"type": "Container", **limits}
    metadata = {"name": "l", "namespace": "ns"}
    ranged = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [item]}}
    bare, own = job("bare"), job("own", 4)
    del bare["spec"]["template"]["spec"]["containers"][0]["resources"]
    final = run(*QUEUES, ranged, bare, own).final
    assert final.cluster_queues["main"].usage[GPU] == charged + 4, "a limit of its own is a request"


def test_a_pod_below_its_containers_waits_with_what_is_wrong() -> None:
    odd = job("odd")
    odd["spec"]["template"]["spec"] |= {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}],
        "resources": {"requests": {"cpu": "2"}},
    }
    (waits,) = run(*QUEUES, odd).final.pending
    assert "template.spec.resources: cpu: requests must reach what the containers request together" in waits.message


def test_times_stay_text_and_empty_documents_are_nothing() -> None:
    (found,) = documents("---\n---\napiVersion: v1\nkind: X\nmetadata: {name: n, at: 2026-01-01T00:00:00Z}\n", "f")
    assert (found.number, found.data["metadata"]["at"]) == (2, "2026-01-01T00:00:00Z")


def test_a_job_without_a_queue_goes_to_the_default_one_of_its_namespace() -> None:
    unqueued = job("a")
    del unqueued["metadata"]["labels"]
    queues = flavor(), cluster_queue(), local_queue("default", to="main")
    assert told(run(*queues, unqueued)) == ["0 Admitted a"]


def test_absent_preemption_policies_are_never_as_in_the_schema() -> None:
    queue = cluster_queue(preemption={"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {}})
    (found,) = [one for one in scenario(given(queue), config()).objects if isinstance(one, ClusterQueue)]
    preemption = found.spec.preemption
    assert preemption is not None
    assert (preemption.within_cluster_queue, preemption.reclaim_within_cohort) == ("LowerPriority", "Never")
    assert preemption.borrow_within_cohort is not None
    assert preemption.borrow_within_cohort.policy == "Never"


def test_a_later_document_replaces_an_earlier_one_of_its_name() -> None:
    assert (
        told(run(flavor(), cluster_queue(gpus=1), local_queue(), cluster_queue(gpus=4), job("a", 4)))[0]
        == "0 Admitted a"
    )
