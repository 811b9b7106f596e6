"""Identifiers that must not be mixed up."""

from typing import NewType

GpuUuid = NewType("GpuUuid", str)
"""NVML's UUID of a physical GPU: ``GPU-`` and a UUID."""

MigUuid = NewType("MigUuid", str)
"""NVML's UUID of a MIG compute instance: ``MIG-`` and a UUID."""

DeviceId = NewType("DeviceId", str)
"""What kubelet is told: a GPU's or MIG instance's UUID, or a replica of one, ``<uuid>::<n>`` with n from 0."""

ResourceName = NewType("ResourceName", str)
"""A Kubernetes extended resource: ``nvidia.com/gpu``, ``nvidia.com/mig-1g.10gb`` ..."""

NodeName = NewType("NodeName", str)
"""metadata.name of a Kubernetes Node."""
