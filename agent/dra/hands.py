"""Who has which GPU or MIG instance by claim, for those who ask by UUID: the report, layouts, the MIG planner.

The ledger knows first; the kubelet's pod resources name the containers later, and know what a lost ledger does not.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from agent.dra.cutting import Cuts
from agent.dra.ledger import Ledger, Prepared
from agent.dra.publishing.devices import DRIVER
from agent.kubelet.podresources import Claimed, Holder
from inventory.devices import DeviceId, ResourceName
from inventory.layout.layout import physical_id

if TYPE_CHECKING:
    from kubeletapi import podresources_v1_pb2 as pb

MAX_RETURNED: Final = 1024


class Hands:
    """Of one node. ``_returned`` are the last claims (namespace, name) that the kubelet gave back: it may still list
    them.
    """

    def __init__(self, ledger: Ledger, cuts: Cuts) -> None:
        self._ledger = ledger
        self._cuts = cuts
        self._returned: dict[tuple[str, str], None] = {}

    def taken(self, namespace: str, name: str) -> None:
        """A claim of that name is being prepared."""
        self._returned.pop((namespace, name), None)

    def returned(self, namespace: str, name: str) -> None:
        """The kubelet gives it back."""
        self._returned[namespace, name] = None
        while len(self._returned) > MAX_RETURNED:
            del self._returned[next(iter(self._returned))]

    def claimed(self) -> Claimed:
        """What claims hold, as the kubelet names it; what is watched with admin access is held by nobody."""
        return {(DRIVER, claim.namespace, claim.name, name): unit for unit, name, claim in self._held()}

    def holders(self) -> dict[DeviceId, Holder]:
        """The claim that has each device, shown as the first pod that it was prepared for. An instance that does not
        exist (yet) is shown as its GPU: no layout may take that meanwhile.
        """
        return {
            self._cuts.held_as(device) or DeviceId(device.gpu): Holder(
                claim.namespace, _first_pod(claim), claim.name, ResourceName(DRIVER)
            )
            for claim in self._ledger.entries
            for device in claim.devices
            if not device.admin
        }

    def holding(self, answer: "pb.ListPodResourcesResponse", units: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """UUIDs of devices with the pods that have them: of claims that were answered, and of those that the kubelet
        alone still knows. What the kubelet itself gave back is held by nobody. ``units`` are UUIDs by device name.
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
                    if given.driver_name == DRIVER and given.device_name in units:
                        yield units[given.device_name], f"{pod.namespace}/{pod.name}"
        self._returned = {key: None for key in self._returned if key in listed}

    def _held(self) -> Iterator[tuple[DeviceId, str, Prepared]]:
        for claim in self._ledger.entries:
            for device in claim.devices:
                unit = None if device.admin else self._cuts.held_as(device)
                if unit is not None:
                    yield unit, device.device, claim


def _first_pod(claim: Prepared) -> str:
    return (*claim.pods, claim.name)[0]
