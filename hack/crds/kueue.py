"""The CRDs of Kueue's API group, of our own writing: v1beta2 is stored, v1beta1 is served beside it.

Where the two differ by more than a field that means nothing, a webhook converts. Its address stands here as a
placeholder: only the running controller knows its certificate, and it writes the address with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.objects import provisioning, queues, workload
from hack.crds.older import V1BETA1
from hack.crds.schema import Schema, Shape, structural
from hack.crds.shapes import QUEUES
from hack.crds.v1beta1 import QUEUES as QUEUES_V1BETA1
from hack.crds.v1beta1 import WORKLOADS_V1BETA1
from hack.crds.workloads import WORKLOADS

GROUP: Final = "kueue.x-k8s.io"
SOURCE: Final = "controller/objects/"
NEW: Final[Mapping[type, Shape]] = QUEUES | WORKLOADS
OLD: Final[Mapping[type, Shape]] = QUEUES_V1BETA1 | WORKLOADS_V1BETA1
CONVERSION: Final[Schema] = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "namespace": "tessera-system",
                "name": "tessera-controller-webhook",
                "path": "/convert",
                "port": 443,
            }
        },
    },
}

Column = tuple[str, str, str] | tuple[str, str, str, int]
"""Name, type and path; the priority, where it is shown with ``-o wide`` only."""


@dataclass(frozen=True, kw_only=True)
class CustomResource:
    """One CRD. ``columns`` of v1beta1 only where they are others."""

    struct: type
    """Of v1beta2; the older one follows from it."""
    plural: str
    description: str
    short: Sequence[str]
    namespaced: bool = False
    status: bool = True
    converted: bool = False
    columns: Sequence[Column] = ()
    old_columns: Sequence[Column] | None = None
    selectable: Sequence[str] = ()


_PENDING: Final[Column] = ("Pending Workloads", "integer", ".status.pendingWorkloads")
_ADMITTED: Final = ("Admitted Workloads", "integer", ".status.admittedWorkloads")


def _cluster_queue_columns(cohort: str) -> tuple[Column, ...]:
    strategy: Column = ("Strategy", "string", ".spec.queueingStrategy", 1)
    return ("Cohort", "string", f".spec.{cohort}"), strategy, _PENDING, (*_ADMITTED, 1)


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


KINDS: Final = (
    CustomResource(
        struct=queues.AdmissionCheck, plural="admissionchecks", short=["ac"],
        description="Another controller's say before a workload that has its quota may start.",
    ),
    CustomResource(
        struct=queues.ClusterQueue, plural="clusterqueues", short=["cq"], converted=True,
        description="A pool of quota and the rules by which workloads get and lose it.",
        columns=_cluster_queue_columns("cohortName"), old_columns=_cluster_queue_columns("cohort"),
    ),
    CustomResource(
        struct=queues.Cohort, plural="cohorts", short=["co"], converted=True,
        description="ClusterQueues, or further cohorts, that lend each other what they do not use.",
    ),
    CustomResource(
        struct=queues.LocalQueue, plural="localqueues", short=["queue", "queues", "lq"],
        namespaced=True, converted=True, description="A namespace's door to a ClusterQueue.",
        columns=(("ClusterQueue", "string", ".spec.clusterQueue"), _PENDING, _ADMITTED),
    ),
    CustomResource(
        struct=provisioning.ProvisioningRequestConfig, plural="provisioningrequestconfigs", status=False,
        short=["prc"], description="What an admission check requests of an autoscaler, and how often.",
    ),
    CustomResource(
        struct=queues.ResourceFlavor, plural="resourceflavors", status=False,
        short=["flavor", "flavors", "rf"], description="A sort of nodes, by their labels and taints.",
    ),
    CustomResource(
        struct=queues.Topology, plural="topologies", short=["topo"], status=False,
        description="How nodes lie to each other: the labels of their blocks, racks and hosts, the widest first.",
    ),
    CustomResource(
        struct=workload.Workload, plural="workloads", namespaced=True, converted=True,
        short=["kwl", "kueueworkload", "kueueworkloads"], selectable=(".status.admission.clusterQueue",),
        description="What a job asks for, and what has been decided about it.",
        columns=(
            ("Queue", "string", ".spec.queueName"),
            ("Reserved in", "string", ".status.admission.clusterQueue"),
            ("Admitted", "string", _condition("Admitted")),
            ("Finished", "string", _condition("Finished")),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    CustomResource(
        struct=queues.WorkloadPriorityClass, plural="workloadpriorityclasses",
        short=["wpc"], status=False, description="A priority among workloads that pods know nothing of.",
        columns=(("Value", "integer", ".value"),),
    ),
)  # fmt: skip


def crds() -> list[dict[str, Any]]:
    """Each kind's CustomResourceDefinition."""
    return [_crd(kind) for kind in KINDS]


def _crd(kind: CustomResource) -> dict[str, Any]:
    name = kind.struct.__name__
    old = _version(kind, V1BETA1[kind.struct], OLD, kind.columns if kind.old_columns is None else kind.old_columns)
    new = _version(kind, kind.struct, NEW, kind.columns)
    deprecation = {"deprecated": True, "deprecationWarning": f"{GROUP}/v1beta1 {name} is old: write {GROUP}/v1beta2"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": list(kind.short),
            },
            "conversion": CONVERSION if kind.converted else {"strategy": "None"},
            "versions": [
                {"name": "v1beta1", "served": True, "storage": False, **deprecation, **old},
                {"name": "v1beta2", "served": True, "storage": True, **_selectable(kind), **new},
            ],
        },
    }


def _selectable(kind: CustomResource) -> Schema:
    """Fields that a list or a watch may select by."""
    return {"selectableFields": [{"jsonPath": path} for path in kind.selectable]} if kind.selectable else {}


def _version(kind: CustomResource, struct: type, shapes: Mapping[type, Shape], columns: Sequence[Column]) -> Schema:
    """What a version says beside its name."""
    shown = [
        {"name": name, "type": type_, "jsonPath": path} | ({"priority": priority[0]} if priority else {})
        for name, type_, path, *priority in columns
    ]
    schema = {"description": kind.description, **structural(struct, shapes)}
    if not kind.status:
        schema["properties"].pop("status", None)
    return {
        **({"subresources": {"status": {}}} if kind.status else {}),
        **({"additionalPrinterColumns": shown} if shown else {}),
        "schema": {"openAPIV3Schema": schema},
    }
