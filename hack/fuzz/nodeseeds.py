"""Inputs that reach deep into the parsers of the agent."""

from collections.abc import Sequence
from typing import Any, Final

DRIVER: Final = "gpu.nvidia.com"
OPAQUE: Final[Sequence[Any]] = (
    {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}},
    },
    {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {
            "strategy": "MPS",
            "mpsConfig": {
                "defaultActiveThreadPercentage": 30,
                "defaultPinnedDeviceMemoryLimit": "4Gi",
                "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"},
            },
        },
    },
    {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}},
)
CLAIM: Final = {
    "metadata": {"name": "c", "namespace": "team", "uid": "u"},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "a/b",
                        "driver": DRIVER,
                        "pool": "n",
                        "device": "gpu-0",
                        "shareID": "s",
                        "consumedCapacity": {"memory": "1Gi"},
                    }
                ],
                "config": [
                    {"source": "FromClass", "requests": ["a"], "opaque": {"driver": DRIVER, "parameters": OPAQUE[1]}}
                ],
            }
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}],
        "devices": [
            {"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": [{"type": "Ready", "status": "True"}]}
        ],
    },
}
POD: Final = {
    "metadata": {"name": "p", "namespace": "team", "uid": "u", "annotations": {"tessera.dev/devices": "GPU-1*60"}},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "containerd://" + "a" * 64}]},
}
GPU: Final = {"uuid": "GPU-1", "index": 0, "minor": 0, "product": "A", "pci_bus_id": "0000:07:00.0", "memory_mib": 1}
CHECKPOINT: Final = {
    "version": 1,
    "boot_id": "b",
    "node": {"name": "n", "driver_version": "1", "cuda_version": [12, 8], "gpus": [], "links": []},
    "health": {
        "gpus": [
            {
                "uuid": "GPU-1",
                "pci_bus_id": "0",
                "mig_enabled": False,
                "switch_links": [],
                "ecc_seen": True,
                "faults": [],
                "units": [],
                "history": [],
            }
        ],
        "version": 1,
    },
    "energy_mj": {"GPU-1": 7},
}
JOURNAL: Final = {
    "version": 1,
    "gpu": "GPU-1",
    "boot_id": "b",
    "profiles": ["1g.10gb"],
    "mode_before": True,
    "before": [],
    "target": [],
    "done": True,
}
LEDGER: Final = {
    "version": 1,
    "claims": [
        {
            "uid": "u",
            "namespace": "n",
            "name": "c",
            "stage": "completed",
            "devices": [{"request": "a", "pool": "n", "device": "gpu-0", "gpu": "GPU-1"}],
        }
    ],
}
CGROUPS: Final = (
    b"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0fbc2ebe_1111_2222_3333_444455556666.slice/"
    b"cri-containerd-" + b"a" * 64 + b".scope\n",
    b"4:memory:/kubepods/besteffort/pod0fbc2ebe-1111-2222-3333-444455556666/" + b"b" * 64 + b"\n",
)


def pod_messages() -> Sequence[bytes]:
    from kubeletapi import podresources_v1_pb2 as pb

    container = pb.ContainerResources(
        name="c",
        devices=[pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1"])],
        dynamic_resources=[
            pb.DynamicResource(
                claim_name="c",
                claim_namespace="n",
                claim_resources=[pb.ClaimResource(driver_name=DRIVER, device_name="gpu-0")],
            )
        ],
    )
    pod = pb.PodResources(name="p", namespace="n", containers=[container])
    return [pb.ListPodResourcesResponse(pod_resources=[pod, pod]).SerializeToString()]


def allocate_messages() -> Sequence[bytes]:
    from kubeletapi import deviceplugin_v1beta1_pb2 as pb

    one = pb.ContainerAllocateRequest(devices_ids=["GPU-0", "GPU-1"])
    return [pb.AllocateRequest(container_requests=[one, one]).SerializeToString()]


def prepare_messages() -> Sequence[bytes]:
    from kubeletapi import deviceplugin_v1beta1_pb2 as pb
    from kubeletapi import dra_v1_pb2 as dra

    asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["GPU-0"], allocation_size=1)
    return [
        dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="n", name="c", uid="u")]).SerializeToString(),
        pb.PreferredAllocationRequest(container_requests=[asked]).SerializeToString(),
        b"2",
    ]
