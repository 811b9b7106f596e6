"""Shapes of ``kueue.x-k8s.io/v1beta1`` where they differ from v1beta2. The older version bounds less."""

from typing import Final

from controller.objects import provisioning, queues, workload
from hack.crds import older
from hack.crds.older import V1BETA1
from hack.crds.schema import Shape, laid_over, rules
from hack.crds.shapes import ATOMIC as ATOMIC_LIST
from hack.crds.shapes import (
    CLUSTER_QUEUE,
    FLAVORS_LOCALLY_USED,
    FLAVORS_USED,
    IMMUTABLE,
    OTHERS,
    SUBDOMAIN,
    borrowing_rule,
    counted,
    items,
    keyed,
    text,
    topology_spec,
)
from hack.crds.shapes import QUEUES as NEWER_QUEUES
from hack.crds.workloads import AT_LEAST_0, AT_LEAST_1, MAIN, MOST_PODSETS, PODSET_LIST, WORKLOADS

_CONDITIONS: Final = keyed("type")


def _fields(shape: Shape, **changes: object) -> Shape:
    """The shape with other keywords for some fields; None takes one away."""
    return Shape(shape.required, laid_over(dict(shape.fields), changes), shape.rules, shape.without)


_SPEC: Final = CLUSTER_QUEUE[queues.ClusterQueueSpec]

QUEUES: Final[dict[type, Shape]] = NEWER_QUEUES | {
    queues.AdmissionCheckStrategyRule: Shape(
        required=("name",), fields={"name": text(316), "onFlavors": items(SUBDOMAIN)}
    ),
    queues.AdmissionChecksStrategy: Shape(),
    V1BETA1[queues.FlavorFungibility]: CLUSTER_QUEUE[queues.FlavorFungibility],
    V1BETA1[queues.AdmissionScope]: Shape(required=("admissionMode",)),
    V1BETA1[queues.ClusterQueueSpec]: Shape(
        fields={
            **{name: keywords for name, keywords in _SPEC.fields.items() if name != "cohortName"},
            "cohort": SUBDOMAIN,
            "admissionChecks": items(text(316)),
        },
        rules=(borrowing_rule("cohort"),),
    ),
    V1BETA1[queues.FairSharingStatus]: Shape(required=("weightedShare",)),
    older.ClusterQueuePendingWorkload: Shape(required=("name", "namespace")),
    older.ClusterQueuePendingWorkloadsStatus: Shape(
        required=("lastChangeTime",), fields={"clusterQueuePendingWorkload": ATOMIC_LIST}
    ),
    V1BETA1[queues.ClusterQueueStatus]: Shape(
        fields={"conditions": _CONDITIONS, "flavorsReservation": FLAVORS_USED, "flavorsUsage": FLAVORS_USED}
    ),
    older.FlavorTopology: Shape(
        required=("name", "levels"), fields={"name": SUBDOMAIN, "levels": ATOMIC_LIST | counted(16, 1)}
    ),
    older.LocalQueueFlavorStatus: Shape(
        required=("name",),
        fields={
            "name": SUBDOMAIN,
            "resources": {"x-kubernetes-list-type": "set"} | counted(64),
            "nodeLabels": {"maxProperties": 8, "x-kubernetes-map-type": "atomic"},
            "nodeTaints": ATOMIC_LIST | counted(8),
        },
    ),
    V1BETA1[queues.LocalQueueStatus]: Shape(
        fields={
            "conditions": _CONDITIONS,
            "flavorsReservation": FLAVORS_LOCALLY_USED,
            "flavorUsage": FLAVORS_LOCALLY_USED,
            "flavors": FLAVORS_USED,
        }
    ),
    provisioning.ProvisioningPodSetUpdates: Shape(fields={"nodeSelector": counted(8)}),
    queues.TopologySpec: topology_spec((IMMUTABLE, "levels cannot be changed")),
    queues.WorkloadPriorityClass: Shape(required=("value",)),
    queues.AdmissionCheckParametersReference: _fields(
        OTHERS[queues.AdmissionCheckParametersReference],
        apiGroup={"minLength": None}, kind={"minLength": None}, name={"minLength": None},
    ),
    V1BETA1[queues.AdmissionCheckSpec]: Shape(
        required=("controllerName",),
        fields={
            "controllerName": rules((IMMUTABLE, "controllerName cannot be changed")),
            "retryDelayMinutes": {"default": 15},
        },
    ),
    queues.AdmissionCheckStatus: Shape(fields={"conditions": _CONDITIONS}),
}  # fmt: skip

_STATUS: Final = WORKLOADS[workload.WorkloadStatus].fields

WORKLOADS_V1BETA1: Final[dict[type, Shape]] = WORKLOADS | {
    V1BETA1[workload.PodSetTopologyRequest]: Shape(fields={"podSetSliceSize": AT_LEAST_1}),
    V1BETA1[workload.PodSet]: Shape(
        required=("count", "template"), fields={"name": MAIN, "count": {"default": 1}, "minCount": AT_LEAST_1}
    ),
    V1BETA1[workload.WorkloadSpec]: Shape(
        required=("podSets",),
        fields={
            "podSets": keyed("name", most=MOST_PODSETS, least=1),
            "queueName": SUBDOMAIN,
            "active": {"default": True},
            "priorityClassName": SUBDOMAIN,
            "priorityClassSource": {"default": ""},
            "maximumExecutionTimeSeconds": AT_LEAST_1,
        },
    ),
    older.TopologyDomainAssignment: Shape(
        required=("values", "count"), fields={"values": ATOMIC_LIST | counted(16, 1), "count": AT_LEAST_1}
    ),
    V1BETA1[workload.TopologyAssignment]: Shape(
        required=("levels", "domains"), fields={"levels": ATOMIC_LIST | counted(16, 1)}
    ),
    V1BETA1[workload.PodSetAssignment]: Shape(
        required=("name",), fields={"name": MAIN, "flavors": {"additionalProperties": SUBDOMAIN}}
    ),
    V1BETA1[workload.Admission]: Shape(
        required=("clusterQueue", "podSetAssignments"),
        fields={"clusterQueue": SUBDOMAIN, "podSetAssignments": PODSET_LIST},
    ),
    workload.AdmissionCheckState: _fields(WORKLOADS[workload.AdmissionCheckState], name={"minLength": None}),
    workload.EvictionCount: Shape(
        required=("reason", "underlyingCause", "count"),
        fields={"reason": text(316), "underlyingCause": text(316), "count": AT_LEAST_0},
    ),
    workload.SchedulingStats: Shape(fields={"evictions": keyed("reason", "underlyingCause")}),
    workload.UnhealthyNode: Shape(required=("name",)),
    V1BETA1[workload.WorkloadStatus]: Shape(
        fields={
            "conditions": _CONDITIONS,
            "reclaimablePods": _STATUS["reclaimablePods"],
            "admissionChecks": _STATUS["admissionChecks"],
            "resourceRequests": _STATUS["resourceRequests"],
            "nominatedClusterNames": ATOMIC_LIST | counted(20),
        }
    ),
}  # fmt: skip
