"""Whether any GPU is in two hands: asked of the kubelet and the API server, never of the agent.

A hand is a container's device of the device plugin, or an allocated claim that pods hold. Devices of claims are looked
up in the ResourceSlices by pool and name, which say their GPU's UUID.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import grpc

from hack.cluster.errors import ClusterError
from inventory.api.names import COMPUTE_PERCENT
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc
from tests.support.e2e.lab import Lab

DRIVER = "gpu.nvidia.com"
INTERVAL_S = 0.25
PERCENTS = 100


class Hands:
    """Looks at one node again and again, and notes what may never be."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.looks = 0
        self.seen: set[str] = set()
        """Kinds of hands that were seen at all: without them nothing was checked."""
        self.violations: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator["Hands"]:
        """Look until the block ends."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(INTERVAL_S):
                # While a test restarts kubelet or API server there is nobody to ask.
                with contextlib.suppress(grpc.RpcError, ClusterError):
                    self.look()

        thread = threading.Thread(target=look, name="hands", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def look(self) -> None:
        """One look: claims first, since a claim that goes may free a device for the plugin before the next answer."""
        hands: dict[str, set[str]] = defaultdict(set)
        shares: dict[str, int] = defaultdict(int)
        for claim in self._claims():
            for device, percent in claim["devices"]:
                # All shares of a GPU are one hand, which is none of those that have it alone.
                hands[device].add("shares" if percent else f"claim {claim['name']} ({claim['uid']})")
                shares[device] += percent
        answer = self._kubelet()
        for pod in answer.pod_resources:
            for container in pod.containers:
                for group in container.devices:
                    for device in group.device_ids:
                        hands[device.partition("::")[0]].add(f"{group.resource_name} of {pod.namespace}/{pod.name}")
        self.violations += [f"{device}: {percent} percent" for device, percent in shares.items() if percent > PERCENTS]
        self.looks += 1
        self.seen |= {hand.split()[0] for found in hands.values() for hand in found}
        self.violations += [f"{device}: {sorted(found)}" for device, found in hands.items() if len(found) > 1]

    def _claims(self) -> list[dict[str, Any]]:
        """Those that are reserved and not on their way out, with the UUIDs of what they hold but with admin access, and
        the percents of it that they have of a shared one.
        """
        uuids = {
            (each["spec"]["pool"]["name"], device["name"]): device["attributes"]["uuid"]["string"]
            for each in self._lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
            if each["spec"]["driver"] == DRIVER
            for device in each["spec"].get("devices", ())
        }
        found = []
        for claim in self._lab.get("/apis/resource.k8s.io/v1/resourceclaims")["items"]:
            status = claim.get("status", {})
            results = status.get("allocation", {}).get("devices", {}).get("results", ())
            if not status.get("reservedFor"):
                continue
            keys = [
                ((each["pool"], each["device"]), int(each.get("consumedCapacity", {}).get(COMPUTE_PERCENT, 0)))
                for each in results
                if not each.get("adminAccess")
            ]
            meta = claim["metadata"]
            found.append(
                {
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "devices": [(uuids[key], n) for key, n in keys if key in uuids],
                }
            )
        return found

    def _kubelet(self) -> pb.ListPodResourcesResponse:
        with grpc.insecure_channel(f"unix:{self._lab.host.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            return pb_grpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=10)
