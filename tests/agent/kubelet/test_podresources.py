"""Holders of devices: the kubelet is asked often enough and never too often."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kubelet.grants import Grants
from agent.kubelet.holders import Holder, Look, holders_of, sharers_of
from agent.kubelet.podresources import (
    CALL_TIMEOUT_S,
    IDLE_INTERVAL_S,
    LONGEST_RETRY_S,
    LOOK_TIMEOUT_S,
    SETTLE_S,
    SHORTEST_INTERVAL_S,
    TOLD_INTERVAL_S,
    WAITING_INTERVAL_S,
    HolderWatch,
    PodResources,
)
from deviceplugin.choice import Preferrer
from deviceplugin.manager import PluginManager
from deviceplugin.testing import StandInKubelet
from inventory.devices import DeviceId, ResourceName
from kube.testing import VirtualClock
from kubeletapi import podresources_v1_pb2 as pb
from tests.support.deviceplugin.fakes import RecordingObserver
from tests.support.deviceplugin.views import GPU, gpus, view_of

Held = tuple[str, str, str, str, Sequence[str]]  # namespace, pod, container, resource, device ids


def listing(*held: Held) -> pb.ListPodResourcesResponse:
    return pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                namespace=namespace,
                name=pod,
                containers=[
                    pb.ContainerResources(
                        name=container, devices=[pb.ContainerDevices(resource_name=resource, device_ids=ids)]
                    )
                ],
            )
            for namespace, pod, container, resource, ids in held
        ]
    )


def ids(*names: str) -> set[DeviceId]:
    return {DeviceId(name) for name in names}


def units(*names: str) -> set[str]:
    return set(names)


# One answer.


def test_what_a_claim_brought_is_held_by_its_container_and_another_drivers_is_passed_over() -> None:
    def claim(driver: str, device: str) -> pb.DynamicResource:
        return pb.DynamicResource(
            claim_name="mine",
            claim_namespace="team",
            claim_resources=[pb.ClaimResource(driver_name=driver, pool_name="node-1", device_name=device)],
        )

    container = pb.ContainerResources(
        name="main", dynamic_resources=[claim(*each) for each in (("a", "gpu-0"), ("b", "gpu-1"), ("a", "gpu-7"))]
    )
    answer = pb.ListPodResourcesResponse(
        pod_resources=[pb.PodResources(namespace="team", name="pod", containers=[container])]
    )
    claimed = {
        ("a", "team", "mine", "gpu-0"): DeviceId("GPU-0"),
        ("a", "team", "mine", "gpu-1"): DeviceId("GPU-1"),
        ("a", "team", "other", "gpu-7"): DeviceId("GPU-7"),
    }
    found = holders_of(answer, set(), lambda *key: claimed.get(key))
    assert found == {DeviceId("GPU-0"): Holder("team", "pod", "main", ResourceName("a"))}
    assert holders_of(answer, units("GPU-0")) == {}


def test_all_containers_that_have_a_device_by_one_claim_share_it() -> None:
    given = pb.ClaimResource(driver_name="a", pool_name="node-1", device_name="gpu-0")
    claim = pb.DynamicResource(claim_name="mine", claim_namespace="team", claim_resources=[given])
    both = [pb.ContainerResources(name=name, dynamic_resources=[claim]) for name in ("main", "side")]
    pods = [
        pb.PodResources(namespace="team", name="left", containers=both),
        pb.PodResources(namespace="team", name="right", containers=both[:1]),
    ]
    answer = pb.ListPodResourcesResponse(pod_resources=pods)
    names = (("left", "main"), ("left", "side"), ("right", "main"))
    every = tuple(Holder("team", *name, ResourceName("a")) for name in names)
    assert sharers_of(answer, lambda *_: DeviceId("GPU-0")) == {DeviceId("GPU-0"): every}
    assert sharers_of(pb.ListPodResourcesResponse(pod_resources=[pods[1]]), lambda *_: DeviceId("GPU-0")) == {}
    assert sharers_of(answer) == {}


def test_each_device_has_the_container_that_holds_it() -> None:
    answer = listing(("ml", "train", "main", GPU, ["GPU-0", "GPU-1"]), ("ml", "serve", "web", GPU, ["GPU-2::3"]))
    assert holders_of(answer, units("GPU-0", "GPU-1", "GPU-2", "GPU-9")) == {
        "GPU-0": Holder("ml", "train", "main", GPU),
        "GPU-1": Holder("ml", "train", "main", GPU),
        "GPU-2::3": Holder("ml", "serve", "web", GPU),
    }


def test_devices_of_other_plugins_are_passed_over() -> None:
    answer = listing(("a", "b", "c", "rdma/hca", ["mlx5_0"]), ("a", "b", "c", GPU, ["GPU-0"]))
    assert set(holders_of(answer, units("GPU-0"))) == {"GPU-0"}


def test_a_device_under_a_former_resource_name_and_in_a_former_shape_is_still_held() -> None:
    answer = listing(("a", "b", "c", "nvidia.com/gpu.shared", ["GPU-0::0"]))
    assert holders_of(answer, units("GPU-0"))[DeviceId("GPU-0::0")].resource == "nvidia.com/gpu.shared"


@given(st.lists(st.tuples(*[st.sampled_from("ab")] * 4, st.lists(st.sampled_from(["0", "1", "2", "x"]))), max_size=6))
def test_holders_are_exactly_our_devices_that_are_listed(held: list[Held]) -> None:
    found = holders_of(listing(*held), ids("0", "1", "2"))
    assert set(found) == {one for entry in held for one in entry[4]} & {"0", "1", "2"}


# The watch, in virtual time.


class ScriptedKubelet(PodResources):
    """Answers with ``answer``, or fails while ``failing``; remembers when it was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Path("unused"))
        self._clock = clock
        self.asked_at: list[float] = []
        self.answer = listing()
        self.failing = False

    async def list(self, timeout_s: float = CALL_TIMEOUT_S) -> pb.ListPodResourcesResponse:
        self.timeout_s = timeout_s
        self.asked_at.append(self._clock.monotonic())
        if self.failing:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone")
        return self.answer

    async def allocatable(self) -> dict[ResourceName, set[DeviceId]]:
        return {ResourceName(GPU): ids("GPU-0", "GPU-1")}


class Watched:
    """A watch that runs on a clock moved by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.kubelet = ScriptedKubelet(self.clock)
        self.changes = 0
        self.devices = ids("GPU-0", "GPU-1")
        self.waits = self.told = False
        self.socket = 1
        self.grants = Grants()
        self.watch = HolderWatch(
            self.kubelet,
            lambda: {str(device) for device in self.devices},
            self._changed,
            self.clock,
            grants=self.grants,
            waits=lambda: self.waits,
            told=lambda: self.told,
            kubelet=lambda: self.socket,
        )

    def _changed(self) -> None:
        self.changes += 1

    async def pass_time(self, seconds: float) -> None:
        end_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end_s:
            self.clock.advance(0.25)
            await settle()

    def gaps(self) -> list[float]:
        times = self.kubelet.asked_at
        return [later - earlier for earlier, later in itertools.pairwise(times)]


async def settle() -> None:
    """Let the other tasks run until they wait again."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    task = asyncio.create_task(watched.watch.run())
    await settle()
    yield watched
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_it_asks_at_once_and_then_rarely(watched: Watched) -> None:
    assert len(watched.kubelet.asked_at) == 1
    await watched.pass_time(35)
    assert set(watched.gaps()) == {SHORTEST_INTERVAL_S + IDLE_INTERVAL_S}


async def test_it_asks_seldom_while_it_is_told_of_pods_that_end_unless_something_waits(watched: Watched) -> None:
    watched.told = True
    await watched.pass_time(3 * TOLD_INTERVAL_S + 20)
    assert watched.gaps()[1:] == [SHORTEST_INTERVAL_S + TOLD_INTERVAL_S] * 2
    watched.waits = True
    await watched.pass_time(TOLD_INTERVAL_S)
    assert watched.gaps()[-1] == SHORTEST_INTERVAL_S + WAITING_INTERVAL_S


async def test_a_nudge_is_followed_when_the_kubelet_has_our_answer_and_looked_into_twice(watched: Watched) -> None:
    await watched.pass_time(5)
    watched.watch.nudge()
    await settle()
    assert watched.gaps() == []
    watched.clock.advance(SETTLE_S)
    await settle()
    assert watched.gaps() == [pytest.approx(5 + SETTLE_S)]
    await watched.pass_time(2)
    assert len(watched.gaps()) == 2
    await watched.pass_time(8)
    assert len(watched.gaps()) == 2


async def test_however_often_it_is_nudged_it_asks_once_a_second_at_most(watched: Watched) -> None:
    for _ in range(80):
        watched.watch.nudge()
        await watched.pass_time(0.25)
    assert min(watched.gaps()) >= SHORTEST_INTERVAL_S
    assert len(watched.kubelet.asked_at) >= 19


async def test_a_nudge_during_the_pause_is_not_lost(watched: Watched) -> None:
    await watched.pass_time(0.5)
    watched.watch.nudge()
    await watched.pass_time(0.75)
    assert watched.gaps() == [SHORTEST_INTERVAL_S]


async def test_only_an_answer_that_differs_is_told(watched: Watched) -> None:
    assert watched.changes == 1
    await watched.pass_time(30)
    assert watched.changes == 1
    watched.kubelet.answer = listing(("ml", "train", "main", GPU, ["GPU-0"]))
    await watched.pass_time(11)
    assert watched.changes == 2
    assert set(watched.watch.holders) == {"GPU-0"}


async def test_a_look_names_the_pods_without_a_device_of_ours_and_keeps_nothing(watched: Watched) -> None:
    watched.kubelet.answer = listing(
        ("ml", "train", "main", GPU, ["GPU-0"]),
        ("ml", "new", "main", GPU, []),
        ("ml", "nic", "main", "other.com/nic", ["nic-0"]),
    )
    held = {DeviceId("GPU-0"): Holder("ml", "train", "main", ResourceName(GPU))}
    assert await watched.watch.look() == Look(held, frozenset({("ml", "new"), ("ml", "nic")}))
    assert (watched.watch.holders, watched.changes, watched.kubelet.timeout_s) == ({}, 1, LOOK_TIMEOUT_S)
    watched.kubelet.failing = True
    assert await watched.watch.look() is None


async def test_that_nobody_holds_a_device_is_told_once_it_was_asked_about(watched: Watched) -> None:
    before = watched.changes
    watched.devices = ids("GPU-0", "GPU-1", "GPU-2")
    await watched.watch.refresh()
    await watched.watch.refresh()
    assert (watched.watch.holders, watched.changes) == ({}, before + 1)


async def test_while_a_change_waits_for_a_pod_to_end_it_asks_every_few_seconds(watched: Watched) -> None:
    watched.waits = True
    watched.watch.nudge()
    await watched.pass_time(20)
    before = watched.changes
    await watched.pass_time(5)
    assert watched.changes > before, "each answer is told: one that is the same may be what is waited for"
    assert max(watched.gaps()[1:]) == SHORTEST_INTERVAL_S + WAITING_INTERVAL_S
    watched.waits = False
    await watched.pass_time(30)
    assert watched.gaps()[-1] == SHORTEST_INTERVAL_S + IDLE_INTERVAL_S


async def test_an_answer_on_demand_is_asked_for_a_second_after_the_last_at_the_earliest(watched: Watched) -> None:
    await watched.pass_time(5)
    began_s = watched.clock.monotonic()
    asking = [asyncio.create_task(watched.watch.ask()) for _ in range(3)]
    await settle()
    await watched.pass_time(4)
    await asyncio.gather(*asking)
    assert watched.watch.began_s > began_s
    assert min(watched.gaps()) >= SHORTEST_INTERVAL_S
    assert [at_s - began_s for at_s in watched.kubelet.asked_at[1:]] == [0, 1, 2]


async def test_a_nudge_ends_a_long_wait_for_a_kubelet_that_was_away(watched: Watched) -> None:
    watched.kubelet.failing = True
    await watched.pass_time(100)
    watched.kubelet.failing = False
    watched.watch.nudge()
    await settle()
    assert watched.watch.reachable


async def test_what_another_kubelet_listed_is_held_until_this_one_lists_it(watched: Watched) -> None:
    watched.kubelet.answer = listing(("ml", "train", "main", GPU, ["GPU-0"]), ("ml", "other", "main", "rdma", ["x"]))
    await watched.pass_time(11)
    watched.socket, watched.kubelet.answer = 2, listing()
    await watched.pass_time(11)
    assert watched.watch.holders == {}
    assert watched.grants.open == {"GPU-0": GPU}
    watched.kubelet.answer = listing(("ml", "train", "main", GPU, ["GPU-0"]))
    await watched.pass_time(11)
    assert watched.grants.open == {}


async def test_while_the_kubelet_is_away_the_last_known_holders_stay(watched: Watched) -> None:
    watched.kubelet.answer = listing(("ml", "train", "main", GPU, ["GPU-0"]))
    await watched.pass_time(11)
    watched.kubelet.failing = True
    await watched.pass_time(60)
    assert not watched.watch.reachable
    assert set(watched.watch.holders) == {"GPU-0"}
    assert watched.watch.allocatable == {GPU: {"GPU-0", "GPU-1"}}
    watched.kubelet.failing = False
    watched.kubelet.answer = listing()
    await watched.pass_time(LONGEST_RETRY_S)
    assert watched.watch.reachable
    assert watched.watch.holders == {}


async def test_a_kubelet_that_is_away_is_asked_less_and_less(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "agent")
    watched.kubelet.failing = True
    await watched.pass_time(300)
    failing = watched.gaps()[1:]
    assert failing == sorted(failing)
    assert (failing[0], failing[-1]) == (SHORTEST_INTERVAL_S, LONGEST_RETRY_S)
    assert [record.getMessage() for record in caplog.records].count("pod resources not read") == 1


# Against a kubelet.


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
async def kubelet(kubelet_dir: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(kubelet_dir)
    await kubelet.start()
    manager = PluginManager(kubelet.folder, kubelet.folder / "kubelet.sock", Preferrer(), RecordingObserver())
    manager.apply([view_of(gpus(4))])
    await manager.mend()
    await kubelet.wait_for(lambda: len(kubelet.endpoints[GPU].healthy) == 4)
    yield kubelet
    await manager.close()
    await kubelet.stop()


async def test_what_a_pod_was_given_is_read_back(kubelet: StandInKubelet) -> None:
    client = PodResources(kubelet.pod_resources_folder)
    grant = await kubelet.allocate(GPU, 2, pod="train", namespace="ml")
    mine = {DeviceId(f"GPU-0{i}") for i in range(4)}
    assert holders_of(await client.list(), mine) == dict.fromkeys(grant.devices, Holder("ml", "train", "main", GPU))
    pod = await client.get("ml", "train")
    assert [list(one.device_ids) for one in pod.containers[0].devices] == [list(grant.devices)]
    assert await client.allocatable() == {GPU: mine}


async def test_a_pod_that_is_not_there_is_not_found(kubelet: StandInKubelet) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await PodResources(kubelet.pod_resources_folder).get("ml", "nobody")
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_new_kubelet_is_asked_through_a_new_channel(kubelet: StandInKubelet) -> None:
    client = PodResources(kubelet.pod_resources_folder)
    await client.list()
    await kubelet.restart()
    await client.list()


async def test_no_kubelet_is_an_rpc_error(kubelet_dir: Path) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await PodResources(kubelet_dir).list()


# The channel.


@contextlib.asynccontextmanager
async def asked(kubelet: StandInKubelet, folder: Path) -> AsyncIterator[tuple[StandInKubelet, PodResources]]:
    client = PodResources(folder / "pod-resources")
    await kubelet.start()
    try:
        yield kubelet, client
    finally:
        await client.close()
        await kubelet.stop()


class Slow(StandInKubelet):
    """Lists when it is let, and answers the rest at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked, self.may_list = asyncio.Event(), asyncio.Event()

    async def List(self, request: object, context: object) -> pb.ListPodResourcesResponse:  # noqa: N802 - gRPC's name
        self.asked.set()
        await self.may_list.wait()
        return await super().List(request, context)


async def test_all_calls_share_a_channel_until_another_kubelet_answers_or_one_fails(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = grpc.aio.insecure_channel

    def counted(target: str, **more: Any) -> grpc.aio.Channel:
        opened.append(target)
        return plain(target, **more)

    monkeypatch.setattr(grpc.aio, "insecure_channel", counted)
    async with asked(StandInKubelet(short_folder), short_folder) as (kubelet, client):
        for _ in range(3):
            await client.list()
            await client.allocatable()
        assert len(opened) == 1
        for turn in range(2, 12):
            await kubelet.restart()
            await client.list()  # on nothing that the kubelet before has broken
            assert len(opened) == turn
        await kubelet.stop()
        with pytest.raises(grpc.aio.AioRpcError):
            await client.list()
        await kubelet.start()
        # A channel that has failed would pause, and refuse meanwhile.
        await client.list()


async def test_a_call_that_fails_ends_no_other_on_its_channel(short_folder: Path) -> None:
    slow = Slow(short_folder)
    async with asked(slow, short_folder) as (_, client):
        slow.pods["ml", "train"] = []
        asking = asyncio.create_task(client.list())
        await slow.asked.wait()
        with pytest.raises(grpc.aio.AioRpcError, match="no such pod"):
            await client.get("ml", "other")
        slow.may_list.set()
        assert [pod.name for pod in (await asking).pod_resources] == ["train"]
        assert [pod.name for pod in (await client.list()).pod_resources] == ["train"]
