"""One resource's server, as the kubelet sees it through its socket."""

import asyncio
import random
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest

from deviceplugin.choice import Preferrer
from deviceplugin.server import MAX_SOCKET_PATH_BYTES, DevicePluginServer, SocketPathError
from deviceplugin.strategy import AllocationSpec, DeviceListStrategy
from kube.testing import eventually
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.deviceplugin.fakes import (
    EndlessChooser,
    IdleContext,
    RecordingObserver,
    allocating,
    asking,
    dialled,
    next_list,
    rest_of,
    serving,
)
from tests.support.deviceplugin.views import GPU, gpus, shared, view_of


async def test_it_offers_preferred_allocation_and_wants_no_pre_start_call(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        options = await kubelet.GetDevicePluginOptions(pb.Empty())
        assert options.get_preferred_allocation_available
        assert not options.pre_start_required
        assert await kubelet.PreStartContainer(pb.PreStartContainerRequest()) == pb.PreStartContainerResponse()


async def test_the_first_list_holds_every_device_with_health_and_numa_node(folder: Path) -> None:
    view = view_of(gpus(4), unhealthy={"GPU-02": "XID 79"})
    async with serving(view, folder) as server, dialled(server) as kubelet:
        listed = await next_list(kubelet.ListAndWatch(pb.Empty()))
        assert [(d.ID, d.health, [n.ID for n in d.topology.nodes]) for d in listed.devices] == [
            ("GPU-00", "Healthy", [0]),
            ("GPU-01", "Healthy", [0]),
            ("GPU-02", "Unhealthy", [1]),
            ("GPU-03", "Healthy", [1]),
        ]


async def test_a_device_of_unknown_numa_node_has_no_topology(folder: Path) -> None:
    async with serving(view_of(shared(1, 2)), folder) as server, dialled(server) as kubelet:
        listed = await next_list(kubelet.ListAndWatch(pb.Empty()))
        assert not any(device.HasField("topology") for device in listed.devices)


async def test_a_health_change_reaches_every_open_stream(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        streams = [kubelet.ListAndWatch(pb.Empty()) for _ in range(2)]
        for stream in streams:
            await next_list(stream)
        assert server.update(view_of(gpus(2), unhealthy={"GPU-01": "lost"}))
        for stream in streams:
            listed = await next_list(stream)
            assert [device.health for device in listed.devices] == ["Healthy", "Unhealthy"]


async def test_a_view_that_lists_the_same_is_not_sent_again(folder: Path) -> None:
    async with serving(view_of(gpus(2), unhealthy={"GPU-01": "XID 79"}), folder) as server, dialled(server) as kubelet:
        stream = kubelet.ListAndWatch(pb.Empty())
        await next_list(stream)
        assert not server.update(view_of(gpus(2), unhealthy={"GPU-01": "another reason"}))
        server.update(view_of(gpus(2)))
        listed = await next_list(stream)
        assert all(device.health == "Healthy" for device in listed.devices)


async def test_a_burst_of_changes_ends_with_the_last_one(folder: Path) -> None:
    async with serving(view_of(gpus(4)), folder) as server, dialled(server) as kubelet:
        stream = kubelet.ListAndWatch(pb.Empty())
        await next_list(stream)
        for n in range(101):
            server.update(view_of(gpus(4), unhealthy={f"GPU-0{n % 4}": "flaps"}))
        listed = await next_list(stream)
        assert [device.ID for device in listed.devices if device.health == "Unhealthy"] == ["GPU-00"]


async def test_preferred_devices_are_the_linked_ones_in_whatever_order_they_are_offered(folder: Path) -> None:
    order = random.Random(1)
    async with serving(view_of(gpus(8)), folder) as server, dialled(server) as kubelet:
        for _ in range(10):
            available = [f"GPU-0{i}" for i in (1, 2, 4, 5, 7)]
            order.shuffle(available)
            answer = await kubelet.GetPreferredAllocation(asking(available, 2))
            assert [list(one.deviceIDs) for one in answer.container_responses] == [["GPU-04", "GPU-05"]]


async def test_preferred_devices_contain_the_required_ones(folder: Path) -> None:
    async with serving(view_of(gpus(8)), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.GetPreferredAllocation(asking([f"GPU-0{i}" for i in range(8)], 2, ["GPU-06"]))
        assert set(answer.container_responses[0].deviceIDs) == {"GPU-06", "GPU-07"}


async def test_a_kubelet_one_list_behind_gets_an_answer_it_understands(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.GetPreferredAllocation(asking(["GPU-00", "GPU-77"], 1, ["GPU-77"]))
        assert list(answer.container_responses[0].deviceIDs) == ["GPU-77"]


async def test_containers_are_answered_one_by_one_in_order(folder: Path) -> None:
    async with serving(view_of(gpus(4)), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.Allocate(allocating(["GPU-01"], ["GPU-00", "GPU-03"]))
        assert [one.envs["NVIDIA_VISIBLE_DEVICES"] for one in answer.container_responses] == [
            "GPU-01",
            "GPU-00,GPU-03",
        ]


async def test_every_answer_has_its_own_annotation_key(folder: Path) -> None:
    spec = AllocationSpec(strategies=(DeviceListStrategy.CDI_ANNOTATIONS,))
    async with serving(view_of(gpus(2), spec=spec), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.Allocate(allocating(["GPU-00"], ["GPU-01"]))
        assert len({key for one in answer.container_responses for key in one.annotations}) == 2


async def test_every_field_of_an_answer_crosses_the_wire(folder: Path) -> None:
    spec = AllocationSpec(
        strategies=(
            DeviceListStrategy.ENVVAR,
            DeviceListStrategy.VOLUME_MOUNTS,
            DeviceListStrategy.CDI_ANNOTATIONS,
            DeviceListStrategy.CDI_CRI,
        ),
        pass_device_specs=True,
    )
    async with serving(view_of(gpus(1), spec=spec), folder) as server, dialled(server) as kubelet:
        answer = (await kubelet.Allocate(allocating(["GPU-00"]))).container_responses[0]
        assert answer.envs
        assert answer.annotations
        assert [(mount.container_path, mount.host_path) for mount in answer.mounts] == [
            ("/var/run/nvidia-container-devices/GPU-00", "/dev/null")
        ]
        assert [(one.container_path, one.host_path, one.permissions) for one in answer.devices] == [
            ("/dev/nvidiactl", "/host/dev/nvidiactl", "rw"),
            ("/dev/nvidia0", "/host/dev/nvidia0", "rw"),
        ]
        assert [one.name for one in answer.cdi_devices] == ["k8s.device-plugin.nvidia.com/gpu=GPU-00"]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["GPU-09"], "unknown device: GPU-09"),
        (["GPU-01"], "GPU-01 is unhealthy: XID 79"),
        (["GPU-00\nlevel=error", "GPU-00"], "unknown device"),
    ],
)
async def test_a_wrong_request_is_refused_with_one_reason(folder: Path, ids: list[str], words: str) -> None:
    observer = RecordingObserver()
    view = view_of(gpus(2), unhealthy={"GPU-01": "XID 79"})
    async with serving(view, folder, observer=observer) as server, dialled(server) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.Allocate(allocating(ids))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert words in (refused.value.details() or "")
        await kubelet.Allocate(allocating(["GPU-00"]))
    (first, second) = observer.calls
    assert first[:2] == (GPU, "Allocate")
    assert words in (first[2] or "")
    assert second == (GPU, "Allocate", None)


async def test_the_sharing_limit_is_refused_in_the_peers_words(folder: Path) -> None:
    async with serving(view_of(shared(2, 2, one_at_most=True)), folder) as server, dialled(server) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.Allocate(allocating(["GPU-00::0", "GPU-01::0"]))
        assert refused.value.details() == (
            'invalid allocation request for "nvidia.com/gpu": '
            "invalid request: maximum request size for shared resources is 1; found 2"
        )


async def test_a_search_without_end_does_not_delay_an_allocate(folder: Path) -> None:
    chooser = EndlessChooser(gpus(16))
    view = view_of(gpus(16), chooser=chooser)
    async with serving(view, folder, preferrer=Preferrer(budget_s=60.0)) as server, dialled(server) as kubelet:
        searching = asyncio.ensure_future(kubelet.GetPreferredAllocation(asking(["GPU-00"], 1)))
        await chooser.search.started.wait()
        for _ in range(10):
            await kubelet.Allocate(allocating(["GPU-03"]))
        assert not searching.done()
        chooser.search.enough = True
        assert list((await searching).container_responses[0].deviceIDs) == ["GPU-00"]


async def test_a_search_gives_its_best_when_its_time_is_over(folder: Path) -> None:
    view = view_of(gpus(16), chooser=EndlessChooser(gpus(16)))
    async with serving(view, folder, preferrer=Preferrer(budget_s=0.02)) as server, dialled(server) as kubelet:
        answer = await kubelet.GetPreferredAllocation(asking(["GPU-00"], 1))
        assert list(answer.container_responses[0].deviceIDs) == ["GPU-00"]


async def test_a_caller_that_goes_away_ends_its_stream(folder: Path) -> None:
    observer = RecordingObserver()
    async with serving(view_of(gpus(1)), folder, observer=observer) as server:
        async with dialled(server) as kubelet:
            await next_list(kubelet.ListAndWatch(pb.Empty()))
            assert (server.streams, observer.streams) == (1, 1)
        await eventually(lambda: (server.streams, observer.streams) == (0, 0))


async def test_stopping_ends_the_streams_without_error_and_removes_the_socket(folder: Path) -> None:
    server = DevicePluginServer(view_of(gpus(1)), Preferrer(), RecordingObserver())
    socket = await server.start(folder)
    async with dialled(server) as kubelet:
        stream = kubelet.ListAndWatch(pb.Empty())
        await next_list(stream)
        await server.stop()
        assert await rest_of(stream) == []
        assert await stream.code() is grpc.StatusCode.OK
    assert not socket.exists()
    await server.stop()


async def test_emptied_before_it_stops_its_last_word_is_an_empty_list(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        stream = kubelet.ListAndWatch(pb.Empty())
        await next_list(stream)
        server.empty()
        await server.stop()
        messages = await rest_of(stream)
        assert messages
        assert not messages[-1].devices


async def test_a_list_that_changes_while_it_is_sent_is_told_anew_before_the_stream_ends(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server:
        context = IdleContext()
        stream = server.ListAndWatch(pb.Empty(), context)
        assert (await anext(stream)).devices
        server.empty()
        async with asyncio.TaskGroup() as both:
            both.create_task(server.stop())
            await asyncio.sleep(0)
            rest = [message async for message in stream]
            context.end()
        assert [list(message.devices) for message in rest] == [[]]


async def test_it_serves_until_its_streams_have_ended(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server:
        context = IdleContext()
        stream = server.ListAndWatch(pb.Empty(), context)
        await anext(stream)
        stopping = asyncio.create_task(server.stop())
        assert [message async for message in stream] == []
        await asyncio.sleep(0)
        assert not stopping.done(), "the end of the stream was not on the wire yet"
        context.end()
        await stopping


async def test_a_kubelet_that_does_not_read_delays_the_end_for_a_bounded_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deviceplugin.server.LAST_WORD_S", 0.01)
    server = DevicePluginServer(view_of(gpus(2)), Preferrer(), RecordingObserver())
    socket = await server.start(folder)
    await anext(server.ListAndWatch(pb.Empty(), IdleContext()))
    await server.stop()
    assert not socket.exists()


async def test_its_socket_is_for_its_owner_alone(folder: Path) -> None:
    async with serving(view_of(gpus(1)), folder) as server:
        assert server.socket is not None
        mode = server.socket.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


async def test_two_servers_in_one_folder_have_their_own_sockets(folder: Path) -> None:
    async with serving(view_of(gpus(1)), folder) as one, serving(view_of(gpus(2)), folder) as other:
        assert one.socket != other.socket
        await one.stop()
        async with dialled(other) as kubelet:
            await kubelet.Allocate(allocating(["GPU-01"]))


async def test_a_folder_without_room_for_a_socket_path_is_one_clear_error(folder: Path) -> None:
    deep = folder / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    server = DevicePluginServer(view_of(gpus(1)), Preferrer(), RecordingObserver())
    with pytest.raises(SocketPathError) as refused:
        await server.start(deep)
    assert str(refused.value).startswith(str(deep))
    assert f"expected {MAX_SOCKET_PATH_BYTES} at most" in str(refused.value)
    await server.stop()


async def test_a_folder_is_used_up_to_the_last_byte(folder: Path) -> None:
    room = MAX_SOCKET_PATH_BYTES - len("/tessera-00000000.sock") - len(str(folder)) - 1
    exact = folder / ("f" * room)
    exact.mkdir()
    async with serving(view_of(gpus(1)), exact) as server, dialled(server) as kubelet:
        assert len(str(server.socket)) == MAX_SOCKET_PATH_BYTES
        await kubelet.Allocate(allocating(["GPU-00"]))


async def test_a_folder_that_is_missing_is_an_os_error(folder: Path) -> None:
    server = DevicePluginServer(view_of(gpus(1)), Preferrer(), RecordingObserver())
    with pytest.raises(OSError, match="missing: cannot bind"):
        await server.start(folder / "missing")
    await server.stop()


async def test_an_allocation_of_nothing_is_answered_with_an_empty_list(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.Allocate(allocating([], ["GPU-01"]))
        assert [dict(one.envs) for one in answer.container_responses] == [
            {"NVIDIA_VISIBLE_DEVICES": ""},
            {"NVIDIA_VISIBLE_DEVICES": "GPU-01"},
        ]


async def test_a_preference_for_nothing_is_nothing(folder: Path) -> None:
    async with serving(view_of(gpus(2)), folder) as server, dialled(server) as kubelet:
        answer = await kubelet.GetPreferredAllocation(asking(["GPU-00", "GPU-01"], 0))
        assert [list(one.deviceIDs) for one in answer.container_responses] == [[]]
