"""Tessera's own names at the API server: its group, and the labels, annotations and resources that start with it.

One place for all of them: some are written by one process and read by another, and none may change its meaning.
"""

from typing import Final

GROUP: Final = "tessera.dev"
VERSION: Final = "v1alpha1"
PREFIX: Final = "tessera.dev/"
VIEW_GROUP: Final = "view.tessera.dev"
"""Of what the controller answers through the API server's aggregation layer; nothing of it is stored."""
VIEW_VERSION: Final = "v1alpha1"

# -- resources -------------------------------------------------------------------------------------------------------
GPU_PERCENT: Final = "tessera.dev/gpu-percent"
"""Extended resource: percents of one GPU. KAI's ``gpu-fraction`` becomes it."""
GPU_PERCENT_DEVICES: Final = "tessera.dev/gpu-percent-devices"
"""Annotation of a pod: its percents are equal parts of so many GPUs. KAI's ``gpu-fraction-num-devices`` becomes it."""
GPU_MEMORY_GIB: Final = "tessera.dev/gpu-memory-gib"
GPU_COMPUTE_SLICES: Final = "tessera.dev/gpu-compute-slices"
"""With the one before: what a GPU resource is worth, charged under ``tessera.honestUnits``; no node advertises them."""

# -- annotations of pods and jobs --------------------------------------------------------------------------------------
DEVICES: Final = "tessera.dev/devices"
"""The devices that a pod is to get: written by the controller, read by the agent of the pod's node (``deviceplan``)."""
CLAIM_DEVICES: Final = "tessera.dev/claim-devices"
"""Of a pod template and its pods: the devices that are planned for their claims, written by the controller as they
start, read by its webhook (``claimplan``)."""
ON_GPU_FAILURE: Final = "tessera.dev/on-gpu-failure"
"""What becomes of a pod whose GPU fails."""
REQUIRED_GPU_LINK: Final = "tessera.dev/required-gpu-link"
PREFERRED_GPU_LINK: Final = "tessera.dev/preferred-gpu-link"
GPU_PRODUCT: Final = "tessera.dev/gpu-product"
MIN_GPU_MEMORY_GIB: Final = "tessera.dev/min-gpu-memory-gib"
RUNTIME: Final = "tessera.dev/runtime"
"""How long the job runs, a duration as Go writes it: backfill, forecasts and simulations go by it."""
ARRIVAL: Final = "tessera.dev/arrival"
"""When the job arrives in a simulation, a duration from its start."""
JOINING: Final = "tessera.dev/joining"
"""A label of pods that were created behind the gate for an object with groups of pods, and are in no group yet."""
AWAITS_OWNER: Final = "tessera.dev/awaits-owner"
"""An annotation of jobs that were created with an owner whose own controller did not make them: suspended, they wait
until the controller finds them within what the owner's Workload is charged for.
"""
MIN_REPLICAS: Final = "tessera.dev/min-replicas"
"""Of what serves: the replicas above this number are the first to be reclaimed."""
ABOVE_MIN_REPLICAS: Final = "tessera.dev/above-min-replicas"
"""Of a Workload, written by the controller: it is such a replica, and counts as of the lowest priority there is."""
ABOVE_MINIMUM_OF: Final = "tessera.dev/above-minimum-of"
"""Of a pod and of its Workload, written by the controller: the Workload with the minimum of its gang, in the same
namespace. It holds quota only beside that one, and counts as of the lowest priority there is. Of a pod template and its
pods, empty: the job has begun with its minimum, and they are in that."""
ABOVE_MINIMUM_SUBGROUP: Final = "tessera.dev/above-minimum-subgroup"
"""Of such a pod, written by the controller: the subgroup that it starts with as a whole."""
FULL_PARALLELISM: Final = "tessera.dev/full-parallelism"
"""The parallelism that a partially admitted Job had, kept to restore it."""
PLACEMENT: Final = "tessera.dev/placement"
"""Of a Volcano Job, written by the controller: what its admission puts into the pods of each task. Without it the job
has no pods that run."""
GANG: Final = "tessera.dev/gang"
"""Of a Workload, written by the controller: which of its pods have to run together, where that is not all of them."""
SUBGROUP: Final = "tessera.dev/subgroup"
"""Of pod templates in a Workload, and of pods above a minimum, written by the controller: the subgroup of its gang."""
SCHEDULER_NAME: Final = "tessera.dev/scheduler-name"
"""Of a pod: the scheduler that it named when it was created, where the default one binds it in its place."""

# -- annotations of queues ---------------------------------------------------------------------------------------------
QUOTA_SHARES: Final = "tessera.dev/quota-shares"
"""Of a ClusterQueue or Cohort: quotas as shares of live capacity."""
MINIMUM_RUNTIME_BEFORE_PREEMPTION: Final = "tessera.dev/minimum-runtime-before-preemption"

QUEUE_USAGE: Final = "tessera.dev/queue-usage"
"""Of KAI's Queue, written by the controller: what it had of the cluster over the last window."""

# -- conditions of Workloads -------------------------------------------------------------------------------------------
MOVED: Final = "tessera.dev/Moved"
"""It was evicted so that another fits, and had another place; the transition is the last such eviction."""

# -- what has no object ------------------------------------------------------------------------------------------------
ALL_NODES: Final = "all-nodes.tessera.dev"
"""The one flavor, and its topology, of queues that are mirrored from Volcano's and KAI's Queues."""
QUOTA_ALONE: Final = "quota-alone.tessera.dev"
"""The flavor in its place where another scheduler chooses the nodes: it has no topology."""

# -- annotations of the controller's own objects -----------------------------------------------------------------------
GPU_FAILURE_ACTIONS: Final = "tessera.dev/gpu-failure-actions"
"""Of a Lease: what the leader did lately about failed GPUs."""

# -- labels of the controller's own objects ----------------------------------------------------------------------------
AGGREGATE_TO_CONTROLLER: Final = "tessera.dev/aggregate-to-controller"
"""Of a ClusterRole: the controller has its rights too."""

# -- reporting controllers of Events -----------------------------------------------------------------------------------
AGENT: Final = "tessera.dev/agent"
CONTROLLER: Final = "tessera.dev/controller"

# -- devices that are given out by claim -------------------------------------------------------------------------------
LINK_GROUP: Final = "tessera.dev/linkGroup"
CLIQUE: Final = "tessera.dev/clique"
"""Attributes."""
PART: Final = "tessera.dev/part"
"""An attribute of a part of a GPU, which has no UUID before it is cut: no other has it."""
COMPUTE_PERCENT: Final = "tessera.dev/computePercent"
"""A capacity: percents of a GPU's threads, of which claims have shares."""
UNHEALTHY: Final = "tessera.dev/unhealthy"
WITHHELD: Final = "tessera.dev/withheld"
"""Taints."""
