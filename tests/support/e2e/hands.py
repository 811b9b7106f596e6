"""Whether any GPU, or a part of one, is in two hands: asked of the kubelet, the API server and the hardware, never of
the agent.

A hand is a container's device of the device plugin, or an allocated claim that pods hold. Devices of claims are looked
up in the ResourceSlices by pool and name, which say their GPU's UUID and the memory slices that they consume: two hands
must not have a memory slice in common. With hardware to look at, each MIG instance must soon belong to a claim, and
each that a container has must exist.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from hack.cluster.errors import ClusterError
from inventory.api.names import COMPUTE_PERCENT
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc
from simulator.client import OrderRefusedError
from tests.support.e2e.lab import Agent, Lab

DRIVER = "gpu.nvidia.com"
INTERVAL_S = 0.25
PERCENTS = 100
SOON_S = 40.0
"""A claim that ends, or a killed agent that starts again, leaves an instance alone for so long at most."""
Instance = tuple[str, str, int]
"""The GPU's UUID, the profile, the first memory slice."""


@dataclass(frozen=True)
class Published:
    """A device of a slice. ``atoms`` are what no other hand may have: the GPU where it is whole, its memory slices."""

    uuid: str
    atoms: set[str]
    instance: Instance | None

    @classmethod
    def of(cls, device: dict[str, Any]) -> "Published":
        attributes = device["attributes"]
        counters = [name for each in device.get("consumesCounters", ()) for name in each["counters"]]
        whole = "uuid" in attributes
        uuid = attributes["uuid" if whole else "parentUUID"]["string"]
        atoms = {f"{uuid} {name}" for name in counters if name.startswith("memory-slice")} | (
            {uuid} if whole else set()
        )
        profile = attributes.get("profile", {}).get("string", "")
        return cls(uuid, atoms, None if whole else (uuid, profile, int(device["name"].rpartition("-")[2])))


class Hands:
    """Looks at one node again and again, and notes what may never be. ``agent`` runs the hardware, where MIG is looked
    at. ``_parts`` are what whole GPUs are made of, by UUID; ``_odd`` says since when something is not as it should be.
    """

    def __init__(self, lab: Lab, agent: Agent | None = None) -> None:
        self._lab = lab
        self._agent = agent
        self._parts: dict[str, set[str]] = {}
        self._odd: dict[str, float] = {}
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
        published = self._published()
        held: set[Instance] = set()
        for claim in self._claims():
            for found, percent in ((published[key], n) for key, n in claim["devices"] if key in published):
                if found.instance is not None:
                    held.add(found.instance)
                    self.seen.add("mig")
                for atom in found.atoms:
                    # All shares of a GPU are one hand, which is none of those that have it alone.
                    hands[atom].add("shares" if percent else f"claim {claim['name']} ({claim['uid']})")
                shares[found.uuid] += percent
        answer = self._kubelet()
        for pod in answer.pod_resources:
            for container in pod.containers:
                for group in container.devices:
                    for device in group.device_ids:
                        uuid = device.partition("::")[0]
                        for atom in {uuid, *self._parts.get(uuid, ())}:
                            hands[atom].add(f"{group.resource_name} of {pod.namespace}/{pod.name}")
        self.violations += [f"{device}: {percent} percent" for device, percent in shares.items() if percent > PERCENTS]
        self.looks += 1
        self.seen |= {hand.split()[0] for found in hands.values() for hand in found}
        self.violations += [f"{device}: {sorted(found)}" for device, found in hands.items() if len(found) > 1]
        if self._agent is not None:
            self._look_at_hardware(self._agent, held, answer, published)

    def _look_at_hardware(
        self,
        agent: Agent,
        held: set[Instance],
        answer: pb.ListPodResourcesResponse,
        published: dict[tuple[str, str], "Published"],
    ) -> None:
        try:
            found = agent.sim(status=True)
        except (OrderRefusedError, OSError):
            return
        if not found.get("live"):
            return  # the agent is down: nobody could mend anything
        there = {
            (gpu["uuid"], each["profile"], each["start"])
            for gpu in found["status"]["gpus"]
            for each in gpu["mig"] or ()
        }
        given: set[Instance] = set()
        for pod in answer.pod_resources:
            for claim in (claim for container in pod.containers for claim in container.dynamic_resources):
                for each in claim.claim_resources:
                    device = published.get((each.pool_name, each.device_name))
                    if device is not None and device.instance is not None:
                        given.add(device.instance)
        self._odd_are(
            {f"{each} exists and no claim has it" for each in there - held}
            | {f"{each} is a container's and does not exist" for each in given - there}
        )

    def _odd_are(self, lines: set[str]) -> None:
        now = time.monotonic()
        self._odd = {line: self._odd.get(line, now) for line in lines}
        for line, since in self._odd.items():
            if now - since > SOON_S:
                self.violations.append(line)

    def _published(self) -> dict[tuple[str, str], "Published"]:
        """By pool and name."""
        found: dict[tuple[str, str], Published] = {}
        for each in self._lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]:
            if each["spec"]["driver"] == DRIVER:
                for device in each["spec"].get("devices", ()):
                    found[each["spec"]["pool"]["name"], device["name"]] = Published.of(device)
        for device in found.values():
            if device.instance is None:
                self._parts[device.uuid] = device.atoms
        return found

    def _claims(self) -> list[dict[str, Any]]:
        """Those that are reserved and not on their way out, with what they hold but with admin access, and the percents
        of it that they have of a shared one.
        """
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
            found.append({"name": meta["name"], "uid": meta["uid"], "devices": keys})
        return found

    def _kubelet(self) -> pb.ListPodResourcesResponse:
        with grpc.insecure_channel(f"unix:{self._lab.host.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            return pb_grpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=10)
