"""Every resource stays registered with whatever kubelet runs, through restarts, removals and refusals."""

import asyncio
import contextlib
import itertools
import logging
import socket
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest

from deviceplugin.choice import Preferrer
from deviceplugin.manager import (
    FIRST_RETRY_S,
    LONGEST_RETRY_S,
    POLL_S,
    UNHEARD_S,
    PluginManager,
    sweep,
)
from deviceplugin.server import DevicePluginServer
from deviceplugin.view import ResourceView
from kube.testing import eventually
from tests.support.deviceplugin.fakes import FakeKubelet, RecordingObserver, allocating
from tests.support.deviceplugin.managing import ManualClock, endpoint_of, listed, running
from tests.support.deviceplugin.views import GPU, gpus, migs, shared, view_of
from tests.support.hang import HANG_S

MIG = "nvidia.com/mig-1g.10gb"


def sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("tessera-*.sock")}


# Registration.


async def test_each_resource_registers_with_its_options_and_lists_its_devices(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(4)), view_of(migs(2, 3))])
    await manager.mend()
    await listed(kubelet, 4)
    await listed(kubelet, 6, MIG)
    assert sorted(kubelet.registrations) == [GPU, MIG]
    registration = kubelet.endpoints[GPU].registration
    assert registration.version == "v1beta1"
    assert registration.options.get_preferred_allocation_available
    assert kubelet.endpoints[GPU].options == registration.options
    assert kubelet.endpoints[GPU].numa == {"GPU-00": (0,), "GPU-01": (0,), "GPU-02": (1,), "GPU-03": (1,)}
    assert manager.ready
    assert all(status.registered and status.streams == 1 for status in manager.status())


async def test_an_empty_layout_is_ready_and_serves_nothing(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([])
    await manager.mend()
    assert manager.ready
    assert sockets(kubelet.folder) == set()


async def test_its_sockets_are_for_their_owner_alone(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([view_of(gpus(2)), view_of(migs(1, 2))])
    await manager.mend()
    modes = [stat.S_IMODE((kubelet.folder / name).stat().st_mode) for name in sockets(kubelet.folder)]
    assert modes == [0o600, 0o600]


async def test_a_refused_registration_is_tried_again_later_and_later(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock
) -> None:
    kubelet.refusal = "not now"
    manager.apply([view_of(gpus(1))])
    start_s, tried_at = clock.now_s, []
    while clock.now_s < start_s + 20:
        before = kubelet.attempts
        await manager.mend()
        if kubelet.attempts > before:
            tried_at.append(clock.now_s - start_s)
        clock.now_s += 0.1
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried_at)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 0.4
    assert LONGEST_RETRY_S <= gaps[-1] <= LONGEST_RETRY_S + 0.2
    (status,) = manager.status()
    assert not status.registered
    assert "not now" in (status.last_error or "")

    kubelet.refusal = None
    clock.now_s += LONGEST_RETRY_S
    await manager.mend()
    await listed(kubelet, 1)
    assert manager.ready
    assert manager.status()[0].last_error is None


async def test_after_a_registration_the_first_retry_of_the_next_is_soon_again(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock
) -> None:
    kubelet.refusal = "not now"
    manager.apply([view_of(gpus(1))])
    for _ in range(5):
        await manager.mend()
        clock.now_s += LONGEST_RETRY_S
    kubelet.refusal = None
    await manager.mend()
    await listed(kubelet, 1)
    kubelet.refusal = "not again"
    await kubelet.endpoints[GPU].channel.close()
    await eventually(lambda: [status.streams for status in manager.status()] == [0])
    clock.now_s += UNHEARD_S + 0.1
    await manager.mend()
    assert not manager.ready
    refused = kubelet.attempts
    clock.now_s += 2 * FIRST_RETRY_S
    await manager.mend()
    assert kubelet.attempts == refused + 1


async def test_a_refusal_that_repeats_is_logged_once(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    kubelet.refusal = "not now"
    manager.apply([view_of(gpus(1))])
    for _ in range(5):
        await manager.mend()
        clock.now_s += LONGEST_RETRY_S + 1
    assert kubelet.attempts == 5
    assert [record.getMessage() for record in caplog.records if record.name.startswith("deviceplugin")] == [
        "registration failed"
    ]


async def test_it_looks_again_when_a_retry_is_due_and_otherwise_only_polls(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    assert manager._pause_s() == POLL_S
    kubelet.refusal = "not now"
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    assert 0 < manager._pause_s() < POLL_S
    kubelet.refusal = None
    await kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    await manager.mend()
    assert manager._pause_s() >= 0.1


async def test_without_a_kubelet_it_waits_without_spinning(folder: Path) -> None:
    clock = ManualClock()
    clock.now_s = 10 * POLL_S
    manager = PluginManager(folder, folder / "kubelet.sock", Preferrer(), RecordingObserver(), clock)
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    assert not manager.ready
    assert manager._pause_s() == POLL_S
    clock.now_s += 0.25 * POLL_S
    assert manager._pause_s() == pytest.approx(0.75 * POLL_S)  # with the other polls of the process
    await manager.close()


async def test_without_a_registration_socket_it_serves_and_is_ready(folder: Path) -> None:
    manager = PluginManager(folder, None, Preferrer(), RecordingObserver())
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    assert manager.ready
    assert len(sockets(folder)) == 1
    await manager.close()


async def test_registrations_are_counted_with_their_outcome(kubelet: FakeKubelet, clock: ManualClock) -> None:
    observer = RecordingObserver()
    manager = PluginManager(kubelet.folder, kubelet.socket, Preferrer(), observer, clock)
    kubelet.refusal = "not now"
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    kubelet.refusal = None
    clock.now_s += 1
    await manager.mend()
    (refused, accepted) = observer.registrations
    assert "not now" in (refused[1] or "")
    assert accepted == (GPU, None)
    await manager.close()


# What changes reaches the kubelet, and only that.


async def test_a_health_change_touches_its_own_resource_only(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([view_of(gpus(4)), view_of(migs(2, 3))])
    await manager.mend()
    await listed(kubelet, 4)
    await listed(kubelet, 6, MIG)
    before = sockets(kubelet.folder)
    manager.apply([view_of(gpus(4), unhealthy={"GPU-03": "XID 79"}), view_of(migs(2, 3))])
    await listed(kubelet, 3)
    manager.apply([view_of(gpus(4)), view_of(migs(2, 3))])
    await listed(kubelet, 4)
    assert kubelet.endpoints[MIG].lists == 1
    assert sockets(kubelet.folder) == before
    assert sorted(kubelet.registrations) == [GPU, MIG]


async def test_a_changed_device_list_is_sent_without_registering_anew(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    await listed(kubelet, 2)
    manager.apply([view_of(shared(2, 10))])
    await listed(kubelet, 20)
    await manager.mend()
    assert kubelet.registrations == [GPU]


async def test_a_resource_that_is_no_longer_wanted_ends_with_an_empty_list(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(4)), view_of(migs(2, 3))])
    await manager.mend()
    await listed(kubelet, 6, MIG)
    manager.apply([view_of(gpus(4))])
    await manager.mend()
    await kubelet.wait_for(lambda: kubelet.endpoints[MIG].devices == {})
    assert len(sockets(kubelet.folder)) == 1
    await listed(kubelet, 4)
    assert manager.ready


async def test_a_new_resource_is_served_by_the_running_manager(kubelet: FakeKubelet) -> None:
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(4))])
        await listed(kubelet, 4)
        manager.apply([view_of(gpus(4)), view_of(migs(1, 2))])
        await listed(kubelet, 2, MIG)
        assert kubelet.registrations == [GPU, MIG]


async def test_pods_get_linked_pairs_and_never_a_device_twice(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([view_of(gpus(8))])
    await manager.mend()
    await listed(kubelet, 8)
    grants = [await kubelet.allocate(GPU, 2, pod=f"pod-{n}") for n in range(4)]
    pairs = [{int(device[-2:]) // 2 for device in grant.devices} for grant in grants]
    assert sorted(len(pair) for pair in pairs) == [1, 1, 1, 1]
    assert len({device for grant in grants for device in grant.devices}) == 8
    kubelet.delete("pod-2")
    again = await kubelet.allocate(GPU, 2, pod="pod-9")
    assert set(again.devices) == set(grants[2].devices)
    assert again.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",") == list(again.devices)


# Kubelet restarts, and other people's hands in the folder.


async def test_one_look_after_a_kubelet_restart_is_enough_to_be_registered(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(4)), view_of(migs(1, 2))])
    await manager.mend()
    await listed(kubelet, 4)
    before = {endpoint_of(kubelet), endpoint_of(kubelet, MIG)}
    await kubelet.restart()
    assert sockets(kubelet.folder) == set()
    await manager.mend()
    await listed(kubelet, 4)
    await listed(kubelet, 2, MIG)
    after = {endpoint_of(kubelet), endpoint_of(kubelet, MIG)}
    assert not before & after
    assert sockets(kubelet.folder) == after
    assert manager.ready


async def test_a_kubelet_restart_is_noticed_by_the_next_poll(kubelet: FakeKubelet) -> None:
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(4))])
        await listed(kubelet, 4)
        for _ in range(2):
            held = (await kubelet.allocate(GPU, 1, pod="keeps")).devices
            await kubelet.restart()
            await listed(kubelet, 4)
            assert kubelet.held() >= set(held)
            kubelet.delete("keeps")
    assert POLL_S <= 1.0


async def test_while_the_kubelet_is_away_it_is_not_ready(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    assert manager.ready
    await kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    await manager.mend()
    assert not manager.ready
    assert not manager.status()[0].registered
    await kubelet.start()
    await manager.mend()
    assert manager.ready


async def test_a_kubelet_that_leaves_our_sockets_alone_is_a_new_one_still(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    await listed(kubelet, 2)
    first = endpoint_of(kubelet)
    kept = (kubelet.folder / first).stat().st_ino
    await kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    await kubelet.serve()
    assert (kubelet.folder / first).stat().st_ino == kept
    await manager.mend()
    await listed(kubelet, 2)
    assert len(sockets(kubelet.folder)) == 1


async def test_a_removed_socket_is_mended_and_the_devices_stay_allocatable(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(2)), view_of(migs(1, 2))])
    await manager.mend()
    await listed(kubelet, 2)
    first, other = endpoint_of(kubelet), endpoint_of(kubelet, MIG)
    (kubelet.folder / first).unlink()
    await manager.mend()
    await kubelet.wait_for(lambda: endpoint_of(kubelet) != first)
    await listed(kubelet, 2)
    await kubelet.allocate(GPU, 1)
    assert sockets(kubelet.folder) == {endpoint_of(kubelet), other}
    assert kubelet.registrations.count(MIG) == 1


async def test_a_socket_that_is_swept_as_it_is_made_is_made_anew(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet empties its folder as it starts: what it then calls has to be there."""
    start, swept = DevicePluginServer.start, list[str]()

    async def swept_once(server: DevicePluginServer, folder: Path) -> Path:
        socket = await start(server, folder)
        if not swept:
            socket.unlink()
            swept.append(socket.name)
        return socket

    monkeypatch.setattr(DevicePluginServer, "start", swept_once)
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    clock.now_s += POLL_S
    await manager.mend()
    await listed(kubelet, 2)
    assert sockets(kubelet.folder) == {endpoint_of(kubelet)}
    assert endpoint_of(kubelet) not in swept
    await kubelet.allocate(GPU, 1)


async def test_a_kubelet_that_stopped_listening_is_told_again(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock
) -> None:
    manager.apply([view_of(gpus(2)), view_of(migs(1, 2))])
    await manager.mend()
    await listed(kubelet, 2)
    await kubelet.endpoints[GPU].channel.close()
    await listed(kubelet, 0)
    await eventually(lambda: [status.streams for status in manager.status()] == [0, 1])
    await manager.mend()
    clock.now_s += UNHEARD_S + 0.1
    await manager.mend()
    await listed(kubelet, 2)
    assert kubelet.registrations.count(MIG) == 1


async def test_a_registration_that_was_not_answered_is_made_again_on_a_fresh_socket(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may have taken the first, and would not notice the end of one that is registered twice."""
    monkeypatch.setattr("deviceplugin.kubelet.REGISTER_TIMEOUT_S", 0.05)
    kubelet.deaf = True
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    await listed(kubelet, 2)
    taken = endpoint_of(kubelet)
    kubelet.deaf = False
    monkeypatch.undo()
    assert "DEADLINE_EXCEEDED" in (manager.status()[0].last_error or "")
    clock.now_s += 2 * FIRST_RETRY_S
    await manager.mend()
    await kubelet.wait_for(lambda: endpoint_of(kubelet) != taken)
    await listed(kubelet, 2)
    assert manager.ready
    assert manager.status()[0].last_error is None
    assert sockets(kubelet.folder) == {endpoint_of(kubelet)}
    await manager.close()
    await listed(kubelet, 0)


async def test_a_socket_replaced_by_another_file_is_given_up_for_a_fresh_one(
    kubelet: FakeKubelet, manager: PluginManager
) -> None:
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    first = kubelet.folder / endpoint_of(kubelet)
    first.unlink()
    first.write_text("not a socket")
    await manager.mend()
    await kubelet.wait_for(lambda: endpoint_of(kubelet) != first.name)
    await listed(kubelet, 2)


async def test_a_change_during_a_replacement_is_not_lost(kubelet: FakeKubelet, manager: PluginManager) -> None:
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    await listed(kubelet, 2)
    await kubelet.restart()
    kubelet.hold.clear()
    mending = asyncio.create_task(manager.mend())
    before = kubelet.attempts
    await eventually(lambda: kubelet.attempts > before)
    manager.apply([view_of(gpus(2), unhealthy={"GPU-01": "XID 79"})])
    kubelet.hold.set()
    await mending
    await listed(kubelet, 1)


# The end, and neighbours.


@pytest.mark.parametrize("withdrawn", [[], [view_of(gpus(3))]], ids=["the resource", "a device of it"])
async def test_a_server_that_is_being_replaced_gives_nothing_that_was_withdrawn_meanwhile(
    kubelet: FakeKubelet, manager: PluginManager, monkeypatch: pytest.MonkeyPatch, withdrawn: list[ResourceView]
) -> None:
    """The kubelet may still call the old one: its connection outlives the socket's name."""
    manager.apply([view_of(gpus(4))])
    await manager.mend()
    await listed(kubelet, 4)
    old = kubelet.endpoints[GPU]
    stopping, go_on, stop = asyncio.Event(), asyncio.Event(), DevicePluginServer.stop

    async def slow(server: DevicePluginServer) -> None:
        stopping.set()
        await go_on.wait()
        await stop(server)

    monkeypatch.setattr(DevicePluginServer, "stop", slow)
    (kubelet.folder / endpoint_of(kubelet)).unlink()
    mending = asyncio.create_task(manager.mend())
    await stopping.wait()
    manager.apply(withdrawn)
    try:
        with pytest.raises(grpc.aio.AioRpcError, match="unknown device"):
            await old.stub.Allocate(allocating(["GPU-03"]), timeout=HANG_S)
    finally:
        go_on.set()
    await mending


async def test_closing_ends_the_streams_and_leaves_no_socket(kubelet: FakeKubelet) -> None:
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(2)), view_of(migs(1, 2))])
        await listed(kubelet, 2)
        await listed(kubelet, 2, MIG)
    assert sockets(kubelet.folder) == set()
    await kubelet.wait_for(lambda: not kubelet.endpoints[GPU].healthy and not kubelet.endpoints[MIG].healthy)


async def test_closing_in_the_middle_of_a_replacement_leaves_no_socket(kubelet: FakeKubelet) -> None:
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(2))])
        await listed(kubelet, 2)
        (kubelet.folder / endpoint_of(kubelet)).unlink()
        kubelet.hold.clear()
        before = kubelet.attempts
        await eventually(lambda: kubelet.attempts > before)
    kubelet.hold.set()
    assert sockets(kubelet.folder) == set()


async def test_it_can_be_cancelled_even_while_a_server_stops_that_swallows_it(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, release = asyncio.Event(), asyncio.Event()
    stop = DevicePluginServer.stop

    async def swallowing(server: DevicePluginServer) -> None:
        stopping.set()
        with contextlib.suppress(asyncio.CancelledError):  # as gRPC's own stop does at times
            await release.wait()
        await stop(server)

    monkeypatch.setattr(DevicePluginServer, "stop", swallowing)
    manager = PluginManager(kubelet.folder, kubelet.socket, Preferrer(), RecordingObserver())
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    manager.apply([])
    task = asyncio.create_task(manager.run())
    await stopping.wait()
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    release.set()
    await manager.close()
    assert sockets(kubelet.folder) == set()


async def test_a_folder_without_room_is_one_log_line_and_mended_when_it_can_be(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    deep = kubelet.folder / ("d" * 60) / ("e" * 60)
    manager = PluginManager(deep, kubelet.socket, Preferrer(), RecordingObserver())
    manager.apply([view_of(gpus(1))])
    for _ in range(4):
        await manager.mend()
    assert not manager.ready
    assert [record.getMessage() for record in caplog.records if record.name.startswith("deviceplugin")] == [
        "cannot serve"
    ]
    await manager.close()


async def test_two_agents_in_one_folder_do_not_touch_each_other(kubelet: FakeKubelet) -> None:
    async with running(kubelet) as one, running(kubelet) as other:
        one.apply([view_of(gpus(4))])
        other.apply([view_of(migs(1, 2))])
        await listed(kubelet, 4)
        await listed(kubelet, 2, MIG)
        assert len(sockets(kubelet.folder)) == 2
        assert sweep(kubelet.folder) == 0
        await kubelet.restart()
        await listed(kubelet, 4)
        await listed(kubelet, 2, MIG)
        await one.close()
        await kubelet.allocate(MIG, 1)


@pytest.fixture
def dead_socket(folder: Path) -> Path:
    """What an agent leaves behind that was killed."""
    path = folder / "tessera-00000001.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
    return path


async def test_a_sweep_removes_dead_sockets_and_leaves_live_and_foreign_ones(dead_socket: Path) -> None:
    folder = dead_socket.parent
    foreign = folder / "nvidia-gpu.sock"
    foreign.touch()
    manager = PluginManager(folder, None, Preferrer(), RecordingObserver())
    manager.apply([view_of(gpus(1))])
    await manager.mend()
    live = sockets(folder) - {dead_socket.name}
    assert len(live) == 1
    assert sweep(folder) == 1
    assert sockets(folder) == live
    assert foreign.exists()
    assert sweep(folder / "missing") == 0
    await manager.close()
