"""Converts this room's plain data to the kubelet's protobuf messages, and back."""

from collections.abc import Container, Iterable

from deviceplugin.answer import ContainerAnswer
from inventory.devices import DeviceId
from inventory.layout.layout import LogicalDevice
from kubeletapi import deviceplugin_v1beta1_pb2 as pb

VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


def device_list(devices: Iterable[LogicalDevice], unhealthy: Container[DeviceId]) -> pb.ListAndWatchResponse:
    """The full list for one ListAndWatch message; with NUMA topology where it is known."""
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=device.id,
                health=UNHEALTHY if device.id in unhealthy else HEALTHY,
                topology=None
                if device.numa_node is None
                else pb.TopologyInfo(nodes=[pb.NUMANode(ID=device.numa_node)]),
            )
            for device in devices
        ]
    )


def container_response(answer: ContainerAnswer) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=answer.envs,
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(container_path=d.container_path, host_path=d.host_path, permissions=d.permissions)
            for d in answer.devices
        ],
        annotations=answer.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi_devices],
    )
