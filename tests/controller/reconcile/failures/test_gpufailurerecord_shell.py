"""The record of what was done about failed GPUs: on top of what was read, and never below a newer one."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller.reconcile.failures.gpufailurerecord_shell import NAME, GpuFailureRecord
from controller.reconcile.failures.gpufailures import RecentActions
from inventory.api.names import GPU_FAILURE_ACTIONS
from kube.client import Client
from kube.clock import SystemClock
from kube.resources import LEASES
from kube.testing import FakeApiServer
from kube.writing.writer import Writer

NAMESPACE = "tessera-system"


@asynccontextmanager
async def two_leaders() -> AsyncIterator[tuple[FakeApiServer, GpuFailureRecord, GpuFailureRecord]]:
    async with (
        FakeApiServer() as server,
        Client(server.config) as client,
        Writer(client, clock=SystemClock(), random=random.random) as writer,
    ):
        one, two = (GpuFailureRecord(client, writer.put, NAMESPACE) for _ in range(2))
        yield server, one, two


def recent(pod: str) -> RecentActions:
    return RecentActions(paid={f"pod {pod}": 1.0})


def lease(server: FakeApiServer) -> Any:
    return server.get(LEASES, NAME, namespace=NAMESPACE)


async def test_the_next_leader_reads_what_the_one_before_has_recorded() -> None:
    async with two_leaders() as (_, one, two):
        assert await one.read() == RecentActions()
        assert await one.write(recent("a"))
        assert await one.write(recent("b"))
        assert await two.read() == recent("b")
        assert await two.write(recent("c"))
        assert await one.read() == recent("c")


async def test_each_record_is_tied_to_the_version_before_it() -> None:
    async with two_leaders() as (server, one, _):
        await one.read()
        await one.write(recent("a"))
        version = lease(server)["metadata"]["resourceVersion"]
        assert one._write(recent("b")).body["metadata"]["resourceVersion"] == version


async def test_who_leads_records_it_whatever_others_have_done_to_the_lease() -> None:
    async with two_leaders() as (server, one, two):
        await one.read()
        server.create(LEASES, NAME, {"metadata": {"labels": {"by": "a person"}}}, namespace=NAMESPACE)
        assert await one.write(recent("a"))
        server.merge(LEASES, NAME, {"metadata": {"labels": {"by": "another"}}}, namespace=NAMESPACE)
        assert await one.write(recent("b"))
        assert lease(server)["metadata"]["labels"] == {"by": "another"}
        server.delete(LEASES, NAME, namespace=NAMESPACE)
        assert await one.write(recent("c"))
        assert GPU_FAILURE_ACTIONS in lease(server)["metadata"]["annotations"]
        assert await two.read() == recent("c")
