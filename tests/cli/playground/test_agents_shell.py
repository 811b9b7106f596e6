"""What the API server is told of simulated nodes, step by step."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.manifests import read_documents
from cli.playground.agents_shell import run_all
from cli.playground.stage_shell import Stage
from cli.playground.world import World, packaged, world
from controller.cluster.watching.kinds import CLUSTER_QUEUES, GPU_NODES, JOBS, NODES
from kube.resources import EVENTS
from kube.testing import FakeApiServer, eventually
from simulator.fleet.fleetfile import load_fleet

BEGUN_S = 1_700_000_000.0


def given() -> World:
    fleet, manifests = packaged()
    return world(load_fleet(fleet), read_documents(manifests, allow_unknown=False))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.install(GPU_NODES)
        yield server


def health(server: FakeApiServer) -> list[str]:
    """Of GPU 3 of node-2, as its GpuNode says; none while there is no GpuNode."""
    nodes = [one for one in server.list_all(GPU_NODES) if one["metadata"]["name"] == "node-2"]
    return [device["health"]["state"] for node in nodes for device in node["status"]["devices"] if device["index"] == 3]


def offered(server: FakeApiServer) -> Any:
    return server.get(NODES, "node-2")["status"]["allocatable"]["nvidia.com/gpu"]


async def test_jobs_come_suspended_and_a_gpu_fails_and_comes_back(server: FakeApiServer) -> None:
    stage = Stage(given(), server, BEGUN_S)
    stage.step(BEGUN_S)
    assert all(job["spec"]["suspend"] for job in server.list_all(JOBS)), "the controller starts them"
    assert {one["metadata"]["name"] for one in server.list_all(CLUSTER_QUEUES)} == {
        "research",
        "production",
        "notebooks",
    }
    writing = asyncio.create_task(run_all(stage.agents))
    try:
        await eventually(lambda: health(server) == ["Healthy"])
        assert offered(server) == "8"
        stage.step(BEGUN_S + 46.0)
        assert offered(server) == "7"
        await eventually(lambda: health(server) == ["Unhealthy"])
        for second in range(76, 90):
            stage.step(BEGUN_S + second)
        assert offered(server) == "8"
        await eventually(lambda: health(server) == ["Healthy"])
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def test_a_page_that_stays_open_for_days_keeps_no_more_than_it_shows(server: FakeApiServer) -> None:
    stage = Stage(given(), server, BEGUN_S)
    for number in range(600):
        metadata = {"creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        server.create(EVENTS, f"e{600 - number:03}", {"metadata": metadata}, namespace="research")
    for second in range(60):
        stage.step(BEGUN_S + second / 100)
    left = {one["metadata"]["name"] for one in server.list_all(EVENTS)}
    assert left == {f"e{number:03}" for number in range(1, 501)}, "the newest"
    assert len(server.store.changes) <= 5_000
    assert server.requests == []
