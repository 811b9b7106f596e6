"""Where we differ from Kueue on purpose: rules over a case's input and over what differs, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus. It covers the
difference that its reason is about, where it stands and with the values that it has, and no other of the same input:
``test_differences`` shows each rule one that it must not cover.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from controller.jobs.framework import names
from controller.jobs.framework.podview import ADMISSION_GATE, GROUP_NAME, GROUP_TOTAL, ROLE_HASH, SUSPENDING_PARENT
from controller.jobs.framework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobs.framework.topologyrequest import SLICE_CONSTRAINTS, SLICE_SIZE, SLICE_TOPOLOGY
from tests.conformance.kueuejobs.inputs import annotations, workloads
from tests.conformance.kueuejobs.jobdifferences import JOB_RULES
from tests.conformance.kueuejobs.poddifferences import POD_RULES
from tests.conformance.kueuejobs.webhookdifferences import WEBHOOK_RULES
from tests.conformance.replay import ABSENT, Rule, at, one_of

# What stands on our objects besides, and is left out where a case is compared.
ADDED_TO_WORKLOADS: Final = (names.JOB_OWNER_GVK, names.JOB_OWNER_NAME)
"""Each Workload names the job that it was made for; Kueue writes it for serving kinds alone."""
ADDED_TO_TEMPLATES: Final = (names.WORKLOAD,)
"""Pods name their Workload without a topology as well: device plans find them by it."""

JOB_NAME: Final = "batch.kubernetes.io/job-name"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
_ONE: Final = r"workloads\[\d+\]"
_MARKS: Final = "|".join(map(re.escape, (GROUP_NAME, GROUP_TOTAL, ROLE_HASH, names.PREBUILT_WORKLOAD)))
_MARKS_OF_PODS: Final = rf"pods\[\d+\]\.metadata\.(annotations|labels)\.({_MARKS})"
"""Of a pod that has joined its group."""


def _labels_of_a_job(given: Mapping[str, Any]) -> bool:
    return JOB_NAME in (given.get("labels") or {})


def _slices_of_no_size(given: Mapping[str, Any]) -> bool:
    """Annotations of slices that webhooks refuse: one without the other, or beside a group."""
    for found in annotations(given):
        sliced = SLICE_TOPOLOGY in found or SLICE_SIZE in found
        if sliced and (SLICE_TOPOLOGY in found) != (SLICE_SIZE in found) and SLICE_CONSTRAINTS not in found:
            return True
        if sliced and PODSET_GROUP in found:
            return True
    return False


def _workload_of_before(given: Mapping[str, Any]) -> bool:
    """A template that names the workload it was started for earlier."""
    template = (given.get("podSet") or {}).get("template") or {}
    return names.WORKLOAD in ((template.get("metadata") or {}).get("annotations") or {})


def _group_annotation_without_its_gate(given: Mapping[str, Any]) -> bool:
    gates = given.get("featureGatesNonDefault") or {}
    off = gates.get("WorkloadIdentifierAnnotations") is False
    return off and any(GROUP_NAME in found for found in annotations(given))


def _is_true(workload: Mapping[str, Any], type_: str) -> bool:
    listed = (workload.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in listed)


def _assignments(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ())


def _sliced_while_suspended(given: Mapping[str, Any]) -> bool:
    """An elastic job that is suspended, and whose workload has quota of another size, or is to be replaced."""
    job = given.get("job") or {}
    elastic = names.ELASTIC_JOB in ((job.get("metadata") or {}).get("annotations") or {})
    return elastic and bool((job.get("spec") or {}).get("suspend")) and any(map(_assignments, workloads(given)))


def _ungated_in_a_queue_that_rests(given: Mapping[str, Any]) -> bool:
    """A workload whose gates were taken off, in a ClusterQueue that is not said to be active."""
    workload, queue = given.get("workload") or {}, given.get("cq") or {}
    gated = any(
        one["type"] == "QuotaReserved" and one["reason"] == "AdmissionGated"
        for one in (workload.get("status") or {}).get("conditions") or ()
    )
    marked = names.ADMISSION_GATED_BY in ((workload.get("metadata") or {}).get("annotations") or {})
    return gated and not marked and not _is_true(queue, "Active")


def _pod_has_ended(given: Mapping[str, Any]) -> bool:
    pod = given.get("pod") or {}
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") and bool(pod["spec"].get("nodeName"))


def _pods_without_the_mark(given: Mapping[str, Any]) -> bool:
    """Pods of a StatefulSet that were not created through it while it was queued, and run."""
    pods = given.get("pods") or ()
    marked = (SUSPENDING_PARENT in ((pod["metadata"].get("annotations")) or {}) for pod in pods)
    return "statefulSet" in given and bool(pods) and not any(marked) and not any(map(_gated, pods))


def _option(given: Mapping[str, Any], name: str) -> Any:
    return (given.get("options") or {}).get(name)


def _ready_while_suspended(given: Mapping[str, Any]) -> bool:
    job = given.get("job") or {}
    suspended = bool((job.get("spec") or {}).get("suspend"))
    return suspended and bool((job.get("status") or {}).get("ready")) and bool(_option(given, "waitForPodsReady"))


def _evicted_with_pods(given: Mapping[str, Any]) -> bool:
    """A batch Job that was evicted and whose pods are still there."""
    status = (given.get("job") or {}).get("status") or {}
    return bool(status.get("active")) and any(_is_true(one, "Evicted") for one in workloads(given))


def _template_of_another_job(given: Mapping[str, Any]) -> bool:
    """A suspended job with a node selector that its admitted workload does not have: no start has put it there."""
    job = given.get("job") or {}
    spec = job.get("spec") or {}
    selector = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")
    if not spec.get("suspend") or not selector:
        return False
    return any(
        _is_true(workload, "Admitted") and not any(_selector_of(one) for one in workload["spec"].get("podSets") or ())
        for workload in workloads(given)
    )


def _selector_of(pod_set: Mapping[str, Any]) -> Any:
    return (pod_set["template"].get("spec") or {}).get("nodeSelector")


def _retained_after_deactivation(given: Mapping[str, Any]) -> bool:
    return bool(_option(given, "afterDeactivatedByKueue"))


def _dispatched(given: Mapping[str, Any]) -> bool:
    """A job whose queue sends it to other clusters."""
    check = (given.get("admissionCheck") or {}).get("spec") or {}
    job = given.get("job") or {}
    queue = ((job.get("metadata") or {}).get("labels") or {}).get(names.QUEUE_NAME, "")
    named = check.get("controllerName") == "kueue.x-k8s.io/multikueue" or queue == "multikueue"
    return named or bool(given.get("withMultiKueueAdmissionCheck"))


def _ray_is_not_installed(given: Mapping[str, Any]) -> bool:
    return bool(given.get("rayClusterName")) and not given.get("registerRayType")


def _sizes_of_pod_sets(given: Mapping[str, Any]) -> bool:
    """An annotation, on its own, with the size of each pod set."""
    return isinstance(given.get("annotation"), str)


def _status(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return (given.get(key) or {}).get("status") or {}


def _checks_before_quota(given: Mapping[str, Any]) -> bool:
    return "wl" in given and not _status(given, "wl").get("admission")


def _inactive_without_quota(given: Mapping[str, Any]) -> bool:
    workload = given.get("workload") or {}
    inactive = (workload.get("spec") or {}).get("active") is False
    return inactive and not _is_true(workload, "QuotaReserved")


def _lost_nodes(given: Mapping[str, Any]) -> bool:
    return bool(_status(given, "workload").get("unhealthyNodes"))


def _owner_is_missing(given: Mapping[str, Any]) -> bool:
    metadata = (given.get("obj") or given.get("job") or {}).get("metadata") or {}
    listed = (*(given.get("apiObjects") or ()), *(given.get("ancestors") or ()))
    there = {(one.get("object", one)["metadata"] or {}).get("uid") for one in listed}
    return any(one["uid"] not in there for one in metadata.get("ownerReferences") or ())


def _elastic_in_other_letters(given: Mapping[str, Any]) -> bool:
    values = (found.get(names.ELASTIC_JOB, "") for found in annotations(given))
    return any(value != "true" and value.lower() == "true" for value in values)


def _is_ready(node: Mapping[str, Any]) -> bool:
    listed = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in listed)


def _places_the_same(given: Mapping[str, Any]) -> bool:
    """A node that changes in nothing that pods are placed by, or that is not ready before and after."""
    old, new = given.get("oldNode"), given.get("newNode")
    if old is None or new is None:
        return False

    def seen(node: Mapping[str, Any]) -> Any:
        taints = [{**one, "timeAdded": None} for one in node["spec"].get("taints") or ()]
        allocatable = (node.get("status") or {}).get("allocatable")
        labels, cordoned = node["metadata"].get("labels"), node["spec"].get("unschedulable")
        return labels, taints, allocatable, cordoned, _is_ready(node)

    return seen(old) == seen(new) or not (_is_ready(old) or _is_ready(new))


def _failing_reads(given: Mapping[str, Any]) -> bool:
    return bool(given.get("interceptGet")) or "list" in (given.get("clientFuncs") or {})


def _placed_pod_comes(given: Mapping[str, Any]) -> bool:
    """The event of a pod with a place of its own on a node."""
    pods = [given[key] for key in ("pod", "oldPod", "newPod") if given.get(key)]
    return any(
        pod["spec"].get("nodeName") and any("-topology" in key for key in pod["metadata"].get("annotations") or {})
        for pod in pods
    )


def _ungating_unseen(given: Mapping[str, Any]) -> bool:
    return bool(given.get("expectUIDs"))


def _gated(pod: Mapping[str, Any]) -> bool:
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def _is_admission_gate(value: Any) -> bool:
    return bool(value == [{"name": ADMISSION_GATE}])


def _serving_pods_without_quota(given: Mapping[str, Any]) -> bool:
    """Gated pods whose set is gone or replaces its revision; and none of their Workloads is admitted."""
    if not {"leaderWorkerSet", "statefulSet", "statefulSets"} & given.keys():
        return False
    pods = [*(given.get("pods") or ()), *([given["pod"]] if given.get("pod") else ())]
    if not any(map(_gated, pods)) or any(_is_true(one, "Admitted") for one in workloads(given)):
        return False
    if given.get("force"):
        return True
    sets = [*(given.get("statefulSets") or ()), *([given["statefulSet"]] if given.get("statefulSet") else ())]
    revisions = [one.get("status") or {} for one in sets]
    is_gone = not sets or ("statefulSets" in given and not given.get("leaderWorkerSet"))
    return is_gone or any(one.get("currentRevision") != one.get("updateRevision") for one in revisions)


def _needs_more(given: Mapping[str, Any]) -> bool:
    """A kind is named without another that it needs, which is known."""
    needs = given.get("integrationsDependencies") or {}
    needed = {name for enabled in given.get("enabled") or () for name in needs.get(enabled) or ()}
    return bool(needed.difference(given.get("enabled") or ()))


def _weighs_as_before(given: Mapping[str, Any]) -> bool:
    """A Cohort, old and new, with a weight of 1 on one side and none on the other."""
    old, new = given.get("old"), given.get("new")
    if old is None or new is None:
        return False
    weights = [((one.get("spec") or {}).get("fairSharing") or {}).get("weight") for one in (old, new)]
    return None in weights and "1" in weights


def _admitted_before(given: Mapping[str, Any]) -> bool:
    """A Workload, old and new, that is admitted in both."""
    both = [given.get("oldWl"), given.get("newWl")]
    return all(one is not None and _is_true(one, "Admitted") for one in both)


def _usage_of_before_a_restart(given: Mapping[str, Any]) -> bool:
    kept = (_status(given, "localQueue").get("fairSharing") or {}).get("admissionFairSharingStatus")
    return bool(kept) and not (given.get("initialConsumedResources") or {}).get("statusAccounted")


RULES: tuple[Rule, ...] = (
    Rule(
        "a Cohort without a weight weighs 1: one that says so has not changed",
        _weighs_as_before,
        at("", True, False),
    ),
    Rule(
        "the penalty of a workload that is admitted is settled whenever it is seen: none can be pending for good",
        _admitted_before,
        one_of(at("wantFolded", False, True), at("wantPending", True, False)),
    ),
    Rule(
        "past usage that was written before a restart decays from when it was written on, and what ran since counts; "
        "Kueue's time stands still while its controller is down",
        _usage_of_before_a_restart,
        at(r"(status\.fairSharing|consumed)\..*"),
    ),
    Rule("a kind that another needs is on with it; Kueue refuses to start", _needs_more, at("error", True, False)),
    *JOB_RULES,
    *POD_RULES,
    *WEBHOOK_RULES,
    Rule(
        "a pod loses its gate when its group's quota is there, also while a set replaces its revision or is gone; "
        "Kueue lets such pods run uncharged",
        _serving_pods_without_quota,
        one_of(at(r"pods\[\d+\]\.spec\.schedulingGates", ABSENT, _is_admission_gate), at(_MARKS_OF_PODS, ABSENT)),
    ),
    Rule(
        "annotations of a node, its conditions besides Ready and the age of its taints place no pod, and nothing of a "
        "node that is not ready does: no workload is tried again for them",
        _places_the_same,
        at("", True, False),
    ),
    Rule(
        "nodes and Workloads are known by watches: there is no read of one that could fail",
        _failing_reads,
        one_of(at(r"\.length", found=0), at("error", True, False)),
    ),
    Rule(
        "a pod that has a place takes no room besides it: its events change nothing",
        _placed_pod_comes,
        at("", True, False),
    ),
    Rule(
        "a pod has its place from the moment that it is given one: the others need not wait until a watch shows it",
        _ungating_unseen,
        one_of(at(r"[^.]+\.length", 1, 0), at("counts")),
    ),
    Rule(
        "an owner that is not there owns nothing: the job stands for itself; Kueue fails and looks again",
        _owner_is_missing,
        at("error", True, False),
    ),
    Rule('an elastic job may say so in any spelling of "true"', _elastic_in_other_letters, at("", False, True)),
    Rule(
        "admission checks stand in a Workload from its reservation on, those of its flavors; Kueue writes them before",
        _checks_before_quota,
        at(r"\.length|\[\d+\]\.name"),
    ),
    Rule(
        "a Workload that holds no quota is not evicted when it is deactivated: it waits no more, and there is nothing "
        "to take from it",
        _inactive_without_quota,
        one_of(
            at("conditions", found=ABSENT),
            at(r"conditions\.(Evicted|Requeued).*"),
            at(r"checks\[\d+\]\.state", "Pending"),
        ),
    ),
    Rule(
        "an eviction forgets the lost nodes of the places that it takes away",
        _lost_nodes,
        at("unhealthyNodes", found=ABSENT),
    ),
    Rule(
        "managedBy stays as it was written: there is no MultiKueue to hand a job to",
        _dispatched,
        at(r"(spec\.|spec\.runPolicy\.)?managedBy", MULTIKUEUE),
    ),
    Rule(
        "objects of a kind that is not installed are read as absent: its CRD may come and go; Kueue's read fails",
        _ray_is_not_installed,
        at("error", True, False),
    ),
    Rule(
        "the size of a RayCluster is read from the cluster: no annotation repeats it",
        _sizes_of_pod_sets,
        one_of(at("error", True, False), at(r"\w[\w-]*", found=ABSENT)),
    ),
    Rule(
        "an elastic job that is suspended runs by no slice: it has one workload, of its present size",
        _sliced_while_suspended,
        at(r"workloads(\.length|\[\d+\]\.(metadata\.annotations|spec)(\..*)?)"),
    ),
    Rule(
        "a workload whose gates were taken off says at once why it waits; Kueue says that it is to be looked at first",
        _ungated_in_a_queue_that_rests,
        at(r"conditions\.QuotaReserved\.reason", "PendingEvaluation", "Suspended"),
    ),
    Rule("a pod that has ended takes no room: that it goes changes nothing", _pod_has_ended, at("", True, False)),
    Rule(
        "a pod that does not bear its set's mark is none of the set's for us: nothing is written into it",
        _pods_without_the_mark,
        at(rf"pods\[\d+\]\.metadata\.labels\.{re.escape(names.QUEUE_NAME)}", found=ABSENT),
    ),
    Rule(
        "a suspended Job has no ready pods, whatever its status still counts: the condition follows its start",
        _ready_while_suspended,
        one_of(at(r"job\.spec\.suspend", True, ABSENT), at(rf"{_ONE}\.status\.conditions\.PodsReady\.reason")),
    ),
    Rule(
        "templates are restored once the pods are gone: the API server refuses it before, and with it all of the patch",
        _evicted_with_pods,
        at(r"job\.spec\.template\..*", ABSENT),
    ),
    Rule(
        "a suspended job whose template differs from its workload's was changed, and is queued anew; Kueue starts it "
        "where that can go well, and finishes its workload where it cannot",
        _template_of_another_job,
        at(rf"{_ONE}\.spec\.podSets\[\d+\]\.template\.spec\.nodeSelector.*", ABSENT),
    ),
    Rule(
        "after its retention a deactivated Workload is deleted, and its job stays; Kueue deletes the job",
        _retained_after_deactivation,
        at(r"job\.metadata", ABSENT),
    ),
    Rule(
        "all four labels that the API server generates for a Job are left out of its workload: another Job could not "
        "have them; Kueue keeps the one with the Job's name",
        _labels_of_a_job,
        at(re.escape(JOB_NAME), found=ABSENT),
    ),
    Rule(
        "topology annotations that cannot be meant are refused with a sentence when the workload is composed, not only "
        "by a webhook; Kueue composes the workload without them",
        _slices_of_no_size,
        one_of(at("error", False, True), at("pod sets")),
    ),
    Rule(
        "an annotation that names an earlier workload is overwritten by the next start; Kueue never starts such a job",
        _workload_of_before,
        at("error", True, None),
    ),
    Rule(
        "an annotation names a pod's group also with WorkloadIdentifierAnnotations off: nothing else has that key",
        _group_annotation_without_its_gate,
        at(""),
    ),
)
