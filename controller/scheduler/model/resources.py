"""The basic terms of the engine: identifiers, amounts, flavor-resources.

Amounts are plain integers: milli-units for ``cpu``, base units (bytes, devices, pods) for everything else. The readers
of API objects convert on the way in, the writers on the way out, and nothing between the two does arithmetic on a
Kubernetes quantity.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, NewType

Amount = int
"""Milli-units of ``cpu``, base units of any other resource."""

UNLIMITED: Final[Amount] = 2**63 - 1
"""The largest amount, which also stands for "no limit": sums never exceed it."""

FlavorName = NewType("FlavorName", str)
"""metadata.name of a ResourceFlavor."""

ResourceName = NewType("ResourceName", str)
"""A resource as a pod requests it: ``cpu``, ``memory``, ``pods``, ``nvidia.com/gpu`` ..."""

CohortName = NewType("CohortName", str)
"""metadata.name of a Cohort, or a ``cohortName`` that no object carries (an implicit cohort)."""

ClusterQueueName = NewType("ClusterQueueName", str)
"""metadata.name of a ClusterQueue."""

LocalQueueKey = NewType("LocalQueueKey", str)
"""``namespace/name`` of a LocalQueue."""

WorkloadKey = NewType("WorkloadKey", str)
"""``namespace/name`` of a Workload; the namespace may be empty, the slash is always there."""

CPU: Final = ResourceName("cpu")
PODS: Final = ResourceName("pods")
"""The number of pods as a resource; no container requests it."""


def is_gpu(resource: str) -> bool:
    """Whether the resource is a GPU: ``nvidia.com/gpu``, ``amd.com/gpu``, ``nvidia.com/gpu.shared``, MIG instances; not
    memory or cores of one.
    """
    name = resource.rpartition("/")[2]
    return name == "gpu" or name.startswith(("gpu.", "mig-"))


class FlavorResource(NamedTuple):
    """The unit of a quota: one resource of one flavor."""

    flavor: FlavorName
    resource: ResourceName


Usage = Mapping[FlavorResource, Amount]
"""How much of each flavor-resource is used; what is absent is 0."""
