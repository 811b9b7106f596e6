"""The kinds that the controller watches and writes, and the types that they are read as."""

from typing import Final

from controller.objects.core import LimitRange, Namespace, Node, Pod, PriorityClass, RuntimeClass
from controller.objects.gpunode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from controller.objects.workload import Workload
from inventory.api.gpunode import KIND, PLURAL
from inventory.api.names import GROUP, VERSION
from kube.resources import Resource

_GROUP: Final = "kueue.x-k8s.io"
_VERSION: Final = "v1beta2"

WORKLOADS: Final = Resource(_GROUP, _VERSION, "workloads", "Workload", namespaced=True)
LOCAL_QUEUES: Final = Resource(_GROUP, _VERSION, "localqueues", "LocalQueue", namespaced=True)
CLUSTER_QUEUES: Final = Resource(_GROUP, _VERSION, "clusterqueues", "ClusterQueue")
COHORTS: Final = Resource(_GROUP, _VERSION, "cohorts", "Cohort")
FLAVORS: Final = Resource(_GROUP, _VERSION, "resourceflavors", "ResourceFlavor")
CHECKS: Final = Resource(_GROUP, _VERSION, "admissionchecks", "AdmissionCheck")
TOPOLOGIES: Final = Resource(_GROUP, _VERSION, "topologies", "Topology")
WORKLOAD_CLASSES: Final = Resource(_GROUP, _VERSION, "workloadpriorityclasses", "WorkloadPriorityClass")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
POD_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass")
NODES: Final = Resource("", "v1", "nodes", "Node")
GPU_NODES: Final = Resource(GROUP, VERSION, PLURAL, KIND)
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)


class Labelled(Resource, frozen=True):
    """Those objects of a kind that have a label, followed beside the others."""

    selector: str = ""


QUEUED_PODS: Final = Labelled("", "v1", "pods", "Pod", namespaced=True, selector="kueue.x-k8s.io/managed=true")
"""Pods that are or were queued, on their own or in groups. Read as JSON: see ``controller.pods.reconcile_shell``."""
POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", namespaced=True)

TYPES: Final[dict[Resource, type[KubernetesObject]]] = {
    WORKLOADS: Workload,
    LOCAL_QUEUES: LocalQueue,
    CLUSTER_QUEUES: ClusterQueue,
    COHORTS: Cohort,
    FLAVORS: ResourceFlavor,
    CHECKS: AdmissionCheck,
    TOPOLOGIES: Topology,
    WORKLOAD_CLASSES: WorkloadPriorityClass,
    NAMESPACES: Namespace,
    LIMIT_RANGES: LimitRange,
    POD_CLASSES: PriorityClass,
    RUNTIME_CLASSES: RuntimeClass,
    NODES: Node,
    GPU_NODES: GpuNode,
    PODS: Pod,
}
"""Everything the engine decides by. Jobs are read as JSON: see ``controller.jobshell.watched``."""


NEEDED_BY: Final = {PODS: TOPOLOGIES}
"""Kinds that are followed only once there is an object of another kind. A cluster has many pods, and they count only
where a Topology places pods on nodes.
"""

IF_SERVED: Final = frozenset({GPU_NODES})
"""Kinds that a cluster may lack: none of their objects exist while their CRD does not."""


def is_custom(resource: Resource) -> bool:
    """Whether a kind of jobs is there only where a CRD is: Kubernetes' own are in groups without a dot.

    ``.k8s.io`` at the end of a group says nothing: ``sparkoperator.k8s.io`` has it.
    """
    return "." in resource.group
