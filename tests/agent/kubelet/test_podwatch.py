"""The node's pods off the API server, as far as they matter for devices; and an agent that goes by their plans."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.kubelet.containers import PodContainer
from agent.kubelet.holders import Holder, Look
from agent.kubelet.plans import BoundPod, Demand
from agent.kubelet.podwatch import BRIEF_S, IDLE, NEWS_S, PodWatch, read
from inventory.devices import DeviceId, ResourceName
from kube.client import Client
from kube.resources import PODS
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.agent.node import fleet, laboratory

GPU = ResourceName("nvidia.com/gpu")
FREE = [DeviceId(f"GPU-{i}") for i in range(4)]


def body(
    *limits: dict[str, Any], plan: str = "", node: str = "node-1", status: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    annotations = {"kueue.x-k8s.io/workload": "w", "someone/else": "x"} | (
        {"tessera.dev/devices": plan} if plan else {}
    )
    containers = [{"name": f"c{i}", "resources": {"limits": one}} for i, one in enumerate(limits)]
    return {
        "metadata": {"annotations": annotations, **more},
        "spec": {"nodeName": node, "containers": containers},
        "status": status if status is not None else {"phase": "Pending"},
    }


def raw(given: dict[str, Any]) -> bytes:
    given["metadata"] |= {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "42"}
    return json.dumps(given).encode()


def test_a_pod_says_what_it_asks_for_and_what_was_planned() -> None:
    found = read(raw(body({"cpu": "1", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu": 1}, plan="GPU-1, GPU-2,GPU-3")))
    assert found == BoundPod(
        uid="u",
        key=("ns", "p"),
        age=42,
        demands=(Demand(GPU, 2), Demand(GPU, 1)),
        plan=("GPU-1", "GPU-2", "GPU-3"),
        workload="ns/w",
    )


@pytest.mark.parametrize(("said", "gpus"), [("2", 2), ("1", 1), ("zwei", 0), ("", 0), ("9" * 500, 0)])
def test_a_pod_says_on_how_many_gpus_its_percents_lie_and_of_nothing_else(said: str, gpus: int) -> None:
    given = body({"tessera.dev/gpu-percent": "100", "nvidia.com/gpu": 1})
    given["metadata"]["annotations"]["tessera.dev/gpu-percent-devices"] = said
    assert read(raw(given)).demands == (Demand(ResourceName("tessera.dev/gpu-percent"), 100, gpus), Demand(GPU, 1))


@pytest.mark.parametrize(
    "given",
    [
        body({"cpu": "1", "memory": "1Gi"}),
        body({"nvidia.com/gpu": "0"}),
        body({"nvidia.com/gpu": "0.5"}),
        body({"nvidia.com/gpu": "1"}, status={"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}),
        body({"nvidia.com/gpu": "1"}, status={"phase": "Failed"}),
        {"metadata": {}, "spec": {"containers": [{"name": "c"}]}},
    ],
)
def test_pods_that_wait_for_no_device_are_passed_over(given: dict[str, Any]) -> None:
    assert read(raw(given)) is IDLE


class Watching:
    """A PodWatch that follows a server, with time standing still."""

    def __init__(self, server: FakeApiServer, freed: Callable[[], None] = lambda: None) -> None:
        self.clock = VirtualClock()
        self.listed: set[str] | None = None
        """The pods that the kubelet names without a device of ours; None while it says nothing."""
        self.held: dict[DeviceId, Holder] = {}
        self.looks = 0
        self.watch = PodWatch(freed, self.clock, look=self._look)
        self._server = server
        self._client = Client(server.config, user_agent="test", clock=self.clock)

    async def _look(self) -> Look | None:
        self.looks += 1
        if self.listed is None:
            return None
        return Look(self.held, frozenset(("ns", name) for name in self.listed))

    async def __aenter__(self) -> PodWatch:
        await self._client.__aenter__()
        self._task = asyncio.create_task(self.watch.follow(self._client, "node-1", lambda: 0.5))
        await eventually(lambda: self._server.watchers == 1)
        return self.watch

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.__aexit__(None, None, None)


async def test_the_plan_of_a_bound_pod_is_what_is_advised() -> None:
    async with FakeApiServer() as server, Watching(server) as watch:
        server.create(PODS, "elsewhere", body({GPU: "2"}, plan="GPU-0,GPU-1", node="node-2"), namespace="ns")
        server.create(PODS, "here", body({GPU: "2"}, plan="GPU-2,GPU-3"), namespace="ns")
        await eventually(lambda: len(watch.plans) == 1)
        assert (await watch.advise(GPU, FREE, [], 2)).devices == ("GPU-2", "GPU-3")
        server.delete(PODS, "here", namespace="ns")
        await eventually(lambda: len(watch.plans) == 0)


async def test_uid_and_labels_are_kept_of_pods_that_asked_for_devices_and_of_no_others() -> None:
    async with FakeApiServer() as server, Watching(server) as watch:
        for name, resource in (("with", str(GPU)), ("without", "cpu")):
            pod = body({resource: "1"})
            pod["metadata"] = {**pod.get("metadata", {}), "labels": {"team": "a"}}
            pod["status"] = {**pod.get("status", {}), "phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            server.create(PODS, name, pod, namespace="ns")
        claiming = body({})
        claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
        server.create(PODS, "by-claim", claiming, namespace="ns")
        await eventually(lambda: watch.containers.identity("ns", "by-claim") is not None)
        await eventually(lambda: watch.containers.identity("ns", "with") is not None)
        known = watch.containers.identity("ns", "with")
        assert known is not None
        assert known.labels == {"team": "a"}
        assert known.uid == server.get(PODS, "with", namespace="ns")["metadata"]["uid"]
        assert watch.containers.identity("ns", "without") is None
        server.delete(PODS, "with", namespace="ns")
        await eventually(lambda: watch.containers.identity("ns", "with") is None)


async def test_a_request_that_overtakes_the_news_of_its_pod_waits_for_it() -> None:
    async with FakeApiServer() as server, Watching(server) as watch:
        asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
        await asyncio.sleep(0)
        server.create(PODS, "other", body({GPU: "2"}, plan="GPU-2,GPU-3"), namespace="ns")
        server.create(PODS, "here", body({GPU: "1"}, plan="GPU-1"), namespace="ns")
        assert (await asking).devices == ("GPU-1",)


async def test_a_request_that_no_news_explains_waits_a_moment_and_no_longer() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            watching.clock.advance(NEWS_S + 0.1)
            assert (await asking).devices == ()


async def test_after_a_wait_in_vain_the_next_one_is_brief_until_a_pod_is_heard_of() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            for wait_s in (NEWS_S, BRIEF_S, BRIEF_S):
                began_s = watching.clock.monotonic()
                asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
                await eventually(lambda: watching.clock.next_wake_s is not None)
                while not asking.done():
                    watching.clock.advance(0.05)
                    await asyncio.sleep(0)
                assert watching.clock.monotonic() - began_s == pytest.approx(wait_s, abs=0.3)
            server.create(PODS, "other", body({GPU: "2"}, plan="GPU-2,GPU-3"), namespace="ns")
            await eventually(lambda: len(watch.plans) == 1)
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            watching.clock.advance(NEWS_S - 0.5)
            server.create(PODS, "here", body({GPU: "1"}, plan="GPU-1"), namespace="ns")
            assert (await asking).devices == ("GPU-1",)


async def test_nothing_waits_where_the_kubelet_names_no_pod_that_is_not_known() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            server.create(PODS, "other", body({GPU: "2"}, plan="GPU-2,GPU-3"), namespace="ns")
            server.create(PODS, "without", body({"cpu": "1"}), namespace="ns")
            await eventually(lambda: len(watch.plans) == 1)
            await eventually(lambda: watch.knows(("ns", "without")))
            for listed in (set[str](), {"other", "without"}):
                watching.listed = listed
                # Time stands still: whatever waits for it waits for ever.
                choice = await asyncio.wait_for(watch.advise(GPU, FREE, [], 1), 60)
                assert (choice.devices, choice.avoid) == ((), frozenset(FREE[2:]))
            assert watching.looks == 2


async def test_a_pod_that_the_kubelet_names_is_waited_for_and_gets_its_plan() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            watching.listed = {"here"}
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            watching.clock.advance(NEWS_S - 0.1)
            server.create(PODS, "here", body({GPU: "1"}, plan="GPU-1"), namespace="ns")
            assert (await asking).devices == ("GPU-1",)


async def test_the_wait_ends_when_every_pod_that_the_kubelet_names_is_known() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            watching.listed = {"one", "two"}
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            server.create(PODS, "one", body({"cpu": "1"}), namespace="ns")
            await eventually(lambda: watch.knows(("ns", "one")))
            assert not asking.done()
            server.create(PODS, "two", body({GPU: "4"}, plan="GPU-0,GPU-1,GPU-2,GPU-3"), namespace="ns")
            assert (await asyncio.wait_for(asking, 60)).devices == ()


async def test_a_pod_that_no_news_tells_of_is_waited_for_once() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            watching.listed = {"static"}
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            watching.clock.advance(NEWS_S)
            assert (await asking).devices == ()
            assert (await asyncio.wait_for(watch.advise(GPU, FREE, [], 1), 60)).devices == ()


@pytest.mark.parametrize("asked", [GPU, "cpu"], ids=["a device", "none"])
async def test_the_next_pod_of_a_name_is_waited_for_while_the_one_before_it_goes(asked: str) -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            leaving = body({asked: "1"}, status={"phase": "Running", "startTime": "x"})
            server.create(PODS, "worker-0", leaving, namespace="ns")
            await eventually(lambda: watch.knows(("ns", "worker-0")))
            server.merge(PODS, "worker-0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, namespace="ns")
            await eventually(lambda: not watch.knows(("ns", "worker-0")))
            watching.listed = {"worker-0"}
            asking = asyncio.create_task(watch.advise(GPU, FREE, [], 1))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            server.delete(PODS, "worker-0", namespace="ns")
            server.create(PODS, "worker-0", body({GPU: "1"}, plan="GPU-1"), namespace="ns")
            assert (await asking).devices == ("GPU-1",)


async def test_the_kubelet_is_not_asked_while_it_has_set_devices_apart() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            watching.listed = set()
            asking = asyncio.create_task(watch.advise(GPU, FREE, FREE[:1], 2))
            await eventually(lambda: watching.clock.next_wake_s is not None)
            watching.clock.advance(NEWS_S)
            await asking
            assert watching.looks == 0


async def test_what_the_kubelet_names_corrects_whose_devices_were_given() -> None:
    async with FakeApiServer() as server:
        watching = Watching(server)
        async with watching as watch:
            watch.given(GPU, FREE[:1])
            server.create(PODS, "here", body({GPU: "1"}, plan="GPU-1"), namespace="ns")
            await eventually(lambda: len(watch.plans) == 1)
            # GPU-0 went to a pod that the watch never saw: "here" is taken for it until the kubelet names both.
            watching.listed, watching.held = {"here"}, {FREE[0]: Holder("ns", "unseen", "c", GPU)}
            choice = await asyncio.wait_for(watch.advise(GPU, FREE[1:], [], 1), 60)
            assert (choice.devices, choice.known) == (("GPU-1",), True)


async def test_nothing_waits_where_there_is_no_api_server() -> None:
    choice = await asyncio.wait_for(PodWatch(clock=VirtualClock()).advise(GPU, FREE, [], 1), 60)
    assert (choice.devices, choice.known) == ((), False)


async def test_an_acknowledged_pod_asks_no_more() -> None:
    async with FakeApiServer() as server, Watching(server) as watch:
        server.create(PODS, "a", body({GPU: "1"}, plan="GPU-3"), namespace="ns")
        await eventually(lambda: len(watch.plans) == 1)
        server.merge(PODS, "a", {"status": {"startTime": "2026-01-01T00:00:00Z"}}, namespace="ns")
        await eventually(lambda: len(watch.plans) == 0)


async def test_the_end_of_a_pod_that_held_devices_is_a_reason_to_look_who_holds_what() -> None:
    freed: list[int] = []
    async with FakeApiServer() as server, Watching(server, freed=lambda: freed.append(1)) as watch:
        for name in ("holder", "other", "removed"):
            server.create(PODS, name, body({GPU: "1"}, status={"phase": "Running", "startTime": "x"}), namespace="ns")
        watch.held({DeviceId(f"GPU-{name}"): Holder("ns", name, "c", GPU) for name in ("holder", "removed")})
        for name in ("other", "holder"):
            server.merge(PODS, name, {"status": {"phase": "Succeeded"}}, namespace="ns")
        server.delete(PODS, "removed", namespace="ns")
        await eventually(lambda: len(freed) == 2)


def test_holders_are_told_by_pod() -> None:
    watch = PodWatch(clock=VirtualClock())
    watch.plans.bound(BoundPod(uid="u", key=("ns", "p"), age=1, demands=(Demand(GPU, 1),)))
    watch.held({DeviceId("GPU-0"): Holder("ns", "p", "c", GPU)})
    assert len(watch.plans) == 0


async def test_containers_are_known_by_their_ids_until_their_pod_is_gone() -> None:
    one, other = "a" * 64, "b" * 64

    def running(container_id: str) -> dict[str, Any]:
        statuses = [{"name": "main", "containerID": f"containerd://{container_id}"}, {"name": "waiting"}]
        return {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": statuses}

    async with FakeApiServer() as server, Watching(server) as watch:
        server.create(PODS, "a", body({}, status=running(one)), namespace="ns")
        await eventually(lambda: watch.containers.container(one) == PodContainer("ns", "a", "main"))
        server.merge(PODS, "a", {"status": running(other)}, namespace="ns")
        await eventually(lambda: watch.containers.container(other) is not None)
        assert watch.containers.container(one) is None
        server.delete(PODS, "a", namespace="ns")
        await eventually(lambda: len(watch.containers) == 0)


async def test_the_agent_prefers_what_was_planned(short_folder: Path) -> None:
    async with laboratory(short_folder) as lab:
        endpoint = await lab.serve(fleet(4))
        free = sorted(endpoint.devices)
        planned = (free[3], free[0])
        lab.agent.pods.plans.bound(
            BoundPod(uid="u", key=("default", "p"), age=1, demands=(Demand(GPU, 2),), plan=planned)
        )
        grant = await lab.kubelet.allocate(GPU, 2, pod="p")
        assert set(grant.devices) == set(planned)
        assert len(lab.agent.pods.plans) == 0
