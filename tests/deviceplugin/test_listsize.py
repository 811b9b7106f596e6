"""The size of the kubelet's list: our arithmetic against protobuf's bytes and gRPC's own limit of a message."""

from pathlib import Path

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from deviceplugin.wire import device_list
from inventory import listsize
from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import LogicalDevice, plan
from inventory.layout.sharing import LayoutSpec, ReplicatedResource, Replication
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.deviceplugin.fakes import dialled, next_list, serving
from tests.support.deviceplugin.views import GPU, view_of
from tests.support.inventory.builders import gpu, node

ID = GpuUuid("GPU-00000000-0000-0000-0000-000000000000")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 99_990), st.integers(0, 20), st.none() | st.integers(0, 300))
def test_a_list_is_as_large_as_it_is_counted(first: int, count: int, numa: int | None) -> None:
    devices = [
        LogicalDevice(id=DeviceId(f"{ID}::{n}"), gpu=ID, replica=n, numa_node=numa) for n in range(first, first + count)
    ]
    size = device_list(devices, {device.id for device in devices}).ByteSize()
    assert size == listsize.replicas_bytes(len(ID), numa, first, count)


async def test_the_largest_list_passes_grpcs_own_limit_and_a_larger_one_does_not(folder: Path) -> None:
    one = structs.replace(gpu(0), uuid=ID, numa_node=None)
    spec = LayoutSpec(replication=Replication(resources=(ReplicatedResource(GPU, listsize.MAX_REPLICAS),)))
    (resource,) = plan(node([one]), spec).resources
    ill: dict[str, str] = {device.id: "lost" for device in resource.devices}
    async with serving(view_of(resource, unhealthy=ill), folder) as server, dialled(server) as kubelet:
        stream = kubelet.ListAndWatch(pb.Empty())
        assert len((await next_list(stream)).devices) == listsize.MAX_REPLICAS
        more = structs.replace(resource.devices[-1], id=DeviceId(f"{ID}::{listsize.MAX_REPLICAS}"))
        larger = structs.replace(resource, devices=(*resource.devices, more))
        server.update(view_of(larger, unhealthy={**ill, more.id: "lost"}))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await next_list(stream)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
