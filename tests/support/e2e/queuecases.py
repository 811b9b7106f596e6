"""Each rule of Kueue's webhooks and of our schemas as a named case: a change to an object, and what is said to it."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

_OBJECTS: Final = Path(__file__).parents[2] / "conformance" / "crds"
EXAMPLE_FILES: Final = (
    "namespaces.yaml",
    "flavors-by-product.yaml",
    "cluster-queue-in-cohort.yaml",
    "local-queues-per-team.yaml",
    "team-quotas.yaml",
    "team.yaml",
    "job-four-workers.yaml",
    "job-with-priority.yaml",
    "kubeflow-jobs.yaml",
    "honest-units.yaml",
    "fractions.yaml",
    "quota-calendar.yaml",
)
"""In the order in which they build on each other."""
DROP: Final = object()


class Case(NamedTuple):
    """``change``: values by dotted path. ``said`` is None where it is accepted."""

    name: str
    kind: str
    change: dict[str, Any]
    said: str | None = None


class Update(NamedTuple):
    """What ``first`` made of the object, then ``change``: to the object itself, or to its status."""

    name: str
    kind: str
    first: dict[str, Any]
    change: dict[str, Any]
    said: str | None = None
    of_status: bool = False


def objects(version: str = "v1beta2") -> dict[str, dict[str, Any]]:
    """An object of each kind with nearly every field set."""
    found = yaml.safe_load_all((_OBJECTS / "objects.yaml").read_text())
    return {one["kind"]: one for one in found if one["apiVersion"].endswith(version)}


def statuses() -> dict[str, dict[str, Any]]:
    """A status of each kind that has one."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((_OBJECTS / "statuses.yaml").read_text())
    return found


def changed(given: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values at dotted paths; DROP takes one away."""
    made = deepcopy(given)
    for path, value in change.items():
        *parents, last = path.split(".")
        at: Any = made
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        key: Any = int(last) if isinstance(at, list) else last
        if value is DROP:
            del at[key]
        elif isinstance(at, list) and key == len(at):
            at.append(deepcopy(value))
        else:
            at[key] = deepcopy(value)
    return made


def group(resources: list[str], flavors: list[str], **quota: Any) -> dict[str, Any]:
    """A resource group in which each flavor has the same quota of each resource."""
    given = [{"name": name, **({"nominalQuota": 1} | quota)} for name in resources]
    return {"coveredResources": resources, "flavors": [{"name": one, "resources": given} for one in flavors]}


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}{index}" for index in range(count)]


_Q: Final = "spec.resourceGroups.0.flavors.0.resources.1"
_CHECKS: Final = "spec.admissionChecksStrategy.admissionChecks"
_CONCURRENT: Final = {
    _CHECKS.rpartition(".")[0]: DROP,
    "spec.resourceGroups.1": DROP,
    "spec.concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}},
}
_LAST: Final = "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"
_STAYS: Final = {"spec.concurrentAdmissionPolicy.migration.mode": "RetainFirstAdmission"}
_TOLERATIONS: Final = "spec.tolerations.0"


def regrouped(kind: str, groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Other resource groups, and no check that names a flavor of the old ones.

    Of several policies that refuse, a server tells one, and which is not defined: a case breaks one rule only.
    """
    checks = {"spec.admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}} if kind == "ClusterQueue" else {}
    return {"spec.resourceGroups": groups, **checks}


_QUOTAS: Final = tuple(
    Case(f"{kind}: {name}", kind, change, said)
    for kind in ("ClusterQueue", "Cohort")
    for name, change, said in (
        ("a quota of 0", {f"{_Q}.nominalQuota": 0, f"{_Q}.lendingLimit": 0}, None),
        ("a negative quota", {f"{_Q}.nominalQuota": -1}, "negative, expected 0 or more"),
        ("a negative quota as text", {f"{_Q}.nominalQuota": "-500m"}, "negative, expected 0 or more"),
        ("a negative borrowing limit", {f"{_Q}.borrowingLimit": -1}, "negative, expected 0 or more"),
        ("a negative lending limit", {f"{_Q}.lendingLimit": -1}, "negative, expected 0 or more"),
        ("a quota that is no quantity", {f"{_Q}.nominalQuota": "many"}, "nominalQuota"),
        ("a resource in two groups", {"spec.resourceGroups.1": group(["cpu"], ["other"])}, "covered once only"),
        ("a resource twice in a group", {"spec.resourceGroups.0": group(["cpu", "cpu"], ["a100"])}, "Duplicate value"),
        ("a flavor in two groups", {"spec.resourceGroups.1": group(["disk"], ["a100"])}, "in one group only"),
        ("a flavor twice in a group", {"spec.resourceGroups.0": group(["cpu"], ["a100", "a100"])}, "Duplicate value"),
        (
            "quotas in another order than the resources",
            {"spec.resourceGroups.0.coveredResources": ["nvidia.com/gpu", "cpu"]},
            "order of coveredResources",
        ),
        ("a quota for a resource that is not covered", {f"{_Q}.name": "disk"}, "order of coveredResources"),
        ("a resource without quota", {"spec.resourceGroups.0.coveredResources": ["cpu"]}, "quota for each"),
        (
            "a name that is no resource's",
            {"spec.resourceGroups.1": group(["not a name"], ["other"])},
            "expected names of resources",
        ),
        ("17 groups", {"spec.resourceGroups": [group([f"r{n}"], [f"f{n}"]) for n in range(17)]}, "at most 16 items"),
        (
            "16 groups",
            regrouped(kind, [group([f"r{n}"], [f"f{n}"]) for n in range(16)]),
            None,
        ),
        ("65 flavors in a group", {"spec.resourceGroups.1": group(["disk"], numbered("f", 65))}, "at most 64 items"),
        ("65 resources in a group", {"spec.resourceGroups.1": group(numbered("r", 65), ["other"])}, "at most 64 items"),
        (
            "more than 256 flavors",
            regrouped(kind, [group([f"r{n}"], numbered(f"f{n}-", 64)) for n in range(5)]),
            "found 320 flavors",
        ),
        (
            "more than 256 resources",
            regrouped(kind, [group(numbered(f"r{n}-", 64), [f"f{n}"]) for n in range(5)]),
            "found 320 covered resources",
        ),
        (
            "more than 512 pairs in a group",
            regrouped(kind, [group(numbered("r", 57), numbered("f", 9))]),
            "expected at most 512",
        ),
        (
            "512 pairs in a group",
            regrouped(kind, [group(numbered("r", 64), numbered("f", 8))]),
            None,
        ),
        ("a weight of 0", {"spec.fairSharing.weight": 0}, None),
        ("a negative weight", {"spec.fairSharing.weight": -1}, "expected 0 or more than 1n"),
        ("a weight of 1n", {"spec.fairSharing.weight": "1n"}, "expected 0 or more than 1n"),
        ("a weight of 2n", {"spec.fairSharing.weight": "2n"}, None),
        ("a parent that is no name", {"spec." + ("parentName" if kind == "Cohort" else "cohortName"): "A b"}, "match"),
        (
            "no quota of its own",
            {"spec.resourceGroups": [], **({"spec.admissionChecksStrategy": DROP} if kind == "ClusterQueue" else {})},
            None,
        ),
    )
)

_CLUSTER_QUEUES: Final = tuple(
    Case(f"ClusterQueue: {name}", "ClusterQueue", change, said)
    for name, change, said in (
        ("a borrowing limit without a cohort", {"spec.cohortName": DROP}, "borrowingLimit needs a cohort"),
        (
            "a lending limit without a cohort",
            {"spec.cohortName": DROP, "spec.resourceGroups.0": DROP, _CHECKS: [{"name": "a"}]},
            "cohortName is not set",
        ),
        ("a lending limit above the quota", {f"{_Q}.lendingLimit": 5}, "expected at most nominalQuota"),
        ("a lending limit of the quota", {f"{_Q}.lendingLimit": 4}, None),
        ("an unknown strategy", {"spec.queueingStrategy": "LIFO"}, "StrictFIFO"),
        (
            "a preference while borrowing stops the search",
            {"spec.flavorFungibility.whenCanBorrow": "MayStopSearch"},
            "preference decides",
        ),
        ("the older word Borrow", {"spec.flavorFungibility.whenCanBorrow": "Borrow"}, "MayStopSearch"),
        (
            "borrowing by preemption without reclaim",
            {"spec.preemption.reclaimWithinCohort": "Never"},
            "borrowWithinCohort needs",
        ),
        (
            "a check on another queue's flavor",
            {f"{_CHECKS}.0.onFlavors": ["t4"]},
            "flavors of this ClusterQueue; found: t4",
        ),
        ("a check on every flavor", {f"{_CHECKS}.0.onFlavors": DROP}, None),
        ("no check in the strategy", {_CHECKS: []}, "at least 1 items"),
        ("65 checks", {_CHECKS: [{"name": f"c{n}"} for n in range(65)]}, "at most 64 items"),
        ("an unknown stop policy", {"spec.stopPolicy": "Drain"}, "HoldAndDrain"),
        ("an unknown admission mode", {"spec.admissionScope.admissionMode": "Fair"}, "NoAdmissionFairSharing"),
        (
            "a selector of an unknown operator",
            {"spec.namespaceSelector.matchExpressions.0.operator": "Like"},
            "operator In or NotIn",
        ),
        ("a selector In nothing", {"spec.namespaceSelector.matchExpressions.0.values": []}, "operator In or NotIn"),
        (
            "a selector by what is no label",
            {"spec.namespaceSelector.matchLabels": {"a b": "c"}},
            "that labels can have",
        ),
        ("concurrent admission", {**_CONCURRENT}, None),
        (
            "concurrent admission with two groups",
            {"spec.concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}},
            "exactly one of",
        ),
        ("concurrent admission in strict order", {**_CONCURRENT, "spec.queueingStrategy": "StrictFIFO"}, "FIFO beside"),
        ("concurrent admission up to a flavor", {**_CONCURRENT, _LAST: "a100"}, None),
        ("concurrent admission up to another's", {**_CONCURRENT, _LAST: "x"}, "expected one of the flavors"),
        ("concurrent admission that stays", {**_CONCURRENT, _LAST: "a100", **_STAYS}, "TryPreferredFlavors only"),
        (
            "concurrent admission over 17 flavors",
            {**_CONCURRENT, "spec.resourceGroups.0": group(["cpu"], numbered("f", 17))},
            "at most 16 flavors",
        ),
    )
)

_TAINTS: Final = [{"key": "a", "value": str(n), "effect": "NoSchedule"} for n in range(2)]
_OTHERS: Final = (
    Case("Cohort: a lending limit above the quota", "Cohort", {f"{_Q}.lendingLimit": 50}),
    Case("Cohort: no spec", "Cohort", {"spec": DROP}),
    Case("Cohort: limits without a parent", "Cohort", {"spec.parentName": DROP}, "parentName is not set"),
    Case("LocalQueue: a quota", "LocalQueue", {"spec.nominalQuota": 16}, 'unknown field "spec.nominalQuota"'),
    Case("LocalQueue: a ClusterQueue that is no name", "LocalQueue", {"spec.clusterQueue": "A b"}, "clusterQueue"),
    Case(
        "ResourceFlavor: 9 node labels",
        "ResourceFlavor",
        {"spec.nodeLabels": dict.fromkeys(numbered("l", 9), "x")},
        "8",
    ),
    Case("ResourceFlavor: what is no label", "ResourceFlavor", {"spec.nodeLabels.pool": "a b"}, "labels of a node"),
    Case(
        "ResourceFlavor: 9 taints",
        "ResourceFlavor",
        {"spec.nodeTaints": [{"key": f"k{n}", "effect": "NoExecute"} for n in range(9)]},
        "at most 8 items",
    ),
    Case(
        "ResourceFlavor: 9 tolerations",
        "ResourceFlavor",
        {"spec.tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(9)]},
        "at most 8 items",
    ),
    Case("ResourceFlavor: a taint twice", "ResourceFlavor", {"spec.nodeTaints": _TAINTS}, "at most once"),
    Case("ResourceFlavor: a taint of no key", "ResourceFlavor", {"spec.nodeTaints.0.key": "a b"}, "taints of a node"),
    Case("ResourceFlavor: an unknown effect", "ResourceFlavor", {"spec.nodeTaints.0.effect": "Evict"}, "NoExecute"),
    Case(
        "ResourceFlavor: tolerating everything by value",
        "ResourceFlavor",
        {f"{_TOLERATIONS}.key": DROP},
        "it needs operator Exists",
    ),
    Case(
        "ResourceFlavor: tolerating for a while without NoExecute",
        "ResourceFlavor",
        {f"{_TOLERATIONS}.effect": "NoSchedule"},
        "with effect NoExecute only",
    ),
    Case(
        "ResourceFlavor: Exists with a value",
        "ResourceFlavor",
        {f"{_TOLERATIONS}.operator": "Exists"},
        "takes no value",
    ),
    Case("ResourceFlavor: an unknown operator", "ResourceFlavor", {f"{_TOLERATIONS}.operator": "In"}, "Exists"),
    Case(
        "ResourceFlavor: a topology without node labels",
        "ResourceFlavor",
        {"spec.nodeLabels": DROP},
        "at least one node label",
    ),
    Case("Topology: no level", "Topology", {"spec.levels": []}, "at least 1 items"),
    Case(
        "Topology: 17 levels",
        "Topology",
        {"spec.levels": [{"nodeLabel": f"l{n}"} for n in range(17)]},
        "at most 16 items",
    ),
    Case("Topology: a level twice", "Topology", {"spec.levels": [{"nodeLabel": "a"}] * 2}, "one level only"),
    Case(
        "Topology: hosts above racks",
        "Topology",
        {"spec.levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
        "lowest level only",
    ),
    Case("WorkloadPriorityClass: no value", "WorkloadPriorityClass", {"value": DROP}, "value"),
    Case("WorkloadPriorityClass: a long story", "WorkloadPriorityClass", {"description": "x" * 2049}, "2048"),
    Case("AdmissionCheck: no controller", "AdmissionCheck", {"spec.controllerName": ""}, "controllerName"),
    Case("AdmissionCheck: a parameter's kind that is none", "AdmissionCheck", {"spec.parameters.kind": "1x"}, "kind"),
)

_ELASTIC_MARK: Final = {"kueue.x-k8s.io/elastic-job": "true"}
_POD: Final = "spec.podSets.1.template.spec.containers.0.resources.requests"
_WORKLOADS: Final = tuple(
    Case(f"Workload: {name}", "Workload", change, said)
    for name, change, said in (
        ("two pod sets that may shrink", {"spec.podSets.0.minCount": 1}, "on one pod set at most"),
        ("more at least than at most", {"spec.podSets.1.minCount": 5}, "expected at most count"),
        ("as many at least as at most", {"spec.podSets.1.minCount": 4}, None),
        ("a minimum of an elastic job", {"metadata.annotations": _ELASTIC_MARK}, "an elastic job has no minimum"),
        (
            "an elastic job without a minimum",
            {"metadata.annotations": _ELASTIC_MARK, "spec.podSets.1.minCount": DROP},
            None,
        ),
        ("a pod set of no pods", {"spec.podSets.0.count": 0}, None),
        ("no pod set", {"spec.podSets": []}, "at least 1 items"),
        ("19 pod sets", {"spec.podSets": [{"name": f"p{n}", "template": {}} for n in range(19)]}, "at most 18 items"),
        ("two pod sets of one name", {"spec.podSets.0.name": "workers"}, "Duplicate value"),
        ("a request for pods", {f"{_POD}.pods": 1}, "found a request for pods"),
        ("a limit of pods", {f"{_POD.removesuffix('requests')}limits": {"pods": 1}}, "found a limit of pods"),
        (
            "a request for pods at the start",
            {"spec.podSets.1.template.spec.initContainers.0.resources": {"requests": {"pods": 1}}},
            "found a request for pods",
        ),
        ("a negative request", {f"{_POD}.cpu": -1}, "found a negative request"),
        ("a negative request as text", {f"{_POD}.memory": "-1Gi"}, "found a negative request"),
        ("a request of 0", {f"{_POD}.cpu": 0}, None),
        ("containers that are none", {"spec.podSets.1.template.spec.containers": "x"}, "containers"),
        ("a slice without its size", {"spec.podSets.1.topologyRequest.podSetSliceSize": DROP}, "together, or neither"),
        (
            "4 layers of slices",
            {
                "spec.podSets.1.topologyRequest.podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 1}]
                * 4
            },
            "at most 3 items",
        ),
        ("a priority class without a priority", {"spec.priority": DROP}, "expected with priorityClassRef"),
        (
            "a pod's class of our group",
            {"spec.priorityClassRef.kind": "PriorityClass"},
            "expected kind WorkloadPriorityClass",
        ),
        ("a class of another group", {"spec.priorityClassRef.group": "example.com"}, "scheduling.k8s.io"),
        ("no time to run", {"spec.maximumExecutionTimeSeconds": 0}, "greater than or equal to 1"),
        ("9 gates", {"spec.preemptionGates": [{"name": f"g{n}"} for n in range(9)]}, "at most 8 items"),
        (
            "a boost that is no number, and that nothing reads",
            {"metadata.annotations": {"kueue.x-k8s.io/priority-boost": "high"}},
            None,
        ),
        ("a negative boost", {"metadata.annotations": {"kueue.x-k8s.io/priority-boost": "-5"}}, None),
    )
)

CREATED: Final = (*_QUOTAS, *_CLUSTER_QUEUES, *_OTHERS, *_WORKLOADS)

RESERVED: Final[dict[str, Any]] = {"status": statuses()["Workload"]}
_ADMITTED: Final[dict[str, Any]] = changed(
    RESERVED, {"status.conditions.1": {**RESERVED["status"]["conditions"][0], "type": "Admitted"}}
)
_POD_CLASS: Final = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
_ELASTIC: Final = {"metadata.annotations": _ELASTIC_MARK, "spec.podSets.1.minCount": DROP}
_A: Final = "status.admission.podSetAssignments.1"
_LOST: Final = {"status": {"clusterName": "east", "nominatedClusterNames": []}}
_WON: Final = {"status": {"nominatedClusterNames": ["east"]}}

UPDATED: Final = (
    Update(
        "LocalQueue: another ClusterQueue", "LocalQueue", {}, {"spec.clusterQueue": "other"}, "make another LocalQueue"
    ),
    Update("LocalQueue: stopped", "LocalQueue", {}, {"spec.stopPolicy": "HoldAndDrain"}),
    Update(
        "AdmissionCheck: another controller",
        "AdmissionCheck",
        {},
        {"spec.controllerName": "x"},
        "controllerName cannot",
    ),
    Update("ResourceFlavor: another topology", "ResourceFlavor", {}, {"spec.topologyName": "x"}, "topologyName cannot"),
    Update(
        "ResourceFlavor: no topology any more", "ResourceFlavor", {}, {"spec.topologyName": DROP}, "topologyName cannot"
    ),
    Update("Topology: a level more above the hosts", "Topology", {}, {"spec.levels.0": {"nodeLabel": "room"}}),
    Update("Topology: no hosts any more", "Topology", {}, {"spec.levels.2": DROP}, "levels can change only while"),
    Update("WorkloadPriorityClass: another value", "WorkloadPriorityClass", {}, {"value": 7}),
    Update(
        "ClusterQueue: another cohort and strategy",
        "ClusterQueue",
        {},
        {"spec.cohortName": "x", "spec.queueingStrategy": "StrictFIFO"},
    ),
    Update(
        "ClusterQueue: a flavor goes and its check stays",
        "ClusterQueue",
        {},
        {"spec.resourceGroups.0": group(["cpu", "nvidia.com/gpu"], ["other"])},
    ),
    Update(
        "ClusterQueue: a check on another queue's flavor later",
        "ClusterQueue",
        {},
        {f"{_CHECKS}.0.onFlavors": ["t4"]},
        "flavors of this ClusterQueue; found: t4",
    ),
    Update(
        "ClusterQueue: concurrent admission later", "ClusterQueue", {}, _CONCURRENT, "concurrentAdmissionPolicy cannot"
    ),
    Update("Workload: pod sets while pending", "Workload", {}, {"spec.podSets.1.count": 8, "spec.queueName": "other"}),
    Update(
        "Workload: pod sets with quota", "Workload", RESERVED, {"spec.podSets.1.count": 5}, "podSets cannot be changed"
    ),
    Update("Workload: a count is lowered with quota", "Workload", RESERVED, {"spec.podSets.1.count": 3}),
    Update("Workload: an elastic job shrinks", "Workload", {**RESERVED, **_ELASTIC}, {"spec.podSets.1.count": 3}),
    Update(
        "Workload: an elastic job grows",
        "Workload",
        {**RESERVED, **_ELASTIC},
        {"spec.podSets.1.count": 5},
        "podSets cannot be changed",
    ),
    Update(
        "Workload: another queue with quota",
        "Workload",
        RESERVED,
        {"spec.queueName": "x"},
        "queueName cannot be changed",
    ),
    Update(
        "Workload: no queue any more with quota", "Workload", RESERVED, {"spec.queueName": DROP}, "queueName cannot"
    ),
    Update("Workload: stopped with quota", "Workload", RESERVED, {"spec.active": False, "spec.priority": 7}),
    Update("Workload: another class with quota", "Workload", RESERVED, {"spec.priorityClassRef.name": "urgent"}),
    Update(
        "Workload: no class any more with quota",
        "Workload",
        RESERVED,
        {"spec.priorityClassRef": DROP},
        "cannot be set or removed",
    ),
    Update(
        "Workload: a pod's class with quota",
        "Workload",
        RESERVED,
        {"spec.priorityClassRef": _POD_CLASS},
        "group and kind cannot",
    ),
    Update(
        "Workload: another pod's class with quota",
        "Workload",
        {**RESERVED, "spec.priorityClassRef": _POD_CLASS},
        {"spec.priorityClassRef.name": "low"},
        "a PriorityClass of pods cannot",
    ),
    Update("Workload: more time with quota", "Workload", RESERVED, {"spec.maximumExecutionTimeSeconds": 7}),
    Update(
        "Workload: more time while admitted",
        "Workload",
        _ADMITTED,
        {"spec.maximumExecutionTimeSeconds": 7},
        "maximumExecutionTimeSeconds cannot",
    ),
    *(
        Update(f"Workload status: {name}", "Workload", first, change, said, of_status=True)
        for name, first, change, said in (
            ("quota without admission", {}, {**RESERVED, "status.admission": DROP}, "expected while the condition"),
            (
                "quota for one of two pod sets",
                {},
                {**RESERVED, "status.admission.podSetAssignments.0": DROP},
                "found 1, expected one for each of 2",
            ),
            (
                "usage that no pod could have",
                {},
                {**RESERVED, f"{_A}.resourceUsage": {"nvidia.com/gpu": 5}},
                "expected multiples of count",
            ),
            (
                "a thousandth of a core too much",
                {},
                {**RESERVED, f"{_A}.resourceUsage": {"cpu": "2001m"}},
                "expected multiples of count",
            ),
            (
                "more pods done than there are",
                {},
                {**RESERVED, "status.reclaimablePods.0.count": 5},
                "at most their count",
            ),
            ("pods done of no pod set", {}, {**RESERVED, "status.reclaimablePods.0.name": "x"}, "of this workload"),
            ("more pods done", RESERVED, {"status.reclaimablePods.0.count": 2}, None),
            ("fewer pods done", RESERVED, {"status.reclaimablePods.0.count": 0}, "can only grow"),
            ("another queue's quota", RESERVED, {"status.admission.clusterQueue": "x"}, "admission cannot be changed"),
            ("another flavor", RESERVED, {f"{_A}.flavors.cpu": "x"}, "admission cannot be changed"),
            (
                "another topology assignment",
                RESERVED,
                {f"{_A}.topologyAssignment.levels.0": "x", f"{_A}.delayedTopologyRequest": "Pending"},
                None,
            ),
            ("evicted", RESERVED, {"status.admission": DROP, "status.conditions.0.status": "False"}, None),
            (
                "another update by a ready check",
                RESERVED,
                {"status.admissionChecks.0.podSetUpdates.0.labels": {"a": "b"}},
                "podSetUpdates cannot be changed",
            ),
            (
                "another update with a retry",
                RESERVED,
                {"status.admissionChecks.0.podSetUpdates": [], "status.admissionChecks.0.state": "Retry"},
                None,
            ),
            ("an unknown state of a check", RESERVED, {"status.admissionChecks.0.state": "Maybe"}, "Rejected"),
            (
                "9 checks",
                RESERVED,
                {
                    "status.admissionChecks": [
                        {**RESERVED["status"]["admissionChecks"][0], "name": f"c{n}"} for n in range(9)
                    ]
                },
                "at most 8 items",
            ),
            (
                "a check's toleration of everything by value",
                {},
                {**RESERVED, "status.admissionChecks.0.podSetUpdates.0.tolerations.0.key": DROP},
                "it needs operator Exists",
            ),
            (
                "17 conditions",
                {},
                {"status.conditions": [{**RESERVED["status"]["conditions"][0], "type": f"T{n}"} for n in range(17)]},
                "at most 16 items",
            ),
            (
                "9 unhealthy nodes",
                {},
                {"status.unhealthyNodes": [{"name": f"n{n}"} for n in range(9)]},
                "at most 8 items",
            ),
            ("a nominated cluster", _WON, {"status": {"clusterName": "east"}}, None),
            ("another cluster than before", _LOST, {"status.clusterName": "west"}, "clusterName cannot be changed"),
            (
                "a cluster that nobody nominated",
                _WON,
                {"status": {"clusterName": "west"}},
                "one of nominatedClusterNames",
            ),
            (
                "a cluster beside those nominated",
                _WON,
                {"status.clusterName": "east"},
                "expected none beside clusterName",
            ),
            ("levels without values", {}, {**RESERVED, f"{_A}.topologyAssignment.levels": ["a"]}, "for each level"),
            (
                "counts for other domains",
                {},
                {**RESERVED, f"{_A}.topologyAssignment.slices.1.podCounts.individual": [1]},
                "expected domainCount numbers",
            ),
            (
                "values for other domains",
                {},
                {**RESERVED, f"{_A}.topologyAssignment.slices.1.valuesPerLevel.1.individual.roots": ["a"]},
                "expected domainCount values",
            ),
            (
                "neither one value nor several",
                {},
                {**RESERVED, f"{_A}.topologyAssignment.slices.0.podCounts": {}},
                "either universal or individual",
            ),
        )
    ),
)
