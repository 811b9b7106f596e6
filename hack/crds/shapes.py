"""What the types of ``kueue.x-k8s.io/v1beta2`` do not say: required fields, bounds, defaults, rules.

Rules that hold over a whole object, over lists in lists, or over a Workload are not here but in the chart's
ValidatingAdmissionPolicies: a rule here is paid for at every write of the object, status included.
"""

from typing import Final

from controller.objects import core, meta, provisioning, queues
from hack.crds.schema import Schema, Shape, rules

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

SUBDOMAIN: Final[Schema] = {"maxLength": 253, "pattern": f"^{_SUBDOMAIN}$"}
REFERENCE: Final[Schema] = SUBDOMAIN | {"minLength": 1}
DNS_LABEL: Final[Schema] = {"maxLength": 63, "pattern": f"^{_LABEL}$"}
QUALIFIED: Final[Schema] = {"maxLength": 316, "pattern": f"^({_SUBDOMAIN}/)?({_NAME_PART})$"}
ATOMIC: Final[Schema] = {"x-kubernetes-list-type": "atomic"}
SET: Final[Schema] = {"x-kubernetes-list-type": "set"}
DATE_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
EFFECTS: Final[Schema] = {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
HOSTNAME: Final = "kubernetes.io/hostname"


def text(most: int, least: int = 0) -> Schema:
    """Bounds of a string's length."""
    return {"maxLength": most} | ({"minLength": least} if least else {})


def keyed(*keys: str, most: int | None = None, least: int | None = None) -> Schema:
    """A list whose items have a key, of at most and at least so many."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)} | counted(most, least)


def counted(most: int | None, least: int | None = None) -> Schema:
    """Bounds of a list's length."""
    return {key: value for key, value in (("maxItems", most), ("minItems", least)) if value is not None}


def items(of: Schema, *more: Schema) -> Schema:
    """A list of such items."""
    made: Schema = {"items": of}
    for each in more:
        made |= each
    return made


def fields(**given: Schema) -> Schema:
    """Keywords for fields of a struct within a struct."""
    return {"properties": given}


TOLERATIONS: Final[Schema] = ATOMIC | counted(8) | {
    "items": fields(operator={"enum": ["Equal", "Exists"]}, effect=EFFECTS)
    | rules(
        ("has(self.key) || (has(self.operator) && self.operator == 'Exists')",
         "a toleration without key tolerates everything: it needs operator Exists"),
        ("!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
         "tolerationSeconds means something with effect NoExecute only"),
        ("!has(self.value) || !has(self.operator) || self.operator != 'Exists'",
         "operator Exists takes no value"),
    )
}  # fmt: skip

CONDITIONS: Final[Schema] = keyed("type", most=16)
FLAVORS_USED: Final[Schema] = keyed("name", most=64)
FLAVORS_LOCALLY_USED: Final[Schema] = FLAVORS_USED | items(fields(resources=items({"properties": {"borrowed": None}})))
"""A LocalQueue borrows nothing: its ClusterQueue does."""
IMMUTABLE: Final = "self == oldSelf"

_FIFO: Final[Schema] = {"default": "BestEffortFIFO"}
_NEVER: Final[Schema] = {"default": "Never"}
_OBJECT: Final[Schema] = {"default": {}}
_RUNNING: Final[Schema] = {"default": "None"}


def borrowing_rule(cohort: str) -> tuple[str, str]:
    """``cohort`` is the field that names the cohort."""
    return (
        (
            f"has(self.{cohort}) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
            "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))"
        ),
        f"borrowingLimit needs a cohort to borrow from: set spec.{cohort}, or leave borrowingLimit out",
    )


def _usage(struct: type) -> dict[type, Shape]:
    return {struct: Shape(required=("name", "resources"),
                          fields={"name": SUBDOMAIN, "resources": keyed("name", most=64)})}  # fmt: skip


SHARED: Final[dict[type, Shape]] = {
    meta.Condition: Shape(
        required=("type", "status", "reason", "message", "lastTransitionTime"),
        fields={
            "type": QUALIFIED,
            "status": {"enum": ["True", "False", "Unknown"]},
            "reason": text(1024, 1) | {"pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
            "message": text(32768),
            "observedGeneration": {"minimum": 0},
        },
    ),
    meta.LabelSelector: Shape(fields={"matchExpressions": ATOMIC}),
    meta.LabelSelectorRequirement: Shape(required=("key", "operator"), fields={"values": ATOMIC}),
    core.Taint: Shape(required=("key", "effect"), fields={"timeAdded": DATE_TIME}),
    **_usage(queues.FlavorUsage),
    queues.ResourceUsage: Shape(required=("name",)),
    queues.FairSharing: Shape(fields={"weight": {"default": 1}}),
    queues.FairSharingStatus: Shape(required=("weightedShare",)),
    queues.AdmissionFairSharingStatus: Shape(required=("consumedResources", "lastUpdate")),
}

GROUPS: Final[dict[type, Shape]] = {
    queues.ResourceQuota: Shape(required=("name", "nominalQuota")),
    queues.FlavorQuotas: Shape(
        required=("name", "resources"), fields={"name": SUBDOMAIN, "resources": keyed("name", most=64, least=1)}
    ),
    queues.ResourceGroup: Shape(
        required=("coveredResources", "flavors"),
        fields={"coveredResources": ATOMIC | counted(64, 1), "flavors": keyed("name", most=64, least=1)},
        rules=(
            (
                "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
                "every flavor must give a quota for each of coveredResources",
            ),
        ),
    ),
}

CLUSTER_QUEUE: Final[dict[type, Shape]] = {
    queues.FlavorFungibility: Shape(
        fields={"whenCanBorrow": {"default": "MayStopSearch"}, "whenCanPreempt": {"default": "TryNextFlavor"}},
        rules=(
            (
                (
                    "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && "
                    "self.whenCanPreempt == 'TryNextFlavor')"
                ),
                (
                    "preference decides between flavors that were all tried: "
                    "it needs whenCanBorrow and whenCanPreempt TryNextFlavor"
                ),
            ),
        ),
    ),
    queues.BorrowWithinCohort: Shape(fields={"policy": _NEVER}),
    queues.ClusterQueuePreemption: Shape(
        fields={"reclaimWithinCohort": _NEVER, "withinClusterQueue": _NEVER, "borrowWithinCohort": _OBJECT},
        rules=(
            (
                (
                    "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || "
                    "self.borrowWithinCohort.policy == 'Never'"
                ),
                "borrowWithinCohort needs reclaimWithinCohort other than Never",
            ),
        ),
    ),
    queues.AdmissionCheckStrategyRule: Shape(
        required=("name",),
        fields={"name": text(316, 1), "onFlavors": items(SUBDOMAIN, SET, counted(64))},
    ),
    queues.AdmissionChecksStrategy: Shape(
        required=("admissionChecks",), fields={"admissionChecks": keyed("name", most=64, least=1)}
    ),
    queues.AdmissionScope: Shape(required=("admissionMode",)),
    queues.MigrationConstraints: Shape(fields={"lastAcceptableFlavorName": SUBDOMAIN}),
    queues.Migration: Shape(required=("mode",)),
    queues.ConcurrentAdmissionPolicy: Shape(required=("migration",)),
    queues.ClusterQueueSpec: Shape(
        fields={
            "cohortName": SUBDOMAIN,
            "resourceGroups": ATOMIC | counted(16),
            "queueingStrategy": _FIFO,
            "namespaceSelector": {"x-kubernetes-map-type": "atomic"},
            "flavorFungibility": _OBJECT,
            "preemption": _OBJECT,
            "stopPolicy": _RUNNING,
        },
        rules=(borrowing_rule("cohortName"),),
    ),
    queues.ClusterQueueStatus: Shape(
        fields={"conditions": CONDITIONS, "flavorsReservation": FLAVORS_USED, "flavorsUsage": FLAVORS_USED}
    ),
}

LEVEL_RULES: Final[tuple[tuple[str, str], ...]] = (
    ("self.all(a, self.exists_one(b, b.nodeLabel == a.nodeLabel))", "a node label can be one level only"),
    (
        f"self.all(a, a.nodeLabel != '{HOSTNAME}' || a == self[size(self) - 1])",
        f"{HOSTNAME} can be the lowest level only",
    ),
)
_LEVELS_KEPT: Final = (
    (
        f"self == oldSelf || (self[size(self) - 1].nodeLabel == '{HOSTNAME}' && "
        f"oldSelf[size(oldSelf) - 1].nodeLabel == '{HOSTNAME}')"
    ),
    f"levels can change only while {HOSTNAME} is the lowest, before and after",
)


def topology_spec(*kept: tuple[str, str]) -> Shape:
    """``kept``: the rule for changing levels."""
    return Shape(required=("levels",), fields={"levels": ATOMIC | counted(16, 1) | rules(*kept, *LEVEL_RULES)})


OTHERS: Final[dict[type, Shape]] = {
    queues.CohortSpec: Shape(fields={"parentName": SUBDOMAIN, "resourceGroups": ATOMIC | counted(16)}),
    queues.LocalQueueSpec: Shape(
        fields={
            "clusterQueue": SUBDOMAIN | rules((IMMUTABLE, "clusterQueue cannot be changed: make another LocalQueue")),
            "stopPolicy": _RUNNING,
        }
    ),
    queues.LocalQueueFairSharingStatus: Shape(required=("weightedShare",)),
    queues.LocalQueueStatus: Shape(
        fields={
            "conditions": CONDITIONS,
            "flavorsReservation": FLAVORS_LOCALLY_USED,
            "flavorsUsage": FLAVORS_LOCALLY_USED,
        }
    ),
    queues.ResourceFlavorSpec: Shape(
        fields={
            "nodeLabels": {"maxProperties": 8, "x-kubernetes-map-type": "atomic"},
            "nodeTaints": ATOMIC | counted(8) | items(fields(effect=EFFECTS)),
            "tolerations": TOLERATIONS,
            "topologyName": SUBDOMAIN,
        },
        rules=(
            (
                "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
                "a flavor with a topology needs at least one node label",
            ),
            (
                "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
                "topologyName cannot be changed once it is set",
            ),
        ),
    ),
    queues.TopologyLevel: Shape(required=("nodeLabel",), fields={"nodeLabel": QUALIFIED | {"minLength": 1}}),
    queues.TopologySpec: topology_spec(_LEVELS_KEPT),
    queues.WorkloadPriorityClass: Shape(required=("value",), fields={"description": text(2048)}),
    queues.AdmissionCheckParametersReference: Shape(
        required=("apiGroup", "kind", "name"),
        fields={
            "apiGroup": REFERENCE,
            "kind": text(63, 1) | {"pattern": "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"},
            "name": DNS_LABEL | {"minLength": 1},
        },
    ),
    queues.AdmissionCheckSpec: Shape(
        required=("controllerName",),
        fields={"controllerName": text(253, 1) | rules((IMMUTABLE, "controllerName cannot be changed"))},
    ),
    queues.AdmissionCheckStatus: Shape(fields={"conditions": CONDITIONS}),
}

_RETRIES: Final[Schema] = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}

PROVISIONING: Final[dict[type, Shape]] = {
    provisioning.RetryStrategy: Shape(fields={name: {"default": value} for name, value in _RETRIES.items()}),
    provisioning.NodeSelectorUpdate: Shape(
        required=("key", "valueFromProvisioningClassDetail"),
        fields={
            "key": QUALIFIED | text(317, 1),
            "valueFromProvisioningClassDetail": text(32768, 1),
        },
    ),
    provisioning.ProvisioningPodSetUpdates: Shape(fields={"nodeSelector": keyed("key", most=8)}),
    provisioning.ProvisioningRequestConfigSpec: Shape(
        required=("provisioningClassName",),
        fields={
            "provisioningClassName": REFERENCE,
            "parameters": {"maxProperties": 100, "additionalProperties": text(255)},
            "managedResources": SET | counted(100),
            "retryStrategy": {"default": _RETRIES},
        },
    ),
}

QUEUES: Final[dict[type, Shape]] = SHARED | GROUPS | CLUSTER_QUEUE | OTHERS | PROVISIONING
