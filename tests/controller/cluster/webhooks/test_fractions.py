"""The mutating webhook for parts of GPUs: it translates pods and templates of Jobs, and crashes at nothing."""

import json
from base64 import b64decode
from functools import partial
from typing import Any

import pytest

from controller.cluster.webhooks.fractions import answer
from controller.foreign.rules.fractions import Fleet
from inventory.api.names import GPU_PERCENT
from tests.controller.cluster.webhooks.test_jobs import review
from tests.support.controller.celpolicies import patched

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"annotations": {"gpu-fraction": "0.33"}},
    "spec": {"containers": [{"name": "c", "resources": {}}]},
}
TEMPLATE = {"metadata": POD["metadata"], "spec": POD["spec"]}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": TEMPLATE}}
hook = partial(answer, fleet=Fleet(granularity=5))


def made(given: dict[str, Any], **of: str) -> dict[str, Any]:
    response = json.loads(hook(review(given, **of)))["response"]
    assert response["allowed"] is True
    return patched(given, json.loads(b64decode(response.get("patch", b"W10="))))


def test_a_pod_and_the_template_of_a_job_ask_for_percents() -> None:
    asks = {"limits": {GPU_PERCENT: "35"}, "requests": {GPU_PERCENT: "35"}}
    assert made(POD)["spec"]["containers"][0]["resources"] == asks
    found = made(JOB)
    assert found["spec"]["template"]["spec"]["containers"][0]["resources"] == asks
    assert made(found) == found


@pytest.mark.parametrize("other", [{**JOB, "apiVersion": "batch.volcano.sh/v1alpha1"}, {**POD, "kind": "Job"}])
def test_any_other_kind_passes_as_it_is(other: dict[str, Any]) -> None:
    assert made(other) == other


def test_a_pod_is_translated_only_when_it_is_created() -> None:
    assert made(POD, operation="UPDATE") == POD


def test_what_is_no_pod_is_refused_with_the_field() -> None:
    wrong = {**POD, "spec": {"containers": "c"}}
    response = json.loads(hook(review(wrong)))["response"]
    assert response["allowed"] is False
    assert response["status"]["message"] == ".request.object: spec.containers: expected a list, found str"


@pytest.mark.parametrize("value", [None, 7, "x", [], [[]], {}, {"spec": 3}, {"annotations": {"gpu-fraction": None}}])
@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_it_crashes_at_nothing(part: str, value: Any) -> None:
    within = {**POD, "spec": {"containers": [value]}}
    for given in ({**POD, part: value}, within, {**JOB, "spec": {"template": value}}):
        assert json.loads(hook(review(given)))["response"]["uid"] == "u"
