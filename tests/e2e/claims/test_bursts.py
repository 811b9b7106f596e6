"""Many claims at once through the agent's socket, in its own process and against a real API server; the agent is killed
in the middle, the API server goes away under pods that end.

The claims are real objects that the test allocates, with a device each; the kubelet, which takes its time for a pod, is
not asked. Five GPUs are given out whole, two by shares, one is the device plugin's.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc.aio
import pytest

from agent.dra.claim import RESOURCE_CLAIMS
from hack.cluster.errors import ClusterError
from kube.client import Client
from kube.kubeconfig import from_kubeconfig
from kubeletapi import dra_v1_pb2 as pb
from kubeletapi import dra_v1_pb2_grpc as pb_grpc
from tests.support.agent.hands import DRIVER
from tests.support.e2e.claimpods import claim_template, claims_agent, devices, run
from tests.support.e2e.hands import Hands
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, WAIT_S, Agent, Lab, until
from tests.support.e2e.outage import api_server_away

pytestmark = pytest.mark.e2e

CLAIMS = 500
CONFIG = f"""
version: v1
layout:
- {{gpus: [0, 1, 2, 3, 4], mode: dra}}
- {{gpus: [5, 6], mode: dra, shares: {{granularity: 10}}}}
health: {FAST}
"""
PLACES = [(f"gpu-{index}", 0) for index in range(5)] + [(f"gpu-{index}-shares", 10) for index in (5, 6)] * 10
"""Devices and percents of a burst: everything that there is to give."""
TEAM = "bursts"
CALL_S = 45.0
"""The kubelet's patience."""
KILLED_WHILE_PREPARING, KILLED_WHILE_ENDING, FORCED = 3, 7, 11
"""Bursts in which something happens."""


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    lab.cluster.kubectl("create", "namespace", TEAM)
    with claims_agent(lab, tmp_path_factory.mktemp("rights"), EXAMPLES / "fleets/dgx1.yaml", CONFIG) as agent:
        lab.await_amounts({GPU: 1})
        until(lambda: len(devices(lab)) == 7, "seven devices published")
        until(lambda: not any("taints" in each for each in devices(lab).values()), "the daemons are ready")
        yield agent
    lab.cluster.kubectl("delete", "namespace", TEAM, "--wait=false")


@dataclass(frozen=True)
class Made:
    name: str
    uid: str
    device: str

    @property
    def asked(self) -> pb.Claim:
        return pb.Claim(namespace=TEAM, name=self.name, uid=self.uid)


class Driver:
    """Claims in the API server, and the agent's socket as the kubelet calls it."""

    def __init__(self, client: Client, lab: Lab) -> None:
        self._client = client
        self._pool = lab.host.name
        self._folder = lab.host.kubelet_dir / "plugins" / DRIVER
        self.there: dict[str, Made] = {}
        """Claims of the API server, by UID."""

    async def make(self, name: str, device: str, percent: int, *, reserved: bool = True) -> Made:
        """A claim that was allocated. No pod is its consumer: the API server's controllers leave it alone."""
        exactly = {"deviceClassName": DRIVER}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        body: dict[str, Any] = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        made = await self._client.create(RESOURCE_CLAIMS, body, dict[str, Any], namespace=TEAM)
        uid = str(made["metadata"]["uid"])
        capacity = {"memory": "1Gi", "tessera.dev/computePercent": str(percent)}
        share = {"shareID": str(uuid4()), "consumedCapacity": capacity} if percent else {}
        result = {"request": "gpu", "driver": DRIVER, "pool": self._pool, "device": device, **share}
        consumer = {"apiGroup": "example.com", "resource": "bursts", "name": name, "uid": uid}
        status = {"allocation": {"devices": {"results": [result]}}, **({"reservedFor": [consumer]} if reserved else {})}
        await self._client.merge_patch(
            RESOURCE_CLAIMS, name, {"status": status}, dict[str, Any], namespace=TEAM, subresource="status"
        )
        self.there[uid] = Made(name, uid, device)
        return self.there[uid]

    async def burst(self, number: int, *, reserved: bool = True) -> list[Made]:
        word = "claim" if reserved else "rival"
        return await asyncio.gather(
            *(
                self.make(f"{word}-{number}-{at}", *place, reserved=reserved)
                for at, place in enumerate(PLACES[: CLAIMS - number * len(PLACES)])
            )
        )

    async def delete(self, claims: Sequence[Made]) -> None:
        await asyncio.gather(*(self._client.delete(RESOURCE_CLAIMS, each.name, namespace=TEAM) for each in claims))
        for each in claims:
            del self.there[each.uid]

    async def prepare(self, claims: Sequence[Made]) -> dict[str, pb.NodePrepareResourceResponse]:
        """Each in a call of its own, all at once: by UID."""
        async with self._channel() as channel:
            stub = pb_grpc.DRAPluginStub(channel)
            answers = await asyncio.gather(
                *(
                    stub.NodePrepareResources(pb.NodePrepareResourcesRequest(claims=[each.asked]), timeout=CALL_S)
                    for each in claims
                )
            )
        return {uid: found for answer in answers for uid, found in answer.claims.items()}

    async def prepared(self, claims: Sequence[Made]) -> dict[str, pb.NodePrepareResourceResponse]:
        """Those that fail are asked for again, as the kubelet does: a daemon of shares may have to start."""
        answers = await self.prepare(claims)
        until_s = time.monotonic() + WAIT_S
        while failed := [each for each in claims if answers[each.uid].error]:
            assert time.monotonic() < until_s, {each.name: answers[each.uid].error for each in failed}
            await asyncio.sleep(0.5)
            answers |= await self.prepare(failed)
        return answers

    async def unprepare(self, claims: Sequence[Made]) -> None:
        """All in one call."""
        asked = [each.asked for each in claims]
        async with self._channel() as channel:
            request = pb.NodeUnprepareResourcesRequest(claims=asked)
            answer = await pb_grpc.DRAPluginStub(channel).NodeUnprepareResources(request, timeout=CALL_S)
        assert {uid: found.error for uid, found in answer.claims.items()} == {each.uid: "" for each in claims}

    def _channel(self) -> grpc.aio.Channel:
        """To the agent that runs: each has a socket of its own, and sweeps those of the dead."""
        (socket,) = self._folder.glob("*.sock")
        return grpc.aio.insecure_channel(f"unix:{socket}")

    @property
    def serves(self) -> bool:
        return len([*self._folder.glob("*.sock")]) == 1


async def killed_meanwhile(agent: Agent, driver: Driver, work: "asyncio.Task[Any]") -> None:
    """The agent ends while ``work`` goes on, and another begins; whatever the work came to."""
    ledger = agent.state_dir / "claims.json"
    before = ledger.read_bytes()
    begun = "the first of them stands in the ledger"
    await asyncio.to_thread(until, lambda: work.done() or ledger.read_bytes() != before, begun)
    await asyncio.to_thread(agent.kill)
    with suppress(grpc.RpcError):
        await work
    agent.start()
    await asyncio.to_thread(until, lambda: agent.serves() and driver.serves, "it serves again")


async def test_five_hundred_claims_come_and_go_in_bursts_and_nothing_is_in_two_hands(
    lab: Lab, agent: Agent, hands: Hands
) -> None:
    """Calls are repeated after a kill on the way in and one on the way out; one burst is deleted by force."""
    async with Client(from_kubeconfig(lab.cluster.kubeconfig), timeout_s=60.0, connections=8) as client:
        driver = Driver(client, lab)
        try:
            served = [await burst(agent, driver, hands, number) for number in range(-(-CLAIMS // len(PLACES)))]
        finally:
            await driver.unprepare([*driver.there.values()])
            await driver.delete([*driver.there.values()])
    assert sum(served) == CLAIMS
    await asyncio.to_thread(agent.until, lambda found: not found.holders, "given back")
    assert list(lab.host.cdi_dir.glob("*claim*")) == []
    assert hands.seen >= {"claim", "shares"}


async def burst(agent: Agent, driver: Driver, hands: Hands, number: int) -> int:
    """From the API server to the sockets and back; how many claims."""
    claims = await driver.burst(number)
    if number == KILLED_WHILE_PREPARING:
        await killed_meanwhile(agent, driver, asyncio.create_task(driver.prepare(claims)))
    answers = await driver.prepared(claims)
    given = {each.uid: answers[each.uid].devices for each in claims}
    assert {uid: [one.device_name for one in found] for uid, found in given.items()} == {
        each.uid: [each.device] for each in claims
    }
    ids = [cdi for found in given.values() for one in found for cdi in one.cdi_device_ids]
    assert len({*ids}) == len(claims)
    await asyncio.to_thread(hands.check)
    if number == FORCED:
        claims = await forced(driver, claims, number)
    if number == KILLED_WHILE_ENDING:
        await killed_meanwhile(agent, driver, asyncio.create_task(driver.unprepare(claims)))
    await driver.unprepare(claims)
    await driver.delete(claims)
    return len(claims)


async def forced(driver: Driver, claims: list[Made], number: int) -> list[Made]:
    """The claims go from the API server while they are prepared: who gets their devices next has to wait until they are
    given back. Those who have them then.
    """
    await driver.delete(claims)
    rivals = await driver.burst(number, reserved=False)
    refused = await driver.prepare(rivals)
    for each in rivals:
        why = refused[each.uid].error
        assert "is held by ResourceClaim" in why or "one that ends may have some" in why, why
    await driver.unprepare(claims)
    await driver.prepared(rivals)
    return rivals


def test_a_claim_is_given_back_while_the_api_server_is_away(lab: Lab, agent: Agent) -> None:
    """The pod was deleted before; the kubelet ends it, and what it held is free for the next at once."""
    asked = claim_template(lab, "gpu", DRIVER, "device.attributes['gpu.nvidia.com'].type == 'gpu'")
    pod = run(lab, "ends", asked)
    agent.until(lambda found: len(found.holders) == 1, "a holder")
    with ExitStack() as away:
        with agent.paused():
            lab.cluster.kubectl("delete", "pod", "ends", "--now", "--wait=false")
            until(lambda: not pod.container, "its container has ended, and the kubelet waits for the agent")
            away.enter_context(api_server_away(lab.cluster))
        agent.until(lambda found: not found.holders, "given back")
        assert list(lab.host.cdi_dir.glob("*claim*")) == []
    until(lambda: _answers(lab), "the API server is back")
    until(lambda: not lab.get("/api/v1/namespaces/default/pods/ends"), "the pod is gone")
    until(lambda: len(devices(lab)) == 7, "slices are there")
    run(lab, "next", asked)
    lab.delete_pods()
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "gpu")


def _answers(lab: Lab) -> bool:
    with suppress(ClusterError, OSError):
        return bool(lab.cluster.kubectl("get", "--raw", "/readyz"))
    return False
