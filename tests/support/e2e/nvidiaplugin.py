"""A device plugin that is not Tessera's: it serves ``nvidia.com/gpu`` as NVIDIA's does, the devices of its arguments.

With ``--cdi`` before them it writes a CDI spec and names its devices in answers, as NVIDIA's does with the strategies
cdi-annotations and cdi-cri; else answers have NVIDIA_VISIBLE_DEVICES. As NVIDIA's it registers once, and sends its
devices once: a kubelet that drops it hears of it no more. The spec stays when it leaves. It is run as a program in a
container beside the real kubelet, and leaves when it is told to end.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = "nvidia-gpu.sock"
KIND = "k8s.device-plugin.nvidia.com/gpu"
SPEC = Path("/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json")


def write_spec(devices: list[str]) -> None:
    """Device files are those of /dev/null: there is no kernel driver."""
    found = []
    for index, device in enumerate(devices):
        nodes = [{"path": f"/dev/nvidia{index}", "hostPath": "/dev/null"}]
        found.append({"name": device, "containerEdits": {"deviceNodes": nodes}})
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    SPEC.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": found, "containerEdits": edits}))


class Plugin(pb_grpc.DevicePluginServicer):
    def __init__(self, devices: list[str], over: threading.Event, *, cdi: bool) -> None:
        self._devices = [pb.Device(ID=device, health="Healthy") for device in devices]
        self._over = over
        self._answer = self._named if cdi else self._visible

    def GetDevicePluginOptions(self, _request: pb.Empty, _context: object) -> pb.DevicePluginOptions:  # noqa: N802
        return pb.DevicePluginOptions()

    def ListAndWatch(self, _request: pb.Empty, _context: object) -> Iterator[pb.ListAndWatchResponse]:  # noqa: N802
        yield pb.ListAndWatchResponse(devices=self._devices)
        self._over.wait()

    def Allocate(self, request: pb.AllocateRequest, _context: object) -> pb.AllocateResponse:  # noqa: N802
        found = [self._answer(list(one.devices_ids)) for one in request.container_requests]
        return pb.AllocateResponse(container_responses=found)

    @staticmethod
    def _visible(ids: list[str]) -> pb.ContainerAllocateResponse:
        return pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(ids)})

    @staticmethod
    def _named(ids: list[str]) -> pb.ContainerAllocateResponse:
        names = [f"{KIND}={each}" for each in ids]
        return pb.ContainerAllocateResponse(
            annotations={f"cdi.k8s.io/nvidia-device-plugin_{ids[0]}": ",".join(names)},
            cdi_devices=[pb.CDIDevice(name=name) for name in names],
        )

    def GetPreferredAllocation(  # noqa: N802
        self, _request: pb.PreferredAllocationRequest, _context: object
    ) -> pb.PreferredAllocationResponse:
        return pb.PreferredAllocationResponse()

    def PreStartContainer(  # noqa: N802
        self, _request: pb.PreStartContainerRequest, _context: object
    ) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()


def main() -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    cdi = sys.argv[1:2] == ["--cdi"]
    devices = sys.argv[2 if cdi else 1 :]
    if cdi:
        write_spec(devices)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_DevicePluginServicer_to_server(Plugin(devices, over, cdi=cdi), server)
    (FOLDER / SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{FOLDER / SOCKET}")
    server.start()
    with grpc.insecure_channel(f"unix:{FOLDER}/kubelet.sock") as channel:
        hello = pb.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name="nvidia.com/gpu")
        pb_grpc.RegistrationStub(channel).Register(hello, timeout=10)
    over.wait()
    server.stop(1).wait()
    (FOLDER / SOCKET).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
