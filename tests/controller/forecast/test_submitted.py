"""The Workload of an object that is not there yet, whatever a user sends as one."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config.load import default
from controller.forecast.submitted import NotQueuedError, Reader
from controller.jobframework.kind import api_version
from controller.jobkinds.table import JOB_KINDS
from controller.jobshell.clusterobjects import job_settings
from tests.support.controller.jobmodel import cluster_objects

KINDS = {(api_version(kind), kind.kind): kind for kind in JOB_KINDS}
READER = Reader(
    KINDS,
    job_settings(default(), "tessera-system"),
    cluster_objects(),
    lambda _: {},
    lambda namespace: namespace == "open",
)
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}


def job(**metadata: Any) -> dict[str, Any]:
    spec = {"parallelism": 3, "completions": 3, "template": TEMPLATE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": QUEUE, **metadata}, "spec": spec}


def test_a_job_without_a_name_asks_for_what_its_pods_do() -> None:
    found = READER.workload(job(generateName="train-"), "team", 1_700_000_000.0)
    assert (found.key, found.spec.queue_name) == ("team/train-", "q")
    (pod_set,) = found.spec.pod_sets
    assert pod_set.count == 3


def test_a_job_without_a_queue_goes_to_the_default_one_where_there_is_one() -> None:
    assert READER.workload(job(labels={}), "open", 0.0).spec.queue_name == "default"
    with pytest.raises(NotQueuedError, match="names no queue"):
        READER.workload(job(labels={}), "team", 0.0)


def test_a_pod_and_a_group_that_serves_wait_as_well() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": QUEUE, "name": "p"}, **TEMPLATE}
    assert READER.workload(pod, "team", 0.0).spec.pod_sets[0].count == 1
    spec = {"replicas": 2, "template": TEMPLATE, "selector": {}, "serviceName": "s"}
    serves = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"labels": QUEUE, "name": "s"}, "spec": spec}
    assert READER.workload(serves, "team", 0.0).spec.pod_sets[0].count == 2


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (7, "found no object"),
        ({"kind": "Job"}, "apiVersion: expected a text"),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": []}, "metadata: expected an object"),
        (job(namespace="other"), "found another one, expected team"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "kind ConfigMap in v1 are not queued"),
        ({**job(), "spec": {"template": []}}, "spec.template"),
    ],
)
def test_what_is_not_queued_is_told_in_a_line(given_: Any, said: str) -> None:
    with pytest.raises(NotQueuedError, match=said) as refused:
        READER.workload(given_, "team", 0.0)
    assert "\n" not in str(refused.value)


def test_what_asks_for_thousands_of_groups_costs_nothing_more_and_what_is_too_large_is_refused() -> None:
    worker = {"spec": TEMPLATE["spec"]}
    spec = {"replicas": 100_000, "leaderWorkerTemplate": {"size": 3, "workerTemplate": worker}}
    many = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"labels": QUEUE}}
    assert READER.workload({**many, "spec": spec}, "team", 0.0).spec.pod_sets[0].count == 3
    with pytest.raises(NotQueuedError, match="expected at most 100000 groups"):
        READER.workload({**many, "spec": {**spec, "replicas": 2**31 - 1}}, "team", 0.0)
    container = TEMPLATE["spec"]["containers"][0]
    crowd = job()
    crowd["spec"] = {
        **crowd["spec"],
        "template": {"spec": {"restartPolicy": "Never", "containers": [container] * 2000}},
    }
    with pytest.raises(NotQueuedError, match="more than 5000 values"):
        READER.workload(crowd, "team", 0.0)


def test_a_workload_of_more_pod_sets_than_the_api_server_takes_is_refused() -> None:
    def of(count: int) -> dict[str, Any]:
        sets = [
            {"name": f"s{number}", "count": 2**31 - 1, "minCount": 1, "template": TEMPLATE} for number in range(count)
        ]
        spec = {"queueName": "q", "podSets": sets}
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {}, "spec": spec}

    assert len(READER.workload(of(18), "team", 0.0).spec.pod_sets) == 18
    with pytest.raises(NotQueuedError, match="podSets: found 19, expected at most 18"):
        READER.workload(of(19), "team", 0.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["metadata", "spec", "template"]), JSON)
def test_no_manifest_makes_anything_but_a_workload_or_a_sentence(of: tuple[str, str], where: str, value: Any) -> None:
    sent = {**job(), "apiVersion": of[0], "kind": of[1]}
    sent = {**sent, "spec": {**sent["spec"], "template": value}} if where == "template" else {**sent, where: value}
    with suppress(NotQueuedError):
        assert READER.workload(sent, "team", 0.0).metadata.namespace == "team"
