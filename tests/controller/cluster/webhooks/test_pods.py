"""The mutating webhook for pods: who is marked, and that marks are put on once and nothing crashes it."""

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.pods import GATE, MANAGED, QUEUE_LABEL, answer
from controller.jobs.framework.podview import SUSPENDING_PARENT
from tests.controller.cluster.webhooks.test_jobs import review
from tests.support.controller.celpolicies import patched as after

OWNED = [{"kind": "ReplicaSet", "name": "r", "controller": True}]


def pod(labels: dict[str, str] | None = None, *, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", **({} if labels is None else {"labels": labels}), **(meta or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [], **spec}}


def patched(given: dict[str, Any], **options: Any) -> dict[str, Any]:
    response = json.loads(answer(review(given), **options))["response"]
    assert response["allowed"] is True
    return after(given, json.loads(b64decode(response.get("patch", b"W10="))))


def marks(given: dict[str, Any]) -> tuple[str, int, int]:
    """The label, and how many of our finalizers and gates there are."""
    meta, gates = given["metadata"], given["spec"].get("schedulingGates") or []
    return (
        (meta.get("labels") or {}).get(MANAGED, ""),
        (meta.get("finalizers") or []).count(MANAGED),
        gates.count({"name": GATE}),
    )


@pytest.mark.parametrize(
    "given",
    [
        pod({QUEUE_LABEL: "q"}),
        pod({QUEUE_LABEL: "q"}, meta={"finalizers": ["x"]}, schedulingGates=[{"name": "y"}]),
        pod({QUEUE_LABEL: "q", MANAGED: "no"}, meta={"finalizers": None}, schedulingGates=None),
        pod({QUEUE_LABEL: "q", MANAGED: "true"}, meta={"finalizers": [MANAGED]}, schedulingGates=[{"name": GATE}]),
        pod({QUEUE_LABEL: "q"}, meta={"ownerReferences": OWNED}),
    ],
    ids=["bare", "with others'", "empty", "marked", "of a Deployment"],
)
def test_a_pod_of_a_queue_has_each_mark_once_and_keeps_those_of_others(given: dict[str, Any]) -> None:
    made = patched(given)
    assert marks(made) == ("true", 1, 1)
    assert patched(made) == made
    assert set(given["metadata"].get("finalizers") or []) <= set(made["metadata"]["finalizers"])
    assert all(gate in made["spec"]["schedulingGates"] for gate in given["spec"].get("schedulingGates") or [])


def test_a_pod_without_a_queue_passes_unless_such_are_managed_whatever_owner_it_names() -> None:
    for labels in (None, {}, {QUEUE_LABEL: ""}):
        assert marks(patched(pod(labels))) == ("", 0, 0)
        assert marks(patched(pod(labels), manage_without_queue_name=True)) == ("true", 1, 1)
    owned = pod(meta={"ownerReferences": OWNED})
    assert marks(patched(owned)) == ("", 0, 0)
    assert marks(patched(owned, manage_without_queue_name=True)) == ("true", 1, 1)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(anything, anything, anything)
def test_whatever_comes_it_answers(labels: Any, finalizers: Any, gates: Any) -> None:
    body = {"metadata": {"labels": labels, "finalizers": finalizers}, "spec": {"schedulingGates": gates}}
    found = json.loads(answer(review(body), manage_without_queue_name=True))["response"]
    assert found["allowed"] or found["status"]["message"]


def test_a_pod_of_a_serving_kind_gets_no_finalizer() -> None:
    parent = {"annotations": {SUSPENDING_PARENT: "deployment"}}
    assert marks(patched(pod({QUEUE_LABEL: "q"}, meta=parent))) == ("true", 0, 1)
