"""The Workload of an object that is not there yet, whatever a user sends as one."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.config.load import default
from controller.foreign.jobs.kind import ForeignJobKind
from controller.insight.forecast.submitted import NotQueuedError, Others, Reader
from controller.jobs.framework.kind import api_version
from controller.jobs.kinds.table import JOB_KINDS
from controller.objects.meta import LabelSelector
from controller.reconcile.jobshell.clusterobjects import job_settings
from controller.scheduler.mirror.specs import ADOPTED, Adoption, System
from inventory.api.names import RUNTIME
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


def test_what_a_rule_of_its_kind_refuses_is_not_queued() -> None:
    few = job(name="few", annotations={"kueue.x-k8s.io/job-min-parallelism": "9"})
    with pytest.raises(NotQueuedError, match=r"job-min-parallelism\]: expected 1 to 2"):
        READER.workload(few, "team", 0.0)
    spec = {"clusterSelector": {"ray.io/cluster": "c"}, "shutdownAfterJobFinishes": True}
    ray = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"labels": QUEUE}, "spec": spec}
    with pytest.raises(NotQueuedError, match="clusterSelector: a queued job runs on a cluster of its own"):
        READER.workload(ray, "team", 0.0)


def test_a_job_without_a_queue_goes_to_the_default_one_where_there_is_one() -> None:
    assert READER.workload(job(labels={}), "open", 0.0).spec.queue_name == "default"
    with pytest.raises(NotQueuedError, match="names no queue"):
        READER.workload(job(labels={}), "team", 0.0)


def test_what_is_for_volcanos_or_kais_queues_waits_there_where_they_are_decided_for() -> None:
    both = Others({System.KAI: ADOPTED, System.VOLCANO: ADOPTED})
    reader = msgspec.structs.replace(READER, others=both)
    kai = job(labels={"kai.scheduler/queue": "team-a"})
    assert reader.workload(kai, "team", 0.0).spec.queue_name == "team-a"
    scheduled = job(labels={})
    scheduled["spec"] = {**scheduled["spec"], "template": {"spec": {**TEMPLATE["spec"], "schedulerName": "volcano"}}}
    assert reader.workload(scheduled, "team", 0.0).spec.queue_name == "default"
    assert reader.workload(job(), "team", 0.0).spec.queue_name == "q", "Kueue's label goes before"
    elsewhere = Adoption(namespaces=LabelSelector(match_labels={"decided": "here"}))
    for others in (Others(), Others({System.KAI: elsewhere})):
        with pytest.raises(NotQueuedError, match="names no queue"):
            msgspec.structs.replace(READER, others=others).workload(kai, "team", 0.0)


def test_a_volcano_job_as_it_is_written_waits_in_the_queue_of_its_spec() -> None:
    kind = ForeignJobKind()
    reader = msgspec.structs.replace(READER, kinds={**KINDS, (api_version(kind), kind.kind): kind})
    spec: dict[str, Any] = {"tasks": [{"replicas": 3, "template": TEMPLATE}], "runningEstimate": "90s"}
    written = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": spec}
    found = reader.workload(written, "open", 0.0)
    assert (found.spec.queue_name, found.metadata.annotations[RUNTIME]) == ("default", "90s")
    assert [(each.name, each.count) for each in found.spec.pod_sets] == [("default0", 3)]
    spec |= {"queue": "research", "minAvailable": 2}
    found = reader.workload(written, "team", 0.0)
    assert (found.spec.queue_name, found.spec.pod_sets[0].count) == ("research", 2)


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
    with pytest.raises(NotQueuedError, match="expected 0 to 1000000 groups, found 2147483647"):
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


EVERY = msgspec.structs.replace(
    READER,
    kinds={**KINDS, (api_version(ForeignJobKind()), ForeignJobKind.kind): ForeignJobKind()},
    others=Others({System.KAI: ADOPTED, System.VOLCANO: ADOPTED}),
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(EVERY.kinds)), st.sampled_from(["metadata", "spec", "template"]), JSON)
def test_no_manifest_makes_anything_but_a_workload_or_a_sentence(of: tuple[str, str], where: str, value: Any) -> None:
    sent = {**job(), "apiVersion": of[0], "kind": of[1]}
    sent = {**sent, "spec": {**sent["spec"], "template": value}} if where == "template" else {**sent, where: value}
    with suppress(NotQueuedError):
        assert EVERY.workload(sent, "team", 0.0).metadata.namespace == "team"
