"""Tessera's own names at the API server: its group, and the labels, annotations and resources that start with it.

One place for all of them: some are written by one process and read by another, and none may change its meaning.
"""

from typing import Final

GROUP: Final = "tessera.dev"
VERSION: Final = "v1alpha1"
PREFIX: Final = f"{GROUP}/"

# -- resources -------------------------------------------------------------------------------------------------------
GPU_PERCENT: Final = f"{PREFIX}gpu-percent"
"""Extended resource: percents of one GPU. KAI's ``gpu-fraction`` becomes it."""
GPU_MEMORY_GIB: Final = f"{PREFIX}gpu-memory-gib"
GPU_COMPUTE_SLICES: Final = f"{PREFIX}gpu-compute-slices"
"""With the one before: what a GPU resource is worth, charged under ``tessera.honestUnits``; no node advertises them."""

# -- annotations of pods and jobs --------------------------------------------------------------------------------------
DEVICES: Final = f"{PREFIX}devices"
"""The devices that a pod is to get: written by the controller, read by the agent of the pod's node (``deviceplan``)."""
ON_GPU_FAILURE: Final = f"{PREFIX}on-gpu-failure"
"""What becomes of a pod whose GPU fails."""
REQUIRED_GPU_LINK: Final = f"{PREFIX}required-gpu-link"
PREFERRED_GPU_LINK: Final = f"{PREFIX}preferred-gpu-link"
GPU_PRODUCT: Final = f"{PREFIX}gpu-product"
MIN_GPU_MEMORY_GIB: Final = f"{PREFIX}min-gpu-memory-gib"
RUNTIME: Final = f"{PREFIX}runtime"
"""How long the job runs, a duration as Go writes it: backfill, forecasts and simulations go by it."""
ARRIVAL: Final = f"{PREFIX}arrival"
"""When the job arrives in a simulation, a duration from its start."""
FULL_PARALLELISM: Final = f"{PREFIX}full-parallelism"
"""The parallelism that a partially admitted Job had, kept to restore it."""

# -- annotations of queues ---------------------------------------------------------------------------------------------
QUOTA_SHARES: Final = f"{PREFIX}quota-shares"
"""Of a ClusterQueue or Cohort: quotas as shares of live capacity."""
MINIMUM_RUNTIME_BEFORE_PREEMPTION: Final = f"{PREFIX}minimum-runtime-before-preemption"

# -- annotations of the controller's own objects -----------------------------------------------------------------------
GPU_FAILURE_ACTIONS: Final = f"{PREFIX}gpu-failure-actions"
"""Of a Lease: what the leader did lately about failed GPUs."""

# -- reporting controllers of Events -----------------------------------------------------------------------------------
AGENT: Final = f"{PREFIX}agent"
CONTROLLER: Final = f"{PREFIX}controller"
