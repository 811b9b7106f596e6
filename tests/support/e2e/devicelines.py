"""What a node's kubelet and hardware say, as lines of a record (docs/audit.md). Pure: no line without a change.

The kubelet's pod resources tell which pod has which device; claims that containers have become the calls
``NodePrepareResources`` and ``NodeUnprepareResources``. Calls themselves are not seen from outside.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from inventory.layout.layout import REPLICA_MARK
from kubeletapi import podresources_v1_pb2 as pb

Json = dict[str, Any]
Device = tuple[str, str, str]
"""Driver, pool, name."""
UNSEEN: Final = "kubelets: their calls, of which only what pod resources say of the outcome is in the record"


class DeviceLines:
    """Of one node. ``_pods``, ``_claims`` and ``_gpus`` are what was told last."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._pods: list[Json] = []
        self._claims: dict[str, list[str]] = {}
        self._gpus: list[Json] | None = None

    def lines(
        self,
        listed: pb.ListPodResourcesResponse,
        offered: pb.AllocatableResourcesResponse,
        gpus: Sequence[Json] | None,
        published: Mapping[Device, Json],
        watched: Collection[tuple[str, str]] = (),
    ) -> Iterator[Json]:
        """``gpus``: as the simulated hardware tells them; None where there is none to ask. ``published``: devices of
        ResourceSlices. ``watched``: claims, each with a device that it has with admin access, which is no hand.
        """
        claims = _claims(listed, published, _instances(gpus or ()), watched)
        hardware = None if gpus is None else _hardware(gpus, _shares(listed, claims), offered)
        if hardware is not None and hardware != self._gpus:
            self._gpus = hardware
            yield {"source": "hardware", "node": self._node, "gpus": hardware}
        pods = list(_pods(listed))
        if pods != self._pods:
            self._pods = pods
            yield {"source": "kubelet", "node": self._node, "call": "PodResources", "pods": pods}
        for name in sorted(self._claims.keys() - claims.keys()):
            yield {"source": "kubelet", "node": self._node, "call": "NodeUnprepareResources", "claim": name}
        for name, devices in sorted(claims.items()):
            if self._claims.get(name) != devices:
                call = {"call": "NodePrepareResources", "claim": name, "devices": devices}
                yield {"source": "kubelet", "node": self._node, **call}
        self._claims = claims


def claimed_devices(listed: pb.ListPodResourcesResponse) -> set[Device]:
    """Devices that claims of containers have."""
    return {(each.driver_name, each.pool_name, each.device_name) for _, each in _claimed(listed)}


def _claimed(listed: pb.ListPodResourcesResponse) -> Iterator[tuple[str, pb.ClaimResource]]:
    for pod in listed.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                for each in claim.claim_resources:
                    yield f"{claim.claim_namespace}/{claim.claim_name}", each


def _pods(listed: pb.ListPodResourcesResponse) -> Iterator[Json]:
    """Those that have devices, in an order of their own: a kubelet lists them in any."""
    for pod in sorted(listed.pod_resources, key=lambda each: (each.namespace, each.name)):
        containers = [
            {
                "name": container.name,
                "devices": [
                    {"resource": group.resource_name, "ids": sorted(group.device_ids)}
                    for group in sorted(container.devices, key=lambda each: (each.resource_name, *each.device_ids))
                ],
            }
            for container in pod.containers
            if container.devices
        ]
        if containers:
            yield {"namespace": pod.namespace, "name": pod.name, "containers": containers}


def _claims(
    listed: pb.ListPodResourcesResponse,
    published: Mapping[Device, Json],
    instances: Mapping[tuple[str, str, str], str],
    watched: Collection[tuple[str, str]],
) -> dict[str, list[str]]:
    """UUIDs by claim, with their share's id; none of devices that nobody published, or whose hardware is not seen."""
    found: dict[str, set[str]] = {}
    for claim, each in _claimed(listed):
        device = published.get((each.driver_name, each.pool_name, each.device_name))
        uuid = _uuid(device, instances) if device is not None else None
        if uuid is not None and (claim, each.device_name) not in watched:
            found.setdefault(claim, set()).add(f"{uuid}{REPLICA_MARK}{each.share_id}" if each.share_id else uuid)
    return {claim: sorted(uuids) for claim, uuids in found.items()}


def _uuid(device: Json, instances: Mapping[tuple[str, str, str], str]) -> str | None:
    attributes = device.get("attributes", {})
    if "uuid" in attributes:
        return str(attributes["uuid"]["string"])
    if "parentUUID" not in attributes or "profile" not in attributes:
        return None
    place = (attributes["parentUUID"]["string"], attributes["profile"]["string"], device["name"].rpartition("-")[2])
    return instances.get(place)


def _instances(gpus: Iterable[Json]) -> dict[tuple[str, str, str], str]:
    """UUID of a MIG device by its GPU, profile and first memory slice."""
    return {
        (gpu["uuid"], each["profile"], str(each["start"])): each["uuids"][0]
        for gpu in gpus
        for each in gpu["mig"] or ()
        if each["uuids"]
    }


def _shares(listed: pb.ListPodResourcesResponse, claims: Mapping[str, list[str]]) -> Counter[str]:
    """By UUID the replicas that pods have, and the shares that claims have."""
    ids = {
        id_
        for pod in listed.pod_resources
        for container in pod.containers
        for group in container.devices
        for id_ in group.device_ids
    }
    return _counted(ids.union(*claims.values()))


def _counted(ids: Iterable[str]) -> Counter[str]:
    return Counter(id_.partition(REPLICA_MARK)[0] for id_ in ids if REPLICA_MARK in id_)


def _hardware(gpus: Sequence[Json], held: Counter[str], offered: pb.AllocatableResourcesResponse) -> list[Json]:
    """Each GPU takes as many hands as the kubelet may give replicas of it, or gave before a layout had fewer."""
    replicas = _counted({id_ for group in offered.devices for id_ in group.device_ids})
    return [
        {
            "uuid": gpu["uuid"],
            "replicas": max(replicas[gpu["uuid"]], held[gpu["uuid"]], 1),
            "mig": [{"uuid": uuid, "profile": each["profile"]} for each in gpu["mig"] or () for uuid in each["uuids"]],
            "resets": gpu.get("toolResets", 0),
        }
        for gpu in gpus
    ]
