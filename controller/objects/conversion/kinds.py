"""The differences between v1beta1 and v1beta2 of each kind, upwards to the hub and downwards from it.

Lost on the way up, because v1beta2 has no such field: AdmissionCheck ``spec.retryDelayMinutes``; ClusterQueue
``status.pendingWorkloadsStatus`` and, as for Cohort, ``status.fairSharing.admissionFairSharingStatus``; LocalQueue
``status.flavors``; Workload ``spec.priorityClassName`` without a source (the priority itself stays).

Lost on the way down, because v1beta1 has none: ClusterQueue ``spec.concurrentAdmissionPolicy``; Workload
``spec.preemptionGates``, ``status.preemptionGates`` and ``podsetSliceRequiredTopologyConstraints`` of a topology
request; MultiKueueConfig ``spec.quotaManagement``.

An object that the stored version's schema accepts never fails: one failure would fail a whole list.
"""

from collections.abc import Callable
from typing import Any, Final

from controller.objects.conversion import assignment
from controller.objects.conversion.tree import (
    ConversionError,
    Json,
    child,
    children,
    drop,
    kind_of,
    rename,
    text,
    texts,
)

GROUP: Final = "kueue.x-k8s.io"
OLD: Final = f"{GROUP}/v1beta1"
HUB: Final = f"{GROUP}/v1beta2"

_MAX_SHOWN: Final = 63

PRIORITY_SOURCES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
"""v1beta1's ``priorityClassSource`` as the group and kind of v1beta2's ``priorityClassRef``."""


def convert(given: Json, wanted: str) -> Json:
    """``given`` in the version ``wanted`` (an apiVersion); ``given`` itself is not changed. Raises ConversionError."""
    version, kind = given.get("apiVersion"), given.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise ConversionError("apiVersion and kind: expected strings")
    if kind not in KINDS:
        raise ConversionError(f"kind: found {kind[:_MAX_SHOWN]!r}, expected one of {', '.join(sorted(KINDS))}")
    for each in (version, wanted):
        if each not in (OLD, HUB):
            raise ConversionError(f"apiVersion: found {each[:_MAX_SHOWN]!r}, expected {OLD} or {HUB}")
    if version == wanted:
        return given
    made = {**given, "apiVersion": wanted}
    up, down = KINDS[kind]
    (up if wanted == HUB else down)(made)
    return made


def _same(_made: Json) -> None:
    """The step of a kind whose versions have the same fields."""


def _part(made: Json, name: str) -> Json:
    """The object's ``spec`` or ``status``; an empty one outside of the object if it has none."""
    found = child(made, name, "")
    return {} if found is None else found


def _admission_check_up(made: Json) -> None:
    drop(child(made, "spec", ""), "retryDelayMinutes")


def _cluster_queue_up(made: Json) -> None:
    spec = _part(made, "spec")
    rename(spec, "cohort", "cohortName")
    drop(spec, "concurrentAdmissionPolicy")
    fungibility = child(spec, "flavorFungibility", ".spec")
    for key, old in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if fungibility is not None and fungibility.get(key) == old:
            fungibility[key] = "MayStopSearch"
    _checks_up(spec)
    status = _part(made, "status")
    drop(status, "pendingWorkloadsStatus")
    drop(child(status, "fairSharing", ".status"), "admissionFairSharingStatus")


def _checks_up(spec: Json) -> None:
    """Adds the plain list of checks to the strategy, as checks of all flavors; a strategy without checks is none at
    all.

    Kueue refuses both at once. A stored object must convert, so here the two add up: no check is lost.
    """
    names = texts(spec, "admissionChecks", ".spec")
    drop(spec, "admissionChecks")
    strategy = child(spec, "admissionChecksStrategy", ".spec") or {}
    rules = children(strategy, "admissionChecks", ".spec.admissionChecksStrategy")
    known = {rule.get("name") for rule in rules if isinstance(rule.get("name"), str)}
    rules += [{"name": name} for name in dict.fromkeys(names) if name not in known]
    drop(spec, "admissionChecksStrategy")
    if rules:
        spec["admissionChecksStrategy"] = {**strategy, "admissionChecks": rules}


def _cluster_queue_down(made: Json) -> None:
    spec = _part(made, "spec")
    rename(spec, "cohortName", "cohort")
    drop(spec, "concurrentAdmissionPolicy", "admissionChecks")


def _cohort_up(made: Json) -> None:
    drop(child(_part(made, "status"), "fairSharing", ".status"), "admissionFairSharingStatus")


def _local_queue_up(made: Json) -> None:
    status = _part(made, "status")
    rename(status, "flavorUsage", "flavorsUsage")
    drop(status, "flavors")


def _local_queue_down(made: Json) -> None:
    rename(_part(made, "status"), "flavorsUsage", "flavorUsage")


def _workload_up(made: Json) -> None:
    spec = _part(made, "spec")
    name, source = text(spec, "priorityClassName", ".spec"), text(spec, "priorityClassSource", ".spec")
    drop(spec, "priorityClassName", "priorityClassSource", "priorityClassRef", "preemptionGates")
    if source and source not in PRIORITY_SOURCES:
        raise ConversionError(
            f".spec.priorityClassSource: found {source[:_MAX_SHOWN]!r}, expected {' or '.join(PRIORITY_SOURCES)}"
        )
    if name and source:
        group, kind = PRIORITY_SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    for request in _topology_requests(spec):
        drop(request, "podsetSliceRequiredTopologyConstraints")
    status = _part(made, "status")
    rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    drop(status, "preemptionGates")
    for path, one in _assignments(status):
        assignment.to_slices(one, path)


def _workload_down(made: Json) -> None:
    spec = _part(made, "spec")
    reference = child(spec, "priorityClassRef", ".spec")
    drop(spec, "priorityClassName", "priorityClassSource", "priorityClassRef", "preemptionGates")
    if reference is not None:
        spec["priorityClassName"] = text(reference, "name", ".spec.priorityClassRef")
        spec["priorityClassSource"] = _source(reference)
    for request in _topology_requests(spec):
        drop(request, "podsetSliceRequiredTopologyConstraints")
    status = _part(made, "status")
    rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    drop(status, "preemptionGates")
    for path, one in _assignments(status):
        assignment.to_domains(one, path)


def _source(reference: Json) -> str:
    path = ".spec.priorityClassRef"
    named = text(reference, "group", path), text(reference, "kind", path)
    for source, expected in PRIORITY_SOURCES.items():
        if named == expected:
            return source
    raise ConversionError(
        f"{path}: found {'/'.join(named)[:_MAX_SHOWN]!r}, expected a WorkloadPriorityClass or a PriorityClass"
    )


def _topology_requests(spec: Json) -> list[Json]:
    requests = (
        child(podset, "topologyRequest", f".spec.podSets[{index}]")
        for index, podset in enumerate(children(spec, "podSets", ".spec"))
    )
    return [request for request in requests if request is not None]


def _assignments(status: Json) -> list[tuple[str, Json]]:
    """The topology assignments with their paths."""
    admission = child(status, "admission", ".status")
    assignments: list[tuple[str, Json]] = []
    for index, podset in enumerate(children(admission or {}, "podSetAssignments", ".status.admission")):
        path = f".status.admission.podSetAssignments[{index}]"
        one = child(podset, "topologyAssignment", path)
        if one is not None:
            assignments.append((f"{path}.topologyAssignment", one))
    return assignments


def _multikueue_cluster_up(made: Json) -> None:
    spec = _part(made, "spec")
    drop(spec, "clusterSource")
    source = {key: spec.pop(key) for key in ("kubeConfig", "clusterProfileRef") if spec.get(key) is not None}
    config = source.get("kubeConfig")
    # v1beta1 requires the field beside a profile; an empty one means none.
    if "clusterProfileRef" in source and isinstance(config, dict) and not config.get("location"):
        del source["kubeConfig"]
    if source:
        spec["clusterSource"] = source


def _multikueue_cluster_down(made: Json) -> None:
    spec = _part(made, "spec")
    source = child(spec, "clusterSource", ".spec")
    drop(spec, "clusterSource", "kubeConfig", "clusterProfileRef")
    spec.update(source or {})


def _multikueue_config_down(made: Json) -> None:
    drop(child(made, "spec", ""), "quotaManagement")


Step = Callable[[Json], None]

KINDS: Final[dict[str, tuple[Step, Step]]] = {
    "AdmissionCheck": (_admission_check_up, _same),
    "ClusterQueue": (_cluster_queue_up, _cluster_queue_down),
    "Cohort": (_cohort_up, _same),
    "LocalQueue": (_local_queue_up, _local_queue_down),
    "ResourceFlavor": (_same, _same),
    "Topology": (_same, _same),
    "Workload": (_workload_up, _workload_down),
    "WorkloadPriorityClass": (_same, _same),
    # Kueue's own kinds, converted if its CRDs are installed.
    "MultiKueueCluster": (_multikueue_cluster_up, _multikueue_cluster_down),
    "MultiKueueConfig": (_same, _multikueue_config_down),
    "ProvisioningRequestConfig": (_same, _same),
}
"""The steps up and down of each kind; each step changes an object of the caller's own."""


def expected_object(value: Any, path: str) -> Json:
    """``value`` if it is an object. Raises ConversionError."""
    if not isinstance(value, dict):
        raise ConversionError(f"{path}: found {kind_of(value)}, expected object")
    return value
