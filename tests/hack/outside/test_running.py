"""The hands of a story: how an act reaches the API server."""

import asyncio
from typing import Any

from hack.outside.acts import Act
from hack.outside.running import carry_out
from hack.planted.nets.queueworld import WORKLOADS, QueueWorld, world_of
from kube.testing import FakeApiServer

READY = Act(0.0, "merge", "PendingChecks", "provisioned", "alpha", {"state": "Ready"})


def workload(server: FakeApiServer, name: str, *, reserved: bool, space: str = "alpha", state: str = "Pending") -> None:
    conditions = [{"type": "QuotaReserved", "status": "True" if reserved else "False"}]
    checks = [{"name": "provisioned", "state": state}, {"name": "other", "state": "Pending"}]
    meta = {"name": name, "namespace": space, "ownerReferences": [{"name": f"job-{name}"}]}
    body = {"kind": "Workload", "metadata": meta, "status": {"conditions": conditions, "admissionChecks": checks}}
    server.create(WORKLOADS, name, body, namespace=space)


def states(server: FakeApiServer) -> dict[str, list[str]]:
    found: list[dict[str, Any]] = server.list_all(WORKLOADS)
    return {each["metadata"]["name"]: [state["state"] for state in each["status"]["admissionChecks"]] for each in found}


def on_a_server(*acts: Act) -> FakeApiServer:
    server = FakeApiServer()

    async def run() -> None:
        async with server:
            world: QueueWorld = world_of(server, {})
            workload(server, "due", reserved=True)
            workload(server, "waits", reserved=False)
            workload(server, "elsewhere", reserved=True, space="beta")
            workload(server, "retried", reserved=True, state="Retry")
            for act in acts:
                carry_out(world, act)

    asyncio.run(run())
    return server


def test_a_check_is_answered_for_workloads_of_the_namespace_that_have_quota_and_wait_for_it() -> None:
    assert states(on_a_server(READY)) == {
        "due": ["Ready", "Pending"],
        "waits": ["Pending", "Pending"],
        "elsewhere": ["Pending", "Pending"],
        "retried": ["Retry", "Pending"],
    }


def test_the_workload_of_a_job_is_found_by_its_owner() -> None:
    server = on_a_server(Act(0.0, "merge", "WorkloadOf", "job-due", "alpha", {"spec": {"active": False}}))
    found = {each["metadata"]["name"]: each.get("spec") for each in server.list_all(WORKLOADS)}
    assert found == {"due": {"active": False}, "waits": None, "elsewhere": None, "retried": None}


def test_what_is_there_no_more_is_passed_over() -> None:
    assert len(states(on_a_server(Act(0.0, "delete", "Job", "gone", "alpha")))) == 4
