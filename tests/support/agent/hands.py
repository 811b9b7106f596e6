"""The hands that GPUs, MIG instances and shares are in at one moment, and what may never be. Pure, and not the agent's
word.

    ResourceSlices, ResourceClaims, the kubelet's pod resources, the hardware's GPUs -> sight() -> Sight

A hand is a container's device of the device plugin, or an allocated claim that pods hold; a claim that the kubelet
alone still knows is one too. Two hands must not meet: a GPU that one has whole meets all of its parts, parts meet where
they have a memory slice in common, and shares of one device meet all but each other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from inventory.api.names import COMPUTE_PERCENT
from inventory.layout.layout import REPLICA_MARK
from kubeletapi import podresources_v1_pb2 as pb

DRIVER: Final = "gpu.nvidia.com"
PERCENTS: Final = 100
SLICE: Final = "memory-slice-"
Json = dict[str, Any]
Instance = tuple[str, str, int]
"""The GPU's UUID, the profile, the first memory slice."""


@dataclass(frozen=True)
class Extent:
    """What of which GPU: some memory slices, or all of it where ``slices`` is None."""

    gpu: str
    slices: frozenset[int] | None = None

    def meets(self, other: "Extent") -> bool:
        if self.gpu != other.gpu:
            return False
        return self.slices is None or other.slices is None or bool(self.slices & other.slices)


@dataclass(frozen=True)
class Hand:
    """``share`` names what it is one of the shares of; empty where it has its extent alone."""

    holder: str
    extent: Extent
    share: str = ""

    def meets(self, other: "Hand") -> bool:
        apart = self.holder == other.holder or (self.share != "" and self.share == other.share)
        return not apart and self.extent.meets(other.extent)


@dataclass(frozen=True)
class Published:
    """A device of a slice; ``instance`` of one that is a part of a GPU."""

    extent: Extent
    instance: Instance | None = None

    @classmethod
    def of(cls, device: Json) -> "Published":
        attributes = device["attributes"]
        if "uuid" in attributes:
            return cls(Extent(attributes["uuid"]["string"]))
        counters = [name for each in device.get("consumesCounters", ()) for name in each["counters"]]
        gpu = attributes["parentUUID"]["string"]
        slices = frozenset(int(name.removeprefix(SLICE)) for name in counters if name.startswith(SLICE))
        start = int(device["name"].rpartition("-")[2])
        return cls(Extent(gpu, slices), (gpu, attributes["profile"]["string"], start))


@dataclass
class Sight:
    """``violations`` may never be. ``odd`` may be for a moment: while something is made, or a dead agent starts again.
    ``kinds`` are the kinds of hands that were seen: resources of the plugin, ``claim``, ``mig``, ``shares``.
    """

    kinds: set[str] = field(default_factory=set)
    violations: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Read:
    """What was read at one moment. ``gpus``: as the simulated hardware tells them; None where there is none to ask."""

    slices: Sequence[Json]
    claims: Sequence[Json]
    kubelet: pb.ListPodResourcesResponse
    gpus: Sequence[Json] | None = None


def sight(read: Read) -> Sight:
    """Everything that is wrong at this moment, one line each, the same line for the same wrong."""
    found = Sight()
    published = _published(read.slices)
    watched = _watched(read.claims)
    hands = [
        *_claimed(read.claims, published, found),
        *_claimed_by_kubelet(read.kubelet, published, watched, found),
        *_plugged(read.kubelet, _instances(read.gpus or ()), found),
    ]
    for one, other in combinations(dict.fromkeys(hands), 2):
        if one.meets(other):
            found.violations.add(f"{one.extent.gpu}: {' and '.join(sorted((one.holder, other.holder)))}")
    if read.gpus is not None:
        _look_at_hardware(read, read.gpus, published, found)
    return found


def _published(slices: Iterable[Json]) -> dict[tuple[str, str], Published]:
    """By pool and name."""
    specs = [each["spec"] for each in slices if each["spec"]["driver"] == DRIVER]
    return {
        (spec["pool"]["name"], device["name"]): Published.of(device)
        for spec in specs
        for device in spec.get("devices", ())
    }


def _key(meta: Json) -> str:
    return f"claim {meta['namespace']}/{meta['name']}"


def _results(claim: Json) -> list[Json]:
    found: list[Json] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [each for each in found if each["driver"] == DRIVER]


def _watched(claims: Iterable[Json]) -> set[tuple[str, str]]:
    """Claims, and names of devices that they have with admin access."""
    return {
        (_key(claim["metadata"]), each["device"])
        for claim in claims
        for each in _results(claim)
        if each.get("adminAccess")
    }


def _claimed(claims: Iterable[Json], published: Mapping[tuple[str, str], Published], found: Sight) -> Iterator[Hand]:
    """Those that are reserved, with what they hold but with admin access."""
    percents: Counter[str] = Counter()
    for claim in claims:
        if not claim.get("status", {}).get("reservedFor"):
            continue
        key = _key(claim["metadata"])
        alone: Counter[str] = Counter()
        for each in _results(claim):
            device = published.get((each["pool"], each["device"]))
            if device is None or each.get("adminAccess"):
                continue
            percent = int(each.get("consumedCapacity", {}).get(COMPUTE_PERCENT, 0))
            percents[device.extent.gpu] += percent
            alone[each["device"]] += not percent
            found.kinds |= {"claim"} | ({"shares"} if percent else {"mig"} if device.instance else set())
            yield Hand(key, device.extent, f"shares {each['device']}" if percent else "")
        found.violations |= {f"{name}: twice in {key}" for name, times in alone.items() if times > 1}
    found.violations |= {f"{gpu}: {percent} percent" for gpu, percent in percents.items() if percent > PERCENTS}


def _claimed_by_kubelet(
    answer: pb.ListPodResourcesResponse,
    published: Mapping[tuple[str, str], Published],
    watched: set[tuple[str, str]],
    found: Sight,
) -> Iterator[Hand]:
    for claim in (one for pod in answer.pod_resources for each in pod.containers for one in each.dynamic_resources):
        key = f"claim {claim.claim_namespace}/{claim.claim_name}"
        for given in claim.claim_resources:
            device = published.get((given.pool_name, given.device_name))
            if device is not None and (key, given.device_name) not in watched:
                found.kinds.add("claim")
                yield Hand(key, device.extent, f"shares {given.device_name}" if given.share_id else "")


def _instances(gpus: Iterable[Json]) -> dict[str, Extent]:
    """Of the hardware, by the UUID of a MIG device."""
    return {
        uuid: Extent(gpu["uuid"], frozenset(range(each["start"], each["start"] + each["size"])))
        for gpu in gpus
        for each in gpu["mig"] or ()
        for uuid in each["uuids"]
    }


def _plugged(answer: pb.ListPodResourcesResponse, instances: Mapping[str, Extent], found: Sight) -> Iterator[Hand]:
    """The device plugin's. A replica is in one hand as well; of a MIG device without hardware nothing is known."""
    replicas: dict[str, str] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for group in container.devices:
                holder = f"{group.resource_name} of {pod.namespace}/{pod.name}/{container.name}"
                for device in group.device_ids:
                    unit, mark, _ = device.partition(REPLICA_MARK)
                    extent = instances.get(unit, None if unit.startswith("MIG-") else Extent(unit))
                    if not unit.startswith(("GPU-", "MIG-")):
                        continue
                    found.kinds.add(group.resource_name)
                    if (before := replicas.setdefault(device, holder)) != holder:
                        found.violations.add(f"{device}: {' and '.join(sorted((before, holder)))}")
                    if extent is not None:
                        yield Hand(holder, extent, f"replicas {unit}" if mark else "")


def _look_at_hardware(
    read: Read, gpus: Sequence[Json], published: Mapping[tuple[str, str], Published], found: Sight
) -> None:
    """Each instance of a GPU that is given out by claim belongs to one, and what a container has exists."""
    by_claim = {device.extent.gpu for device in published.values()}
    there = {(gpu["uuid"], each["profile"], each["start"]) for gpu in gpus for each in gpu["mig"] or ()}
    devices = [
        (claim, published.get((each["pool"], each["device"])))
        for claim in read.claims
        if claim.get("status", {}).get("reservedFor")
        for each in _results(claim)
    ]
    held = {device.instance for _, device in devices if device is not None}
    found.odd |= {f"{each} exists and no claim has it" for each in there - held if each[0] in by_claim}
    known = _instances(gpus)
    for pod in read.kubelet.pod_resources:
        for container in pod.containers:
            for given in (each for claim in container.dynamic_resources for each in claim.claim_resources):
                device = published.get((given.pool_name, given.device_name))
                if device is not None and device.instance is not None and device.instance not in there:
                    found.odd.add(f"{device.instance} is a container's and does not exist")
            for unit in (each.partition(REPLICA_MARK)[0] for group in container.devices for each in group.device_ids):
                if unit.startswith("MIG-") and unit not in known:
                    found.odd.add(f"{unit} is a container's and does not exist")
