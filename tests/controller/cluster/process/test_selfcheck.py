"""What `helm test` asks of an installation, and what it says of one that does not work."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller.cluster.process.flags import VERSION
from controller.cluster.process.selfcheck import WITHIN_S, Seen, check_installation, unmet
from controller.cluster.watching.kinds import GPU_NODES, PODS
from kube.client import Client
from kube.election.candidate import LeaseSpec
from kube.resources import LEASES
from kube.testing import FakeApiServer, VirtualClock, eventually

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
HELD = LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time=NOW.isoformat())
WELL = Seen(
    HELD, frozenset({"node-1"}), {"node-1": VERSION}, dict.fromkeys(("v1beta1", "v1beta2"), frozenset({"team"}))
)
AGENT = {"metadata": {"labels": {"app.kubernetes.io/component": "agent"}}, "spec": {"nodeName": "node-1"}}


def said(**otherwise: Any) -> list[str]:
    return list(unmet(msgspec.structs.replace(WELL, **otherwise), NOW.timestamp()))


def test_of_one_that_works_nothing_is_said() -> None:
    assert said() == []


def test_a_lease_that_nobody_renews_is_no_leader() -> None:
    late = (NOW - timedelta(seconds=16)).isoformat()
    for lease in (LeaseSpec(), msgspec.structs.replace(HELD, renew_time=late)):
        assert said(lease=lease) == ["no replica leads: the lease tessera-controller has no holder that renews it"]


def test_an_agent_has_told_of_its_node_and_it_is_the_agent_of_this_release() -> None:
    assert said(gpu_nodes={}) == ["node node-1: an agent runs there, and there is no GpuNode of this name"]
    assert said(gpu_nodes={"node-1": "0.0.1"}) == [
        f"node node-1: its GpuNode was written by an agent of version 0.0.1, not {VERSION}"
    ]
    assert said(gpu_nodes={"node-1": VERSION, "node-2": "0.0.1"}) == [], "no agent of ours runs on node-2"


def test_both_versions_of_the_api_answer_with_the_same_queues() -> None:
    assert said(queues={"v1beta1": "refused", "v1beta2": frozenset()}) == [
        "ClusterQueues in version v1beta1 are not answered: refused"
    ]
    assert said(queues={"v1beta1": frozenset(), "v1beta2": frozenset({"team"})}) == [
        "ClusterQueues are others in each version: 0 in v1beta1, 1 in v1beta2"
    ]


async def test_it_waits_for_what_is_late(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = VirtualClock(wall_s=NOW.timestamp())
    async with FakeApiServer() as server, Client(server.config) as client:
        server.install(GPU_NODES)
        server.create(PODS, "a", AGENT, namespace="tessera-system")
        lease = {"metadata": {}, "spec": msgspec.to_builtins(HELD)}
        server.create(LEASES, "tessera-controller", lease, namespace="tessera-system")
        asked = asyncio.create_task(check_installation(client, "tessera-system", clock))
        await eventually(lambda: clock.sleeping == 1)
        server.create(GPU_NODES, "node-1", {"metadata": {}, "status": {"agentVersion": VERSION}})
        clock.advance(1)
        assert await asked
    assert "a replica leads; 1 agents" in caplog.text


async def test_what_stays_away_for_a_minute_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(wall_s=NOW.timestamp())
    async with FakeApiServer() as server, Client(server.config) as client:
        server.install(GPU_NODES)
        server.unknown = {"clusterqueues"}
        asked = asyncio.create_task(check_installation(client, "tessera-system", clock))
        await eventually(lambda: clock.sleeping == 1)
        clock.advance(WITHIN_S)
        assert not await asked
    assert "no replica leads" in caplog.text
    assert "ClusterQueues in version v1beta1 are not answered" in caplog.text
