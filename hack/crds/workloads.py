"""Shapes of the Workload, ``kueue.x-k8s.io/v1beta2``.

Almost no CEL: a Workload is written several times in its life, and each write would pay for it (the five rules that
places once had here took a fiftieth of a busy API server). What holds between its fields is in the chart's policies,
which look at specs when they are written and at statuses not at all when the controller itself writes them.
"""

from typing import Final

from controller.objects import workload
from hack.crds.schema import Schema, Shape
from hack.crds.shapes import (
    ATOMIC,
    CONDITIONS,
    DATE_TIME,
    DNS_LABEL,
    REFERENCE,
    SUBDOMAIN,
    TOLERATIONS,
    counted,
    items,
    keyed,
    text,
)

MOST_PODSETS: Final = 18
NAMED: Final[Schema] = DNS_LABEL
MAIN: Final[Schema] = DNS_LABEL | {"default": "main"}
AT_LEAST_1: Final[Schema] = {"minimum": 1}
AT_LEAST_0: Final[Schema] = {"minimum": 0}
PODSET_LIST: Final[Schema] = keyed("name", most=MOST_PODSETS)

SPEC: Final[dict[type, Shape]] = {
    workload.SliceConstraint: Shape(
        required=("topology", "size"), fields={"topology": text(63, 1), "size": AT_LEAST_1}
    ),
    workload.PodSetTopologyRequest: Shape(
        fields={
            "required": text(63),
            "preferred": text(63),
            "podIndexLabel": text(317),
            "subGroupIndexLabel": text(317),
            "subGroupCount": AT_LEAST_0,
            "podSetGroupName": text(256),
            "podSetSliceRequiredTopology": text(63),
            "podSetSliceSize": AT_LEAST_1,
            "podsetSliceRequiredTopologyConstraints": ATOMIC | counted(3),
        }
    ),
    workload.PodSet: Shape(
        required=("template",), fields={"name": MAIN, "count": {"default": 1}, "minCount": AT_LEAST_1}
    ),
    workload.PriorityClassRef: Shape(
        required=("group", "kind", "name"),
        fields={
            "group": {"enum": ["kueue.x-k8s.io", "scheduling.k8s.io"]},
            "kind": {"enum": ["WorkloadPriorityClass", "PriorityClass"]},
            "name": REFERENCE,
        },
    ),
    workload.PreemptionGate: Shape(required=("name",), fields={"name": text(63, 1)}),
    workload.WorkloadSpec: Shape(
        fields={
            "podSets": keyed("name", most=MOST_PODSETS, least=1),
            "queueName": SUBDOMAIN,
            "active": {"default": True},
            "maximumExecutionTimeSeconds": AT_LEAST_1,
            "preemptionGates": keyed("name", most=8),
        }
    ),
}

TOPOLOGY: Final[dict[type, Shape]] = {
    workload.LevelRoots: Shape(
        required=("roots",),
        fields={"prefix": text(63), "suffix": text(63), "roots": ATOMIC | items(text(63)) | counted(100_000, 1)},
    ),
    workload.LevelValues: Shape(fields={"universal": text(63)}),
    workload.SlicePodCounts: Shape(
        fields={"universal": AT_LEAST_1, "individual": ATOMIC | items(AT_LEAST_1) | counted(100_000, 1)},
    ),
    workload.TopologyAssignmentSlice: Shape(
        required=("domainCount", "podCounts", "valuesPerLevel"),
        fields={"domainCount": AT_LEAST_1, "valuesPerLevel": ATOMIC | counted(16, 1)},
    ),
    workload.TopologyAssignment: Shape(
        required=("levels", "slices"),
        fields={"levels": ATOMIC | items(text(317)) | counted(16, 1), "slices": ATOMIC | counted(1000)},
    ),
}

STATUS: Final[dict[type, Shape]] = {
    workload.PodSetAssignment: Shape(fields={"name": MAIN, "flavors": {"additionalProperties": SUBDOMAIN}}),
    workload.Admission: Shape(fields={"clusterQueue": SUBDOMAIN, "podSetAssignments": PODSET_LIST}),
    workload.PodSetUpdate: Shape(required=("name",), fields={"name": NAMED, "tolerations": TOLERATIONS}),
    workload.AdmissionCheckState: Shape(
        required=("name", "state", "message", "lastTransitionTime"),
        fields={
            "name": text(316, 1),
            "message": text(32768),
            "requeueAfterSeconds": AT_LEAST_0,
            "retryCount": AT_LEAST_0,
            "podSetUpdates": ATOMIC | counted(MOST_PODSETS),
        },
    ),
    workload.RequeueState: Shape(fields={"count": AT_LEAST_0}),
    workload.ReclaimablePod: Shape(required=("name", "count"), fields={"name": NAMED}),
    workload.PodSetRequest: Shape(required=("name",), fields={"name": NAMED}),
    workload.EvictionCount: Shape(
        required=("reason", "underlyingCause", "count"),
        fields={"reason": text(316), "underlyingCause": text(316), "count": AT_LEAST_0},
    ),
    workload.SchedulingStats: Shape(fields={"evictions": keyed("reason", "underlyingCause", most=256)}),
    workload.UnhealthyNode: Shape(required=("name",), fields={"name": text(63)}),
    workload.PreemptionGateState: Shape(
        required=("name", "position", "lastTransitionTime"),
        fields={
            "name": text(63, 1),
            "position": {"type": "string", "enum": ["Open", "Closed"]},
            "lastTransitionTime": DATE_TIME,
        },
    ),
    workload.WorkloadStatus: Shape(
        fields={
            "conditions": CONDITIONS,
            "reclaimablePods": PODSET_LIST,
            "admissionChecks": keyed("name", most=8),
            "resourceRequests": PODSET_LIST,
            "nominatedClusterNames": ATOMIC | items(text(256)) | counted(20),
            "clusterName": text(256),
            "unhealthyNodes": keyed("name", most=8),
            "preemptionGates": keyed("name", most=8),
        }
    ),
}

WORKLOADS: Final[dict[type, Shape]] = SPEC | TOPOLOGY | STATUS
