"""Resources, views and access for the tests of this room."""

from collections.abc import Mapping, Sequence

from deviceplugin.strategy import AllocationSpec, DeviceAccess, DeviceNode, NodeAccess, imex_channel_path
from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, GpuUuid, MigUuid, ResourceName
from inventory.layout.layout import LogicalDevice, Resource
from inventory.layout.sharing import ReplicaPolicy, SharingMode
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser
from tests.support.inventory.builders import instances, matrix, replicas, uuid, whole

GPU = ResourceName("nvidia.com/gpu")


def gpus(count: int, *, name: str = GPU, numa_node: int | None = None) -> Resource:
    """``count`` whole GPUs; with ``numa_node`` None the first half is on node 0, the rest on node 1."""
    devices = (
        LogicalDevice(id=DeviceId(uuid(i)), gpu=uuid(i), numa_node=i * 2 // count if numa_node is None else numa_node)
        for i in range(count)
    )
    return Resource(ResourceName(name), tuple(devices))


def shared(count: int, each: int, *, name: str = GPU, one_at_most: bool = False) -> Resource:
    devices = tuple(device for i in range(count) for device in replicas(i, each))
    return Resource(ResourceName(name), devices, SharingMode.TIME_SLICING, one_at_most)


def migs(count: int, each: int, *, name: str = "nvidia.com/mig-1g.10gb") -> Resource:
    return Resource(ResourceName(name), tuple(device for i in range(count) for device in instances(i, each)))


def mixture() -> tuple[LogicalDevice, ...]:
    """Whole GPUs, replicas, MIG instances and replicas of those, on eight GPUs."""
    sliced = [
        LogicalDevice(
            id=DeviceId(f"MIG-07-0::{n}"),
            gpu=GpuUuid("GPU-07"),
            mig=MigUuid("MIG-07-0"),
            replica=n,
        )
        for n in range(3)
    ]
    return (*map(whole, range(4)), *replicas(4, 3), *replicas(5, 3), *instances(6, 4), *sliced)


def null_node(path: str) -> DeviceNode:
    return DeviceNode("/dev/null", path)


EXTRAS = {
    "imex-channel": tuple(null_node(imex_channel_path(channel)) for channel in range(8)),
    "gdrcopy": (null_node("/dev/gdrdrv"),),
    "gds": (null_node("/dev/nvidia-fs0"),),
    "mofed": (null_node("/dev/infiniband/rdma_cm"),),
}
"""The files of every feature, on a host that has them all."""


def access_of(
    devices: Sequence[LogicalDevice],
    *,
    shared_nodes: Sequence[str] = ("/dev/nvidiactl",),
    extras: Mapping[str, tuple[DeviceNode, ...]] = EXTRAS,
) -> NodeAccess:
    """Files of the devices as the driver names them: /dev/nvidia<N>, and two capabilities for a MIG instance."""
    found: dict[str, DeviceAccess] = {}
    for device in devices:
        number = int(device.gpu.rpartition("-")[2])
        own = DeviceNode(f"/host/dev/nvidia{number}", f"/dev/nvidia{number}")
        if device.mig is None:
            found[device.gpu] = DeviceAccess(str(number), (own,))
            continue
        index = int(device.mig.rpartition("-")[2])
        caps = (f"/dev/nvidia-caps/nvidia-cap{100 * number + 2 * index + i}" for i in (1, 2))
        nodes = (own, *(DeviceNode(f"/host{path}", path) for path in caps))
        found[device.mig] = DeviceAccess(f"{number}:{index}", nodes)
    return NodeAccess(found, tuple(DeviceNode(f"/host{path}", path) for path in shared_nodes), extras)


def view_of(
    resource: Resource,
    *,
    unhealthy: Mapping[str, str] | None = None,
    spec: AllocationSpec | None = None,
    chooser: Chooser | None = None,
) -> ResourceView:
    """A view on GPUs that come in well-linked pairs."""
    owners = list(dict.fromkeys(device.gpu for device in resource.devices))
    links = LinkTable(owners, matrix(len(owners), lambda i, j: 1260 if i // 2 == j // 2 else 10))
    return ResourceView(
        resource,
        unhealthy={DeviceId(device): reason for device, reason in (unhealthy or {}).items()},
        spec=spec or AllocationSpec(),
        access=access_of(resource.devices),
        chooser=chooser or Chooser(resource.devices, links),
        policy=ReplicaPolicy.DISTRIBUTED,
    )
