"""The mutating webhook for serving kinds: what is stamped, that it is stamped once, and that nothing crashes it."""

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.serving import answer
from controller.jobs.framework.names import PRIORITY_CLASS, QUEUE_NAME
from controller.jobs.framework.podview import INDEX_OFFSET, MANAGED, SUSPENDING_PARENT
from controller.jobs.serving.table import STAMPED_KINDS
from controller.scheduler.model.gates import FeatureGates
from tests.controller.cluster.webhooks.test_jobs import review

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def deployment(labels: dict[str, str] | None, template: dict[str, Any] | None) -> dict[str, Any]:
    metadata = {"name": "d", "namespace": "team", **({} if labels is None else {"labels": labels})}
    spec: dict[str, Any] = {"template": {"spec": {}, **({} if template is None else {"metadata": template})}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def patched(given: dict[str, Any], operation: str = "CREATE", *, default: bool = False) -> dict[str, Any]:
    asked = json.loads(review(given))
    asked["request"]["operation"] = operation
    body = json.dumps(asked).encode()
    response = json.loads(answer(body, has_default_queue=lambda _: default))["response"]
    assert response["allowed"] is True
    made: dict[str, Any] = json.loads(json.dumps(given))
    for step in json.loads(b64decode(response.get("patch", b"W10="))):
        assert step["op"] == "add"
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at: Any = made
        for part in above:
            at = at[part]
        at[last] = step["value"]
    return made


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    "template",
    [None, {}, {"labels": {"app": "x"}}, {"labels": {QUEUE_NAME: "old"}, "annotations": {"a": "b"}}],
    ids=["bare", "empty", "labelled", "of another queue"],
)
def test_a_template_gets_queue_class_and_parent_and_keeps_the_rest(
    template: dict[str, Any] | None, operation: str
) -> None:
    made = patched(deployment({QUEUE_NAME: "q", PRIORITY_CLASS: "high"}, template), operation)
    metadata, had = made["spec"]["template"]["metadata"], template or {}
    stamped = {QUEUE_NAME: "q", PRIORITY_CLASS: "high", MANAGED: "true"}
    assert metadata["labels"] == {**had.get("labels", {}), **stamped}
    assert metadata["annotations"] == {**had.get("annotations", {}), SUSPENDING_PARENT: "deployment"}
    assert patched(made, operation) == made, "the stamp starts no rollout"


def test_what_names_no_queue_gets_the_default_when_it_is_created_and_stays_as_it_is_later() -> None:
    free = deployment(None, {"labels": {"app": "x"}})
    assert patched(free) == free
    assert patched(free, "UPDATE", default=True) == free
    made = patched(free, default=True)
    assert made["metadata"]["labels"] == {QUEUE_NAME: "default"}
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "x", QUEUE_NAME: "default", MANAGED: "true"}


def test_other_kinds_and_other_operations_pass() -> None:
    given = deployment({QUEUE_NAME: "q"}, None)
    assert patched({**given, "kind": "DaemonSet"}) == {**given, "kind": "DaemonSet"}
    assert patched(given, "DELETE") == given


@given(JSON, JSON)
def test_no_object_crashes_the_review_of_serving_objects(metadata: Any, spec: Any) -> None:
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    response = json.loads(answer(review(body), has_default_queue=lambda _: True))["response"]
    assert response["allowed"] in (True, False)


def test_workers_have_no_first_number_while_nothing_is_placed() -> None:
    templates: dict[str, Any] = {"leaderTemplate": {"spec": {}}, "workerTemplate": {"spec": {}}}
    lws = {"metadata": {"labels": {QUEUE_NAME: "q"}}, "spec": {"leaderWorkerTemplate": templates}}
    kind = next(one for one in STAMPED_KINDS if one.kind == "LeaderWorkerSet")
    off = FeatureGates({"TopologyAwareScheduling": False})
    assert [INDEX_OFFSET in json.dumps(kind.stamped(lws, gates)) for gates in (None, off)] == [True, False]
