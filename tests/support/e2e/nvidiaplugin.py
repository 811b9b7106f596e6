"""A device plugin that is not Tessera's: it serves ``nvidia.com/gpu`` as NVIDIA's does, the devices of its arguments.

It is run as a program in a container beside the real kubelet, and leaves when it is told to end.
"""

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


class Plugin(pb_grpc.DevicePluginServicer):
    def __init__(self, devices: list[str], over: threading.Event) -> None:
        self._devices = [pb.Device(ID=device, health="Healthy") for device in devices]
        self._over = over

    def GetDevicePluginOptions(self, _request: pb.Empty, _context: object) -> pb.DevicePluginOptions:  # noqa: N802
        return pb.DevicePluginOptions()

    def ListAndWatch(self, _request: pb.Empty, _context: object) -> Iterator[pb.ListAndWatchResponse]:  # noqa: N802
        yield pb.ListAndWatchResponse(devices=self._devices)
        self._over.wait()

    def Allocate(self, request: pb.AllocateRequest, _context: object) -> pb.AllocateResponse:  # noqa: N802
        answers = (",".join(one.devices_ids) for one in request.container_requests)
        found = [pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ids}) for ids in answers]
        return pb.AllocateResponse(container_responses=found)

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
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_DevicePluginServicer_to_server(Plugin(sys.argv[1:], over), server)
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
