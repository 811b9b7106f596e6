"""Whatever is written into the socket, the server stays and the next honest call is answered."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.server import MAX_CONTAINERS, MAX_REQUEST_BYTES, DevicePluginServer
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.deviceplugin.fakes import allocating, asking, channel_to, dialled, serving
from tests.support.deviceplugin.views import gpus, shared, view_of

METHODS = ("GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
REFUSALS = {grpc.StatusCode.INVALID_ARGUMENT}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


# A request that claims a body of 2 GiB, and one whose headers never end.
HALF_MESSAGE = PREFACE + SETTINGS_FRAME + frame(0, 0, 1, b"\x00\x7f\xff\xff\xff")
ENDLESS_HEADERS = PREFACE + SETTINGS_FRAME + frame(1, 0, 1, b"\x82\x84")

FRAMES = st.builds(frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=60))
CHUNKS = st.one_of(
    st.binary(max_size=200),
    st.lists(FRAMES, max_size=5).map(lambda frames: PREFACE + SETTINGS_FRAME + b"".join(frames)),
)


async def write_raw(server: DevicePluginServer, content: bytes) -> None:
    """Connect, write, half-close, and take in what the server says until it hangs up or has said enough."""
    reader, writer = await asyncio.open_unix_connection(str(server.socket))
    with contextlib.suppress(ConnectionError):
        writer.write(content)
        writer.write_eof()
        await writer.drain()
        await reader.read(65536)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def call_raw(server: DevicePluginServer, method: str, request: bytes) -> grpc.StatusCode:
    """One call with ``request`` as the message's bytes, whatever they are; how it ended."""
    async with channel_to(server) as channel:
        path = f"/v1beta1.DevicePlugin/{method}"
        if method == "ListAndWatch":
            streaming: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
            stream = streaming(request, timeout=60)
            with contextlib.suppress(grpc.aio.AioRpcError):
                if await stream.read() is not grpc.aio.EOF:
                    return grpc.StatusCode.OK
            return await stream.code()
        unary: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        return await unary(request, timeout=60).code()


async def assert_alive(server: DevicePluginServer) -> None:
    async with dialled(server) as kubelet:
        answer = await kubelet.Allocate(allocating(["GPU-01"]), timeout=60)
        assert answer.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-01"


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[DevicePluginServer]:
    async with serving(view_of(gpus(4)), folder) as server:
        yield server
        await assert_alive(server)


@contextlib.asynccontextmanager
async def short_lived() -> AsyncIterator[DevicePluginServer]:
    """A server of its own for each example, alive at the end."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        async with serving(view_of(gpus(4)), Path(folder)) as server:
            yield server
            await assert_alive(server)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4096,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        PREFACE[:10],
        PREFACE + b"\xff" * 1000,
        HALF_MESSAGE,
        ENDLESS_HEADERS,
    ],
    ids=["nothing", "zeros", "http1", "half-preface", "bad-frames", "half-message", "endless-headers"],
)
async def test_garbage_on_the_socket_hurts_nobody_else(server: DevicePluginServer, content: bytes) -> None:
    await write_raw(server, content)


@settings(max_examples=20)
@given(st.lists(CHUNKS, min_size=1, max_size=4))
async def test_no_bytes_on_the_socket_end_the_server(chunks: list[bytes]) -> None:
    async with short_lived() as server:
        for chunk in chunks:
            await write_raw(server, chunk)


async def test_many_silent_connections_leave_room_for_the_kubelet(server: DevicePluginServer) -> None:
    writers = []
    for _ in range(100):
        _, writer = await asyncio.open_unix_connection(str(server.socket))
        writers.append(writer)
    await assert_alive(server)
    for writer in writers:
        writer.close()
        await writer.wait_closed()


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(METHODS), st.binary(max_size=100)), min_size=1, max_size=6))
async def test_no_message_ends_the_server(calls: list[tuple[str, bytes]]) -> None:
    async with short_lived() as server:
        for method, content in calls:
            await call_raw(server, method, content)


@settings(max_examples=20)
@given(
    st.lists(st.text(max_size=20) | st.sampled_from([f"GPU-0{i}" for i in range(4)]), max_size=8),
    st.lists(st.text(max_size=20) | st.sampled_from([f"GPU-0{i}" for i in range(4)]), max_size=8),
    st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 5),
)
async def test_a_preference_is_a_right_answer_or_a_refusal(
    available: list[str], required: list[str], size: int
) -> None:
    async with short_lived() as server, dialled(server) as kubelet:
        try:
            answer = await kubelet.GetPreferredAllocation(asking(available, size, required), timeout=60)
        except grpc.aio.AioRpcError as refused:
            code = refused.code()
        else:
            chosen = list(answer.container_responses[0].deviceIDs)
            assert len(chosen) == len(set(chosen)) == size
            assert set(required) <= set(chosen) <= set(available)
            return
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        sound = len(set(available)) == len(available) and len(set(required)) == len(required)
        assert not (sound and set(required) <= set(available) and len(required) <= size <= len(available))


@pytest.mark.parametrize("size", [-(2**31), -1, 5, 2**31 - 1])
async def test_a_size_that_cannot_be_is_refused(server: DevicePluginServer, size: int) -> None:
    request = asking([f"GPU-0{i}" for i in range(4)], size)
    assert await call_raw(server, "GetPreferredAllocation", request.SerializeToString()) in REFUSALS


@pytest.mark.parametrize("method", ["Allocate", "GetPreferredAllocation"])
async def test_text_that_is_not_utf8_is_refused(server: DevicePluginServer, method: str) -> None:
    # container_requests[0].<field 1>[0] = ff fe
    request = b"\x0a\x04\x0a\x02\xff\xfe"
    assert await call_raw(server, method, request) is not grpc.StatusCode.OK


async def test_a_message_above_the_limit_is_refused_unread(server: DevicePluginServer) -> None:
    request = allocating(["x" * (MAX_REQUEST_BYTES + 1)]).SerializeToString()
    assert await call_raw(server, "Allocate", request) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("repeated", [[], ["GPU-1"]], ids=["distinct", "one-twice"])
async def test_a_hundred_thousand_ids_are_one_answer_or_one_refusal(
    server: DevicePluginServer, repeated: list[str]
) -> None:
    ids = [f"GPU-{i}" for i in range(100_000)] + repeated
    assert await call_raw(server, "Allocate", allocating(ids).SerializeToString()) in REFUSALS
    for request in (asking(ids, 5), asking(ids[:5], 5, ids)):
        code = await call_raw(server, "GetPreferredAllocation", request.SerializeToString())
        assert code in {grpc.StatusCode.OK, *REFUSALS}


async def test_more_containers_than_a_pod_can_have_are_one_refusal(server: DevicePluginServer) -> None:
    request = allocating(*[["GPU-00"]] * (MAX_CONTAINERS + 1))
    assert await call_raw(server, "Allocate", request.SerializeToString()) in REFUSALS
    preferring = pb.PreferredAllocationRequest(
        container_requests=[asking(["GPU-00"], 1).container_requests[0]] * (MAX_CONTAINERS + 1)
    )
    assert await call_raw(server, "GetPreferredAllocation", preferring.SerializeToString()) in REFUSALS


async def test_an_unknown_method_is_unimplemented(server: DevicePluginServer) -> None:
    assert await call_raw(server, "Deallocate", b"") is grpc.StatusCode.UNIMPLEMENTED


async def test_a_caller_that_leaves_in_the_middle_of_a_call_is_forgotten(server: DevicePluginServer) -> None:
    for _ in range(20):
        async with dialled(server) as kubelet:
            call = kubelet.Allocate(allocating(["GPU-00"]))
            call.cancel()


async def test_answers_to_many_replicas_stay_right_beside_wrong_calls(folder: Path) -> None:
    async with serving(view_of(shared(8, 100)), folder) as server, dialled(server) as kubelet:
        every = [f"GPU-0{i}::{n}" for i in range(8) for n in range(100)]
        good = [kubelet.GetPreferredAllocation(asking(every, 8)) for _ in range(5)]
        bad = [kubelet.GetPreferredAllocation(asking(every, -1)) for _ in range(5)]
        answers = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert all(isinstance(one, grpc.aio.AioRpcError) for one in answers[5:])
        for one in answers[:5]:
            assert isinstance(one, pb.PreferredAllocationResponse)
            assert len({device.partition("::")[0] for device in one.container_responses[0].deviceIDs}) == 8
