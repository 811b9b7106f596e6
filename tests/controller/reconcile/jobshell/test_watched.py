"""What is kept of jobs and Workloads between two looks at them: all that anybody asks, and no more."""

from typing import Any

import msgspec
import pytest

from controller.cluster.watching import kinds
from controller.cluster.watching.kinds import RawWorkloads
from controller.reconcile.jobshell.watched import KeptJob, job_kinds, keep_job, keep_owner
from controller.scheduler.model.resources import WorkloadKey

OWNER = {"apiVersion": "v1", "kind": "Set", "name": "s", "uid": "u", "controller": True}
QUEUE, PREBUILT = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name"
KEY = WorkloadKey("ns/w")


def job(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Job", "metadata": {"name": "j", **metadata}, "spec": {"a": [1, None]}}


def kept(given: dict[str, Any]) -> KeptJob:
    return keep_job(msgspec.json.encode(given))


def test_a_kept_job_is_whole_but_for_its_field_managers() -> None:
    given = job(labels={QUEUE: "q"}, managedFields=[{"manager": "m"}]) | {"status": {"ready": 1}}
    found = kept(given)
    assert found.json == job(labels={QUEUE: "q"}) | {"status": {"ready": 1}}
    assert (found.queue, found.controller, found.prebuilt) == ("q", "", "")


def test_what_is_asked_at_each_change_stands_beside_it() -> None:
    found = kept(job(annotations={QUEUE: "old", PREBUILT: "w"}, ownerReferences=[OWNER]))
    assert (found.queue, found.controller, found.prebuilt) == ("old", "u", "w")


@pytest.mark.parametrize("grow", [True, False])
def test_jobs_of_kais_grow_as_the_configuration_allows(grow: bool) -> None:
    (kind,) = job_kinds(("batch/job",), grow=grow).values()
    given = {"metadata": {"labels": {QUEUE: "q", "kai.scheduler/queue": "q"}}, "spec": {"parallelism": 3}}
    assert kind.counts(given) == {"main": 1 if grow else 3}


@pytest.mark.parametrize("labels", [{QUEUE: 1, PREBUILT: "w"}, {QUEUE: None}, "x", None])
def test_marks_that_cannot_be_read_are_none(labels: object) -> None:
    found = kept(job(labels=labels))
    assert (found.queue, found.prebuilt) == ("", "")
    assert found.json == job(labels=labels)


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"metadata": 1}', b'{"metadata": null}'])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        keep_job(raw)


def test_of_an_owner_the_metadata_is_kept() -> None:
    assert keep_owner(msgspec.json.encode(job(labels={QUEUE: "q"}))).json == {
        "metadata": {"name": "j", "labels": {QUEUE: "q"}}
    }


def workload(generation: int, unknown: str, uid: str = "u") -> bytes:
    meta = {"name": "w", "namespace": "ns", "uid": uid, "generation": generation}
    return msgspec.json.encode({"metadata": meta, "spec": {"queueName": "q", "unknown": unknown}})


def spec_of(raws: RawWorkloads) -> Any:
    found = raws.of(KEY)
    return None if found is None else found.json()["spec"]["unknown"]


@pytest.mark.parametrize("then", [workload(1, "b"), workload(2, "b"), workload(1, "b", uid="v")])
def test_the_spec_of_a_workload_is_the_one_read_last(then: bytes) -> None:
    raws = RawWorkloads()
    raws.read(workload(1, "a"))
    assert raws.read(then).spec.queue_name == "q"
    assert spec_of(raws) == "b"
    raws.forget(KEY)
    assert spec_of(raws) is None


def test_a_spec_that_is_read_again_is_not_packed_again() -> None:
    raws = RawWorkloads()
    raws.read(workload(1, "a"))
    first = raws.of(KEY)
    raws.read(workload(1, "a", uid="v"))
    assert raws.of(KEY) is first


def test_what_only_the_slow_decoder_reads_keeps_the_spec_of_each_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes another object each time; these are forgotten together, and none is taken for another."""
    monkeypatch.setattr(kinds, "_MOST_SPECS", 3)
    raws = RawWorkloads()
    for number in range(20):
        meta = {"name": "w", "namespace": "ns", "labels": None}
        raws.read(msgspec.json.encode({"metadata": meta, "spec": {"unknown": str(number)}}))
        assert spec_of(raws) == str(number)


def test_pod_sets_that_are_alike_are_packed_once_and_no_field_is_lost() -> None:
    raws = RawWorkloads()
    pod_sets = [{"name": "main", "template": {"spec": {"containers": [{"name": "c", "unknown": 1}]}}}]
    specs = [{"podSets": pod_sets, "queueName": "q", "unknown": number} for number in range(2)]
    for number, spec in enumerate(specs):
        meta = {"name": f"w{number}", "namespace": "ns", "uid": "u", "generation": 1}
        raws.read(msgspec.json.encode({"metadata": meta, "spec": spec}))
    found = [raws.of(WorkloadKey(f"ns/w{number}")) for number in range(2)]
    assert [one and one.json() for one in found] == [{"spec": spec} for spec in specs]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].pod_sets is found[1].pod_sets
