"""Devices of ResourceClaims as quota counts them: the mappings of the configuration, and what a workload is charged.
``controller.scheduler.dra.claims`` computes the charge from the mappings and the objects.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from controller.objects.core import PodTemplateSpec
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.api.names import GROUP_CLAIMS

ClaimKey = str
"""``namespace/name`` of a ResourceClaim."""


class Measure(StrEnum):
    """Which property of a device is counted."""

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
    """How claims are counted. ``every_kind``: shared claims and alternatives, which Kueue refuses, are counted too, as
    are requests for all devices of a shared claim that has its devices; and what a resource is worth in honest units
    counts for claims. ``reject``: without the gate, workloads with claims wait for ever.
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
        needs none: its amount is charged by its own name, and nodes that offer none of it give it through a claim.
        """
        return self.on and (bool(self.mappings) or (self.every_kind and self.extended_resources))

    @property
    def reads_slices(self) -> bool:
        """Whether an amount may depend on the devices that exist."""
        return self.on and any(mapping.sources or not self.every_kind for mapping in self.mappings)


class ClaimNames(NamedTuple):
    """The names of a pod's claims, as pairs of the name in the pod and the name of the object in ``namespace``."""

    namespace: str
    templates: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, str], ...]


def of_group(template: PodTemplateSpec) -> frozenset[str]:
    """The names of claims of which there is one for all pods of the template, though it names a template for them."""
    said = template.metadata.annotations.get(GROUP_CLAIMS, "")
    return frozenset(said.split(",")) if said else frozenset()


def claim_names(namespace: str, template: PodTemplateSpec) -> ClaimNames | None:
    """The names of a pod's claims; None for a pod without claims. One that is made for all pods is left out: it gets
    its devices with the first of them, on a node that is not known before.
    """
    spec = template.spec
    if not spec.resource_claims:
        return None
    shared = of_group(template)
    return ClaimNames(
        namespace=namespace,
        templates=tuple(
            (claim.name, claim.resource_claim_template_name)
            for claim in spec.resource_claims
            if claim.resource_claim_template_name and not claim.resource_claim_name and claim.name not in shared
        ),
        claims=tuple(
            (claim.name, claim.resource_claim_name) for claim in spec.resource_claims if claim.resource_claim_name
        ),
    )


class PodSetClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What claims add to the requests of one pod set: ``each`` for each pod, ``once`` for all together. ``instead``:
    the resources whose requests they replace.
    """

    each: Mapping[ResourceName, Amount] = {}
    once: Mapping[ResourceName, Amount] = {}
    """Amounts of shared claims; 0 for what another workload is charged."""
    instead: tuple[ResourceName, ...] = ()


NO_CLAIMS: Final = PodSetClaims()


class WorkloadClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a workload. ``problem``: why they cannot be counted; empty where they can. ``named``: the shared
    claims of all pods, each with the first pod set with pods that names it.
    """

    pod_sets: tuple[PodSetClaims, ...] = ()
    named: Mapping[ClaimKey, str] = {}
    problem: str = ""
