"""The ConversionReview: bytes in, bytes out, whatever comes in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.conversion import HUB, KINDS, OLD, answer


def review(*objects: Any, wanted: Any = HUB, uid: Any = "u-1") -> bytes:
    request = {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objects)}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps(body).encode()


def response(body: bytes) -> dict[str, Any]:
    answered = json.loads(answer(body))
    assert (answered["apiVersion"], answered["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    found: dict[str, Any] = answered["response"]
    assert (found["result"]["status"] == "Success") or (
        found["result"]["status"] == "Failed" and found["result"]["message"] and found["convertedObjects"] == []
    )
    return found


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": OLD, "kind": "ClusterQueue", "metadata": {"name": name, "uid": "1"}, "spec": spec}


def test_objects_come_back_in_their_order_with_the_uid_of_the_request() -> None:
    found = response(review(queue("a", cohort="x"), queue("b")))
    assert found["uid"] == "u-1"
    assert found["result"] == {"status": "Success"}
    assert [one["metadata"]["name"] for one in found["convertedObjects"]] == ["a", "b"]
    assert found["convertedObjects"][0]["spec"] == {"cohortName": "x"}
    assert {one["apiVersion"] for one in found["convertedObjects"]} == {HUB}


def test_one_bad_object_fails_the_request_and_the_message_names_it() -> None:
    found = response(review(queue("good"), {**queue("bad"), "spec": 3}))
    assert found["uid"] == "u-1"
    assert found["result"]["message"] == "ClusterQueue bad: .spec: found integer, expected object"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": 1e999}',
        review(3),
        review([]),
        review(None),
        review(queue("a"), wanted=3),
        review(queue("a"), wanted=None),
        review(queue("a"), uid={}),
        review({"kind": "ClusterQueue", "metadata": {"name": "x" * 100_000}}),
        b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}',
        b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"objects":{}}}',
        b'{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{"objects":[]}}',
    ],
    ids=[
        *("empty", "no text", "null", "list", "object", "deep list", "deep object", "number out of range"),
        *("number", "list inside", "null inside", "wanted number", "wanted null", "uid object", "long name"),
        *("no request", "objects no list", "old review"),
    ],
)
def test_hostile_bodies_are_answered_with_a_failure(body: bytes) -> None:
    found = response(body)
    assert found["result"]["status"] == "Failed"
    assert len(found["result"]["message"]) < 2000


@given(st.binary(max_size=200))
def test_no_bytes_crash_a_conversion(body: bytes) -> None:
    response(body)


KEYS = [
    *("spec", "status", "admission", "podSetAssignments", "topologyAssignment", "levels", "slices", "domains"),
    *("valuesPerLevel", "podCounts", "domainCount", "universal", "individual", "roots", "cohort", "admissionChecks"),
    *("admissionChecksStrategy", "podSets", "topologyRequest", "priorityClassName", "priorityClassRef", "values"),
    *("count", "fairSharing", "flavorFungibility"),
]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-9, 9) | st.text("ab", max_size=2)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from([(OLD, HUB), (HUB, OLD)]), JSON, JSON, st.sampled_from(["spec", ""])
)
def test_no_object_crashes_a_conversion(
    kind: str, versions: tuple[str, str], spec: Any, status: Any, extra: str
) -> None:
    body = {
        "apiVersion": versions[0],
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": spec,
        "status": status,
        extra: 1,
    }
    response(review(body if extra else {**body, "spec": spec}, wanted=versions[1]))
