"""The holders of GPUs and MIG instances by claim, by UUID: for the report, layouts and the MIG planner.

The ledger knows first; the kubelet's pod resources name the containers later, and still list claims that a lost ledger
does not know.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from agent.dra.cutting import Cuts
from agent.dra.ledger import GivenDevice, Ledger, Prepared
from agent.dra.publishing.partitions import device_name
from agent.kubelet.containers import ClaimUse
from agent.kubelet.holders import Claimed, Holder
from inventory.devices import DeviceId, Gpu, ResourceName
from inventory.layout.layout import physical_id

if TYPE_CHECKING:
    from kubeletapi import podresources_v1_pb2 as pb

MAX_RETURNED: Final = 1024


class ClaimHolders:
    """The claims that hold devices of one node. ``_returned`` are the last claims (namespace, name) that the kubelet
    gave back: it may still list them.
    """

    def __init__(self, driver: str, ledger: Ledger, cuts: Cuts) -> None:
        self._driver = driver
        self._ledger = ledger
        self._cuts = cuts
        self._returned: dict[tuple[str, str], None] = {}

    def taken(self, namespace: str, name: str) -> None:
        """Record that a claim of that name is being prepared."""
        self._returned.pop((namespace, name), None)

    def returned(self, namespace: str, name: str) -> None:
        """Record that the kubelet gives the claim back."""
        self._returned[namespace, name] = None
        while len(self._returned) > MAX_RETURNED:
            del self._returned[next(iter(self._returned))]

    def claimed(self, gpus: Iterable[Gpu], units: Mapping[str, str]) -> Claimed:
        """A function from a device as the kubelet names it to the device that the claim holds; a device watched with
        admin access is held by nobody. ``units`` are UUIDs by device name.

        A claim that the ledger does not know (its file was lost, or NVIDIA's driver prepared it) holds the device that
        its device name says, and the whole GPU where that instance is not known: no layout may take it.
        """
        known = {(claim.namespace, claim.name, each.device): unit for unit, each, claim in self._held()}
        names = {(claim.namespace, claim.name) for claim in self._ledger.entries}
        by_name = {device_name(gpu): gpu.uuid for gpu in gpus}

        def unit_of(driver: str, namespace: str, name: str, device: str) -> DeviceId | None:
            if driver != self._driver:
                return None
            if (namespace, name) in names or (namespace, name) in self._returned:
                return known.get((namespace, name, device))
            unit = units.get(device) or by_name.get("-".join(device.split("-")[:2]))
            return None if unit is None else DeviceId(unit)

        return unit_of

    def uses(self) -> dict[DeviceId, ClaimUse]:
        """The claim that has each device, as metrics name it."""
        by_device: dict[DeviceId, ClaimUse] = {}
        for unit, device, claim in self._held():
            by_device[unit] = ClaimUse(
                claim.namespace,
                claim.name,
                self._driver,
                device.pool,
                device.device,
                profile="" if device.slot is None else device.slot.profile,
                mig="" if device.slot is None else unit,
                percent=0 if device.share is None else device.share.percent,
            )
        return by_device

    def holders(self) -> dict[DeviceId, Holder]:
        """The claim that has each device, shown as the first pod that it was prepared for. An instance that does not
        exist (yet) is shown as its GPU: no layout may take that meanwhile.
        """
        return {
            self._cuts.held_as(device) or DeviceId(device.gpu): Holder(
                claim.namespace, _first_pod(claim), claim.name, ResourceName(self._driver)
            )
            for claim in self._ledger.entries
            for device in claim.devices
            if not device.admin
        }

    def holding(self, answer: "pb.ListPodResourcesResponse", units: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """UUIDs of devices with the pods that have them: of claims that were answered, and of those that the kubelet
        alone still knows. A device of a claim that the kubelet gave back is held by nobody. ``units`` are UUIDs by
        device name.
        """
        for unit, _, claim in self._held():
            if self._ledger.answered(claim.uid) is not None:
                yield physical_id(unit), f"{claim.namespace}/{_first_pod(claim)}"
        known = {(claim.namespace, claim.name) for claim in self._ledger.entries}
        listed: set[tuple[str, str]] = set()
        for pod in answer.pod_resources:
            for claimed in (claimed for container in pod.containers for claimed in container.dynamic_resources):
                key = (claimed.claim_namespace, claimed.claim_name)
                listed.add(key)
                for given in claimed.claim_resources if key not in known | self._returned.keys() else ():
                    if given.driver_name == self._driver and given.device_name in units:
                        yield units[given.device_name], f"{pod.namespace}/{pod.name}"
        self._returned = {key: None for key in self._returned if key in listed}

    def _held(self) -> Iterator[tuple[DeviceId, GivenDevice, Prepared]]:
        for claim in self._ledger.entries:
            for device in claim.devices:
                unit = None if device.admin else self._cuts.held_as(device)
                if unit is not None:
                    yield unit, device, claim


def _first_pod(claim: Prepared) -> str:
    return (*claim.pods, claim.name)[0]
