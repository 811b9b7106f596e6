"""Devices by claim, as quota counts them: what the configuration maps, and what a workload is charged.

``controller.engine.deviceclaims`` makes the second of the first and of the objects.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from controller.engine.model.resources import Amount, ResourceName
from controller.objects.core import PodSpec

ClaimKey = str
"""``namespace/name`` of a ResourceClaim."""


class Measure(StrEnum):
    """What of a device is counted."""

    COUNTER = "counter"
    CAPACITY = "capacity"


class DeviceSource(msgspec.Struct, frozen=True, kw_only=True):
    """A device of ``driver`` counts as much as it takes of ``name``. ``selector``: CEL; empty for every device."""

    measure: Measure
    name: str
    driver: str
    selector: str = ""


class DeviceClassMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of these classes count as ``resource``: each as one, or by ``sources``."""

    resource: ResourceName
    classes: tuple[str, ...]
    sources: tuple[DeviceSource, ...] = ()


class ClaimRules(msgspec.Struct, frozen=True, kw_only=True):
    """``every_kind``: claims by name and alternatives are counted too, which Kueue refuses, and All of a claim by name
    that has its devices; and what a resource is worth in honest units counts for claims. ``reject``: without the gate,
    workloads with claims wait for ever.
    """

    mappings: tuple[DeviceClassMapping, ...] = ()
    every_kind: bool = False
    on: bool = True
    extended_resources: bool = True
    reject: bool = True

    @property
    def placed(self) -> bool:
        """Whether claims count where pods are placed on nodes.

        A claim needs a mapping: a workload whose classes are not mapped waits. An extended resource that a class serves
        needs none: its amount is charged by its own name, and nodes that offer none of it give it by claim.
        """
        return self.on and (bool(self.mappings) or (self.every_kind and self.extended_resources))

    @property
    def reads_slices(self) -> bool:
        """Whether an amount may depend on the devices that there are."""
        return self.on and any(mapping.sources or not self.every_kind for mapping in self.mappings)


class ClaimNames(NamedTuple):
    """What a pod's claims are called: by their names in the pod, the objects' names in ``namespace``."""

    namespace: str
    templates: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, str], ...]


def claim_names(namespace: str, spec: PodSpec) -> ClaimNames | None:
    """None for a pod without claims."""
    if not spec.resource_claims:
        return None
    return ClaimNames(
        namespace=namespace,
        templates=tuple(
            (claim.name, claim.resource_claim_template_name)
            for claim in spec.resource_claims
            if claim.resource_claim_template_name and not claim.resource_claim_name
        ),
        claims=tuple(
            (claim.name, claim.resource_claim_name) for claim in spec.resource_claims if claim.resource_claim_name
        ),
    )


class PodSetClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What claims add to the requests of one pod set: for each pod, and once. ``instead``: resources in whose place
    they stand.
    """

    each: Mapping[ResourceName, Amount] = {}
    once: Mapping[ResourceName, Amount] = {}
    """Of claims by name. 0 for what another workload is charged."""
    instead: tuple[ResourceName, ...] = ()


NO_CLAIMS: Final = PodSetClaims()


class WorkloadClaims(msgspec.Struct, frozen=True, kw_only=True):
    """``problem``: why they cannot be counted; empty where they can. ``named``: the claims by name that any pods have,
    and the first pod set with pods that names each.
    """

    pod_sets: tuple[PodSetClaims, ...] = ()
    named: Mapping[ClaimKey, str] = {}
    problem: str = ""
