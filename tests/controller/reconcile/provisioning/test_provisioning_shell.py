"""Requests for nodes, live: made once, handed over, followed by the checks, and removed."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.kinds import (
    CHECKS,
    PROVISIONING_CONFIGS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from controller.reconcile.provisioning.provisioning_shell import POD_TEMPLATES
from kube.errors import InvalidError
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import Stage, config, stage
from tests.support.standinautoscaler import Say, StandInAutoscaler

CHECK = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}


@asynccontextmanager
async def scene(*, served: bool = True, **spec: Any) -> AsyncIterator[Stage]:
    """A queue whose check requests nodes; the controller runs."""
    async with stage() as here:
        for kind in (PROVISIONING_CONFIGS, PROVISIONING_REQUESTS):
            here.server.install(kind)
        if not served:
            here.server.uninstall(PROVISIONING_REQUESTS)
        here.queue(admissionChecksStrategy={"admissionChecks": [{"name": "make"}]})
        here.make(CHECKS, "make", {"generation": 1}, spec={**CHECK, "parameters": PARAMETERS})
        here.make(PROVISIONING_CONFIGS, "c", {}, spec={"provisioningClassName": "k", **spec})
        async with here.controller(config(), core_only=False):
            yield here


def request(here: Stage, attempt: int = 1) -> dict[str, Any]:
    found = [one for one in here.server.list_all(PROVISIONING_REQUESTS) if one["metadata"]["name"] == name(attempt)]
    return found[0] if found else {}


def name(attempt: int = 1) -> str:
    return f"w-make-{attempt}"


async def requested(here: Stage, attempt: int = 1) -> None:
    await eventually(lambda: bool(request(here, attempt)), what=f"request {attempt}")


def says(here: Stage, **conditions: str) -> None:
    """What the autoscaler says of the first request."""
    listed = [
        {
            "type": type_,
            "status": "True",
            "reason": "Test",
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for type_, message in conditions.items()
    ]
    here.server.merge(PROVISIONING_REQUESTS, name(), {"status": {"conditions": listed}}, namespace="team")


def check(here: Stage) -> dict[str, Any]:
    states = here.status("w").get("admissionChecks", [])
    return states[0] if states else {}


def active(here: Stage) -> str:
    conditions = here.server.get(CHECKS, "make").get("status", {}).get("conditions", [])
    return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == "Active"), "")


def notes(here: Stage, reason: str) -> list[str]:
    return [one["note"] for one in here.server.list_all(EVENTS) if one["reason"] == reason]


async def test_a_workload_with_quota_gets_a_request_whose_templates_are_its_own() -> None:
    async with scene() as here:
        await eventually(lambda: active(here) == "True/Active")
        here.workload("w")
        await requested(here)
        made = request(here)
        assert made["spec"]["podSets"] == [{"podTemplateRef": {"name": "ppt-w-make-1-main"}, "count": 1}]
        assert made["metadata"]["ownerReferences"][0]["kind"] == "Workload"

        def handed() -> bool:
            (template,) = here.server.list_all(POD_TEMPLATES)
            return bool(template["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"])

        await eventually(handed)
        await eventually(lambda: notes(here, "ProvisioningRequestCreated") == ["Created ProvisioningRequest w-make-1"])


async def test_what_is_provisioned_starts_and_its_end_removes_the_request() -> None:
    async with scene() as here:
        here.workload("w")
        await requested(here)
        says(here, Accepted="", Provisioned="there")
        await here.until_admitted("w")
        assert check(here)["podSetUpdates"][0]["annotations"] == {
            "autoscaling.x-k8s.io/consume-provisioning-request": "w-make-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "k",
        }
        here.finish("w")
        await eventually(lambda: not request(here))


async def test_a_request_that_failed_sends_the_workload_back_and_the_next_attempt_has_the_next_name() -> None:
    async with scene(retryStrategy={"backoffLimitCount": 1, "backoffBaseSeconds": 0}) as here:
        here.workload("w")
        await requested(here)
        says(here, Failed="none left")
        await eventually(lambda: here.condition("w", "Evicted") == "True/AdmissionCheck")
        await eventually(lambda: not request(here))
        here.release("w")
        await requested(here, 2)
        assert check(here)["retryCount"] == 1


async def test_while_the_kind_is_missing_the_check_says_so_and_requests_follow_when_it_comes() -> None:
    async with scene(served=False) as here:
        await eventually(lambda: active(here) == "False/ProvisioningRequestsNotServed")
        here.workload("w")
        here.server.install(PROVISIONING_REQUESTS)
        await requested(here)
        await eventually(lambda: active(here) == "True/Active")


async def test_without_its_configuration_the_check_is_not_active() -> None:
    async with scene() as here:
        here.server.delete(PROVISIONING_CONFIGS, "c")
        await eventually(lambda: active(here) == "False/BadParametersRef")
        here.make(PROVISIONING_CONFIGS, "c", {}, spec={"provisioningClassName": "k"})
        await eventually(lambda: active(here) == "True/Active")


async def test_without_a_check_that_requests_nodes_nothing_of_it_is_watched() -> None:
    async with stage() as here:
        here.server.install(PROVISIONING_REQUESTS)
        here.queue()
        async with here.controller(config(), core_only=False):
            here.workload("w")
            await here.until_admitted("w")
            assert len(here.server.seen("GET", "/provisioningrequests")) <= 1, "one look whether it can be read"


async def test_a_request_that_is_refused_says_why_in_the_check_and_is_tried_again() -> None:
    async with scene() as here:
        refused = InvalidError("no such class", status=422, reason="Invalid")
        here.server.refuse = lambda method, path: (
            refused if method == "POST" and path.endswith("/provisioningrequests") else None
        )
        here.workload("w")
        await eventually(lambda: "no such class" in check(here).get("message", ""))
        await eventually(lambda: len(notes(here, "FailedCreate")) > 0)
        here.server.refuse = lambda _method, _path: None
        await requested(here)


async def test_a_template_that_an_attempt_left_is_taken_over_and_a_strangers_is_not() -> None:
    async with scene() as here:
        left = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}},
            "template": {"spec": {"containers": [{"name": "old"}]}},
        }
        here.server.create(POD_TEMPLATES, "ppt-w-make-1-main", left, namespace="team")
        here.server.create(POD_TEMPLATES, "ppt-v-make-1-main", {"metadata": {}, "template": {}}, namespace="team")
        here.workload("w")
        await requested(here)
        template = here.server.get(POD_TEMPLATES, "ppt-w-make-1-main", namespace="team")
        assert template["template"]["spec"]["containers"][0]["name"] == "main"
        here.workload("v")

        def said() -> bool:
            states = here.status("v").get("admissionChecks", [])
            return bool(states) and "PodTemplate ppt-v-make-1-main could not be created" in states[0]["message"]

        await eventually(said)


async def test_a_workload_that_is_deleted_leaves_no_request() -> None:
    async with scene() as here:
        here.workload("w")
        await requested(here)
        here.server.delete(WORKLOADS, "w", namespace="team")
        await eventually(lambda: not request(here))


@pytest.mark.parametrize("answers", [True, False])
async def test_a_creation_whose_answer_is_lost_makes_one_request(answers: bool) -> None:
    async with scene() as here:
        lost = [] if answers else ["once"]

        def loses(method: str, path: str) -> bool:
            return bool(method == "POST" and path.endswith("/provisioningrequests") and lost and lost.pop())

        here.server.lose_answer = loses
        here.workload("w")
        await requested(here)
        says(here, Provisioned="there")
        await here.until_admitted("w")
        assert len(here.server.list_all(PROVISIONING_REQUESTS)) == 1


async def test_many_workloads_are_served_by_an_autoscaler_and_none_leaves_a_request() -> None:
    async with scene() as here:

        def fails(request: str) -> str:
            return "none left" if request == "w3-make-1" else ""

        scaler = StandInAutoscaler(node=lambda number: {"metadata": {"name": f"n{number}"}}, fails=fails)
        for number in range(6):
            here.workload(f"w{number}")

        def served() -> bool:
            requests = here.server.list_all(PROVISIONING_REQUESTS)
            templates = [f"team/{one['metadata']['name']}" for one in here.server.list_all(POD_TEMPLATES)]
            for act in scaler.look(requests, templates, [], time.time()):
                if isinstance(act, Say):
                    here.server.merge(PROVISIONING_REQUESTS, act.name, {"status": act.status}, namespace=act.namespace)
            return all(here.admitted(f"w{number}") for number in range(6) if number != 3)

        await eventually(served)
        await eventually(lambda: here.condition("w3", "Evicted") == "True/AdmissionCheck")
        for number in range(6):
            here.finish(f"w{number}")
        await eventually(lambda: here.server.list_all(PROVISIONING_REQUESTS) == [])
