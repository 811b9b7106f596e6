"""The webhook for claims: planned devices come first, what was asked stays, and no claim is held up."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.watching.kinds import PODS
from controller.cluster.webhooks import claims, claims_shell
from controller.cluster.webhooks.claims import OwnerPod
from controller.cluster.webhooks.claims_shell import ClaimAnswers
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.scheduler.dra.claims.book import POD_CLAIM
from inventory.api import claimplan
from inventory.api.names import CLAIM_DEVICES
from kube.client import Client
from kube.testing import FakeApiServer, eventually
from tests.controller.cluster.webhooks.test_jobs import review
from tests.support.controller.celpolicies import patched

UUID = "gpu.nvidia.com/uuid"
EXACTLY: dict[str, Any] = {
    "deviceClassName": "gpu.nvidia.com",
    "allocationMode": "ExactCount",
    "count": 2,
    "selectors": [{"cel": {"expression": "true"}}],
    "tolerations": [{"key": "k", "operator": "Exists"}],
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "u", "controller": True}
PLAN = {"gpus": {"gpu": {UUID: ["GPU-0", "GPU-1"]}}}
CHOOSES = {"cel": {"expression": claimplan.expression(PLAN["gpus"]["gpu"])}}


def claim(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"annotations": {POD_CLAIM: "gpus"}, "ownerReferences": [OWNER]},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def made(given: dict[str, Any], plan: Any = PLAN) -> dict[str, Any]:
    """Its devices, as they are stored."""
    response = json.loads(claims.answer(review(given), json.dumps(plan)))["response"]
    assert response["allowed"] is True
    found = patched(given, json.loads(b64decode(response.get("patch", b"W10="))))
    return dict(found["spec"]["devices"])


def alternatives(*names: str) -> dict[str, Any]:
    return {"name": "gpu", "firstAvailable": [{"name": name, **EXACTLY} for name in names]}


def test_the_planned_devices_come_first_and_what_was_asked_stays() -> None:
    planned = {**EXACTLY, "name": "planned", "selectors": [*EXACTLY["selectors"], CHOOSES]}
    assert made(claim({"name": "gpu", "exactly": {**EXACTLY, "adminAccess": False}})) == {
        "requests": [{"name": "gpu", "firstAvailable": [planned, {"name": "asked", **EXACTLY}]}]
    }


def test_of_alternatives_those_that_are_planned_come_first() -> None:
    plan = {"gpus": {"gpu/small": {UUID: ["GPU-0"]}}}
    (found,) = made(claim(alternatives("large", "small")), plan)["requests"]
    assert [one["name"] for one in found["firstAvailable"]] == ["planned-small", "large", "small"]
    assert found["firstAvailable"][1:] == alternatives("large", "small")["firstAvailable"]


def test_constraints_and_configurations_are_for_the_planned_alternatives_too() -> None:
    request = {"name": "gpu", "exactly": EXACTLY}
    named, every = {"requests": ["gpu"], "matchAttribute": "a/b"}, {"matchAttribute": "a/b"}
    found = made(claim(request, constraints=[named, every], config=[{"requests": ["gpu", "other"]}]))
    assert found["constraints"] == [{**named, "requests": ["gpu", "gpu/planned", "gpu/asked"]}, every]
    assert found["config"] == [{"requests": ["gpu", "other", "gpu/planned", "gpu/asked"]}]
    plan = {"gpus": {"gpu/small": {UUID: ["GPU-0"]}}}
    found = made(claim(alternatives("large", "small"), config=[{"requests": ["gpu/small"]}]), plan)
    assert found["config"] == [{"requests": ["gpu/small", "gpu/planned-small"]}]


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "other", "exactly": EXACTLY},
        {"name": "gpu", "exactly": {**EXACTLY, "adminAccess": True}},
        {"name": "gpu", "exactly": {**EXACTLY, "selectors": [CHOOSES] * 32}},
        alternatives(*(f"a{number}" for number in range(8))),
        alternatives("a0", "planned-a0"),
    ],
    ids=["not planned", "admin access", "too many selectors", "too many alternatives", "a name that is taken"],
)
def test_a_request_that_cannot_have_planned_alternatives_stays(request_: dict[str, Any]) -> None:
    plan = {"gpus": PLAN["gpus"] | {f"gpu/a{number}": {UUID: ["GPU-0"]} for number in range(8)}}
    assert made(claim(request_), plan) == {"requests": [request_]}


def test_a_selector_that_the_api_server_would_refuse_is_not_written() -> None:
    many = {"gpus": {"gpu": {UUID: [f"GPU-{number:036}" for number in range(300)]}}}
    request = {"name": "gpu", "exactly": EXACTLY}
    assert made(claim(request), many) == {"requests": [request]}


@pytest.mark.parametrize("plan", [{}, {"others": PLAN["gpus"]}, "no plan", [1]])
def test_without_a_plan_a_claim_passes_as_it_is(plan: Any) -> None:
    request = {"name": "gpu", "exactly": EXACTLY}
    assert made(claim(request), plan) == {"requests": [request]}


def test_the_owner_of_a_claim_is_the_pod_that_it_was_made_for() -> None:
    assert claims.owner(review(claim(), namespace="team")) == OwnerPod("team", "pod", "u")
    named = claim()
    named["metadata"]["annotations"] = {}
    others = claim()
    others["metadata"]["ownerReferences"] = [{**OWNER, "kind": "Job"}, {**OWNER, "controller": None}]
    for name in ("", "../secrets/x", "pod/exec", "pod?x=y", "%2e%2e", ".."):
        path = claim()
        path["metadata"]["ownerReferences"] = [{**OWNER, "name": name}]
        assert claims.owner(review(path)) is None
        assert claims.owner(review(claim(), namespace=name)) is None
    assert claims.owner(review(named)) is claims.owner(review(others)) is claims.owner(b"{") is None


_KEYS = st.sampled_from(["requests", "name", "exactly", "selectors", "firstAvailable", "gpu"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_whatever_a_claim_holds_is_answered(devices: Any) -> None:
    body = review({**claim(), "spec": {"devices": devices}})
    claims.owner(body)
    assert json.loads(claims.answer(body, json.dumps(PLAN)))["kind"] == "AdmissionReview"


# -- its pod -----------------------------------------------------------------------------------------------------------


def pod(uid: str = "u", plan: Any = PLAN) -> dict[str, Any]:
    metadata = {"name": "pod", "namespace": "team", "uid": uid, "annotations": {CLAIM_DEVICES: json.dumps(plan)}}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def is_planned(server: FakeApiServer, seen: dict[str, Any] | None = None, uid: str = "u") -> bool:
    given = claim({"name": "gpu", "exactly": EXACTLY})
    given["metadata"]["ownerReferences"] = [{**OWNER, "uid": uid}]
    body = review(given)
    known = None if seen is None else decode(seen, Pod)
    async with Client(server.config) as client:
        answered = await ClaimAnswers(client, lambda _namespace, _name: known).answer(body)
    return "patch" in json.loads(answered)["response"]


async def test_a_pod_that_the_watch_knows_is_not_asked_for() -> None:
    async with FakeApiServer() as server:
        assert await is_planned(server, pod())
        assert not await is_planned(server, pod(plan={}))


async def test_a_pod_that_the_watch_does_not_tell_of_yet_is_asked_for() -> None:
    async with FakeApiServer() as server:
        assert not await is_planned(server)
        uid = server.create(PODS, "pod", pod(), namespace="team")["metadata"]["uid"]
        assert not await is_planned(server, uid="before")
        assert await is_planned(server, uid=uid)
        assert await is_planned(server, pod(uid="before", plan={}), uid)


async def test_so_few_pods_are_asked_for_at_once_and_no_claim_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims_shell, "_REST_S", 0.0)
    given = review(claim({"name": "gpu", "exactly": EXACTLY}))
    async with FakeApiServer() as server, Client(server.config) as client:
        answers = ClaimAnswers(client, lambda _namespace, _name: None)
        found = await asyncio.gather(*(answers.answer(given) for _ in range(40)))
        assert all(json.loads(each)["response"]["allowed"] for each in found)
        assert len(server.seen("GET", "/pods/")) == claims_shell._AT_ONCE
        await eventually(lambda: answers._places == claims_shell._AT_ONCE)
        await answers.answer(given)
        assert len(server.seen("GET", "/pods/")) == claims_shell._AT_ONCE + 1
