"""Queues of Volcano and KAI in the whole process: jobs start in them, and what is whose is looked up while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.cluster.config.load import parse
from controller.cluster.process.foreignsystems import FREE_S, ForeignSystems, is_held
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import CLUSTER_QUEUES, JOBS, KAI_QUEUES, NAMESPACES, NODES, VOLCANO_QUEUES
from controller.scheduler.mirror.specs import System
from kube.client import Client
from kube.election.candidate import LeaseSpec
from kube.resources import LEASES, Resource
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp

BOTH = CONFIG + "  volcano: {enabled: true}\n  kai: {enabled: auto}\n"
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def node(scene: Stage, name: str, cpus: int) -> None:
    amounts = {"cpu": str(cpus), "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    body = {"metadata": {"labels": {"kubernetes.io/hostname": name}}, "spec": {}}
    scene.server.create(NODES, name, {**body, "status": {"allocatable": amounts, "conditions": [ready]}})


def job(scene: Stage, name: str, queue: str, cpus: int) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpus)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"creationTimestamp": stamp(), "labels": {"kueue.x-k8s.io/queue-name": queue}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    scene.server.create(JOBS, name, {"apiVersion": "batch/v1", "metadata": metadata, "spec": spec}, namespace="team")


async def test_jobs_start_in_queues_of_volcano_and_kai() -> None:
    """The queues that each has without an object too, and none of Kueue's objects is written for them."""
    async with stage() as scene:
        for resource in (VOLCANO_QUEUES, KAI_QUEUES):
            scene.server.install(resource)
        scene.server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
        node(scene, "n1", 8)
        scene.server.create(VOLCANO_QUEUES, "research", {"spec": {"weight": 1, "capability": {"cpu": "2"}}})

        scene.server.create(KAI_QUEUES, "team", {"spec": {}})
        scene.server.create(KAI_QUEUES, "leaf", {"spec": {"parentQueue": "team"}})

        def status(resource: Resource, name: str) -> dict[str, Any]:
            return dict(scene.server.get(resource, name).get("status", {}))

        def runs(name: str) -> bool:
            return scene.server.get(JOBS, name, namespace="team")["spec"]["suspend"] is False

        async with scene.controller(config(BOTH), core_only=False):
            for name, queue in (("a", "research"), ("b", "default"), ("c", "default-queue")):
                job(scene, name, queue, 1)
            await eventually(lambda: all(map(runs, "abc")), what="all three started")
            job(scene, "d", "research", 2)
            job(scene, "e", "default", 1)
            await eventually(lambda: runs("e"))
            assert not runs("d"), "its queue may have two cpus, and another job has one"
            await eventually(lambda: status(VOLCANO_QUEUES, "research").get("state") == "Open")
            await eventually(lambda: status(KAI_QUEUES, "team").get("childQueues") == ["leaf"])
        assert not [*scene.server.written("clusterqueues"), *scene.server.written("localqueues")]
        assert not scene.server.list_all(CLUSTER_QUEUES)


# -- who decides


class Lab:
    def __init__(self, server: FakeApiServer, client: Client, text: str) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.feeds = Feeds(client, clock=self.clock, random=lambda: 0.5, readers={})
        self.systems = ForeignSystems(parse(HEAD + text), client, self.feeds, self.clock)

    async def later(self, task: asyncio.Task[Any]) -> None:
        """Let time pass until it is done."""

        def done() -> bool:
            self.clock.advance(1.0)
            return task.done()

        await eventually(done)
        task.result()

    async def adopted(self) -> set[str]:
        await self.later(asyncio.ensure_future(self.systems.adopt()))
        return set(self.systems.in_force)

    async def changed(self) -> None:
        changes = self.systems.changes
        assert changes is not None
        await self.later(asyncio.ensure_future(changes()))

    def lease(self, name: str, **spec: Any) -> None:
        renewed = datetime.fromtimestamp(self.clock.wall(), UTC).isoformat()
        body = {"holderIdentity": "theirs", "renewTime": renewed, "leaseDurationSeconds": 15, **spec}
        self.server.create(LEASES, name, {"metadata": {}, "spec": body}, namespace="volcano-system")


@asynccontextmanager
async def lab(text: str) -> AsyncIterator[Lab]:
    async with FakeApiServer() as server, Client(server.config) as client:
        made = Lab(server, client, text)
        async with made.feeds.running():
            yield made


async def test_auto_waits_for_the_end_of_the_others_lease_and_goes_with_the_crd() -> None:
    async with lab("tessera: {}") as made:
        made.server.install(VOLCANO_QUEUES)
        made.lease("volcano")
        assert await made.adopted() == set()
        assert VOLCANO_QUEUES not in made.feeds, "what is decided elsewhere is not followed"
        before_s = made.clock.monotonic()
        await made.changed()
        assert made.clock.monotonic() - before_s >= FREE_S
        assert await made.adopted() == {System.VOLCANO}
        made.server.uninstall(VOLCANO_QUEUES)
        await made.changed()
        assert await made.adopted() == set()


async def test_a_lease_that_was_given_back_waits_and_one_that_is_taken_does_not() -> None:
    async with lab("tessera: {}") as made:
        made.server.install(VOLCANO_QUEUES)
        made.lease("volcano", holderIdentity="", leaseDurationSeconds=1)
        assert await made.adopted() == set()
        made.clock.advance(FREE_S)
        assert await made.adopted() == {System.VOLCANO}
        renewed = datetime.fromtimestamp(made.clock.wall(), UTC).isoformat()
        spec = {"renewTime": renewed, "holderIdentity": ""}
        made.server.merge(LEASES, "volcano", {"spec": spec}, namespace="volcano-system")
        assert await made.adopted() == {System.VOLCANO}, "nobody has taken it"
        taken = {"holderIdentity": "theirs", "leaseDurationSeconds": 3600}
        made.server.merge(LEASES, "volcano", {"spec": taken}, namespace="volcano-system")
        assert await made.adopted() == set()


async def test_what_is_switched_on_by_hand_asks_for_no_lease() -> None:
    async with lab("tessera: {volcano: {enabled: true}, kai: {enabled: false}}") as made:
        made.server.install(VOLCANO_QUEUES)
        made.lease("volcano")
        assert await made.adopted() == {System.VOLCANO}
        assert not made.server.seen("GET", LEASES.path(namespace="volcano-system"))


async def test_without_the_crds_nothing_is_followed_or_said(caplog: pytest.LogCaptureFixture) -> None:
    async with lab("tessera: {}") as made:
        with caplog.at_level(logging.INFO):
            assert await made.adopted() == set()
        assert not made.feeds.resources
        assert not [record for record in caplog.records if record.name.startswith("controller")]


async def test_under_kueues_policy_no_request_is_made() -> None:
    async with lab("tessera: {policy: kueue}") as made:
        assert await made.adopted() == set()
        assert made.systems.changes is None
        assert not made.server.seen("GET", "")


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (LeaseSpec(holder_identity="a", renew_time="2023-11-14T22:13:10.000000Z", lease_duration_seconds=15), True),
        (LeaseSpec(holder_identity="a", renew_time="2023-11-14T22:13:04.000000Z", lease_duration_seconds=15), False),
        (LeaseSpec(holder_identity="a", renew_time="2023-11-14T22:13:10Z"), True),
        (LeaseSpec(holder_identity="", renew_time="2023-11-14T22:13:10Z"), False),
        (LeaseSpec(holder_identity="a"), False),
        (LeaseSpec(holder_identity="a", renew_time="yesterday"), True),
    ],
)
def test_a_lease_is_held_for_its_duration_after_it_was_renewed(spec: LeaseSpec, held: bool) -> None:
    """At 22:13:20."""
    assert is_held(spec, 1_700_000_000.0) is held


@pytest.mark.parametrize(("free_s", "held"), [(10.0, False), (10.1, True)])
def test_a_lease_of_nobody_keeps_others_off_for_a_while(free_s: float, held: bool) -> None:
    assert is_held(LeaseSpec(renew_time="2023-11-14T22:13:10Z"), 1_700_000_000.0, free_s=free_s) is held
