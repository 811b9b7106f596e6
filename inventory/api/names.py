"""Tessera's own names at the API server: its group, and the labels, annotations and resources that start with it.

All of them stand here: some are written by one process and read by another, and none may change its meaning.
"""

from typing import Final

GROUP: Final = "tessera.dev"
VERSION: Final = "v1alpha1"
PREFIX: Final = "tessera.dev/"
VIEW_GROUP: Final = "view.tessera.dev"
"""The group of the objects that the controller serves through the API server's aggregation layer; none of them is
stored.
"""
VIEW_VERSION: Final = "v1alpha1"

# -- resources -------------------------------------------------------------------------------------------------------
GPU_PERCENT: Final = "tessera.dev/gpu-percent"
"""An extended resource: percents of one GPU. A pod's ``gpu-fraction`` for another scheduler becomes it."""
GPU_PERCENT_DEVICES: Final = "tessera.dev/gpu-percent-devices"
"""An annotation of a pod: the number of GPUs of which its percents are equal parts. ``gpu-fraction-num-devices``
for another scheduler becomes it.
"""
GPU_MEMORY_GIB: Final = "tessera.dev/gpu-memory-gib"
GPU_COMPUTE_SLICES: Final = "tessera.dev/gpu-compute-slices"
"""An extended resource that, with GPU_MEMORY_GIB, expresses the value of a GPU resource, charged under
``tessera.honestUnits``; no node advertises either.
"""

# -- annotations of pods and jobs --------------------------------------------------------------------------------------
DEVICES: Final = "tessera.dev/devices"
"""An annotation of a pod with the devices that it is to get: written by the controller, read by the agent of the pod's
node (``deviceplan``).
"""
CLAIM_DEVICES: Final = "tessera.dev/claim-devices"
"""An annotation of a pod template and its pods with the devices that are planned for their claims: written by the
controller as they start, read by its webhook (``claimplan``).
"""
ON_GPU_FAILURE: Final = "tessera.dev/on-gpu-failure"
"""An annotation of a pod with the action after its GPU fails."""
REQUIRED_GPU_LINK: Final = "tessera.dev/required-gpu-link"
PREFERRED_GPU_LINK: Final = "tessera.dev/preferred-gpu-link"
GPU_PRODUCT: Final = "tessera.dev/gpu-product"
MIN_GPU_MEMORY_GIB: Final = "tessera.dev/min-gpu-memory-gib"
RUNTIME: Final = "tessera.dev/runtime"
"""An annotation of a job with its run time, a duration as Go writes it: backfill, forecasts and simulations use it."""
ARRIVAL: Final = "tessera.dev/arrival"
"""An annotation of a job with its arrival in a simulation, a duration from the simulation's start."""
CHECKPOINT_INTERVAL: Final = "tessera.dev/checkpoint-interval"
"""An annotation of a job: how often it writes a checkpoint while it works, a duration."""
CHECKPOINT_GRACE: Final = "tessera.dev/checkpoint-grace"
"""An annotation of a job: how long it needs between SIGTERM and its end to write a checkpoint, a duration."""
LAST_CHECKPOINT: Final = "tessera.dev/last-checkpoint"
"""An annotation of a job, which its program keeps up to date: when it wrote its last checkpoint (RFC 3339)."""
CHECKPOINT_WAIT: Final = "tessera.dev/checkpoint-wait"
"""An annotation of a ClusterQueue: how long a preemption waits at most for a checkpoint of one of its workloads that is
due.
"""
RESTART_COST: Final = "tessera.dev/restart-cost"
"""An annotation of a job: how long it takes to go on from a checkpoint, a duration."""
OF_CHECKPOINTS: Final = (LAST_CHECKPOINT, CHECKPOINT_INTERVAL, CHECKPOINT_GRACE, RESTART_COST)
"""What a job says of the work that it keeps. A pod template counts where the job itself says nothing."""
SPOT: Final = "tessera.dev/spot"
"""An annotation of a job or of its queue: whether nodes that its provider may interrupt are for it: ``never``,
``allowed`` or ``preferred``.
"""
ON_DEMAND_FLOOR: Final = "tessera.dev/on-demand-floor"
"""An annotation of a ClusterQueue or LocalQueue: the part of its GPUs that stays on demand, such as ``25%``."""
KEPT_OFF: Final = "tessera.dev/kept-off"
"""An annotation of a pod, written by a start alone: ``spot`` if the pod is for no spot node. The chart's policy gives
the pod its node affinity as it is created.
"""
OF_SIMULATED_JOBS: Final = (ARRIVAL, RUNTIME, CHECKPOINT_INTERVAL, CHECKPOINT_GRACE, RESTART_COST, SPOT)
"""Annotations of a job that say how it behaves in a simulation; each pod that is queued by itself has them too."""
JOINING: Final = "tessera.dev/joining"
"""A label of pods that were created behind the gate for an object with groups of pods, and are in no group yet."""
AWAITS_OWNER: Final = "tessera.dev/awaits-owner"
"""An annotation of jobs that were created with an owner whose own controller did not make them: suspended, they wait
until the controller finds them within what the owner's Workload is charged for.
"""
FLAVORS_GIVEN_UP: Final = "tessera.dev/flavors-given-up"
"""An annotation of a Workload, written by the controller: flavors whose nodes were requested too often in vain, with
commas between them. The workload is not assigned to them any more.
"""
ASKED_FOR: Final = "tessera.dev/asked-for"
"""An annotation of a ProvisioningRequest, written by the controller: a digest of the pods and flavors that its nodes
are for. A request with another digest is left from an earlier reservation of quota.
"""
MARKED: Final = "tessera.dev/marked"
"""An annotation of a pod: whose marks on it are our own. With the value "autoscalers" those that keep Karpenter and
Cluster Autoscaler from taking its node; they keep the workload from no move of ours.
"""
YIELD: Final = "tessera.dev/yield"
"""An annotation of a job, and of its pods: with the value "when-checkpointed" autoscalers may take its nodes."""
IMPLIED_TOPOLOGY: Final = "nodes.tessera.dev"
"""The topology that flavors without one have in a simulation with pools; no message names it."""
HOURLY_PRICE: Final = "tessera.dev/hourly-price"
"""An annotation of a ResourceFlavor: what an hour of one of its nodes costs, a number."""
FLAVOR_ORDER: Final = "tessera.dev/flavor-order"
"""An annotation of a ClusterQueue: with the value "hourly-price" its flavors are tried by their prices."""
NODE_TEMPLATE: Final = "tessera.dev/node-template"
"""An annotation of a ResourceFlavor: what its nodes are like that can still come, and how many there may be."""
PROVISION_TIMEOUT: Final = "tessera.dev/provision-timeout"
"""An annotation of a job or of a ResourceFlavor: how long a workload with quota waits for its nodes, a duration."""
PLACEHOLDER_OF: Final = "tessera.dev/placeholder-of"
"""A label of pods and claim templates in the controller's namespace that make an autoscaler bring nodes: the uid of the
Workload that waits for them.
"""
PLACEHOLDER_FOR: Final = "tessera.dev/placeholder-for"
"""An annotation of a placeholder: ``namespace/name`` of the Workload and its pod set, with a blank between them. On a
copy of a claim template the template's name is in the place of the pod set.
"""
PLACEHOLDER_CLASS: Final = "tessera-placeholder"
"""The PriorityClass of placeholders."""
MIN_REPLICAS: Final = "tessera.dev/min-replicas"
"""An annotation of serving workloads: the replicas above this number are the first to be reclaimed."""
ABOVE_MIN_REPLICAS: Final = "tessera.dev/above-min-replicas"
"""An annotation of a Workload, written by the controller: it is a replica above MIN_REPLICAS, and counts as of the
lowest priority.
"""
ABOVE_MINIMUM_OF: Final = "tessera.dev/above-minimum-of"
"""An annotation of a pod and of its Workload, written by the controller: the Workload with the minimum of its gang, in
the same namespace. The pod's Workload holds quota only beside that one, and counts as of the lowest priority. An empty
one, of a pod template and its pods, says that the job has begun with its minimum, and that they are in it.
"""
PODS_ABOVE: Final = "tessera.dev/pods-above"
"""An annotation of a PodGroup of ``scheduling.k8s.io``, by its user: ``delete`` or ``keep``. It says what becomes of
pods without a controller that get no quota, as kube-scheduler starts none of the group while one of them waits.
"""
GROUP_CLAIMS: Final = "tessera.dev/group-claims"
"""An annotation of a pod template in a Workload, written by the controller: the names of the template's claims of which
there is one for all pods, comma-separated. The Job controller makes them for the Job's PodGroup.
"""
STARTS_WITH: Final = "tessera.dev/starts-with"
"""An annotation of the Workload of one pod, written by the controller: the PodGroup of ``scheduling.k8s.io`` whose
waiting pods get quota all at once or not at all.
"""
ABOVE_MINIMUM_SUBGROUP: Final = "tessera.dev/above-minimum-subgroup"
"""An annotation of a pod above its gang's minimum, written by the controller: the subgroup that it starts with as a
whole.
"""
OUT_OF_GROUP: Final = "tessera.dev/out-of-group"
"""An annotation of a pod, written by the controller with the value "true": the pod is queued by itself, because its
PodGroup of ``scheduling.k8s.io`` starts its pods one by one.
"""
COMPOSITE_GROUP: Final = "tessera.dev/composite-pod-group"
"""An annotation of a pod, written by the controller: the CompositePodGroup at the top of its PodGroup's tree, with all
of which it is queued.
"""
POD_GROUP: Final = "tessera.dev/pod-group"
"""An annotation of pod templates of a started job, and so of its pods, written by the controller: the PodGroup of
``scheduling.k8s.io`` that was made for this start. The API server writes it into ``spec.schedulingGroup``.
"""
FULL_PARALLELISM: Final = "tessera.dev/full-parallelism"
"""An annotation of a partially admitted Job with the parallelism that it had, kept to restore it."""
GROWTH: Final = "tessera.dev/growth"
"""An annotation of a Workload, written by the controller with the value "true": it asks for more pods of a Job's gang
that runs, by the Workload that it replaces, with fewer than it may have. Until it has quota it counts as of the lowest
priority and holds none unless that other one does. The controller takes it off when the Job has grown.
"""
PLACEMENT: Final = "tessera.dev/placement"
"""An annotation of a foreign Job, written by the controller: the fields that its admission puts into the pods of each
task. Without it the job has no pods that run.
"""
GANG: Final = "tessera.dev/gang"
"""An annotation of a Workload, written by the controller: the pods that have to run together, where not all have to."""
SUBGROUP: Final = "tessera.dev/subgroup"
"""An annotation of pod templates in a Workload, and of pods above a minimum, written by the controller: the subgroup of
its gang.
"""
SCHEDULER_NAME: Final = "tessera.dev/scheduler-name"
"""An annotation of a pod: the scheduler that it named when it was created, where the default one binds it in
its place.
"""

UNITS: Final = "tessera.dev/units"
"""An annotation of a LocalQueue: shapes of work by name, as JSON, whose admissible units are told to autoscalers."""
UNITS_COUNTED: Final = "tessera.dev/Units"
"""A condition of a LocalQueue with UNITS: True with what would be admitted, False with what is wrong in the
annotation.
"""
CAPACITY_REQUEST: Final = "tessera.dev/capacity-request"
"""A label of a job or a pod: the CapacityRequest of its namespace that it runs inside of."""
CAPACITY_OFFER: Final = "tessera.dev/capacity-offer"
"""An annotation of a Workload that the controller made for a CapacityRequest: the offer that it holds or was accepted;
empty for the request itself.
"""
GRANTED_UNITS: Final = "tessera.dev/granted-units"
"""An annotation of a pod, written by the controller as it starts inside of a grant: the numbers of its units, with
commas between them; empty for a pod that needs none.
"""

# -- annotations of queues ---------------------------------------------------------------------------------------------
QUOTA_SHARES: Final = "tessera.dev/quota-shares"
"""An annotation of a ClusterQueue or Cohort: quotas as shares of live capacity."""
QUOTA_CALENDAR: Final = "tessera.dev/quota-calendar"
"""An annotation of a ClusterQueue or Cohort: quotas that hold in windows of time."""
MINIMUM_RUNTIME_BEFORE_PREEMPTION: Final = "tessera.dev/minimum-runtime-before-preemption"

QUEUE_USAGE: Final = "tessera.dev/queue-usage"
"""An annotation of a foreign Queue, written by the controller: its usage of the cluster over the last window."""

QUOTA_ANNOTATIONS: Final = "tessera.dev/QuotaAnnotations"
"""A condition of a ClusterQueue, False with what is wrong in its quota annotations; absent where nothing is."""

# -- conditions of Workloads -------------------------------------------------------------------------------------------
MOVED: Final = "tessera.dev/Moved"
"""A condition of a Workload that was evicted so that another fits, and had another place; the transition is the last
such eviction.
"""

GANG_SCHEDULED: Final = "tessera.dev/GangScheduled"
"""A condition of an admitted Workload whose pods are one PodGroup of the controller's: False with kube-scheduler's
sentence while it starts none of them, or after it has preempted them.
"""

# -- labels of PodGroups -----------------------------------------------------------------------------------------------
START_OF: Final = "tessera.dev/start-of"
"""A label of a PodGroup that the controller made: the uid of the Workload by which its pods start."""

# -- names without an object -------------------------------------------------------------------------------------------
ALL_NODES: Final = "all-nodes.tessera.dev"
"""The one flavor, and its topology, of queues that are mirrored from foreign Queues."""
QUOTA_ALONE: Final = "quota-alone.tessera.dev"
"""The flavor of mirrored queues in place of ALL_NODES where another scheduler chooses the nodes: it has no topology."""

# -- repairs of GPUs ---------------------------------------------------------------------------------------------------
REMEDIATION_ORDER: Final = "tessera.dev/remediation-"
"""The beginning of annotations of a GpuNode, followed by a GPU's UUID: a person's order, ``start``, ``stop``,
``retire`` or ``return``. The agent takes it off when it has obeyed or refused.
"""
REMEDIATION_BREAKER: Final = "tessera.dev/remediation-breaker"
"""An annotation of a ResourceFlavor: with ``resume`` a person lets the repairs of its GPUs go on. The controller takes
it off.
"""
REMEDIATION_RESUMED: Final = "tessera.dev/remediation-resumed"
"""An annotation of a ResourceFlavor, written by the controller when it takes REMEDIATION_BREAKER off: the time from
which on grants count.
"""
REMEDIATION_TRIPPED: Final = "tessera.dev/remediation-tripped"
"""An annotation of a ResourceFlavor while its breaker has tripped: since when. The controller alone writes it."""
REMEDIATION_GRANTS: Final = "tessera.dev/remediation-grants"
"""An annotation of a ResourceFlavor: JSON, by node and GPU the time of the last grant that counts in its breaker. The
controller alone writes it, for the next leader: the GpuNode that has the grant may have gone by then.
"""
INTERRUPTIONS: Final = "tessera.dev/interruptions"
"""An annotation of a ResourceFlavor: JSON, the interruptions of its nodes by time. The controller alone writes it, for
the next leader, as it does the next two.
"""
INTERRUPTION_RATE: Final = "tessera.dev/interruptions-per-node-day"
"""An annotation of a ResourceFlavor: how often its nodes are taken away. It is written with INTERRUPTIONS."""
INTERRUPTED_OFTEN: Final = "tessera.dev/interrupted-often"
"""An annotation of a ResourceFlavor while its nodes are taken away too often: it is tried after other flavors."""
NO_FLAVOR: Final = "no-flavor.tessera.dev"
"""The nodes that no ResourceFlavor selects, as the breaker of repairs names them. The annotations of their breaker are
on one of their GpuNodes: REPAIR_BREAKER, REPAIR_BREAKER_RESUMED and REPAIR_BREAKER_TRIPPED mean what those of a
ResourceFlavor do. They do not begin as REMEDIATION_ORDER does, since they are no orders for an agent.
"""
REPAIR_BREAKER: Final = "tessera.dev/repair-breaker"
REPAIR_BREAKER_RESUMED: Final = "tessera.dev/repair-breaker-resumed"
REPAIR_BREAKER_TRIPPED: Final = "tessera.dev/repair-breaker-tripped"
NVSENTINEL_MANAGED: Final = "k8saas.nvidia.com/ManagedByNVSentinel"
"""A label of Nodes, NVSentinel's own: with ``false`` nobody repairs the node."""
DRAIN_AT: Final = "tessera.dev/drain-at"
"""An annotation of a Node: from when on it is to be empty (RFC 3339); in a simulation a duration from its start too."""
REPAIR_TAINT: Final = "tessera.dev/repair"
"""The key of the taint on a node whose repair concerns the whole node; the controller sets and removes it."""
GPU_READY: Final = "nvidia.com/GPUReady"
"""A condition of a Node, by its agent: all wanted devices are registered and probed."""
GPUS_HEALTHY: Final = "tessera.dev/GPUsHealthy"
"""A condition of a Node, by its agent: all of its GPUs are handed out."""
MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
REPAIR_PLANNED: Final = "GpuRepair"
"""The reason of ``MAINTENANCE_PLANNED`` where the controller plans a reboot for a repair."""
"""A condition of a Node (KEP-5683), by the controller: a repair wants a reboot."""

# -- annotations of the controller's own objects -----------------------------------------------------------------------
GPU_FAILURE_ACTIONS: Final = "tessera.dev/gpu-failure-actions"
"""An annotation of a Lease: the leader's recent actions about failed GPUs."""

# -- labels of the controller's own objects ----------------------------------------------------------------------------
AGGREGATE_TO_CONTROLLER: Final = "tessera.dev/aggregate-to-controller"
"""A label of a ClusterRole: the controller has its rights too."""

# -- reporting controllers of Events -----------------------------------------------------------------------------------
AGENT: Final = "tessera.dev/agent"
CONTROLLER: Final = "tessera.dev/controller"

# -- devices that are given out by claim -------------------------------------------------------------------------------
LINK_GROUP: Final = "tessera.dev/linkGroup"
CLIQUE: Final = "tessera.dev/clique"
"""Attributes of devices: the group of GPUs linked by NVLink, and the clique of the NVLink fabric."""
PART: Final = "tessera.dev/part"
"""An attribute of a part of a GPU, which has no UUID before it is cut; each part has its own value."""
COMPUTE_PERCENT: Final = "tessera.dev/computePercent"
"""A capacity of devices: percents of a GPU's threads, of which claims have shares."""
UNHEALTHY: Final = "tessera.dev/unhealthy"
WITHHELD: Final = "tessera.dev/withheld"
"""The taint of a device that is withheld."""

# -- migrations --------------------------------------------------------------------------------------------------------
REPLACED: Final = "tessera.dev/replaced"
"""A label of an object that `tessera migrate` holds still while Tessera takes its part."""
MADE_BY: Final = "tessera.dev/made-by"
"""A label of the namespace that a step of `tessera migrate` made: the way back deletes no other."""
REPLICAS_BEFORE: Final = "tessera.dev/replicas-before"
CONVERSION_BEFORE: Final = "tessera.dev/conversion-before"
"""Annotations by which a step of `tessera migrate` is undone."""

WORKLOAD_OF_POD: Final = "kueue.x-k8s.io/workload"
"""An annotation of a pod: the Workload that it belongs to."""
WORKLOAD_SLICE: Final = "kueue.x-k8s.io/workload-slice-name"
"""An annotation of pods and Workloads of an elastic job: its first Workload."""
