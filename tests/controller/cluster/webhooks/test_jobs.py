"""The mutating webhook: which Job is patched how, and that nothing crashes it."""

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.jobs import QUEUE_LABEL, answer


def review(job: Any, *, operation: str = "CREATE", namespace: str = "team") -> bytes:
    request = {"uid": "u", "operation": operation, "namespace": namespace, "object": job}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def job(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "j"} | ({"labels": labels} if labels is not None else {})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {}, **spec}}


def response(body: bytes, **options: Any) -> dict[str, Any]:
    answered = json.loads(answer(body, **options))
    assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: dict[str, Any] = answered["response"]
    return found


def patch(body: bytes, **options: Any) -> list[dict[str, Any]]:
    found = response(body, **options)
    assert found["uid"] == "u"
    assert found["allowed"] is True
    assert ("patch" in found) == ("patchType" in found)
    operations: list[dict[str, Any]] = json.loads(b64decode(found.get("patch", b"W10=")))
    return operations


SUSPEND = {"op": "add", "path": "/spec/suspend", "value": True}
AWAITS = "tessera.dev/awaits-owner"


@pytest.mark.parametrize(
    ("annotations", "controller", "marks"),
    [
        (None, True, [{"op": "add", "path": "/metadata/annotations", "value": {AWAITS: "true"}}]),
        ({"a": "b"}, True, [{"op": "add", "path": "/metadata/annotations/tessera.dev~1awaits-owner", "value": "true"}]),
        ({AWAITS: "true"}, True, []),
        (None, False, []),
    ],
    ids=str,
)
def test_a_job_that_comes_with_an_owner_is_marked(
    annotations: dict[str, str] | None, controller: bool, marks: list[dict[str, Any]]
) -> None:
    body = job({QUEUE_LABEL: "q"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "1", "controller": controller}
    body["metadata"] |= {"ownerReferences": [owner], **({} if annotations is None else {"annotations": annotations})}
    assert patch(review(body)) == [SUSPEND, *marks]


IN_TEAM = {"has_default_queue": lambda namespace: namespace == "team"}


def test_a_job_of_a_queue_is_suspended() -> None:
    assert patch(review(job({QUEUE_LABEL: "q"}))) == [SUSPEND]
    assert patch(review(job({QUEUE_LABEL: "q"}, suspend=False)), **IN_TEAM) == [SUSPEND]


def test_a_suspended_one_stays_as_it_is() -> None:
    assert patch(review(job({QUEUE_LABEL: "q"}, suspend=True))) == []


@pytest.mark.parametrize("labels", [None, {}, {QUEUE_LABEL: ""}], ids=["none", "empty", "empty name"])
def test_a_job_without_a_queue_passes_unless_such_jobs_are_managed(labels: dict[str, str] | None) -> None:
    assert patch(review(job(labels))) == []
    assert patch(review(job(labels)), manage_without_queue_name=True) == [SUSPEND]


def test_the_default_queue_of_the_namespace_takes_jobs_without_one() -> None:
    label = {"op": "add", "path": "/metadata/labels/kueue.x-k8s.io~1queue-name", "value": "default"}
    labels = {"op": "add", "path": "/metadata/labels", "value": {QUEUE_LABEL: "default"}}
    assert patch(review(job({"a": "b"})), **IN_TEAM) == [label, SUSPEND]
    assert patch(review(job()), **IN_TEAM) == [labels, SUSPEND]
    assert patch(review(job(), namespace="elsewhere"), **IN_TEAM) == []


def test_only_creation_is_touched() -> None:
    assert patch(review(job({QUEUE_LABEL: "q"}), operation="UPDATE")) == []
    assert patch(review(None, operation="DELETE")) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b"3",
        review(3),
        review({"metadata": {"labels": []}}),
        review({"metadata": 1}),
    ],
    ids=["empty", "no text", "deep", "no review", "number", "job number", "labels list", "metadata number"],
)
def test_hostile_bodies_are_refused_with_a_reason(body: bytes) -> None:
    found = response(body)
    assert found["allowed"] is False
    assert found["status"]["message"]


@given(st.binary(max_size=100))
def test_no_bytes_crash_the_review_of_jobs(body: bytes) -> None:
    response(body)


def test_what_is_no_job_is_left_to_the_api_server() -> None:
    assert patch(review({"metadata": {"labels": {QUEUE_LABEL: "q"}}})) == []


PATHS = {
    ("kubeflow.org", "PyTorchJob"): ("spec", "runPolicy", "suspend"),
    ("ray.io", "RayService"): ("spec", "rayClusterConfig", "suspend"),
}


@pytest.mark.parametrize(
    ("spec", "operations"),
    [
        ({}, [{"op": "add", "path": "/spec/runPolicy", "value": {"suspend": True}}]),
        ({"runPolicy": {}}, [{"op": "add", "path": "/spec/runPolicy/suspend", "value": True}]),
        ({"runPolicy": {"suspend": False}}, [{"op": "add", "path": "/spec/runPolicy/suspend", "value": True}]),
        ({"runPolicy": {"suspend": True}, "suspend": False}, []),
    ],
    ids=["no policy", "empty", "running", "suspended"],
)
def test_a_kind_is_suspended_by_its_own_field(spec: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    made = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"labels": {QUEUE_LABEL: "q"}}}
    assert patch(review({**made, "spec": spec}), suspend_paths=PATHS) == operations
    assert patch(review({**made, "metadata": {}, "spec": spec}), suspend_paths=PATHS) == []


def test_a_job_of_another_group_has_the_plain_field_whatever_its_kind_is_called() -> None:
    made = {"apiVersion": "example.dev/v1", "kind": "PyTorchJob", "metadata": {"labels": {QUEUE_LABEL: "q"}}}
    assert patch(review({**made, "spec": {}}), suspend_paths=PATHS) == [SUSPEND]
