"""Whatever is sent to the plugin's live socket, the kubelet keeps its stream and pods get their GPUs."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from tests.support.e2e.lab import EXAMPLES, GPU, Agent, Lab

pytestmark = pytest.mark.e2e

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MANY = [f"GPU-{number:08x}" for number in range(50_000)]


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(EXAMPLES / "fleets/pairs.yaml", None, api=False) as agent:
        yield agent


@pytest.fixture
def target(lab: Lab, agent: Agent) -> Iterator[Path]:
    """The socket under attack; afterwards everything is as it was, and a pod still gets its GPU."""
    lab.await_amounts({GPU: 4})
    before = agent.sockets(), agent.registrations(GPU)
    agent.until(lambda report: report.servers[0].streams == 1, "the kubelet's stream alone")
    yield Path(agent.sockets()[GPU])
    agent.until(lambda report: report.servers[0].streams == 1, "the kubelet's stream alone")
    assert (agent.sockets(), agent.registrations(GPU)) == before, "it is the same one"
    assert lab.amounts() == {GPU: 4}
    pod = lab.run("after", {GPU: 2})
    assert set(pod.visible) <= {gpu.uuid for gpu in agent.report().node.gpus}


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 4096, os.urandom(1 << 16), b"GET / HTTP/1.1\r\n\r\n", PREFACE + os.urandom(4096), PREFACE + b"\xff" * 9],
    ids=["zeros", "noise", "http1", "preface-noise", "huge-frame"],
)
def test_garbage_on_the_socket(target: Path, garbage: bytes) -> None:
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(target))
            try:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                continue


@pytest.mark.parametrize(
    "ids",
    [[""], ["GPU-nobody"], ["GPU-nobody"] * 2, ["../../etc/passwd"], ["\u2603" * 1000], MANY],
    ids=["empty", "unknown", "twice", "path", "snow", "many"],
)
def test_ids_that_are_none(target: Path, ids: list[str]) -> None:
    with grpc.insecure_channel(f"unix:{target}") as channel:
        stub = pb_grpc.DevicePluginStub(channel)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        with pytest.raises(grpc.RpcError) as refused:
            stub.Allocate(request, timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=ids, must_include_deviceIDs=ids[:1], allocation_size=2**31 - 1
        )
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]), timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_container_that_gets_nothing_is_answered_with_nothing(target: Path) -> None:
    """As NVIDIA's plugin answers: an empty list of devices names none."""
    with grpc.insecure_channel(f"unix:{target}") as channel:
        stub = pb_grpc.DevicePluginStub(channel)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[])])
        (answer,) = stub.Allocate(request, timeout=60).container_responses
    assert not answer.devices
    assert not answer.mounts
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": ""}


def test_requests_beyond_any_kubelet_s(target: Path) -> None:
    with grpc.insecure_channel(f"unix:{target}") as channel:
        stub = pb_grpc.DevicePluginStub(channel)
        one = pb.ContainerAllocateRequest(devices_ids=["GPU-nobody"])
        with pytest.raises(grpc.RpcError) as refused:
            stub.Allocate(pb.AllocateRequest(container_requests=[one] * 10_000), timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        huge = pb.ContainerAllocateRequest(devices_ids=["x" * (8 << 20)])
        with pytest.raises(grpc.RpcError) as refused:
            stub.Allocate(pb.AllocateRequest(container_requests=[huge]), timeout=60)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_bytes_that_are_no_message(target: Path) -> None:
    with grpc.insecure_channel(f"unix:{target}") as channel:
        for method in ("Allocate", "GetPreferredAllocation", "ListAndWatch", "PreStartContainer", "Unknown"):
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")
            with pytest.raises(grpc.RpcError):
                call(b"\xff\xfe\xfd" * 1000, timeout=60)


def test_a_hundred_watchers_that_do_not_read(agent: Agent, target: Path) -> None:
    with grpc.insecure_channel(f"unix:{target}") as channel:
        stub = pb_grpc.DevicePluginStub(channel)
        streams = [stub.ListAndWatch(pb.Empty()) for _ in range(100)]
        agent.until(lambda report: report.servers[0].streams > 50, "many streams")
        for stream in streams:
            stream.cancel()


def test_strangers_may_not_connect(target: Path) -> None:
    assert target.stat().st_mode & 0o777 == 0o600
